"""Text that people look at, with everything in it visible.

What models and worlds write may hold characters that no reader sees: codes that move a terminal's
cursor, marks that turn text around, and invisible ones (zero-width spaces, Unicode's copies of
ASCII as "tags", variation selectors) that can carry a hidden prompt. Each becomes a mark that names
it, such as ⟨U+200B⟩ or ␛.

Invisible are the control and format characters, line and paragraph separators, halves of characters
(surrogates), all that Unicode calls default-ignorable (Unicode 16, DerivedCoreProperties), and the
few letters and symbols that are drawn as nothing. The one selector that stays is U+FE0F directly
after a symbol that it makes an emoji of.
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
    """The text with a mark in place of each character that cannot be seen.

    Line ends (also CR LF, which becomes one) and tabs stay, and so does all that is visible: marks
    as well, so that marking a text twice changes nothing.
    """
    if text.isascii() and text.isprintable():
        return text  # nearly all that pages write
    text = text.replace("\r\n", "\n")
    parts = _EMOJI.split(text) if "\ufe0f" in text else [text]
    return "\ufe0f".join(part.translate(_MARKS) for part in parts)


class _Marks(dict[int, int | str]):
    """What each character becomes, found when it is first met."""

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
        return chr(0x2400 + code)  # Unicode's own picture of it
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"
