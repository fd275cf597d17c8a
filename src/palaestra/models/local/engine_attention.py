"""Attention of one engine step: any number of sequences, each with a few or many new tokens.

Tokens are stored flat, sequence after sequence. Their keys and values are written into the cache
first; then each token attends to its sequence up to itself. Sequences with few new tokens
(decoding), in fp32 those with any number, use the compiled attention if it is available. All others
are computed in groups of nearly equal length, on copies of their keys and values, padded to the
longest of the group. So are all sequences in layers that need more than plain attention (windows,
caps, sinks).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.models.local.attention import Scores, causal, general_attention
from palaestra.models.local.cache import KeyValueCache
from palaestra.models.local.kernels.causal_attention import native_causal
from palaestra.models.local.kernels.paged_attention import NativeAttention

FEW = 4  # new tokens of a sequence up to which reading in place beats a matrix product
PADDING = 1.5  # greatest ratio of a group's longest to its shortest sequence, short ones aside
SHORT = 64  # tokens

Part = Callable[[Tensor, Tensor, Tensor, Scores], Tensor]
"""(q [n, heads, d], keys and values of a layer, how) -> [n, heads, d]."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """Inputs of `layers.c` for tokens that all read their sequences' blocks in place."""

    positions: Tensor  # [N]
    written: Tensor  # rows of the stores that get their keys and values, [N * kv_heads], int64
    table: Tensor  # the blocks of each sequence, [sequences, width], int32
    rows: Tensor  # which sequence each token belongs to, [N], int32
    lengths: Tensor  # how many tokens each one attends to, [N], int32


def rank(start: int, count: int) -> tuple[int, int]:
    """Return the sort key of a sequence with `count` new tokens after `start` known ones."""
    return count if count <= FEW else FEW + count.bit_length(), start + count


class StepAttention:
    """An `Attend` for the tokens of one step; everything that layers share is computed once."""

    def __init__(
        self,
        cache: KeyValueCache,
        blocks: Sequence[Sequence[int]],
        starts: Sequence[int],
        counts: Sequence[int],
        native: NativeAttention | None,
    ) -> None:
        """Prepare a step.

        Args:
            cache: holds the keys and values, also those of the new tokens.
            blocks: of each sequence, enough for its new tokens; sequences sorted by `rank`.
            starts: known tokens of each sequence.
            counts: new tokens of each sequence.
            native: compiled attention; None uses tensors only.
        """
        self.cache, device = cache, cache.keys[0].device
        width = max(map(len, blocks))
        padded = [[*row, *[row[0]] * (width - len(row))] for row in blocks]
        table = torch.tensor(padded, dtype=torch.int32, device=device)
        start = torch.tensor(starts, device=device)
        count = torch.tensor(counts, device=device)
        ends = count.cumsum(0)
        row = torch.repeat_interleave(torch.arange(len(counts), device=device), count)
        offset = torch.arange(len(row), device=device) - (ends - count)[row]
        self.positions = start[row] + offset
        block = table[row, self.positions // cache.block]
        heads = torch.arange(cache.kv_heads, device=device)
        place = (block.unsqueeze(1) * cache.kv_heads + heads) * cache.block
        self._written = (place + (self.positions % cache.block).unsqueeze(1)).flatten().long()
        self._sequences = (table, starts, counts)
        self._reach = max(s + n for s, n in zip(starts, counts, strict=True))
        self._general: dict[int | None, list[tuple[int, int, Part]]] = {}  # parts by window
        many = native is not None and native.reads_many
        few = len(counts) if many else sum(n <= FEW for n in counts)
        self._parts: list[tuple[int, int, Part]] = []  # first token, last token (exclusive), how
        self.in_place: InPlace | None = None  # set if all tokens read their blocks in place
        if few and native is not None:
            until = sum(counts[:few])
            part = _Native(native, table, row[:until], self.positions)
            self._parts.append((0, until, part))
            if until == len(row):
                self.in_place = InPlace(
                    self.positions, self._written, table, part.rows, part.lengths
                )
        else:
            few = 0
        at = sum(counts[:few])
        for first, last in _groups(starts, counts, few):
            tokens = sum(counts[first:last])
            group = _Group(cache, table[first:last], starts[first:last], counts[first:last], native)
            self._parts.append((at, at + tokens, group))
            at += tokens

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        d = q.shape[-1]
        keys.view(-1, d).index_copy_(0, self._written, k.reshape(-1, d))
        values.view(-1, d).index_copy_(0, self._written, v.reshape(-1, d))
        parts = self._parts if scores.plain(self._reach) else self._general_parts(scores.window)
        mixed = [part(q[first:last], keys, values, scores) for first, last, part in parts]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)

    def _general_parts(self, window: int | None) -> list[tuple[int, int, Part]]:
        """Return the parts of layers that need more than plain attention."""
        if window not in self._general:
            table, starts, counts = self._sequences
            parts: list[tuple[int, int, Part]] = []
            at = 0
            for first, last in _groups(starts, counts, 0):
                own = slice(first, last)
                group = _GeneralGroup(self.cache, table[own], starts[own], counts[own], window)
                tokens = sum(counts[own])
                parts.append((at, at + tokens, group))
                at += tokens
            self._general[window] = parts
        return self._general[window]


class _Native:
    """Tokens that each read their sequence's blocks in place."""

    def __init__(
        self, native: NativeAttention, table: Tensor, row: Tensor, positions: Tensor
    ) -> None:
        self._native, self._table, self.rows = native, table, row.int()
        self.lengths = positions[: len(row)].int() + 1

    def __call__(self, q: Tensor, keys: Tensor, values: Tensor, scores: Scores) -> Tensor:
        return self._native(q, keys, values, self._table, self.rows, self.lengths)


class _Group:
    """Sequences computed together, padded to the most new tokens and blocks of any."""

    def __init__(
        self,
        cache: KeyValueCache,
        table: Tensor,
        starts: Sequence[int],
        counts: Sequence[int],
        native: NativeAttention | None,
    ) -> None:
        device = table.device
        self.rows, self.new, self.share = len(counts), max(counts), cache.share
        self._native = native
        self._starts = torch.tensor(starts, dtype=torch.int32, device=device)
        reach = max(s + n for s, n in zip(starts, counts, strict=True))
        self.reach = -(-reach // cache.block) * cache.block  # whole blocks
        heads = torch.arange(cache.kv_heads, device=device).unsqueeze(1)
        blocks = table[:, None, : self.reach // cache.block] * cache.kv_heads + heads
        self._blocks = blocks.flatten()  # of [rows, kv_heads, blocks]
        self._places = _places(counts, device)
        self._mask = None if native is not None else self._unseen(cache.keys[0].dtype)

    def _unseen(self, dtype: torch.dtype) -> Tensor:
        """Return the mask [rows, 1, share * new, reach]: 0 where visible, else minus infinity."""
        device = self._starts.device
        last = self._starts.unsqueeze(1) + torch.arange(self.new, device=device)
        seen = torch.arange(self.reach, device=device) <= last.unsqueeze(2)
        mask = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf)
        return mask.repeat(1, self.share, 1).unsqueeze(1)

    def __call__(self, q: Tensor, keys: Tensor, values: Tensor, scores: Scores) -> Tensor:
        heads, d = q.shape[1:]
        rows, new, share = self.rows, self.new, self.share
        if self._places is not None:
            padded = q.new_zeros(rows * new, heads, d)
            q = padded.index_copy_(0, self._places, q)
        # query heads that share a key head become further queries of that head
        q = q.view(rows, new, -1, share, d).permute(0, 2, 3, 1, 4)
        q = q.reshape(-1, share * new, d)
        k, v = (self._gathered(x, d) for x in (keys, values))
        if q.is_cuda:
            q, k, v = (x.unflatten(0, (rows, -1)) for x in (q, k, v))
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=self._mask, scale=scores.scale)
        else:  # plain products, as the learner computes them: same rounding
            nothing = q.new_empty(())
            found = torch.baddbmm(nothing, q, k.mT, beta=0, alpha=scores.scale)
            out = self._mixed(self._softmax(found, heads), v)
        out = out.view(rows, -1, share, new, d).permute(0, 3, 1, 2, 4).reshape(-1, heads, d)
        return out if self._places is None else out.index_select(0, self._places)

    def _mixed(self, weights: Tensor, v: Tensor) -> Tensor:
        """Return the weighted values, computed as the learner does: equal to the bit."""
        native = native_causal(v)
        if native is None:
            return torch.bmm(weights, v)
        return native.weigh(weights, v, v.new_empty(*weights.shape[:2], v.shape[2]))

    def _softmax(self, scores: Tensor, heads: int) -> Tensor:
        """Return the softmax of [rows * kv_heads, share * new, reach] over visible entries."""
        if self._native is not None:
            self._native.softmax(scores.view(self.rows, heads, self.new, -1), self._starts)
            return scores
        assert self._mask is not None
        seen = scores.view(self.rows, -1, *scores.shape[1:]).add_(self._mask)
        return seen.softmax(dim=-1).view(scores.shape)

    def _gathered(self, store: Tensor, d: int) -> Tensor:
        """Return a copy of the group's entries, [rows * kv_heads, reach, d]."""
        block = store.shape[2] * d
        return store.view(-1, block).index_select(0, self._blocks).view(-1, self.reach, d)


class _GeneralGroup:
    """Sequences computed together in general attention, on the blocks that their window reaches."""

    def __init__(
        self,
        cache: KeyValueCache,
        table: Tensor,
        starts: Sequence[int],
        counts: Sequence[int],
        window: int | None,
    ) -> None:
        device, block = table.device, cache.block
        self.rows, self.new = len(counts), max(counts)
        least = [0 if window is None else max(0, s + 1 - window) // block for s in starts]
        ends = [-(-(s + n) // block) for s, n in zip(starts, counts, strict=True)]
        self.blocks = max(end - first for first, end in zip(least, ends, strict=True))
        first = torch.tensor(least, device=device)
        # beyond a sequence's own blocks, keys count as later ones, which no query sees
        column = (first[:, None] + torch.arange(self.blocks, device=device)).clamp_(
            max=table.shape[1] - 1
        )
        self._blocks = table.gather(1, column).flatten()
        start = torch.tensor(starts, device=device)
        self._seen = causal(start, first * block, self.new, self.blocks * block, window)
        self._places = _places(counts, device)

    def __call__(self, q: Tensor, keys: Tensor, values: Tensor, scores: Scores) -> Tensor:
        heads, d = q.shape[1:]
        if self._places is not None:
            padded = q.new_zeros(self.rows * self.new, heads, d)
            q = padded.index_copy_(0, self._places, q)
        k, v = (self._gathered(x) for x in (keys, values))
        asked = q.view(self.rows, self.new, heads, d)
        out = general_attention(asked, k, v, self._seen, scores).flatten(0, 1)
        return out if self._places is None else out.index_select(0, self._places)

    def _gathered(self, store: Tensor) -> Tensor:
        """Return a copy of the group's entries, [rows, blocks * block, kv_heads, d]."""
        found = store.index_select(0, self._blocks).transpose(1, 2)
        return found.reshape(self.rows, -1, *found.shape[2:])


def _places(counts: Sequence[int], device: torch.device) -> Tensor | None:
    """Return the indices of flat queries among padded ones; None if there is no padding."""
    if min(counts) == max(counts):
        return None
    count = torch.tensor(counts, device=device).unsqueeze(1)
    new = torch.arange(max(counts), device=device) < count
    return new.flatten().nonzero().squeeze(1)


def _groups(starts: Sequence[int], counts: Sequence[int], first: int) -> list[tuple[int, int]]:
    """Split the sequences from number `first` on into runs nearly equal in both lengths."""
    found: list[tuple[int, int]] = []
    at = first
    for i in range(first, len(counts)):
        size, reach = rank(starts[i], counts[i])
        least, shortest = rank(starts[at], counts[at])
        if size != least or reach > PADDING * shortest + SHORT:
            found.append((at, i))
            at = i
    if at < len(counts):
        found.append((at, len(counts)))
    return found
