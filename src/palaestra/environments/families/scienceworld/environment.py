"""ScienceWorld: experiments of a fifth-grade science class as a text game.

Ids: `scienceworld/boil` and the package's 29 other tasks. Source: Wang et al. 2022.

Faithful: the package's own simulator, words, score and end; the variations of its training,
development and test sets; no simplification, the default of its wrapper. A reward is the change
of the score in points, which is 100 when the task is solved and -100 when the wrong thing was
chosen, and either ends the episode; a few points may be there at the start. Progress is the score
as a share of 1, not below 0, and 1 on success only.

Ours: the task precedes the first observation. There is no step limit; the wrapper's default
(`envStepLimit`, 100) is shorter than several of the package's own solutions. If the simulator asks
which of several things was meant, the answer is a number; any other command withdraws the question
and is executed, whereas the simulator would count it as a wrong answer and let time pass. Actions
on the contents of closed containers are not listed. Identity hashes are constant
(`shared/java_process.py`), and queries outside the game do not advance the random number generator
(see `simulator.py`); in the package itself, episodes and solutions with randomness differ from load
to load.

The oracle is the package's solution, preceded by the path back after a detour. Each plan is
executed to its end before it is returned; if it does not solve the task, there is no plan.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

from scienceworld import __version__ as VERSION
from scienceworld.constants import ID2TASK

from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import ListedTasks, Split, Task, TaskSet
from palaestra.environments.base import Adapter, hashed, refused
from palaestra.environments.families.scienceworld.simulator import Reply, Simulator
from palaestra.environments.shared.oracle_plan import OraclePlan
from palaestra.environments.shared.text_commands import candidate_plans, parse_command, plain

COUNTS = (  # of variations, as published; the package would start Java to count them
    *(30, 30, 30, 30, 540, 436, 300, 20, 20, 900, 600, 300, 300, 300, 300, 126, 126, 32, 36, 36),
    *(125, 125, 125, 14, 10, 168, 1386, 162, 120, 480),
)
VARIATIONS = dict(zip(ID2TASK.values(), COUNTS, strict=True))
TURNS = {  # tasks whose solutions in the package take about 100 actions or more
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
VIEWS = ("look around", "inventory", "task", "help")  # they take no time in the simulator
ENTERED = re.compile(r"You move to the (.+)\.")
PLACE = re.compile(r"This (?:room|outside location) is called the ([^.]+)\.")


class ScienceWorld(
    Adapter,
    id="scienceworld",
    capabilities={"state_key", "snapshot", "progress", "oracle", "admissible"},
    needs=("java",),
):
    """A science task in the package's simulator."""

    OVER = "The task is over."

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._simulator: Simulator | None = None
        self._gold: dict[int, list[str]] = {}  # the package's solution of the latest variation
        self._plan = OraclePlan()
        self._last = Reply("", 0)
        self._commands: list[str] = []  # the valid commands so far

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        """Set `typical_turns` to the wrapper's limit, or more where solutions are longer."""
        return replace(super().spec_of(name), typical_turns=TURNS.get(name, 100))

    @classmethod
    def names(cls) -> list[str]:
        return list(VARIATIONS)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        """Split the variations: half for training, a quarter for validation, the rest for test."""
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

    def _begin(self, task: Task) -> Observation:
        """Load the variation of the task; the first call starts Java.

        Raises:
            InputError: the task does not name one of this environment's variations.
            EnvironmentFault: Java did not start.
        """
        _variation(task, self.spec.name)
        if self._simulator is None or not self._simulator.alive:
            self.close()
            self._simulator = Simulator()
        self._plan.clear()
        seen = self._start()
        return Observation(plain(f"{self._simulator.description()}\n{seen.text}"))

    def _act(self, action: Action) -> Transition:
        before = self._last
        command = parse_command(action.text)
        if not command:
            return refused("Say one command, such as: look around.")
        if before.asks and command.isdecimal() and int(command) >= self._choices():
            return refused(plain(f"There is no number {command}. {before.text}"))
        reply = self._execute(command)
        if not reply.understood:
            return refused(plain(reply.text))
        self._plan.record(command, idle=command in VIEWS)
        return Transition(
            Observation(plain(reply.text)),
            reward=float(reply.score - before.score),
            terminated=reply.over,
            success=reply.solved,
        )

    def close(self) -> None:
        if self._simulator is not None:
            self._simulator.close()
        self._simulator = None

    def state_key(self) -> str:
        """Hash the actions: time passes with each, so only equal actions lead to equal states.

        Looking around and similar commands are ignored if they changed nothing.
        """
        return hashed(self.spec.name, self._current().parameters["variation"], *self._effective)

    def snapshot(self) -> bytes:
        """Save the task and the commands so far, which reproduce the state."""
        return self._saved(json.dumps(self._commands).encode(), VERSION)

    def restore(self, snapshot: bytes) -> None:
        """Replay the commands of `snapshot`; raise InputError if it is another task's."""
        commands = json.loads(self._loaded(snapshot, VERSION))
        self.reset(self._current())
        self._replay(commands)
        self._over = self._last.over

    def progress(self) -> float:
        self._current()
        return 1.0 if self._last.solved else max(0, min(self._last.score, 99)) / 100

    def oracle(self) -> list[Action]:
        """Return the package's solution from here, if it works; the first call takes seconds."""
        self._current()
        return [] if self._last.over else self._plan.remaining(self._find_plan)

    def admissible(self) -> list[str]:
        """Return the package's valid actions, or the numbers that answer an open question."""
        self._current()
        if self._last.over:
            return []
        if self._last.asks:
            return [str(number) for number in range(self._choices())]
        return self._running().valid()

    # ── details ──────────────────────────────────────────────────────────────

    def _start(self) -> Reply:
        """Restart the task."""
        task = self._current()
        self._last = self._running().start(self.spec.name, task.parameters["variation"])
        place = PLACE.match(self._last.text)
        self._places = [place.group(1)] if place else []  # visited places in order
        self._commands = []
        self._effective: list[str] = []  # those that may have changed the state
        self._question = ""  # the command that led to the open question
        return self._last

    def _execute(self, command: str) -> Reply:
        """Execute a command in the simulator; an invalid one changes nothing."""
        simulator, before = self._running(), self._last
        another = before.asks and not command.isdecimal()
        if another:
            simulator.withdraw()
        reply = simulator.do(command)
        if not reply.understood:
            if another:
                simulator.do(self._question)  # reopen the question
            return reply
        self._last = reply
        self._commands.append(command)
        if command not in VIEWS or reply.score != before.score or another:
            self._effective.append(command)
        if reply.asks:
            self._question = command
        if entered := ENTERED.fullmatch(reply.text):
            self._places.append(entered.group(1))
        return reply

    def _replay(self, commands: list[str]) -> None:
        for command in commands:
            self._execute(command)

    def _choices(self) -> int:
        return len(re.findall(r"^\d+:\t", self._last.text, re.MULTILINE))

    def _find_plan(self) -> list[str]:
        """Return the first candidate plan that solves the task from here in the simulator."""
        variation = self._current().parameters["variation"]
        past, effective = self._commands, self._effective
        back = [f"go to {place}" for place in self._places[-2::-1]]
        if variation not in self._gold:
            gold = self._running().gold(self.spec.name, variation)
            self._gold = {variation: list(map(parse_command, gold))}  # some name a "substance B"
        found: list[str] = []
        for plan in candidate_plans(self._gold[variation], effective, back):
            self._start()
            self._replay(past)
            tried = self._follow(plan)
            if self._last.solved:
                found = tried
                break
        self._start()
        self._replay(past)
        return found

    def _follow(self, plan: list[str]) -> list[str]:
        """Follow a plan until the task ends; return its valid commands."""
        done = []
        for command in plan:
            if self._last.over:
                break
            if self._execute(command).understood:
                done.append(command)
        return done

    def _running(self) -> Simulator:
        if self._simulator is None:
            raise InputError(
                f"The environment '{self.spec.id}' has no task yet; call reset with a task first."
            )
        return self._simulator


def _variation(task: Task, name: str) -> int:
    """Return the variation that a task names.

    Raises:
        InputError: it names none, or an invalid one.
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
