"""Log-probabilities of rows under a network, for tests of what it knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from palaestra.learning.compute.logprobs import token_logprobs
from palaestra.learning.compute.packing import Micro, Trained, micro_batches, per_row
from palaestra.learning.data.rows import Row
from palaestra.models.local.network import DecoderNetwork

MOST_TOKENS = 2048  # of a forward pass; a longer row is one of its own


def row_logprobs(network: DecoderNetwork, rows: Sequence[Row]) -> list[list[float]]:
    """Return the log-probabilities, at temperature 1, of the trained tokens of each row."""
    whole = [Trained(row.tokens, row.mask, roles=row.roles) for row in rows]

    def compute(groups: list[list[Trained]]) -> Iterator[Tensor]:
        for group in groups:
            micro = Micro(group, network)
            hidden = micro.hidden().index_select(0, micro.predictors)
            yield token_logprobs(network, hidden, micro.targets, 1.0, entropy_gradient=False)[0]

    with torch.no_grad():
        return per_row(whole, micro_batches(whole, MOST_TOKENS, network), compute)
