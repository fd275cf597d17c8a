"""TextWorld-Express: eight text games, generated anew for every seed, in the package's simulator.

Ids: `textworld-express/coin`, `cookingworld`, `twc` (put things where they belong), `mapreader`,
`arithmetic`, `sorting`, `simonsays`, `peckingorder`. Source: Jansen and Côté 2022.

Faithful: the package's games with its default parameters, its words, valid actions, score and
ends. Its seeds are its tasks: 0 to 999 of the fold "train" to train, 10000 to 10999 of "dev" to
validate, 20000 to 20999 of "test" to test; a fold also decides what things there are. A reward is
the change of the score, 1 in all for a solved task; some mistakes end the game, in some games with
a score of -1. Progress is the score, not below 0, and 1 on success only.

Ours: the task stands before the first observation, and "help" shows it, as in the package's
wrapper. Only what the package lists as a valid action is understood, whatever its case. There is
no limit of steps (the wrapper's `envStepLimit` is 100 unless its user says otherwise). Identity
hashes are constant: see `java_process.py`.

The oracle is the package's solution, after a detour with the way back before it, played to its end
before it is named. It is found by agents some of which wander by dice of their own: asked another
time, they may name another way.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from textworld_express import __version__ as VERSION
from textworld_express.constants import GAME_NAMES, JAR_PATH

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import ListedTasks, Split, Task, TaskSet
from palaestra.environments.snapshots import opened, sealed
from palaestra.environments.text.commands import plain, spoken, ways
from palaestra.environments.text.java_process import JavaProcess
from palaestra.environments.way import Way

MEGABYTES = 64  # for the objects of a game; ample
DEFAULTS = ""  # parameters of the games
FOLDS = {  # the package's seeds
    "train": range(1000),
    "dev": range(10_000, 11_000),
    "test": range(20_000, 21_000),
}
COMMANDS = {
    "cookingworld": "look around, inventory, move north, open door to north, open X, close X, "
    "take X, put X in Y, examine X, read cookbook, chop X, slice X, dice X, cook X in Y, "
    "prepare meal, eat meal",
    "twc": "look around, inventory, move north, open X, close X, take X, put X in Y",
    "coin": "look around, inventory, move north, open door to north, open X, close X, take coin",
    "mapreader": "look around, inventory, task, read map, move north, take coin, put coin in box",
    "arithmetic": "look around, inventory, take X, read math problem, put X in box",
    "sorting": "look around, inventory, take X, put X in box",
    "simonsays": "what Simon says, word for word, such as: smell apple, take peach",
    "peckingorder": "look around, inventory, read instructions book, take X",
}
TURNS = {
    "cookingworld": 100,
    "twc": 60,
    "coin": 60,
    "mapreader": 40,
    "arithmetic": 15,
    "sorting": 20,
    "simonsays": 8,
    "peckingorder": 20,
}
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
VIEWS = ("look around", "inventory", "task")  # they only show something
HELP = "help"
ROOM = re.compile(r"You are in the ([^.]+)\.")


@dataclass(frozen=True, slots=True)
class State:
    """Where a game stands, as the package tells it after every step."""

    text: str
    look: str
    inventory: str
    valid: tuple[str, ...]
    score: float
    solved: bool
    failed: bool

    @classmethod
    def told(cls, answer: str) -> State:
        said: dict[str, Any] = json.loads(answer, strict=False)
        return cls(
            text=said["observation"],
            look=said["look"],
            inventory=said["inventory"],
            valid=tuple(sorted(set(said["validActions"]))),
            score=float(said["score"]),
            solved=bool(said["tasksuccess"]),
            failed=bool(said["taskfailure"]),
        )

    @property
    def over(self) -> bool:
        """The wrapper's conditions, but for its limit of steps."""
        return self.solved or self.failed or self.score >= 1

    @property
    def room(self) -> str:
        found = ROOM.match(self.look)
        return found.group(1) if found else ""


NOWHERE = State("", "", "", (), 0.0, solved=False, failed=False)


class TextWorldExpress(Environment):
    """The package's games, each world in a Java virtual machine of its own.

    Two games in one machine would not do: those of "sorting" share their things.
    """

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
        self._java: JavaProcess | None = None
        self._server: Any = None
        self._task: Task | None = None
        self._state = NOWHERE
        self._way = Way()

    @classmethod
    def names(cls) -> list[str]:
        return list(GAME_NAMES)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        rows = {
            split: [{"fold": fold, "seed": seed} for seed in seeds]
            for split, (fold, seeds) in zip(Split, FOLDS.items(), strict=True)
        }
        return ListedTasks(environment, rows=rows)

    @property
    def instructions(self) -> str:
        return (
            "You play a text game. Reply with one command and nothing else. "
            f"Commands: {COMMANDS[self.name]}."
        )

    @property
    def typical_turns(self) -> int:
        return TURNS[self.name]

    def reset(self, task: Task) -> Observation:
        """Generate the game of the task's fold and seed; the first time, Java is started.

        Raises:
            InputError: the task does not name a fold and a seed.
            EnvironmentFault: Java did not start.
        """
        _check(task, self.name)
        if self._java is None or not self._java.alive:
            self.close()
            self._java = JavaProcess(JAR_PATH, MEGABYTES)
            self._server = self._java.jvm.textworldexpress.runtime.PythonInterface()
            self._server.load(self.name, DEFAULTS)
        self._task = task
        self._way.forget()
        self._start()
        return Observation(plain(f"{self._server.getTaskDescription()}\n{self._state.text}"))

    def step(self, action: Action) -> Transition:
        self._running()
        before = self._state
        if before.over:
            return self._answer("The game is over.", valid=False)
        command = spoken(action.text)
        if command == HELP:
            return self._answer(self._server.getTaskDescription())
        reply, understood = self._do(command)
        if not understood:
            return self._answer(reply.text, valid=False)
        self._way.taken(command, idle=command in VIEWS)
        return self._answer(reply.text, reward=reply.score - before.score)

    def close(self) -> None:
        if self._java is not None:
            self._java.close()
        self._java, self._server = None, None

    def state_key(self) -> str:
        """Where the player is, what there is to see, and what was done but for walking around.

        The score may remember what was done, and nothing else does: no time passes, and the
        rooms of a game have different names.
        """
        task = self._running()
        game = (self.name, task.parameters["fold"], task.parameters["seed"])
        state = (*game, self._state.look, self._state.inventory, *self._deeds)
        return hashlib.blake2b(repr(state).encode(), digest_size=12).hexdigest()

    def snapshot(self) -> bytes:
        """The task and the commands so far, which lead to the same state again."""
        task = self._running()
        saved = {"id": task.id, "seed": task.seed, "split": task.split}
        body = {**saved, "parameters": dict(task.parameters), "commands": self._commands}
        return sealed(f"textworld-express/{self.name}", VERSION, json.dumps(body).encode())

    def restore(self, snapshot: bytes) -> None:
        """Give the commands of `snapshot` again; raises InputError if it is another game's."""
        id = f"textworld-express/{self.name}"
        saved: dict[str, Any] = json.loads(opened(snapshot, id, VERSION))
        split, parameters = Split(saved["split"]), saved["parameters"]
        self.reset(Task(saved["id"], id, saved["seed"], split, parameters=parameters))
        self._replay(saved["commands"])

    def progress(self) -> float:
        self._running()
        return 1.0 if self._state.solved else max(0.0, min(self._state.score, 0.99))

    def oracle(self) -> list[Action]:
        self._running()
        return [] if self._state.over else self._way.rest(self._planned)

    def admissible(self) -> list[str]:
        self._running()
        return list(self._state.valid) if not self._state.over else []

    # ── details ──────────────────────────────────────────────────────────────

    def _start(self, gold: bool = False) -> None:
        """Begin the task anew."""
        parameters = self._running().parameters
        answer = self._server.generateNewGameJSON(parameters["seed"], parameters["fold"], gold)
        self._state = State.told(answer)
        self._commands: list[str] = []  # that were understood
        self._deeds: list[str] = []  # those of them that neither only show something nor only move
        self._back: list[str] = []  # commands that lead back to where the game began

    def _do(self, command: str) -> tuple[State, bool]:
        """Give a command; returns what is told, and whether it was understood."""
        before = self._state
        exact = next((valid for valid in before.valid if valid.lower() == command), None)
        told = State.told(self._server.stepJSON(exact or command))
        if exact is None:
            return told, False
        self._state = told
        self._commands.append(command)
        direction = command.removeprefix("move ")
        if direction in OPPOSITE and command != direction:
            if told.room != before.room:
                self._walked(direction)
        elif command not in VIEWS:
            self._deeds.append(command)
        return told, True

    def _walked(self, direction: str) -> None:
        if self._back and self._back[0] == f"move {direction}":
            del self._back[0]
        else:
            self._back.insert(0, f"move {OPPOSITE[direction]}")

    def _replay(self, commands: list[str]) -> None:
        for command in commands:
            self._do(command)

    def _planned(self) -> list[str]:
        """The first of the likely ways that solves the task, tried from here in the package."""
        assert self._java is not None
        past, back = self._commands, self._back
        self._start(gold=True)
        gold = self._java.lines(self._server.getGoldActionSequence())
        if not gold:
            self._server.load(self.name, DEFAULTS)  # or it would repeat that error for ever
        found: list[str] = []
        for way in ways(gold, [c for c in past if c not in VIEWS], back):
            self._start()
            self._replay(past)
            tried = self._tried(way)
            if self._state.solved:
                found = tried
                break
        self._start()
        self._replay(past)
        return found

    def _tried(self, way: list[str]) -> list[str]:
        """Follow a way to the end of the game; returns what of it was understood."""
        done = []
        for command in way:
            if self._state.over:
                break
            _, understood = self._do(command.lower())
            if understood:
                done.append(command.lower())
        return done

    def _answer(self, text: str, reward: float = 0.0, valid: bool = True) -> Transition:
        return Transition(
            Observation(plain(text)),
            reward=reward,
            terminated=self._state.over,
            success=self._state.solved,
            valid=valid,
        )

    def _running(self) -> Task:
        if self._task is None or self._java is None:
            raise InputError(
                "This TextWorld-Express has no game yet; call reset with a task first."
            )
        return self._task


def _check(task: Task, name: str) -> None:
    """Raise InputError unless the task names a fold and a seed."""
    fold, seed = task.parameters.get("fold"), task.parameters.get("seed")
    if fold not in FOLDS or not isinstance(seed, int) or len(task.parameters) > 2:
        raise InputError(
            f"A task of textworld-express/{name} needs the parameters 'fold' ({', '.join(FOLDS)}) "
            f"and 'seed' (a number) and no other, but '{task.id}' has {dict(task.parameters)}."
        )
