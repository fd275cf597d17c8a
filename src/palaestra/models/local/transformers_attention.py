"""transformers' interface of attention, answered by an `Attend` of ours.

transformers asks a named function for the attention of each layer. Ours passes the question on to
the `Attend` of the code that runs the model at the moment: the engine's over its cache, or the
learner's along packed rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

from palaestra.models.local.attention import Attend, Scores, general_attention

ATTENTION = "palaestra"  # the name of `_attention` among transformers' implementations

_attend: ContextVar[Attend] = ContextVar("attend")


@contextmanager
def attending(attend: Attend) -> Iterator[None]:
    """Answer transformers' questions by `attend` meanwhile."""
    token = _attend.set(attend)
    try:
        yield
    finally:
        _attend.reset(token)


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers asks for it.

    Args:
        module: the layer's attention.
        query: [1, heads, N, d].
        key: [1, kv_heads, N, d].
        value: [1, kv_heads, N, d'] with d' <= d.
        attention_mask: unused; who attends to whom is known to the `Attend`.
        scaling: of the scores; None: d^-1/2.
        sliding_window: see `Scores.window`.
        softcap: see `Scores.softcap`.
        s_aux: see `Scores.sinks`.
        others: of other implementations, and dropout: models are in evaluation mode.
    """
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    d, own = q.shape[-1], v.shape[-1]
    scores = Scores(d**-0.5 if scaling is None else scaling, sliding_window, softcap, s_aux)
    padded = F.pad(v, (0, d - own)) if own < d else v
    found = _attend.get()(
        module.layer_idx, q.contiguous(), k.contiguous(), padded.contiguous(), scores
    )
    return found[None, ..., :own].contiguous(), None


class Beside:
    """An `Attend` over sequences of known lengths, one after the other."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._row = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
        row, at = self._row.to(q.device), torch.arange(len(q), device=q.device)
        seen = (row[:, None] == row) & (at[:, None] >= at)
        if scores.window is not None:
            seen &= at[:, None] - at < scores.window
        return general_attention(q[None], k[None], v[None], seen[None], scores)[0]


AttentionInterface.register(ATTENTION, _attention)
