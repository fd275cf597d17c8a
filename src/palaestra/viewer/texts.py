"""Texts of an episode as a page can show them: whole characters, visible controls, bounded length.

Text of agents and environments may contain any characters. Templates escape markup and mark
invisible characters (`runtime/visible_text.py`); this module shortens and compares texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from palaestra.runtime.visible_text import visible

LONGEST = 4000  # characters of one text in a page; a link leads to the rest
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_MANY = 400  # words of a changed passage; a longer one is not compared word by word


@dataclass(frozen=True, slots=True)
class Text:
    """A text, or its beginning."""

    shown: str
    left: int = 0  # characters that are not shown


@dataclass(frozen=True, slots=True)
class Change:
    """A chunk of a comparison of two texts."""

    kind: str  # "same", "added" or "gone"
    text: str


def cut(text: str, longest: int = LONGEST) -> Text:
    """Return the first `longest` characters of a text, with invisible characters marked."""
    return Text(visible(text[:longest]), max(0, len(text) - longest))


def line(text: str, longest: int = 120) -> str:
    """Shorten a text to one line, with invisible characters marked."""
    short = " ".join(visible(text[: 4 * longest]).split())
    return short if len(short) <= longest else short[: longest - 1] + "…"


def changes(before: str, after: str) -> list[Change]:
    """Return the changes from one text to the next: by line, and by word in changed passages."""
    old, new = cut(before).shown.splitlines(True), cut(after).shown.splitlines(True)
    found: list[Change] = []
    for change in _compared(old, new):
        if change[0] == "replace":
            found += _by_word("".join(change[1]), "".join(change[2]))
        else:
            found += _chunks(*change)
    return found


# ── details ──────────────────────────────────────────────────────────────────


def _compared(
    old: Sequence[str], new: Sequence[str]
) -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        yield kind, old[a:b], new[c:d]


def _by_word(old: str, new: str) -> list[Change]:
    first, second = _WORDS.findall(old), _WORDS.findall(new)
    if len(first) + len(second) > _MANY:
        return _chunks("replace", [old], [new])
    return [chunk for change in _compared(first, second) for chunk in _chunks(*change)]


def _chunks(kind: str, old: Sequence[str], new: Sequence[str]) -> list[Change]:
    if kind == "equal":
        return [Change("same", "".join(new))]
    both = (Change("gone", "".join(old)), Change("added", "".join(new)))
    return [change for change in both if change.text]
