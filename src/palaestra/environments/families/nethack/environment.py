"""NetHack as text: the tasks of the NetHack Learning Environment.

Ids: `nethack/Score` is the package's `NetHackScore-v0`; likewise `Staircase`, `StaircasePet`,
`Oracle`, `Gold`, `Eat`, `Scout` and `Challenge`.
Source: Küttler et al. 2020 (the environment); NetHack 3.6.6.

The game, the tasks' actions, rewards, ends and step limits are the package's: a task's actions
are its keys, one key a turn, and questions that it declines by itself are declined. The text is
ours: keys have names (`words.py`), and the agent reads the game's message, the free directions,
what is visible and where, and its inventory whenever that changed or the game asks for an item
(`text.py`). Where the game wants a line of text, the whole line is one turn.

Success is the package's "task successful" (on the staircase, beside the Oracle), or ascension; for
the tasks that only score (Score, Gold, Eat, Scout, Challenge) it is ascension alone. Reaching the
step limit truncates; every other end is a failure. The game's randomness follows from the task's
seed alone (`game.py`): a snapshot is the keys so far, and restoring presses them again, at five to
twenty keys a millisecond.
"""

from __future__ import annotations

import json
from typing import ClassVar

import nle

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.task import Task
from palaestra.environments.base import Adapter, refused, without_parameters
from palaestra.environments.families.nethack.game import SEEN, Game
from palaestra.environments.families.nethack.map import STEPS, Reader
from palaestra.environments.families.nethack.text import Screen
from palaestra.environments.families.nethack.words import Vocabulary

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
TURNS = 500  # half of the package's limit would be thousands


class NetHack(
    Adapter,
    id="nethack",
    capabilities={"snapshot", "admissible"},
    typical_turns=TURNS,
):
    """A task of the NetHack Learning Environment."""

    OVER = "The game is over."
    package: ClassVar[str] = nle.__version__
    brief: ClassVar[bool] = False  # show only health, without level, gold and turn

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._game, self._reader = self._make(), Reader()
        self._words = Vocabulary(self._game.actions)
        self._screen: Screen | None = None
        self._inventory = ""  # as last shown

    @classmethod
    def names(cls) -> list[str]:
        return list(GOALS)

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
        """The task's goal in our words; the package does not state it."""
        return GOALS[self.spec.name]

    def _begin(self, task: Task) -> Observation:
        """Start the game of `task.seed`.

        Raises:
            InputError: the task has parameters; only its seed is used.
        """
        without_parameters(task)
        self._game.start(task.seed)
        self._inventory = ""
        return Observation(f"Goal: {self.goal}\n{self._look()}")

    def _act(self, action: Action) -> Transition:
        assert self._screen is not None
        keys = self._words.meaning(action.text, self._screen)
        if not keys:
            return refused(self._problem())
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
        """Return the task's actions, or the answers to the game's question."""
        if self._game.over or self._screen is None:
            return []
        return self._words.choices(self._screen)

    def snapshot(self) -> bytes:
        """Save the task, the keys so far, and the inventory as last shown."""
        saved = json.dumps([self._game.pressed, self._inventory])
        return self._saved(saved.encode(), self.package)

    def restore(self, snapshot: bytes) -> None:
        """Press the keys of `snapshot` again; raise InputError for another environment's."""
        keys, inventory = json.loads(self._loaded(snapshot, self.package))
        self.reset(self._current())
        for key in keys:
            self._game.press(key)
        self._over = self._game.over
        self._screen = None if self._over else Screen.of(self._game, self._reader)
        self._inventory = inventory

    def close(self) -> None:
        self._game.close()

    # ── details ──────────────────────────────────────────────────────────────

    def _make(self) -> Game:
        return Game(f"NetHack{self.spec.name}-v0", observation_keys=SEEN)

    def _look(self) -> str:
        """Render the screen: message, surroundings, condition, and inventory if it is due."""
        screen = self._screen = Screen.of(self._game, self._reader)
        if screen.page:
            return f"{screen.page}\n({', '.join(self._words.choices(screen))})"
        lines = [screen.message] if screen.message else []
        if screen.paging:
            lines.append("(more)")
        lines += [screen.surroundings(), screen.condition(self.brief)]
        if self._words.uses_items:
            asked = not screen.items.keys().isdisjoint(screen.offered)
            if asked or screen.items.text != self._inventory:
                self._inventory = screen.items.text
                lines.append(screen.items.text)
        return "\n".join(lines)

    def _end(self) -> str:
        if self._game.won:
            return "The task is done."
        return "The step limit is reached." if self._game.cut else "The game is over: you failed."

    def _problem(self) -> str:
        """Explain to the agent what the game expects instead of an invalid action."""
        screen = self._screen
        assert screen is not None
        words = self._words.choices(screen)
        listed = ", ".join(words[:12]) + (", …" if len(words) > 12 else "")
        if screen.typing:
            return f"The game wants a line of text: {screen.message}"
        if screen.asking or screen.paging:
            return f"The game waits: {screen.message or 'there is more to read'} Say: {listed}."
        return f"That is not an action here. Say one of: {listed}."
