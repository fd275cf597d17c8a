"""The transformer once more, dense and plain: one sequence, one call at a time, no sharing.

Written from the architecture (RMSNorm before, rotary positions, grouped-query attention,
SwiGLU), so that nothing of the packed passes vouches for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from palaestra.models.local.network import DecoderNetwork


class Dense:
    """Weights that gradients reach, and plain functions of them."""

    def __init__(self, network: DecoderNetwork) -> None:
        self.config = network.config
        self.weights = {
            name: tensor.detach().clone().requires_grad_()
            for name, tensor in network.named_parameters()
        }

    def reply(
        self, context: Sequence[int], completion: Sequence[int], temperature: float = 1.0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of each token of a reply: log-probability, entropy, and the state before it."""
        states = self.states([*context, *completion[:-1]])[len(context) - 1 :]
        name = "embedding.weight" if self.config.tie_word_embeddings else "head.weight"
        logits = states @ self.weights[name].T / temperature
        lp = logits - logits.logsumexp(dim=1, keepdim=True)
        chosen = torch.stack([lp[i, token] for i, token in enumerate(completion)])
        return chosen, -(lp.exp() * lp).sum(dim=1), states

    def states(self, tokens: Sequence[int]) -> Tensor:
        """Hidden states after the final norm, [L, width]."""
        x = self.weights["embedding.weight"][list(tokens)]
        for layer in range(self.config.num_hidden_layers):
            x = x + self._attention(self._norm(x, self._of(layer, "attention_norm")), layer)
            x = x + self._feed_forward(self._norm(x, self._of(layer, "mlp_norm")), layer)
        return self._norm(x, self.weights["norm"])

    def _of(self, layer: int, name: str) -> Tensor:
        return self.weights[f"blocks.{layer}.{name}"]

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        scale = (x.square().mean(dim=1, keepdim=True) + self.config.rms_norm_eps).sqrt()
        return x / scale * weight

    def _attention(self, x: Tensor, layer: int) -> Tensor:
        heads, kv_heads = self.config.num_attention_heads, self.config.num_key_value_heads
        d, length = self.config.head_dim, len(x)
        q, k, v = (x @ self._of(layer, "qkv.weight").T).split(
            [heads * d, kv_heads * d, kv_heads * d], dim=1
        )
        allowed = torch.ones(length, length, dtype=torch.bool).tril()
        mixed = []
        for head in range(heads):
            own = slice(head * d, (head + 1) * d)
            group = head * kv_heads // heads
            theirs = slice(group * d, (group + 1) * d)
            scores = self._turned(q[:, own]) @ self._turned(k[:, theirs]).T / d**0.5
            share = scores.masked_fill(~allowed, float("-inf")).softmax(dim=1)
            mixed.append(share @ v[:, theirs])
        return torch.cat(mixed, dim=1) @ self._of(layer, "out.weight").T

    def _turned(self, x: Tensor) -> Tensor:
        """Rotary positions: feature i and feature i + d/2 are one complex number."""
        half = x.shape[1] // 2
        speed = torch.arange(half, dtype=x.dtype) / half
        angle = torch.outer(
            torch.arange(len(x), dtype=x.dtype), self.config.layers[0].rotary.theta ** -speed
        )
        a, b = x[:, :half], x[:, half:]
        return torch.cat(
            [a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=1
        )

    def _feed_forward(self, x: Tensor, layer: int) -> Tensor:
        gate, up = (x @ self._of(layer, "gate_up.weight").T).chunk(2, dim=1)
        return (gate * gate.sigmoid() * up) @ self._of(layer, "down.weight").T
