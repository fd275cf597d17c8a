"""Texts as rows of which every token is learned, and the paragraphs that are never learned.

A paragraph is held out by a hash of its words, wherever it stands: the same words in two files, or
with other line breaks, are both learned or both held out.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence

from palaestra.core.episode import Key
from palaestra.core.model import Renderer
from palaestra.learning.data.rows import Row

HELD_OUT = 10  # one paragraph in so many is held out


def paragraphs(text: str) -> list[str]:
    """Return the parts of a text between blank lines, without those that have no letter."""
    found = re.split(r"\n\s*\n", text)
    return [part.strip("\n") for part in found if any(map(str.isalpha, part))]


def is_held_out(paragraph: str) -> bool:
    """Return whether a paragraph is only tested; its line breaks and spaces do not matter."""
    words = " ".join(paragraph.split()).encode()
    return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest()) % HELD_OUT == 0


def text_rows(text: str, renderer: Renderer, limit: int, key: Key) -> Iterator[Row]:
    """Yield rows that train all tokens of a text but the first of each, which nothing predicts.

    Args:
        text: of any length; an empty one gives none.
        renderer: of the policy.
        limit: tokens of a row.
        key: under which the rows count.
    """
    tokens = renderer.reply(text) if text.strip() else []
    for start in range(0, max(0, len(tokens) - 1), limit - 1):  # the last token begins the next row
        yield text_row(tokens[start : start + limit], key)


def text_row(tokens: Sequence[int], key: Key) -> Row:
    """Return the row that trains all of at least two tokens but the first."""
    n = len(tokens)
    return Row(
        key,
        list(tokens),
        mask=[False, *[True] * (n - 1)],
        logprobs=[0.0, *[math.nan] * (n - 1)],
        calls=[-1, *[0] * (n - 1)],
        versions=[0] * n,
    )
