"""TextWorld-Express: eight text games, generated per seed, in the package's simulator.

Ids: `textworld-express/coin`, `cookingworld`, `twc` (put things where they belong), `mapreader`,
`arithmetic`, `sorting`, `simonsays`, `peckingorder`. Source: Jansen and Côté 2022.

Faithful: the package's games with its default parameters, its texts, valid actions, score and
ends. Its seeds are the tasks: 0 to 999 of the fold "train" for training, 10000 to 10999 of "dev"
for validation, 20000 to 20999 of "test" for test; the fold also determines the set of things. A
reward is the change of the score, which sums to 1 for a solved task; some mistakes end the game, in
some games with a score of -1. Progress is the score, not below 0, and 1 on success only.

Ours: the task precedes the first observation, and "help" shows it, as in the package's wrapper.
Only actions that the package lists as valid are accepted, in any case. There is no step limit (the
wrapper's default `envStepLimit` is 100). Identity hashes are constant: see
`shared/java_process.py`.

The oracle is the package's solution, preceded by the path back after a detour, and executed to its
end before it is returned. The package searches it with agents, some of them random and unseeded:
another call may return another plan.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from textworld_express import __version__ as VERSION
from textworld_express.constants import GAME_NAMES, JAR_PATH

from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import ListedTasks, Split, Task, TaskSet
from palaestra.environments.base import Adapter, hashed, refused
from palaestra.environments.shared.java_process import JavaProcess
from palaestra.environments.shared.oracle_plan import OraclePlan
from palaestra.environments.shared.text_commands import candidate_plans, parse_command, plain

MEGABYTES = 64  # heap size, ample for one game
DEFAULTS = ""  # the games' default parameters
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
VIEWS = ("look around", "inventory", "task")  # commands that change nothing
HELP = "help"
ROOM = re.compile(r"You are in the ([^.]+)\.")


@dataclass(frozen=True, slots=True)
class State:
    """The state of a game, as the package reports it after every step."""

    text: str
    look: str
    inventory: str
    valid: tuple[str, ...]
    score: float
    solved: bool
    failed: bool

    @classmethod
    def parse(cls, answer: str) -> State:
        """Parse the package's JSON answer to a step."""
        fields: dict[str, Any] = json.loads(answer, strict=False)
        return cls(
            text=fields["observation"],
            look=fields["look"],
            inventory=fields["inventory"],
            valid=tuple(sorted(set(fields["validActions"]))),
            score=float(fields["score"]),
            solved=bool(fields["tasksuccess"]),
            failed=bool(fields["taskfailure"]),
        )

    @property
    def over(self) -> bool:
        """The wrapper's end conditions, except its step limit."""
        return self.solved or self.failed or self.score >= 1

    @property
    def room(self) -> str:
        found = ROOM.match(self.look)
        return found.group(1) if found else ""


EMPTY = State("", "", "", (), 0.0, solved=False, failed=False)


class TextWorldExpress(
    Adapter,
    id="textworld-express",
    capabilities={"state_key", "snapshot", "progress", "oracle", "admissible"},
    needs=("java",),
):
    """One of the package's games, in its own Java virtual machine.

    Games cannot share a virtual machine: those of "sorting" would share their things.
    """

    OVER = "The game is over."

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._java: JavaProcess | None = None
        self._server: Any = None
        self._state = EMPTY
        self._plan = OraclePlan()
        self._commands: list[str] = []  # the valid commands so far

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        return replace(super().spec_of(name), typical_turns=TURNS[name])

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
            f"Commands: {COMMANDS[self.spec.name]}."
        )

    def _begin(self, task: Task) -> Observation:
        """Generate the game of the task's fold and seed; the first call starts Java.

        Raises:
            InputError: the task does not name a fold and a seed.
            EnvironmentFault: Java did not start.
        """
        _check(task, self.spec.name)
        if self._java is None or not self._java.alive:
            self._stop_java()
            self._java = JavaProcess(JAR_PATH, MEGABYTES)
            self._server = self._java.jvm.textworldexpress.runtime.PythonInterface()
            self._server.load(self.spec.name, DEFAULTS)
        self._plan.clear()
        self._start()
        return Observation(plain(f"{self._server.getTaskDescription()}\n{self._state.text}"))

    def _act(self, action: Action) -> Transition:
        before = self._state
        command = parse_command(action.text)
        if command == HELP:
            return self._answer(self._server.getTaskDescription())
        reply, valid = self._execute(command)
        if not valid:
            return refused(plain(reply.text))
        self._plan.record(command, idle=command in VIEWS)
        return self._answer(reply.text, reward=reply.score - before.score)

    def close(self) -> None:
        """Stop Java; the next reset starts it again."""
        self._stop_java()
        self._task = None

    def state_key(self) -> str:
        """Hash the player's place, what is visible, and all actions except moves.

        The score may depend on past actions; nothing else does: no time passes, and the rooms of a
        game have distinct names.
        """
        parameters, state = self._current().parameters, self._state
        game = (self.spec.name, parameters["fold"], parameters["seed"])
        return hashed(*game, state.look, state.inventory, *self._effective)

    def snapshot(self) -> bytes:
        """Save the task and the commands so far, which reproduce the state."""
        return self._saved(json.dumps(self._commands).encode(), VERSION)

    def restore(self, snapshot: bytes) -> None:
        """Replay the commands of `snapshot`; raise InputError if it is another game's."""
        commands = json.loads(self._loaded(snapshot, VERSION))
        self.reset(self._current())
        self._replay(commands)
        self._over = self._state.over

    def progress(self) -> float:
        self._current()
        return 1.0 if self._state.solved else max(0.0, min(self._state.score, 0.99))

    def oracle(self) -> list[Action]:
        self._current()
        return [] if self._state.over else self._plan.remaining(self._find_plan)

    def admissible(self) -> list[str]:
        self._current()
        return list(self._state.valid) if not self._state.over else []

    # ── details ──────────────────────────────────────────────────────────────

    def _stop_java(self) -> None:
        if self._java is not None:
            self._java.close()
        self._java, self._server = None, None

    def _start(self, gold: bool = False) -> None:
        """Restart the task; with `gold`, the package also computes its solution."""
        parameters = self._current().parameters
        answer = self._server.generateNewGameJSON(parameters["seed"], parameters["fold"], gold)
        self._state = State.parse(answer)
        self._commands = []
        self._effective: list[str] = []  # those that are neither views nor moves
        self._back: list[str] = []  # commands that lead back to the start

    def _execute(self, command: str) -> tuple[State, bool]:
        """Execute a command; return the package's answer and whether the command was valid."""
        before = self._state
        exact = next((valid for valid in before.valid if valid.lower() == command), None)
        after = State.parse(self._server.stepJSON(exact or command))
        if exact is None:
            return after, False
        self._state = after
        self._commands.append(command)
        direction = command.removeprefix("move ")
        if direction in OPPOSITE and command != direction:
            if after.room != before.room:
                self._walked(direction)
        elif command not in VIEWS:
            self._effective.append(command)
        return after, True

    def _walked(self, direction: str) -> None:
        if self._back and self._back[0] == f"move {direction}":
            del self._back[0]
        else:
            self._back.insert(0, f"move {OPPOSITE[direction]}")

    def _replay(self, commands: list[str]) -> None:
        for command in commands:
            self._execute(command)

    def _find_plan(self) -> list[str]:
        """Return the first candidate plan that solves the task from here in the package."""
        assert self._java is not None
        past, back = self._commands, self._back
        self._start(gold=True)
        gold = self._java.lines(self._server.getGoldActionSequence())
        if not gold:
            self._server.load(self.spec.name, DEFAULTS)  # else it would repeat the error forever
        found: list[str] = []
        for plan in candidate_plans(gold, [c for c in past if c not in VIEWS], back):
            self._start()
            self._replay(past)
            tried = self._follow(plan)
            if self._state.solved:
                found = tried
                break
        self._start()
        self._replay(past)
        return found

    def _follow(self, plan: list[str]) -> list[str]:
        """Follow a plan until the game ends; return its valid commands."""
        done = []
        for command in plan:
            if self._state.over:
                break
            _, valid = self._execute(command.lower())
            if valid:
                done.append(command.lower())
        return done

    def _answer(self, text: str, reward: float = 0.0) -> Transition:
        return Transition(
            Observation(plain(text)),
            reward=reward,
            terminated=self._state.over,
            success=self._state.solved,
        )


def _check(task: Task, name: str) -> None:
    """Raise InputError unless the task names a fold and a seed."""
    fold, seed = task.parameters.get("fold"), task.parameters.get("seed")
    if fold not in FOLDS or not isinstance(seed, int) or len(task.parameters) > 2:
        raise InputError(
            f"A task of textworld-express/{name} needs the parameters 'fold' ({', '.join(FOLDS)}) "
            f"and 'seed' (a number) and no other, but '{task.id}' has {dict(task.parameters)}."
        )
