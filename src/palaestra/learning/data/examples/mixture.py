"""Mixtures: agent examples and general text in an exact ratio, so that general skill is kept.

Source: AgentTuning (Zeng et al. 2024) learns `(1 - share) * L(agent) + share * L(general)` from
samples of both kinds. Here tokens are mixed, not samples: the mean over a batch's tokens is that
loss, however long texts and episodes are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.learning.data.examples.example import Example
from palaestra.learning.data.examples.text_examples import text_row

GENERAL = "general text"  # the phase under which its rows count; no stage can have that name


def mixed(
    batches: Sequence[Sequence[Example]],
    texts: Sequence[Sequence[int]],
    *,
    share: float,
    limit: int,
    seed: int,
) -> list[list[Example]]:
    """Add rows of general text to each batch, so that they are a share of its trained tokens.

    What is not a whole token is carried to the next batch: of the tokens that the first n batches
    train, `share` are general, less a fraction of a token, for each n. Texts are read in a
    shuffled order, shuffled again whenever all were read; a text that does not fit into a batch
    goes on in the next one.

    Args:
        batches: of agent examples, of one optimizer step each.
        texts: tokens of each general text; those of fewer than two tokens train nothing.
        share: of general tokens among all trained ones, in (0, 1).
        limit: tokens of a row.
        seed: of the order; equal seeds give equal mixtures.

    Raises:
        InputError: a share outside (0, 1), or no text to mix in.
    """
    if not 0 < share < 1:
        raise InputError(f"share = {share:g} is not in (0, 1); give one between them.")
    if not any(len(text) > 1 for text in texts):
        raise InputError("There is no general text to mix in; give texts of at least two tokens.")
    exact = Fraction(share).limit_denominator(10**6)  # 0.29 * 100 is 28.999… in floats
    stream = _Stream(texts, limit, seed)
    agent = general = 0
    found: list[list[Example]] = []
    for batch in batches:
        agent += sum(example.row.trained for example in batch)
        due = agent * exact // (1 - exact)
        found.append([*batch, *stream.take(due - general)])
        general = due
    return found


class _Stream:
    """Texts without an end, read token by token."""

    def __init__(self, texts: Sequence[Sequence[int]], limit: int, seed: int) -> None:
        self._order, self._limit = _endless(texts, seed), limit
        self._left: Sequence[int] = ()  # of the text that is being read; its first token is known

    def take(self, count: int) -> list[Example]:
        """Return rows that train the next `count` tokens."""
        found: list[Example] = []
        while count:
            while len(self._left) < 2:
                self._left = next(self._order)
            piece = self._left[: min(count + 1, self._limit)]
            found.append(Example(text_row(piece, Key(GENERAL, 0))))
            count -= len(piece) - 1
            self._left = self._left[len(piece) - 1 :]  # the last token predicts the next one
        return found


def _endless(texts: Sequence[Sequence[int]], seed: int) -> Iterator[Sequence[int]]:
    turn = 0
    while True:
        order = list(texts)
        random.Random(f"{seed}/general/{turn}").shuffle(order)
        yield from order
        turn += 1
