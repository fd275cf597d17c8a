"""Visible text: a mark for each character that a reader cannot see.

The output of models and environments may hold invisible characters: terminal escape codes,
bidirectional marks, and characters that can carry a hidden prompt (zero-width spaces, Unicode's
copies of ASCII as "tags", variation selectors). Each becomes a mark that names it, such as ⟨U+200B⟩
or ␛.

Invisible are control and format characters, line and paragraph separators, surrogates, Unicode's
default-ignorable characters (Unicode 16, DerivedCoreProperties), and the few letters and symbols
with an empty glyph. The one selector that stays is U+FE0F directly after a symbol that it turns
into an emoji.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import chain

_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_EMPTY = frozenset(
    chain(
        (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x3164, 0xFFA0),
        range(0x180B, 0x1810),  # Mongolian selectors
        range(0xFE00, 0xFE10),  # variation selectors
        range(0xFFF0, 0xFFF9),
        range(0xE0000, 0xE1000),  # tags, and more variation selectors
        (0x2800, 0x16FE4, 0x1D159),  # an empty Braille cell, a filler, a note without a head
    )
)
_EMOJI = re.compile(
    "(?<=[\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2934\u2935"
    "\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff])\ufe0f"
)


def visible(text: str) -> str:
    """Replace each invisible character of a text by a mark.

    Line ends (CR LF becomes LF), tabs and visible characters stay. Marks are visible, so that
    marking a text twice changes nothing.
    """
    if text.isascii() and text.isprintable():
        return text  # nearly all texts
    text = text.replace("\r\n", "\n")
    parts = _EMOJI.split(text) if "\ufe0f" in text else [text]
    return "\ufe0f".join(part.translate(_MARKS) for part in parts)


class _Marks(dict[int, int | str]):
    """The replacement of each character, computed at its first use."""

    def __missing__(self, code: int) -> int | str:
        self[code] = found = _mark(code) if _unseen(code) else code
        return found


_MARKS = _Marks()


def _unseen(code: int) -> bool:
    if chr(code) in "\n\t":
        return False
    return code in _EMPTY or unicodedata.category(chr(code)) in _CATEGORIES


def _mark(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's control picture
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"
