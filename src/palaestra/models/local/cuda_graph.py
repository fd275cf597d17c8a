"""CUDA graphs: an engine's step on a CUDA device, recorded once and replayed.

A step of a small network is hundreds of short kernel launches, and the interpreter takes longer to
issue them than the device to run them. So each size of step is recorded as a CUDA graph at its
first use, and replayed as one launch from then on. What differs between steps (tokens, positions,
blocks) is written to one buffer before each replay. Sizes are rounded up with padding tokens that
are not written to the cache and attend to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from palaestra.models.local.attention import Scores
from palaestra.models.local.cache import KeyValueCache
from palaestra.models.local.kernels.fused import triton_kernels
from palaestra.models.local.network import DecoderNetwork

if TYPE_CHECKING:
    from palaestra.models.local.kernels.triton_kernels import TritonKernels

TILE = 16  # new tokens of a sequence per tile, if any sequence has several

Numbers = NDArray[np.int32]


class CudaGraphStep:
    """Recorded steps of one network over one cache; they see weights that change in place."""

    def __init__(
        self,
        network: DecoderNetwork,
        cache: KeyValueCache,
        kernels: TritonKernels,
        slots: int,
        context: int,
    ) -> None:
        """Use `cuda_graph_step`."""
        self.network, self.cache, self.kernels = network, cache, kernels
        self._table = (slots, -(-context // cache.block))
        self._recorded: dict[tuple[int, int], _Recorded] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._weights = _addresses(network)

    @property
    def current(self) -> bool:
        """Whether the network's weights are still at their recorded addresses."""
        return self._weights == _addresses(self.network)

    def __call__(
        self,
        chunks: Sequence[Sequence[int]],
        starts: Sequence[int],
        blocks: Sequence[Sequence[int]],
    ) -> Tensor:
        """Run the next tokens of some sequences.

        Args:
            chunks: the tokens of each.
            starts: how many tokens of each are known.
            blocks: of each, enough for its new tokens.

        Returns:
            the hidden states of all tokens, [tokens, width], valid until the next step.
        """
        counts = np.fromiter(map(len, chunks), np.int32, len(chunks))
        total, most = int(counts.sum()), int(counts.max())
        recorded = self._step(_rounded(total), 1 if most == 1 else TILE)
        recorded.write(chunks, counts, np.asarray(starts, np.int32), blocks, self.cache.block)
        recorded.graph.replay()
        return recorded.hidden[:total]

    def _step(self, tokens: int, queries: int) -> _Recorded:
        found = self._recorded.get((tokens, queries))
        if found is None:
            found = self._recorded[tokens, queries] = self._record(tokens, queries)
        return found

    def _record(self, tokens: int, queries: int) -> _Recorded:
        tiles = tokens if queries == 1 else -(-tokens // queries) + min(tokens, self._table[0])
        inputs = _Inputs.of(tokens, tiles, self._table, self.network.device)
        attend = _Attend(self.cache, self.kernels, inputs, queries)

        def run() -> Tensor:
            x = self.network.embed(inputs.tokens)
            return self.network.run(x, inputs.positions, attend)

        # run once unrecorded: libraries and kernels initialize at their first use
        aside, here = torch.cuda.Stream(), torch.cuda.current_stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            run()
        here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            hidden = run()
        return _Recorded(graph, inputs, queries, hidden)


def cuda_graph_step(
    network: DecoderNetwork, cache: KeyValueCache, slots: int, context: int
) -> CudaGraphStep | None:
    """Return the recorder; None without a CUDA device or Triton, or where a step can't be recorded.

    Heads of unusual sizes, attention that is not plain, and experts, whose numbers of tokens the
    host must know, are not recorded.
    """
    if network.whole:  # its own code may ask the host for numbers
        return None
    if network.device.type != "cuda" or network.dtype not in (torch.bfloat16, torch.float32):
        return None
    config, kernels = network.config, triton_kernels()
    if kernels is None or config.head_dim not in (16, 32, 64, 128, 256):
        return None
    if not config.plain_attention(context) or any(layer.experts for layer in config.layers):
        return None
    return CudaGraphStep(network, cache, kernels, slots, context)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Inputs of a recorded step: views of one device buffer, all int32."""

    memory: Tensor
    tokens: Tensor  # [N]
    positions: Tensor  # [N]
    slots: Tensor  # [N], see `TritonKernels.write`
    tiles: Tensor  # [M, 4], see `TritonKernels.attend`
    tables: Tensor  # [sequences, width]

    @classmethod
    def of(cls, tokens: int, tiles: int, table: tuple[int, int], device: torch.device) -> _Inputs:
        sizes = [tokens, tokens, tokens, 4 * tiles, table[0] * table[1]]
        memory = torch.zeros(sum(sizes), dtype=torch.int32, device=device)
        token_ids, positions, slots, tiled, tables = memory.split(sizes)
        slots.fill_(-1)
        return cls(memory, token_ids, positions, slots, tiled.view(-1, 4), tables.view(table))


class _Attend:
    """An `Attend` over a recorded step's inputs."""

    def __init__(
        self, cache: KeyValueCache, kernels: TritonKernels, inputs: _Inputs, queries: int
    ) -> None:
        self.cache, self.kernels, self.inputs, self.queries = cache, kernels, inputs, queries

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
        keys, values, inputs = self.cache.keys[layer], self.cache.values[layer], self.inputs
        self.kernels.write(k, v, keys, values, inputs.slots)
        tables, tiles = inputs.tables, inputs.tiles
        return self.kernels.attend(q, keys, values, tables, tiles, self.queries, scores.scale)


class _Recorded:
    """One recorded size of step."""

    def __init__(
        self, graph: torch.cuda.CUDAGraph, inputs: _Inputs, queries: int, hidden: Tensor
    ) -> None:
        self.graph, self.hidden, self._inputs, self._queries = graph, hidden, inputs, queries
        # a page-locked copy of the inputs, and views of it
        self._memory = torch.empty_like(inputs.memory, device="cpu", pin_memory=True)
        n, m = len(inputs.tokens), 4 * len(inputs.tiles)
        at = np.cumsum([n, n, n, m])
        whole: Numbers = self._memory.numpy()
        self._tokens, self._positions, self._slots, tiles, tables = np.split(whole, at)
        self._tiles, self._tables = tiles.reshape(-1, 4), tables.reshape(inputs.tables.shape)
        self._tables[:] = 0

    def write(
        self,
        chunks: Sequence[Sequence[int]],
        counts: Numbers,
        starts: Numbers,
        blocks: Sequence[Sequence[int]],
        block: int,
    ) -> None:
        """Write the inputs of the next replay; see `CudaGraphStep.__call__`."""
        for row, held in zip(self._tables, blocks, strict=False):
            row[: len(held)] = held
        total, ends = int(counts.sum()), counts.cumsum()
        row = np.repeat(np.arange(len(counts)), counts)
        positions = np.arange(total) - (ends - counts - starts)[row]
        self._tokens[:total] = [token for chunk in chunks for token in chunk]
        self._tokens[total:] = 0
        self._positions[:total] = positions
        self._positions[total:] = 0
        self._slots[:total] = self._tables[row, positions // block] * block + positions % block
        self._slots[total:] = -1
        each = -(-counts // self._queries)  # tiles
        row = np.repeat(np.arange(len(counts)), each)
        before = (np.arange(len(row)) - (each.cumsum() - each)[row]) * self._queries
        self._tiles[: len(row), 0] = row
        self._tiles[: len(row), 1] = (ends - counts)[row] + before
        self._tiles[: len(row), 2] = np.minimum(self._queries, counts[row] - before)
        self._tiles[: len(row), 3] = starts[row] + before
        self._tiles[len(row) :] = 0
        self._inputs.memory.copy_(self._memory)


def _rounded(tokens: int) -> int:
    """Return the next recorded size: a power of two, or three quarters of one from 24 on."""
    power = 1 << (tokens - 1).bit_length()
    return power * 3 // 4 if power >= 32 and tokens <= power * 3 // 4 else power


def _addresses(network: DecoderNetwork) -> list[int]:
    return [parameter.data_ptr() for parameter in network.parameters()]
