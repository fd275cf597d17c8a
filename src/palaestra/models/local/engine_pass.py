"""One pass of the engine: the next tokens of some sequences through the network.

By a CUDA graph, by compiled layers, or layer by layer, whichever the network and the device allow;
with the adapter of each sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from palaestra.core.message import Image
from palaestra.models.local.cache import KeyValueCache, Past
from palaestra.models.local.cuda_graph import CudaGraphStep, cuda_graph_step
from palaestra.models.local.engine_attention import StepAttention
from palaestra.models.local.image_features import ImageFeatures
from palaestra.models.local.kernels.layers import NativeLayers, native_layers
from palaestra.models.local.kernels.paged_attention import native_attention
from palaestra.models.local.lora import OWN
from palaestra.models.local.network import DecoderNetwork
from palaestra.models.local.packed_weights import packed


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next tokens of one sequence."""

    tokens: Sequence[int]
    past: Past  # what is known of the sequence, with room for its new tokens
    images: Mapping[int, Image] = field(default_factory=dict)  # by numbers, see `image_tokens`
    places: Tensor | None = None  # rotary positions, if not the indices, [3, N]


class EnginePass:
    """Passes of one network over one cache; what they prepare is valid until weights change."""

    splits = True
    """Whether a long prompt may be read in several passes."""

    def __init__(self, network: DecoderNetwork, cache: KeyValueCache, slots: int) -> None:
        """Prepare nothing yet.

        Args:
            network: acts with the weights that it has when it is prepared.
            cache: of the network, for its context.
            slots: sequences of a pass at most.
        """
        self.network, self.cache, self._slots = network, cache, slots
        self.acting: DecoderNetwork | None = None  # the network with packed weights
        self.layers: NativeLayers | None = None  # its blocks in one call, if available
        self._cuda_graph: CudaGraphStep | None = None  # whole passes, on CUDA devices
        self.features = ImageFeatures(network)
        config = network.config
        self.native = native_attention(
            *(config.head_dim, cache.share, cache.block, network.dtype, network.device),
            config.attention_scale,
        )

    def clear(self) -> None:
        """Forget what was prepared: the weights have changed."""
        self.features.clear()
        self.acting = self.layers = None  # keep no reference to the packed weights
        if self._cuda_graph is not None and not self._cuda_graph.current:
            self._cuda_graph = None

    def __call__(self, chunks: Sequence[Chunk]) -> Tensor:
        """Run the chunks; return the hidden state [B, width] of each one's last token."""
        last = accumulate(len(chunk.tokens) for chunk in chunks)
        return self.states(chunks)[torch.tensor([end - 1 for end in last])]

    def states(self, chunks: Sequence[Chunk]) -> Tensor:
        """Run the chunks; return the hidden states [N, width] of all their tokens, chunk by chunk.

        They are valid until the next pass.
        """
        if self.acting is None:
            self.acting = packed(self.network)
            self.layers = native_layers(self.acting, self.cache, self.native)
            self._cuda_graph = self._cuda_graph or cuda_graph_step(
                self.network, self.cache, self._slots, self.network.context
            )
        adapters = self.network.adapters
        if adapters is None or all(chunk.past.adapter == OWN for chunk in chunks):
            if self._cuda_graph is None:
                return self._run(chunks)
            return self._cuda_graph(
                [chunk.tokens for chunk in chunks],
                [chunk.past.length for chunk in chunks],
                [chunk.past.blocks for chunk in chunks],
            )
        names = [chunk.past.adapter for chunk in chunks]
        if self.network.mixes_adapters:
            counts, weight = [len(chunk.tokens) for chunk in chunks], self.network.embedding.weight
            with adapters.used_by_each(names, counts, weight):
                return self._run(chunks)
        parts: dict[int, Tensor] = {}
        for name in dict.fromkeys(names):
            own = [i for i, other in enumerate(names) if other == name]
            with adapters.used(name):
                found = self._run([chunks[i] for i in own])
            parts |= zip(own, found.split([len(chunks[i].tokens) for i in own]), strict=True)
        return torch.cat([parts[i] for i in range(len(chunks))])

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [B, vocabulary] of hidden states that a pass returned."""
        assert self.acting is not None
        return self.acting.logits(hidden)

    def _run(self, chunks: Sequence[Chunk]) -> Tensor:
        """Run the chunks without a CUDA graph."""
        network = self.acting
        assert network is not None
        attend = StepAttention(
            self.cache,
            [chunk.past.blocks for chunk in chunks],
            [chunk.past.length for chunk in chunks],
            [len(chunk.tokens) for chunk in chunks],
            self.native,
        )
        tokens = [token for chunk in chunks for token in chunk.tokens]
        x = self.features.embed(tokens, [chunk.images for chunk in chunks])
        if self.layers is not None and attend.in_place is not None:
            x = self.layers(x, attend.in_place)
        else:
            x = network.run(x, _rotary(chunks, attend.positions), attend)
        return x


def _rotary(chunks: Sequence[Chunk], indices: Tensor) -> Tensor:
    """Return the positions that the chunks' tokens are turned by, [N], or [3, N] if some differ."""
    if all(chunk.places is None for chunk in chunks):
        return indices
    parts = indices.split([len(chunk.tokens) for chunk in chunks])
    return torch.cat(
        [
            own.expand(3, -1) if chunk.places is None else chunk.places
            for chunk, own in zip(chunks, parts, strict=True)
        ],
        dim=1,
    )
