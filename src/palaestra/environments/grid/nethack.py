"""NetHack, told in words: the tasks of the NetHack Learning Environment.

Ids: `nethack/Score` is the package's `NetHackScore-v0`; likewise `Staircase`, `StaircasePet`,
`Oracle`, `Gold`, `Eat`, `Scout` and `Challenge`.
Source: Küttler et al. 2020 (the environment); NetHack 3.6.6.

The game, the tasks' actions, rewards, ends and step limits are the package's: a task's actions
are its keys, one key a turn, and questions that it declines by itself are declined. Ours are the
words: keys have names (`nethack_words.py`), and the agent reads the game's message, the ways that
are free, what is seen and where, and what it carries whenever that changed or the game asks
(`nethack_text.py`). A line of text, where the game wants one, is one turn here.

Success is the package's "task successful" (on the staircase, beside the Oracle), or ascending;
the tasks that only score (Score, Gold, Eat, Scout, Challenge) have no other. Reaching the step
limit truncates, every other end is a failure. The game throws dice, from the task's seed alone
(`nethack_game.py`): a snapshot is the keys so far, and restoring presses them again, which takes
as long as they took: a millisecond for five to twenty keys.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, ClassVar

import nle

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.grid.nethack_game import SEEN, Game
from palaestra.environments.grid.nethack_map import STEPS, Reader
from palaestra.environments.grid.nethack_text import Screen
from palaestra.environments.grid.nethack_words import Vocabulary
from palaestra.environments.snapshots import opened, sealed

GOALS = {
    "Score": "Score as high as you can: explore, go deeper, fight, find gold.",
    "Staircase": "Stand on a staircase down.",
    "StaircasePet": "Stand on a staircase down with your pet next to you.",
    "Oracle": "Find the Oracle, deep in the dungeon, and stand next to it.",
    "Gold": "Collect as much gold as you can.",
    "Eat": "Eat as much as you can.",
    "Scout": "See as much of the dungeon as you can.",
    "Challenge": "Score as high as you can, and in the end ascend with the Amulet of Yendor.",
}
COMMON = (
    *("search", "pickup", "open", "close", "kick", "eat", "quaff", "read", "zap", "apply", "wear"),
    *("takeoff", "puton", "remove", "wield", "throw", "fire", "drop", "cast", "pray", "look"),
    *("loot", "force", "untrap", "engrave", "up", "down", "wait", "inventory", "more", "esc"),
)  # the actions that the instructions name, where a task has them
QUESTIONS = "To a question of the game, reply with one of the letters it offers, or a direction."
MOST_TURNS, FEWEST_TURNS = 500, 20


class NetHack(Environment):
    """A task of the NetHack Learning Environment."""

    capabilities = frozenset({Capability.SNAPSHOT, Capability.ADMISSIBLE})
    brief: ClassVar[bool] = False  # whether the agent reads of its health only

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._game, self._reader = self._make(), Reader()
        self._words = Vocabulary(self._game.actions)
        self._task: Task | None = None
        self._screen: Screen | None = None
        self._inventory = ""  # as it was told last

    @classmethod
    def names(cls) -> list[str]:
        return list(GOALS)

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    @property
    def instructions(self) -> str:
        known = self._words.words
        far = any(word.startswith("far ") for word in known)
        named = [word for word in (*STEPS, *COMMON) if word in known]
        others = len(known) - len(named) - 8 * far
        return (
            f"You play NetHack. {self.goal} Reply with one action and nothing else. "
            + (f"{QUESTIONS} " if len(known) > len(STEPS) else "")
            + ('"far north" and so on runs. ' if far else "")
            + (f"{others} more commands of NetHack are understood. " if others else "")
            + f"Actions: {', '.join(named)}."
        )

    @property
    def goal(self) -> str:
        """What the task wants, in our words: the package does not say it."""
        return GOALS[self.name]

    @property
    def typical_turns(self) -> int:
        """Half of the package's own limit, within reason."""
        return max(FEWEST_TURNS, min(MOST_TURNS, self._game.limit // 2))

    def reset(self, task: Task) -> Observation:
        """Start the game of `task.seed`.

        Raises:
            InputError: the task has parameters; a seed says everything here.
        """
        if task.parameters:
            raise InputError(
                f"Tasks of '{task.environment}' take no parameters, but '{task.id}' has "
                f"{', '.join(map(repr, task.parameters))}; choose a level by its name instead."
            )
        self._game.start(task.seed)
        self._task, self._inventory = task, ""
        return Observation(f"Goal: {self.goal}\n{self._look()}")

    def step(self, action: Action) -> Transition:
        if self._game.over or self._screen is None:
            return Transition(Observation("The game is over."), valid=False)
        keys = self._words.meaning(action.text, self._screen)
        if not keys:
            return Transition(Observation(self._refusal()), valid=False)
        reward = 0.0
        for key in keys:
            if not self._game.over:
                reward += self._game.press(key)
        game = self._game
        return Transition(
            Observation(self._end() if game.over else self._look()),
            reward=reward,
            terminated=game.over and not game.cut,
            truncated=game.cut,
            success=game.won,
        )

    def admissible(self) -> list[str]:
        """The words of the task's actions, or the answers to what the game asks."""
        if self._game.over or self._screen is None:
            return []
        return self._words.sensible(self._screen)

    def snapshot(self) -> bytes:
        """The task, the keys so far, and the inventory that was told last."""
        if self._task is None:
            raise InputError("This world has no game yet; call reset with a task first.")
        saved = {
            "task": asdict(self._task),
            "keys": self._game.pressed,
            "inventory": self._inventory,
        }
        return sealed(self._id, self._version, json.dumps(saved).encode())

    def restore(self, snapshot: bytes) -> None:
        """Press the keys of `snapshot` again; raises InputError if it is another world's."""
        saved: dict[str, Any] = json.loads(opened(snapshot, self._id, self._version))
        self.reset(Task(**{**saved["task"], "split": Split(saved["task"]["split"])}))
        for key in saved["keys"]:
            self._game.press(key)
        self._screen = None if self._game.over else Screen.of(self._game, self._reader)
        self._inventory = saved["inventory"]

    def close(self) -> None:
        self._game.close()

    # ── details ──────────────────────────────────────────────────────────────

    def _make(self) -> Game:
        return Game(f"NetHack{self.name}-v0", observation_keys=SEEN)

    @property
    def _id(self) -> str:
        return f"nethack/{self.name}"

    @property
    def _version(self) -> str:
        return str(nle.__version__)

    def _look(self) -> str:
        """Look, and tell it: what was said, what is around, how one is, what one carries."""
        screen = self._screen = Screen.of(self._game, self._reader)
        if screen.page:
            return f"{screen.page}\n({', '.join(self._words.sensible(screen))})"
        lines = [screen.message] if screen.message else []
        if screen.paging:
            lines.append("(more)")
        lines += [screen.surroundings(), screen.condition(self.brief)]
        if self._words.uses_items:
            asked = not screen.items.keys().isdisjoint(screen.offered)
            if asked or screen.items.told != self._inventory:
                self._inventory = screen.items.told
                lines.append(screen.items.told)
        return "\n".join(lines)

    def _end(self) -> str:
        if self._game.won:
            return "The task is done."
        return "The step limit is reached." if self._game.cut else "The game is over: you failed."

    def _refusal(self) -> str:
        screen = self._screen
        assert screen is not None
        words = self._words.sensible(screen)
        several = ", ".join(words[:12]) + (", …" if len(words) > 12 else "")
        if screen.typing:
            return f"The game wants a line of text: {screen.message}"
        if screen.asking or screen.paging:
            return f"The game waits: {screen.message or 'there is more to read'} Say: {several}."
        return f"That is not an action here. Say one of: {several}."
