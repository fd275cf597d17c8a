"""Keys and values of past tokens, in slots that sessions share and extend.

A slot holds the keys and values of one token sequence. A request takes the slot
whose tokens it extends (the next turn of a session), or a free slot into which the
longest known prefix is copied (the system prompt, the task of a group, a fork).
Slots are found by their tokens alone: no caller has to say which session it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from palaestra.models.network import DecoderNetwork


@dataclass(slots=True)
class Slot:
    """One row of the cache; `tokens` are those whose keys and values it holds."""

    index: int
    tokens: list[int] = field(default_factory=list)
    busy: bool = False
    last_used: int = 0


class KeyValueCache:
    """`slots` sequences of up to `limit` tokens; memory grows with the longest one."""

    def __init__(self, network: DecoderNetwork, slots: int, limit: int) -> None:
        config = network.config
        self.limit = limit
        self.slots = [Slot(i) for i in range(slots)]
        self.share = config.num_attention_heads // config.num_key_value_heads
        self._clock = 0
        shape = (
            config.num_hidden_layers,
            slots,
            config.num_key_value_heads,
            min(limit, 256),
            config.head_dim,
        )
        self.keys = torch.zeros(shape, dtype=network.dtype, device=network.device)
        self.values = torch.zeros_like(self.keys)

    def clear(self) -> None:
        """Forget everything, as if new: the weights have changed."""
        if any(slot.busy for slot in self.slots):
            raise RuntimeError("the weights changed while a reply was being sampled")
        self.slots = [Slot(i) for i in range(len(self.slots))]
        self._clock = 0

    def acquire(self, tokens: Sequence[int]) -> Slot | None:
        """A slot that holds the longest known proper prefix of `tokens`; None if all are busy."""
        self._clock += 1
        slot = self._continued(tokens) or self._copied(tokens)
        if slot is not None:
            slot.busy, slot.last_used = True, self._clock
        return slot

    def longest_known(self, tokens: Sequence[int]) -> tuple[int, Slot | None]:
        """How many leading tokens some slot already holds, and which."""
        best, where = 0, None
        for slot in self.slots:
            length = common_prefix(slot.tokens, tokens)
            if length > best:
                best, where = length, slot
        return best, where

    def reserve(self, length: int) -> None:
        """Make room for sequences of `length` tokens."""
        have = self.keys.shape[3]
        if length <= have:
            return
        size = min(self.limit, max(length, 2 * have))
        for name in ("keys", "values"):
            old: Tensor = getattr(self, name)
            new = old.new_zeros((*old.shape[:3], size, old.shape[4]))
            new[:, :, :, :have] = old
            setattr(self, name, new)

    def _continued(self, tokens: Sequence[int]) -> Slot | None:
        """The idle slot with most tokens of which all are a proper prefix of `tokens`."""
        best: Slot | None = None
        for slot in self.slots:
            n = len(slot.tokens)
            if slot.busy or not 0 < n < len(tokens) or (best and n <= len(best.tokens)):
                continue
            if slot.tokens[-1] == tokens[n - 1] and slot.tokens == list(tokens[:n]):
                best = slot
        return best

    def _copied(self, tokens: Sequence[int]) -> Slot | None:
        """The least recently used idle slot, with the longest known prefix copied into it."""
        idle = [slot for slot in self.slots if not slot.busy]
        if not idle:
            return None
        target = min(idle, key=lambda slot: (bool(slot.tokens), slot.last_used))
        length, source = self.longest_known(tokens)
        length = min(length, len(tokens) - 1)  # the last token must be run to be answered
        if source is not None and source is not target and length > 0:
            for store in (self.keys, self.values):
                store[:, target.index, :, :length] = store[:, source.index, :, :length]
        target.tokens = list(tokens[:length])
        return target


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    n = min(len(a), len(b))
    if n == 0 or a[0] != b[0]:
        return 0
    low, high = 0, n  # binary search on equality of slices, which C compares
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
