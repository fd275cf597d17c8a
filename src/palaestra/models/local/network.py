"""A decoder-only transformer, written to act and to learn with one copy.

The network works on a flat list of tokens from any number of sequences and leaves
attention across positions to an `Attend` callable: the engine passes one that
reads and writes its key/value cache, the learner one that attends within rows.
So padding never reaches a matrix product, and acting and learning use the same
weights and the same arithmetic around attention.

What it computes is said by the traits of its `NetworkConfig`, whose defaults are Llama's (Touvron
et al. 2023): RMSNorm before each half of a layer, rotary positions, grouped-query attention,
SwiGLU. Hugging Face checkpoints load exactly (tested against transformers for each model type).
Query/key/value and gate/up are fused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from palaestra.models.local.architecture import HeadNorm, NetworkConfig
from palaestra.models.local.attention import Attend, Scores
from palaestra.models.local.feed_forward import Mixture, add_matrices, biased, feed_forward
from palaestra.models.local.kernels.elementwise import rms_norm, rotated
from palaestra.models.local.rotary import tables

if TYPE_CHECKING:
    from palaestra.models.local.lora import ActiveAdapters
    from palaestra.models.local.quantisation import Quantisation

Angles = tuple[Tensor, Tensor]
"""Cosines and sines at the positions of all tokens, [N, 1, head_dim / 2] each."""


class Block(nn.Module):
    """One transformer layer."""

    def __init__(self, config: NetworkConfig, layer: int) -> None:
        super().__init__()
        self.config, self.traits = config, config.layers[layer]
        width, d = config.hidden_size, config.head_dim
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        whole = config.head_norm is HeadNorm.WHOLE
        normed = (self.heads * d, self.kv_heads * d) if whole else (d, d)

        def vector(size: int, wanted: bool, value: float = 0.0) -> nn.Parameter | None:
            return nn.Parameter(torch.full((size,), value)) if wanted else None

        one = 1 - config.norm_offset
        self.attention_norm = vector(width, config.norm_before, one)
        self.qkv = nn.Linear(width, (self.heads + 2 * self.kv_heads) * d, bias=False)
        self.qkv_bias = vector(self.qkv.out_features, config.qkv_bias)
        self.q_norm, self.k_norm = (
            vector(size, config.head_norm is not HeadNorm.NONE, one) for size in normed
        )
        self.sinks = vector(self.heads, config.sinks)
        self.out = nn.Linear(self.heads * d, width, bias=False)
        self.out_bias = vector(width, config.out_bias)
        self.attention_after_norm = vector(width, config.norm_after, one)
        self.mlp_norm = vector(width, config.norm_before, one)
        experts = self.traits.experts
        self.mixture = None if experts is None else Mixture(config, experts)
        if experts is None:
            add_matrices(self, config, config.intermediate_size)
        self.mlp_after_norm = vector(width, config.norm_after, one)

    def forward(self, x: Tensor, angles: Angles, layer: int, attend: Attend) -> Tensor:
        """Run the layer on x [N, width]; return [N, width]."""
        found = self._attention(norm(x, self.attention_norm, self.config), angles, layer, attend)
        x = self._added(x, norm(found, self.attention_after_norm, self.config))
        inner = norm(x, self.mlp_norm, self.config)
        if self.mixture is None:
            found = feed_forward(self, inner, self.config)
        else:
            found = self.mixture(inner)
        return self._added(x, norm(found, self.mlp_after_norm, self.config))

    def _attention(self, x: Tensor, angles: Angles, layer: int, attend: Attend) -> Tensor:
        config, n = self.config, len(x)
        qkv = biased(self.qkv(x), self.qkv_bias)
        if self.q_norm is not None and self.k_norm is not None:
            d = config.head_dim
            q, k, v = qkv.split([self.heads * d, self.kv_heads * d, self.kv_heads * d], dim=1)
            q = norm(q.reshape(-1, len(self.q_norm)), self.q_norm, config).view(n, -1)
            k = norm(k.reshape(-1, len(self.k_norm)), self.k_norm, config).view(n, -1)
            qkv = torch.cat([q, k, v], dim=1)
        heads = qkv.view(n, -1, config.head_dim)
        q, k, v = rotated(heads, self.heads, self.kv_heads, *angles)
        softcap, window = config.attention_softcap, self.traits.window
        scores = Scores(config.attention_scale, window, softcap, self.sinks)
        return biased(self.out(attend(layer, q, k, v, scores).reshape(n, -1)), self.out_bias)

    def _added(self, x: Tensor, found: Tensor) -> Tensor:
        """Add what half a layer found to the residual stream."""
        if self.config.residual_multiplier != 1:
            found = found * self.config.residual_multiplier
        # added in place: a product's result is not needed for its gradient
        return found.add_(x)


class DecoderNetwork(nn.Module):
    """Embedding, blocks, final norm and (tied or separate) output head."""

    whole = False
    """Whether the blocks can only run together."""

    sees = False
    """Whether it reads images: see `SeeingNetwork`."""

    own_cache = False
    """Whether it has a cache of its own, and reads one row at a time."""

    uncalled: frozenset[str] = frozenset()
    """Linear layers whose weights are read in another way than by calling the layer."""

    adapters: ActiveAdapters | None = None
    """Which of its adapters act; None: it has none."""

    quantisation: Quantisation | None = None
    """The format of the blocks' linear layers, which are frozen; None: they are not quantised."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.context = config.max_position_embeddings
        """Tokens of the longest sequence, which an engine may shorten; longrope depends on it."""
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config, n) for n in range(config.num_hidden_layers))
        self.norm = nn.Parameter(torch.full((config.hidden_size,), 1 - config.norm_offset))
        self.head = (
            None
            if config.tie_word_embeddings
            else nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        )
        self._kinds = list(dict.fromkeys(traits.rotary for traits in config.layers))
        self._kind = [self._kinds.index(traits.rotary) for traits in config.layers]
        self._tables: dict[int, tuple[int, Tensor, Tensor]] = {}  # by kind; first the context

    @property
    def mixes_adapters(self) -> bool:
        """Whether one pass can run tokens of several adapters: experts take some tokens only."""
        experts = any(traits.experts is not None for traits in self.config.layers)
        return not (self.whole or experts)

    @property
    def depth(self) -> int:
        """The number of blocks."""
        return len(self.blocks)

    def layer_of(self, name: str) -> int | None:
        """Return the block of a parameter; `depth` for the final norm, None for any other."""
        if name == "norm":
            return self.depth
        return int(name.split(".")[1]) if name.startswith("blocks.") else None

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    @property
    def wide_dtype(self) -> torch.dtype:
        """The weights' number format, but at least fp32, for what must not lose precision."""
        return torch.promote_types(self.dtype, torch.float32)

    def embed(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.embedding(tokens)
        if self.config.embedding_multiplier == 1:
            return x
        factor = torch.tensor(self.config.embedding_multiplier, dtype=self.dtype)
        return x * factor.item()  # rounded, as in training

    def run(
        self, x: Tensor, positions: Tensor, attend: Attend, first: int = 0, last: int | None = None
    ) -> Tensor:
        """Run blocks `first` to `last` (exclusive) on hidden states [N, width]."""
        angles = self.angles(positions)
        for layer in range(first, len(self.blocks) if last is None else last):
            x = self.blocks[layer](x, angles[layer], layer, attend)
        return x

    def normed(self, x: Tensor) -> Tensor:
        """Return hidden states [M, width] of the last block through the final norm."""
        return norm(x, self.norm, self.config)

    def logits(self, x: Tensor) -> Tensor:
        """Turn hidden states [M, width] of the last block into logits [M, vocabulary]."""
        x, config = self.normed(x), self.config
        found = F.linear(x, self.embedding.weight) if self.head is None else self.head(x)
        if config.logit_divisor != 1:
            found = found / config.logit_divisor
        if config.logit_softcap is not None:
            found = torch.tanh(found / config.logit_softcap) * config.logit_softcap
        return found

    def angles(self, positions: Tensor) -> list[Angles]:
        """Return cosines and sines of each layer's angles at positions [N]; layers share them."""
        tables = [self._table(kind) for kind in range(len(self._kinds))]
        found = [(c[positions].unsqueeze(1), s[positions].unsqueeze(1)) for c, s in tables]
        return [found[kind] for kind in self._kind]

    def _table(self, kind: int) -> tuple[Tensor, Tensor]:
        """Return cosines and sines of all positions, [positions, head_dim / 2]."""
        wanted = (self.context, self.device, self.dtype)
        known = self._tables.get(kind)
        if known is None or (known[0], known[1].device, known[1].dtype) != wanted:
            shape = (self.config.head_dim, self.config.max_position_embeddings)
            weight, rotary = self.embedding.weight, self._kinds[kind]
            known = (self.context, *tables(rotary, *shape, context=self.context, like=weight))
            self._tables[kind] = known
        return known[1:]


def norm(x: Tensor, weight: Tensor | None, config: NetworkConfig) -> Tensor:
    """Return the RMS norm of the rows of x; x itself without a weight."""
    if weight is None:
        return x
    if config.norm_offset:  # in fp32: a narrow sum would lose bits of the weight
        weight = weight.to(torch.promote_types(weight.dtype, torch.float32)) + config.norm_offset
    return rms_norm(x, weight, config.rms_norm_eps)
