"""Micro-batches for several processes: as many as they can run at once, of about equal size."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.learning.compute.packing import Trained, keys, merged, micro_batches
from palaestra.models.local.image_tokens import ImageNumbers
from palaestra.models.local.network import DecoderNetwork

SLACKS = (1.0, 1.1, 1.25, 1.5, 2.0)
"""By how much a group may exceed an even share, tried in this order: rows cannot be split."""


def even_batches(
    rows: Sequence[Trained],
    most_tokens: int,
    parts: int,
    network: DecoderNetwork,
    *,
    whole_rollouts: bool = False,
) -> list[list[Trained]]:
    """Return `micro_batches` whose number is a multiple of `parts` if possible, the largest first.

    So `parts` processes that take one each, round by round, all have about as much to do.

    Args:
        rows: in any order.
        most_tokens: bound on the size of a forward pass.
        parts: at least 1.
        network: see `micro_batches`.
        whole_rollouts: likewise.
    """

    def cut(most: int) -> list[list[Trained]]:
        return micro_batches(rows, most, network, whole_rollouts=whole_rollouts)

    def size(group: list[Trained]) -> int:
        return tokens_run(group, alone=network.own_cache)

    groups = cut(most_tokens)
    wanted = -(-len(groups) // parts) * parts
    share = sum(map(size, groups)) / max(wanted, 1)
    for slack in SLACKS:
        smaller = int(share * slack) + 1
        if len(groups) == wanted or smaller >= most_tokens:
            break
        found = cut(smaller)
        if len(found) <= wanted:
            groups = found
            break
    return sorted(groups, key=size, reverse=True)


def tokens_run(rows: Sequence[Trained], *, alone: bool) -> int:
    """Return how many tokens a pass over rows runs; `alone`: each row by itself."""
    if alone:
        return sum(len(row.tokens) for row in rows)
    number = ImageNumbers()
    return len(merged([keys(row, number) for row in rows])[0])
