"""TextWorld: text adventures, generated anew for every seed.

Ids: `textworld/coin-easy`, `coin-medium-3`, `coin-medium-4`, `coin-medium`, `coin-hard` (Yuan et
al. 2018), `treasure-easy` (Parisotto and Salakhutdinov 2017), `cooking-easy` (First TextWorld
Problems), `rooms`.
Source: Côté et al. 2018; levels and goals in `textworld_games.py`.

Games are compiled with Inform 7 and played in a Z-machine. The package can also play a
game's `.json` in Python without compiling, but then it returns no text at all and takes
only literal commands; compiling costs 0.4 s once per game and gives the published
game's own narration and parser ("get coin", "n"), so this adapter compiles.

The reward is the game's score: 1 for the quest, in cooking also for its parts.
Progress is the largest share of TextWorld's solution done so far: 1 on success only,
and never falling within an episode. Taking the wrong thing, or spoiling or eating an
ingredient, loses: terminated without success.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from typing import Any

import textworld

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.snapshots import opened, sealed
from palaestra.environments.text.textworld_games import LEVELS, story_file
from palaestra.environments.text.textworld_machine import Machine

TASKS_PER_SPLIT = 1024  # each game costs a second and 0.4 MB of cache when it is first played
EDGES = "> \"'`*,"  # a prompt, quotation and emphasis around a command
LONGEST = 80  # characters of a command; the games' own stay below 60
BEYOND_THE_GAME = re.compile(
    r"(save|restore|restart|quit|q|undo|oops|again|g|script|transcript|noscript|unscript|version"
    r"|verify|verbose|superbrief|brief|long|short|normal|notify|nouns|pronouns|score|restrict"
    r"|enable|disable|print_state|tw-\S*)\b.*"
)
READ, READING = "examine cookbook", "examining the cookbook"  # the command, and its event


class TextWorld(Environment):
    """Text adventures in a Z-machine."""

    capabilities = frozenset(
        {
            Capability.STATE_KEY,
            Capability.SNAPSHOT,
            Capability.PROGRESS,
            Capability.ORACLE,
            Capability.ADMISSIBLE,
        }
    )

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._level = LEVELS[name]
        self._task: Task | None = None
        self._machine: Machine | None = None
        self._commands: list[str] = []  # that were understood, since the reset
        self._read = False  # the cookbook, where there is one
        self._best = 0.0  # progress
        self._length = 0  # commands of the solution at the start

    @classmethod
    def names(cls) -> list[str]:
        return list(LEVELS)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment, size=TASKS_PER_SPLIT)

    @property
    def instructions(self) -> str:
        return (
            "You play a text adventure. Reply with one command and nothing else. "
            f"Commands: {self._level.commands}."
        )

    def reset(self, task: Task) -> Observation:
        """Start the game of `task.seed`, generating it if the cache does not have it.

        Raises:
            InputError: the task has parameters; a level's name says everything here.
            EnvironmentFault: the game could not be generated.
        """
        if task.parameters:
            raise InputError(
                f"TextWorld tasks take no parameters, but '{task.id}' has "
                f"{', '.join(map(repr, task.parameters))}; choose a level by its name instead."
            )
        if self._task is None or self._machine is None or self._task.seed != task.seed:
            self.close()
            self._machine = Machine(story_file(self._level, task.seed))
        self._task = task
        said = self._machine.restart()
        self._commands, self._read, self._best = [], False, 0.0
        self._length = len(self._machine.solution())
        return Observation(said)

    def step(self, action: Action) -> Transition:
        machine = self._running()
        if self._over:
            return self._answer("The game is over.", valid=False)
        command = parse(action.text)
        if not command:
            return self._answer("Say one command, such as: look.", valid=False)
        if BEYOND_THE_GAME.fullmatch(command):
            return self._answer(f"'{command}' is not a command of this game.", valid=False)
        reply = machine.do(command)
        if not reply.understood:
            return self._answer(reply.text or "That was not understood.", valid=False)
        self._commands.append(command)
        self._read = self._read or READING in reply.events
        self._best = max(self._best, self._done())
        return self._answer(reply.text or "Nothing happens.", reward=reply.reward)

    def close(self) -> None:
        if self._machine is not None:
            self._machine.close()
        self._machine = None

    def state_key(self) -> str:
        """The game, its facts and its score; not the way that led here."""
        assert self._task is not None
        machine = self._running()
        state = (self.name, self._task.seed, machine.facts(), machine.score, self._over)
        return hashlib.blake2b(repr(state).encode(), digest_size=12).hexdigest()

    def snapshot(self) -> bytes:
        """The task and the commands so far: the games throw no dice."""
        self._running()
        assert self._task is not None
        body = json.dumps({"task": asdict(self._task), "commands": self._commands}).encode()
        return sealed(f"textworld/{self.name}", textworld.__version__, body)

    def restore(self, snapshot: bytes) -> None:
        """Play the commands of `snapshot` again; raises InputError if it is another level's."""
        body = opened(snapshot, f"textworld/{self.name}", textworld.__version__)
        saved: dict[str, Any] = json.loads(body)
        task = saved["task"]
        self.reset(Task(**{**task, "split": Split(task["split"])}))
        for command in saved["commands"]:
            self.step(Action(command))

    def progress(self) -> float:
        self._running()
        return self._best

    def oracle(self) -> list[Action]:
        """TextWorld's solution from here, which undoes detours by walking back.

        It knows the way, as no player can, but it reads a recipe, where it can be read,
        before cooking by it.
        """
        commands = self._running().solution() if not self._over else []
        if commands and not self._read and READ in self.admissible():
            commands.insert(0, READ)
        return [Action(command) for command in commands]

    def admissible(self) -> list[str]:
        return self._running().admissible() if not self._over else []

    # ── details ──────────────────────────────────────────────────────────────

    @property
    def _over(self) -> bool:
        machine = self._running()
        return machine.won or machine.lost

    def _done(self) -> float:
        machine = self._running()
        if machine.won:
            return 1.0
        left = len(machine.solution())
        return 1 - left / self._length if left else 0.0

    def _answer(self, text: str, reward: float = 0.0, valid: bool = True) -> Transition:
        machine = self._running()
        return Transition(
            Observation(text),
            reward=reward,
            terminated=self._over,
            success=machine.won,
            valid=valid,
        )

    def _running(self) -> Machine:
        if self._machine is None:
            raise InputError("This TextWorld has no game yet; call reset with a task first.")
        return self._machine


def parse(text: str) -> str:
    """The command in what a model said: its first line's first sentence, in plain lower case.

    Only one command counts: the parser would run "go north. take coin" as two. A backslash begins
    what the interpreter reads as a command of its own, and asks about without end.
    """
    line = next((line for line in text.lower().splitlines() if line.strip()), "")
    line = "".join(c if c.isascii() and c.isprintable() and c != "\\" else " " for c in line)
    sentence = re.split(r"[.;:!?]|\bthen\b", line.strip(EDGES), maxsplit=1)[0]
    return " ".join(sentence.split())[:LONGEST].strip(EDGES)
