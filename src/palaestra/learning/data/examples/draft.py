"""Drafts: rows written step by step, from tokens that are on record or come from a renderer."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from palaestra.core.episode import Key
from palaestra.core.graph import Call
from palaestra.core.message import ImageSpan
from palaestra.learning.data.rows import Row, add_images, append


class Draft:
    """A row being written."""

    def __init__(self, key: Key) -> None:
        self._row = Row(key, [], [], [], [])

    def add_context(self, tokens: Sequence[int], images: Sequence[ImageSpan] = ()) -> None:
        """Add tokens that are context only, with the images among them."""
        add_images(self._row, images)
        append(self._row, tokens)

    def add_reply(self, call: Call, *, number: int | None = None, trained: bool = True) -> None:
        """Add a recorded reply of the policy, as call `number` of the row (default: its own)."""
        index = call.index if number is None else number
        append(self._row, call.completion, call if trained else None, index)

    def add_new_reply(self, tokens: Sequence[int], number: int) -> None:
        """Add a reply that no model sampled, to be trained as call `number` of the row."""
        self._row.tokens.extend(tokens)
        self._row.mask.extend([True] * len(tokens))
        self._row.logprobs.extend([math.nan] * len(tokens))
        self._row.calls.extend([number] * len(tokens))
        self._row.versions.extend([0] * len(tokens))

    def row(self) -> Row | None:
        """Return the row up to the last trained token; None if nothing is trained."""
        return only(self._row, set(self._row.calls))


def only(row: Row, calls: Collection[int]) -> Row | None:
    """Return the row training no calls but `calls`; None if nothing is left to train."""
    mask = [on and call in calls for on, call in zip(row.mask, row.calls, strict=True)]
    if not any(mask):
        return None
    end = len(mask) - mask[::-1].index(True)  # nothing depends on what follows
    mask = mask[:end]
    kept = [call if on else -1 for call, on in zip(row.calls[:end], mask, strict=True)]
    return Row(
        row.key,
        row.tokens[:end],
        mask,
        [lp if on else 0.0 for lp, on in zip(row.logprobs[:end], mask, strict=True)],
        kept,
        [version if on else 0 for version, on in zip(row.versions[:end], mask, strict=True)],
        row.roles,
        [span for span in row.images if span.start < end],
    )


def without(row: Row, calls: Collection[int]) -> Row | None:
    """Return the row without training `calls`; they stay in it as context."""
    return only(row, set(row.calls).difference(calls))
