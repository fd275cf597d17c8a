"""A decoder-only transformer (Llama family), written to act and to learn with one copy.

The network works on a flat list of tokens from any number of sequences and leaves
attention across positions to an `Attend` callable: the engine passes one that
reads and writes its key/value cache, the learner one that attends within rows.
So padding never reaches a matrix product, and acting and learning run the very
same weights and the very same arithmetic around attention.

Architecture: Touvron et al. 2023 (pre-norm RMSNorm, rotary positions, grouped-query
attention, SwiGLU); weights of Hugging Face `LlamaForCausalLM` checkpoints load
exactly (tested against transformers). Query/key/value and gate/up are fused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from palaestra.core.errors import InputError
from palaestra.models.elementwise import gated, rms_norm, rotated

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [N, heads, d], k [N, kv_heads, d], v [N, kv_heads, d]) -> [N, heads, d]."""


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Sizes of the network, in the words of Hugging Face's `config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = True

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @classmethod
    def read(cls, folder: Path) -> NetworkConfig:
        """From a checkpoint folder; raises InputError for other architectures."""
        data = json.loads((folder / "config.json").read_text())
        if data.get("model_type") != "llama":
            raise InputError(
                f"The model in '{folder}' is of type '{data.get('model_type')}'; the resident "
                "model runs the Llama architecture only. Serve it and use openai:MODEL@URL."
            )
        rope = data.get("rope_parameters") or {}
        scaled = (data.get("rope_scaling") or rope).get("rope_type", "default")
        if scaled != "default" or data.get("attention_bias") or data.get("mlp_bias"):
            raise InputError(
                f"The model in '{folder}' uses scaled rotary positions or biases, which the "
                "resident model does not have. Serve it elsewhere and use openai:MODEL@URL."
            )
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        if "rope_theta" in rope:
            known["rope_theta"] = rope["rope_theta"]
        return cls(**known)

    def write(self, folder: Path) -> None:
        data = {
            **asdict(self),
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_act": "silu",
            "head_dim": self.head_dim,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
        }
        (folder / "config.json").write_text(json.dumps(data, indent=2) + "\n")


class Block(nn.Module):
    """One transformer layer."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        width, d = config.hidden_size, config.head_dim
        self.heads, self.kv_heads, self.head_dim = (
            config.num_attention_heads,
            config.num_key_value_heads,
            d,
        )
        self.eps = config.rms_norm_eps
        self.attention_norm = nn.Parameter(torch.ones(width))
        self.qkv = nn.Linear(width, (self.heads + 2 * self.kv_heads) * d, bias=False)
        self.out = nn.Linear(self.heads * d, width, bias=False)
        self.mlp_norm = nn.Parameter(torch.ones(width))
        self.gate_up = nn.Linear(width, 2 * config.intermediate_size, bias=False)
        self.down = nn.Linear(config.intermediate_size, width, bias=False)

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor], layer: int, attend: Attend
    ) -> Tensor:
        """x and the result: [N, width]."""
        n = x.shape[0]
        qkv = self.qkv(rms_norm(x, self.attention_norm, self.eps)).view(n, -1, self.head_dim)
        q, k, v = rotated(qkv, self.heads, self.kv_heads, *rotary)
        # added in place to what nobody keeps: a product's result is no part of its gradient
        x = self.out(attend(layer, q, k, v).reshape(n, -1)).add_(x)
        return self.down(gated(self.gate_up(rms_norm(x, self.mlp_norm, self.eps)))).add_(x)


class DecoderNetwork(nn.Module):
    """Embedding, blocks, final norm and (tied or separate) output head."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.Parameter(torch.ones(config.hidden_size))
        self.head = (
            None
            if config.tie_word_embeddings
            else nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        )
        self._rotary: tuple[Tensor, Tensor] | None = None

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.embedding.weight.device

    @property
    def wide_dtype(self) -> torch.dtype:
        """That of the weights, but at least fp32: for what must not lose precision."""
        return torch.promote_types(self.dtype, torch.float32)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens)

    def run(
        self, x: Tensor, positions: Tensor, attend: Attend, first: int = 0, last: int | None = None
    ) -> Tensor:
        """Run blocks `first` to `last` (exclusive) on hidden states [N, width]."""
        rotary = self.rotary(positions)
        for layer in range(first, len(self.blocks) if last is None else last):
            x = self.blocks[layer](x, rotary, layer, attend)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """Hidden states [M, width] of the last block to logits [M, vocabulary]."""
        x = rms_norm(x, self.norm, self.config.rms_norm_eps)
        return F.linear(x, self.embedding.weight) if self.head is None else self.head(x)

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [N, 1, head_dim / 2] of the angles at positions [N]."""
        kind = (self.device, self.dtype)
        if self._rotary is None or (self._rotary[0].device, self._rotary[0].dtype) != kind:
            d, wide = self.config.head_dim, self.wide_dtype
            inverse = self.config.rope_theta ** (
                -torch.arange(0, d, 2, dtype=wide, device=self.device) / d
            )
            count = torch.arange(
                self.config.max_position_embeddings, dtype=wide, device=self.device
            )
            angles = torch.outer(count, inverse)
            self._rotary = (angles.cos().to(self.dtype), angles.sin().to(self.dtype))
        cos, sin = self._rotary
        return cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
