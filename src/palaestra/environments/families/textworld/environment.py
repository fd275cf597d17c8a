"""TextWorld: text adventures, one generated per seed.

Ids: `textworld/coin-easy`, `coin-medium-3`, `coin-medium-4`, `coin-medium`, `coin-hard` (Yuan et
al. 2018), `treasure-easy` (Parisotto and Salakhutdinov 2017), `cooking-easy` (First TextWorld
Problems), `rooms`.
Source: Côté et al. 2018; levels and goals in `games.py`.

Games are compiled with Inform 7 and played in a Z-machine. The package can also play a game's
`.json` in Python without compiling, but then it returns no text and accepts only literal commands.
Compiling costs 0.4 s once per game and gives the published game's narration and parser ("get
coin", "n"), so this adapter compiles.

The reward is the game's score: 1 for the quest, in cooking also for its parts. Progress is the
largest share of TextWorld's solution done so far: it is 1 on success only, and never falls within
an episode. Taking the wrong thing, or spoiling or eating an ingredient, loses: the episode
terminates without success.
"""

from __future__ import annotations

import re

import textworld

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import Task, TaskSet
from palaestra.environments.base import Replayed, hashed, refused, without_parameters
from palaestra.environments.families.textworld.games import LEVELS, story_file
from palaestra.environments.families.textworld.machine import Machine

TASKS_PER_SPLIT = 1024  # each game costs a second and 0.4 MB of cache on first use
EDGES = "> \"'`*,"  # prompt, quotes and emphasis, stripped from a command
LONGEST = 80  # characters of a command; the games' own are shorter than 60
BEYOND_THE_GAME = re.compile(
    r"(save|restore|restart|quit|q|undo|oops|again|g|script|transcript|noscript|unscript|version"
    r"|verify|verbose|superbrief|brief|long|short|normal|notify|nouns|pronouns|score|restrict"
    r"|enable|disable|print_state|tw-\S*)\b.*"
)
READ, READING = "examine cookbook", "examining the cookbook"  # the command, and its event


class TextWorld(
    Replayed,
    id="textworld",
    capabilities={"state_key", "snapshot", "progress", "oracle", "admissible"},
):
    """A text adventure in a Z-machine."""

    OVER = "The game is over."
    package = textworld.__version__

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._level = LEVELS[name]
        self._machine: Machine | None = None
        self._seed = 0  # of the machine's game
        self._read = False  # whether the cookbook was read
        self._best = 0.0  # progress
        self._length = 0  # commands in the initial solution

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

    def _begin(self, task: Task) -> Observation:
        """Start the game of `task.seed`, and generate it if it is not cached.

        Raises:
            InputError: the task has parameters; choose a level by its name.
            EnvironmentFault: the game could not be generated.
        """
        without_parameters(task)
        if self._machine is None or self._seed != task.seed:
            self.close()
            self._machine, self._seed = Machine(story_file(self._level, task.seed)), task.seed
        text = self._machine.restart()
        self._read, self._best = False, 0.0
        self._length = len(self._machine.solution())
        return Observation(text)

    def _act(self, action: Action) -> Transition:
        machine = self._running()
        command = parse(action.text)
        if not command:
            return refused("Say one command, such as: look.")
        if BEYOND_THE_GAME.fullmatch(command):
            return refused(f"'{command}' is not a command of this game.")
        reply = machine.do(command)
        if not reply.understood:
            return refused(reply.text or "That was not understood.")
        self._read = self._read or READING in reply.events
        self._best = max(self._best, self._done())
        return Transition(
            Observation(reply.text or "Nothing happens."),
            reward=reply.reward,
            terminated=machine.won or machine.lost,
            success=machine.won,
        )

    def close(self) -> None:
        if self._machine is not None:
            self._machine.close()
        self._machine = None

    def state_key(self) -> str:
        """Hash the game, its facts and its score, but not the history."""
        machine = self._running()
        seed = self._current().seed
        return hashed(self.spec.name, seed, machine.facts(), machine.score, self._over)

    def progress(self) -> float:
        self._running()
        return self._best

    def oracle(self) -> list[Action]:
        """Return TextWorld's solution from here, which undoes detours by walking back.

        It uses hidden information, but it reads a recipe, if one is readable, before cooking.
        """
        commands = self._running().solution() if not self._over else []
        if commands and not self._read and READ in self.admissible():
            commands.insert(0, READ)
        return [Action(command) for command in commands]

    def admissible(self) -> list[str]:
        return self._running().admissible() if not self._over else []

    # ── details ──────────────────────────────────────────────────────────────

    def _done(self) -> float:
        machine = self._running()
        if machine.won:
            return 1.0
        left = len(machine.solution())
        return 1 - left / self._length if left else 0.0

    def _running(self) -> Machine:
        if self._machine is None:
            raise InputError(
                f"The environment '{self.spec.id}' has no game yet; call reset with a task first."
            )
        return self._machine


def parse(text: str) -> str:
    """Extract the command from a reply: the first sentence of its first line, in lower case.

    Only one command counts: the parser would run "go north. take coin" as two. A backslash is
    removed: the interpreter would treat it as a command of its own and prompt without end.
    """
    line = next((line for line in text.lower().splitlines() if line.strip()), "")
    line = "".join(c if c.isascii() and c.isprintable() and c != "\\" else " " for c in line)
    sentence = re.split(r"[.;:!?]|\bthen\b", line.strip(EDGES), maxsplit=1)[0]
    return " ".join(sentence.split())[:LONGEST].strip(EDGES)
