"""ScienceWorld: experiments of a fifth-grader's science class, told and done in words.

Ids: `scienceworld/boil` and the package's 29 other tasks. Source: Wang et al. 2022.

Faithful: the package's own simulator, words, score and end; the variations of its training,
development and test sets; no simplification, the default of its wrapper. A reward is the change
of the score in points, which is 100 when the task is solved and -100 when the wrong thing was
chosen, and either ends the episode; a few points may be there at the start. Progress is the score
as a share of 1, not below 0, and 1 on success only.

Ours: the task stands before the first observation. There is no limit of steps; the wrapper's
(`envStepLimit`, 100 unless its user says otherwise) is less than several of the package's own
solutions take. Where the simulator asks which of several things was meant, the answer is a number;
any other command withdraws the question and is done, where the simulator would take it for a wrong
answer and let time pass. Actions on what lies in closed containers are not named. Identity hashes
are constant (see `java_process.py`) and what is asked beside the game leaves the dice alone (see
`scienceworld_simulator.py`): the package's episodes and solutions differ from load to load where
chance plays a part.

The oracle is the package's solution, after a detour with the way back before it. It is played to
its end before it is named; where that does not solve the task, no way is known.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from scienceworld import __version__ as VERSION
from scienceworld.constants import ID2TASK

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import ListedTasks, Split, Task, TaskSet
from palaestra.environments.snapshots import opened, sealed
from palaestra.environments.text.commands import plain, spoken, ways
from palaestra.environments.text.scienceworld_simulator import Reply, Simulator
from palaestra.environments.way import Way

COUNTS = (  # of variations, as published; asking the package would start Java
    *(30, 30, 30, 30, 540, 436, 300, 20, 20, 900, 600, 300, 300, 300, 300, 126, 126, 32, 36, 36),
    *(125, 125, 125, 14, 10, 168, 1386, 162, 120, 480),
)
VARIATIONS = dict(zip(ID2TASK.values(), COUNTS, strict=True))
TURNS = {  # where the package's solutions come near to 100 actions or beyond
    "boil": 200,
    "melt": 150,
    "freeze": 150,
    "change-the-state-of-matter-of": 150,
    "measure-melting-point-unknown-substance": 150,
    "grow-fruit": 150,
    "inclined-plane-friction-unnamed-surfaces": 250,
    "mendelian-genetics-known-plant": 250,
    "mendelian-genetics-unknown-plant": 250,
}
INSTRUCTIONS = (
    "You do a science task in a house. Reply with one command and nothing else; say things as they "
    "are named. When asked which one you mean, reply with its number. Commands: look around, "
    "inventory, task, go to PLACE, open X, close X, pick up X, put down X, move X to Y, pour X in "
    "Y, dunk X in Y, mix X, use X on Y, activate X, deactivate X, connect X to Y, disconnect X, "
    "look at X, look in X, read X, eat X, flush X, focus on X, wait, wait1."
)
VIEWS = ("look around", "inventory", "task", "help")  # they show something and take no time
ENTERED = re.compile(r"You move to the (.+)\.")
PLACE = re.compile(r"This (?:room|outside location) is called the ([^.]+)\.")


class ScienceWorld(Environment):
    """Science tasks in the package's simulator."""

    capabilities = frozenset(
        {
            Capability.STATE_KEY,
            Capability.SNAPSHOT,
            Capability.PROGRESS,
            Capability.ORACLE,
            Capability.ADMISSIBLE,
        }
    )
    programs = ("java",)

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._simulator: Simulator | None = None
        self._task: Task | None = None
        self._gold: dict[int, list[str]] = {}  # the package's solution of the latest variation
        self._way = Way()
        self._last = Reply("", 0)

    @classmethod
    def names(cls) -> list[str]:
        return list(VARIATIONS)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        """The variations: the first half to train, a quarter to validate, the rest to test."""
        count = VARIATIONS[environment.rpartition("/")[2]]
        half, quarter = 2 * (count // 4), count // 4
        parts = (range(half), range(half, half + quarter), range(half + quarter, count))
        rows = {
            split: [{"variation": number} for number in part]
            for split, part in zip(Split, parts, strict=True)
        }
        return ListedTasks(environment, rows=rows)

    @property
    def instructions(self) -> str:
        return INSTRUCTIONS

    @property
    def typical_turns(self) -> int:
        """The wrapper's limit, or enough for the package's own solutions."""
        return TURNS.get(self.name, 100)

    def reset(self, task: Task) -> Observation:
        """Load the variation of the task; the first time, Java is started.

        Raises:
            InputError: the task does not name one of this world's variations.
            EnvironmentFault: Java did not start.
        """
        _variation(task, self.name)
        if self._simulator is None or not self._simulator.alive:
            self.close()
            self._simulator = Simulator()
        self._task = task
        self._way.forget()
        seen = self._start()
        return Observation(plain(f"{self._simulator.description()}\n{seen.text}"))

    def step(self, action: Action) -> Transition:
        self._running()
        before = self._last
        if before.over:
            return self._answer("The task is over.", valid=False)
        command = spoken(action.text)
        if not command:
            return self._answer("Say one command, such as: look around.", valid=False)
        if before.asks and command.isdecimal() and int(command) >= self._choices():
            return self._answer(f"There is no number {command}. {before.text}", valid=False)
        reply = self._do(command)
        if not reply.understood:
            return self._answer(reply.text, valid=False)
        self._way.taken(command, idle=command in VIEWS)
        return self._answer(reply.text, reward=float(reply.score - before.score))

    def close(self) -> None:
        if self._simulator is not None:
            self._simulator.close()
        self._simulator = None

    def state_key(self) -> str:
        """What was done: time passes with every action, so no other way leads to the same state.

        Looking around and the like is not counted where it changed nothing.
        """
        state = (self.name, self._running_task().parameters["variation"], *self._deeds)
        return hashlib.blake2b(repr(state).encode(), digest_size=12).hexdigest()

    def snapshot(self) -> bytes:
        """The task and the commands so far, which lead to the same state again."""
        task = self._running_task()
        saved = {"variation": task.parameters["variation"], "id": task.id, "seed": task.seed}
        body = json.dumps({**saved, "split": task.split, "commands": self._commands})
        return sealed(f"scienceworld/{self.name}", VERSION, body.encode())

    def restore(self, snapshot: bytes) -> None:
        """Give the commands of `snapshot` again; raises InputError if it is another task's."""
        saved: dict[str, Any] = json.loads(opened(snapshot, f"scienceworld/{self.name}", VERSION))
        self.reset(
            Task(
                id=saved["id"],
                environment=f"scienceworld/{self.name}",
                seed=saved["seed"],
                split=Split(saved["split"]),
                parameters={"variation": saved["variation"]},
            )
        )
        self._replay(saved["commands"])

    def progress(self) -> float:
        self._running_task()
        return 1.0 if self._last.solved else max(0, min(self._last.score, 99)) / 100

    def oracle(self) -> list[Action]:
        """The package's solution from here, if it is one; takes seconds when first asked for."""
        self._running_task()
        return [] if self._last.over else self._way.rest(self._planned)

    def admissible(self) -> list[str]:
        """Hundreds of the package's valid actions; the numbers where a question is open."""
        self._running_task()
        if self._last.over:
            return []
        if self._last.asks:
            return [str(number) for number in range(self._choices())]
        return self._running().valid()

    # ── details ──────────────────────────────────────────────────────────────

    def _start(self) -> Reply:
        """Begin the task anew."""
        task = self._running_task()
        self._last = self._running().start(self.name, task.parameters["variation"])
        place = PLACE.match(self._last.text)
        self._places = [place.group(1)] if place else []  # where the way so far has led
        self._commands: list[str] = []  # that were understood
        self._deeds: list[str] = []  # those of them that may have changed something
        self._question = ""  # the command that is in question
        return self._last

    def _do(self, command: str) -> Reply:
        """Give a command to the simulator; what it does not understand changes nothing."""
        simulator, before = self._running(), self._last
        another = before.asks and not command.isdecimal()
        if another:
            simulator.withdraw()
        reply = simulator.do(command)
        if not reply.understood:
            if another:
                simulator.do(self._question)  # which is then open again
            return reply
        self._last = reply
        self._commands.append(command)
        if command not in VIEWS or reply.score != before.score or another:
            self._deeds.append(command)
        if reply.asks:
            self._question = command
        if entered := ENTERED.fullmatch(reply.text):
            self._places.append(entered.group(1))
        return reply

    def _replay(self, commands: list[str]) -> None:
        for command in commands:
            self._do(command)

    def _choices(self) -> int:
        return len(re.findall(r"^\d+:\t", self._last.text, re.MULTILINE))

    def _planned(self) -> list[str]:
        """The first of the likely ways that solves the task, tried from here in the simulator."""
        variation = self._running_task().parameters["variation"]
        past, deeds = self._commands, self._deeds
        back = [f"go to {place}" for place in self._places[-2::-1]]
        if variation not in self._gold:
            gold = self._running().gold(self.name, variation)
            self._gold = {variation: list(map(spoken, gold))}  # some name a "substance B"
        found: list[str] = []
        for way in ways(self._gold[variation], deeds, back):
            self._start()
            self._replay(past)
            tried = self._tried(way)
            if self._last.solved:
                found = tried
                break
        self._start()
        self._replay(past)
        return found

    def _tried(self, way: list[str]) -> list[str]:
        """Follow a way to the end of the task; returns what of it was understood."""
        done = []
        for command in way:
            if self._last.over:
                break
            if self._do(command).understood:
                done.append(command)
        return done

    def _answer(self, text: str, reward: float = 0.0, valid: bool = True) -> Transition:
        last = self._last
        return Transition(
            Observation(plain(text)),
            reward=reward,
            terminated=last.over,
            success=last.solved,
            valid=valid,
        )

    def _running(self) -> Simulator:
        if self._simulator is None:
            raise InputError("This ScienceWorld has no task yet; call reset with one first.")
        return self._simulator

    def _running_task(self) -> Task:
        self._running()
        assert self._task is not None
        return self._task


def _variation(task: Task, name: str) -> int:
    """The variation that a task names.

    Raises:
        InputError: it names none, or none of these.
    """
    number = task.parameters.get("variation")
    valid = isinstance(number, int) and 0 <= number < VARIATIONS[name]
    if not valid or len(task.parameters) > 1:
        raise InputError(
            f"A task of scienceworld/{name} needs the parameter 'variation' from 0 to "
            f"{VARIATIONS[name] - 1} and no other, but '{task.id}' has {dict(task.parameters)}."
        )
    assert isinstance(number, int)
    return number
