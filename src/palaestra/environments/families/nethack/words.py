"""NetHack's keys as words: "north", "far east", "kick", and answers to the game's questions.

Each task of the package has its own actions. Each action is a key, and the key's name is its word.
When the game asks ("What do you want to eat? [fg or ?*]"), an answer is a letter in the brackets,
the name of its item, "yes" or "no", a direction, or "esc"; in a task without "esc", "more" takes
its place. "space" leaves a menu or confirms its choices. A key that the task lacks is not accepted,
not even as an answer.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from palaestra.environments.families.nethack.text import Screen

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
SPELLED = {  # keys that are characters, not commands
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
EDGES = "> \"'`*"  # prompt, quotes and emphasis, stripped from an action
LONGEST = 80  # characters


class Vocabulary:
    """The words of a task's actions, and the parser from text to action numbers."""

    def __init__(self, actions: Sequence[Any]) -> None:
        self._keys: dict[str, int] = {}  # character of a key -> action number
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
        """Parse `text` into action numbers for this screen; [] if it is not valid here."""
        reply = cleaned(text)
        if screen.typing:
            return self._typed(reply)
        word = self._word_of(reply)
        if not (screen.asking or screen.paging):
            return [self._words[word]] if word else []
        if word in self._stops(screen) or (word in self._directions and screen.asks_direction):
            return [self._words[word]]
        key = reply if len(reply) == 1 else PLAIN.get(reply.lower()) or _item(reply, screen)
        return [self._keys[key]] if key in self._keys else []

    def choices(self, screen: Screen) -> list[str]:
        """List the valid actions on this screen."""
        if screen.typing or screen.paging:
            return [*self._stops(screen), *(k for k in screen.offered if k in self._keys)]
        if not screen.asking:
            return self.words
        offered = self._directions if screen.asks_direction else []
        offered = [*offered, *(key for key in screen.offered if key in self._keys)]
        stops = self._stops(screen)
        return [*offered, *stops] or [key for key in self._keys if key.isprintable()]

    def _stops(self, screen: Screen) -> list[str]:
        """Return the words that leave a page or end a question."""
        words = ("space", "esc") if screen.menu else ("more", "esc")
        return [word for word in words if word in self._words]

    def _word_of(self, reply: str) -> str:
        return self._squeezed.get(_squeezed(reply), "")

    def _typed(self, reply: str) -> list[int]:
        """Return the keys that type a line of text, with the key that ends it."""
        if self._word_of(reply) in ("esc", "more"):
            return [self._words[self._word_of(reply)]]
        if not reply or any(key not in self._keys for key in reply) or "more" not in self._words:
            return []
        return [*(self._keys[key] for key in reply), self._words["more"]]


@functools.lru_cache(1024)  # few words recur
def cleaned(text: str) -> str:
    """Return the first line of a reply without marks around it; keep a single character as is."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = "".join(c if c.isascii() and c.isprintable() else "?" for c in line[:LONGEST])
    return line if len(line) == 1 else line.strip(EDGES).rstrip(".,!?;: ")


@functools.lru_cache(1024)
def _squeezed(reply: str) -> str:
    squeezed = re.sub(r"[\s_-]+", "", reply.lower()) if len(reply) > 1 else reply
    return ALIASES.get(squeezed, squeezed)


def _word(action: Any) -> str:
    kind, name = type(action).__name__, str(action.name)
    if "Longer" in kind:
        return f"far {COMPASS[name]}"
    if name in COMPASS and "Compass" in kind:
        return COMPASS[name]
    return SPELLED.get(name, name.lower())


def _item(reply: str, screen: Screen) -> str:
    """Return the letter of the only offered item whose name contains the reply; else ""."""
    offered = {letter: name for letter, name in screen.items.items() if letter in screen.offered}
    found = [letter for letter, name in offered.items() if reply.lower() in name.lower()]
    return found[0] if reply and len(found) == 1 else ""
