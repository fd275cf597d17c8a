"""Text of an episode as a page can show it: whole characters, visible controls, a bounded length.

What agents and worlds write may hold anything. Templates escape markup, and mark what cannot be
seen (`core/visible.py`) in all that they write; here texts are cut and compared as they are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from palaestra.core.visible import visible

LONGEST = 4000  # characters of one text in a page; a link leads to the rest
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_MANY = 400  # words of a changed passage from which on it is not compared word by word


@dataclass(frozen=True, slots=True)
class Text:
    """A text, or its beginning."""

    shown: str
    left: int = 0  # characters that are not shown


@dataclass(frozen=True, slots=True)
class Change:
    """A piece of a comparison of two texts."""

    kind: str  # "same", "added" or "gone"
    text: str


def cut(text: str, longest: int = LONGEST) -> Text:
    """A visible text of at most so many characters of the original."""
    return Text(visible(text[:longest]), max(0, len(text) - longest))


def line(text: str, longest: int = 120) -> str:
    """A visible text on one line, shortened."""
    short = " ".join(visible(text[: 4 * longest]).split())
    return short if len(short) <= longest else short[: longest - 1] + "…"


def changes(before: str, after: str) -> list[Change]:
    """What became of one text in the next: by line, and by word where a passage changed."""
    old, new = cut(before).shown.splitlines(True), cut(after).shown.splitlines(True)
    found: list[Change] = []
    for change in _compared(old, new):
        if change[0] == "replace":
            found += _by_word("".join(change[1]), "".join(change[2]))
        else:
            found += _pieces(*change)
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
        return _pieces("replace", [old], [new])
    return [piece for change in _compared(first, second) for piece in _pieces(*change)]


def _pieces(kind: str, old: Sequence[str], new: Sequence[str]) -> list[Change]:
    if kind == "equal":
        return [Change("same", "".join(new))]
    both = (Change("gone", "".join(old)), Change("added", "".join(new)))
    return [change for change in both if change.text]
