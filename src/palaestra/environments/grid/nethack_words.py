"""NetHack's keys as words: "north", "far east", "kick", and answers to the game's questions.

A task of the package has its own actions, each a key. A key's name is its word. When the game asks
("What do you want to eat? [fg or ?*]"), an answer is a letter in the brackets, the name of what
the letter stands for, "yes" or "no", a direction, or "esc"; where a task has no "esc", "more"
takes its place. A menu is left, or its choices confirmed, by "space". A key that the task lacks
cannot be said there, be it an answer or not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from palaestra.environments.grid.nethack_text import Screen

COMPASS = {
    "N": "north",
    "NE": "northeast",
    "E": "east",
    "SE": "southeast",
    "S": "south",
    "SW": "southwest",
    "W": "west",
    "NW": "northwest",
}
SPELLED = {  # keys that are no commands, by what is written
    "PLUS": "+",
    "MINUS": "-",
    "APOS": "'",
    "QUOTE": '"',
    "DOLLAR": "$",
    **{f"NUM_{digit}": str(digit) for digit in range(10)},
}
ALIASES = {
    "escape": "esc",
    "cancel": "esc",
    "continue": "more",
    "enter": "more",
    "drink": "quaff",
    "rest": "wait",
    "downstairs": "down",
    "godown": "down",
    "upstairs": "up",
    "goup": "up",
    "take": "pickup",
    "#": "extcmd",
}
PLAIN = {"yes": "y", "no": "n", "quit": "q", "left": "l", "right": "r"}  # answers
USE_ITEMS = frozenset("apply eat quaff read zap wear wield puton takeoff throw drop invoke".split())
EDGES = "> \"'`*"  # a prompt, quotation and emphasis around an action
LONGEST = 80  # characters


class Vocabulary:
    """The words of a task's actions; a text becomes the numbers of the actions it means."""

    def __init__(self, actions: Sequence[Any]) -> None:
        self._keys: dict[str, int] = {}  # the character of a key -> the action's number
        self._words: dict[str, int] = {}
        for number, action in enumerate(actions):
            self._keys.setdefault(chr(int(action)), number)
            self._words.setdefault(_word(action), number)
        self._squeezed = {word.replace(" ", ""): word for word in self._words}
        self._directions = [
            word for word in (*COMPASS.values(), "up", "down", "wait") if word in self._words
        ]

    @property
    def words(self) -> list[str]:
        return list(self._words)

    @functools.cached_property
    def uses_items(self) -> bool:
        return not USE_ITEMS.isdisjoint(self._words)

    def meaning(self, text: str, screen: Screen) -> list[int]:
        """The actions that `text` means before this screen; empty if it means none."""
        said = cleaned(text)
        if screen.typing:
            return self._typed(said)
        word = self._word_of(said)
        if not (screen.asking or screen.paging):
            return [self._words[word]] if word else []
        if word in self._stops(screen) or (word in self._directions and screen.asks_direction):
            return [self._words[word]]
        key = said if len(said) == 1 else PLAIN.get(said.lower()) or _item(said, screen)
        return [self._keys[key]] if key in self._keys else []

    def sensible(self, screen: Screen) -> list[str]:
        """What may be said before this screen."""
        if screen.typing or screen.paging:
            return [*self._stops(screen), *(k for k in screen.offered if k in self._keys)]
        if not screen.asking:
            return self.words
        offered = self._directions if screen.asks_direction else []
        offered = [*offered, *(key for key in screen.offered if key in self._keys)]
        stops = self._stops(screen)
        return [*offered, *stops] or [key for key in self._keys if key.isprintable()]

    def _stops(self, screen: Screen) -> list[str]:
        """Words that go on from a page, or end a question."""
        words = ("space", "esc") if screen.menu else ("more", "esc")
        return [word for word in words if word in self._words]

    def _word_of(self, said: str) -> str:
        return self._squeezed.get(_squeezed(said), "")

    def _typed(self, said: str) -> list[int]:
        """A line of text and the key that ends it."""
        if self._word_of(said) in ("esc", "more"):
            return [self._words[self._word_of(said)]]
        if not said or any(key not in self._keys for key in said) or "more" not in self._words:
            return []
        return [*(self._keys[key] for key in said), self._words["more"]]


@functools.lru_cache(1024)  # the same few words again and again
def cleaned(text: str) -> str:
    """The first line of what was said, without marks around it; one sign is left as it is."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = "".join(c if c.isascii() and c.isprintable() else "?" for c in line[:LONGEST])
    return line if len(line) == 1 else line.strip(EDGES).rstrip(".,!?;: ")


@functools.lru_cache(1024)
def _squeezed(said: str) -> str:
    squeezed = re.sub(r"[\s_-]+", "", said.lower()) if len(said) > 1 else said
    return ALIASES.get(squeezed, squeezed)


def _word(action: Any) -> str:
    kind, name = type(action).__name__, str(action.name)
    if "Longer" in kind:
        return f"far {COMPASS[name]}"
    if name in COMPASS and "Compass" in kind:
        return COMPASS[name]
    return SPELLED.get(name, name.lower())


def _item(said: str, screen: Screen) -> str:
    """The letter of the one thing in the inventory with that in its name; "" for none or many."""
    offered = {letter: name for letter, name in screen.items.items() if letter in screen.offered}
    found = [letter for letter, name in offered.items() if said.lower() in name.lower()]
    return found[0] if said and len(found) == 1 else ""
