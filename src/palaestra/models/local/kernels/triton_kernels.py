"""Fused kernels on CUDA devices: the functions of `triton_code.py`, as `fused.c` on CPUs.

Between a small network's matrix products there are many small operations. On a GPU their number
costs time, not their arithmetic: each is a separate launch. Here each function is one launch.
Without Triton, callers do the same with tensor operations.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from palaestra.models.local.kernels import triton_code as code

TILE = 4096  # entries of a row that a program holds at once
REACH = 64  # keys that an attention program holds at once


class TritonKernels:
    """Functions that `Kernels` has too, and attention, for tensors on one CUDA device."""

    def gated(self, gate_up: Tensor) -> Tensor:
        """Return silu(first half) x second half of [N, 2 inner]."""
        gate_up = gate_up.contiguous()
        inner = gate_up.shape[1] // 2
        out = gate_up.new_empty(len(gate_up), inner)
        if len(out):
            tile = min(1024, triton.next_power_of_2(inner))
            code.gated[len(out), triton.cdiv(inner, tile)](gate_up, out, inner, tile)
        return out

    def gated_backward(self, grad: Tensor, gate_up: Tensor) -> Tensor:
        """Return the gradient of `gated`, [N, 2 inner]."""
        grad, gate_up = grad.contiguous(), gate_up.contiguous()
        inner, found = grad.shape[1], torch.empty_like(gate_up)
        if len(grad):
            tile = min(1024, triton.next_power_of_2(inner))
            grid = (len(grad), triton.cdiv(inner, tile))
            code.gated_backward[grid](grad, gate_up, found, inner, tile)
        return found

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor, out: Tensor, *, back: bool) -> None:
        """Rotate x [N, heads, d] by angles [N, 1, d / 2], or back by them, into `out`.

        Only the first dimension of x and of `out` may have gaps.
        """
        rows, heads, d = x.shape
        if rows:
            ends = (out, out.stride(0), heads, d // 2, triton.next_power_of_2(heads * d // 2))
            sign = -1.0 if back else 1.0
            code.rotate[(rows,)](x, x.stride(0), cos.contiguous(), sin.contiguous(), sign, *ends)

    def token_logprobs(
        self, logits: Tensor, targets: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, entropies and normalisers of dense logits [M, V], fp32 [M]."""
        lp, nats, norm = logits.new_empty(3, len(logits), dtype=torch.float32)
        if len(logits):
            sizes = (logits.shape[1], TILE)
            code.token_logprobs[(len(logits),)](
                logits, targets, temperature, lp, nats, norm, *sizes
            )
        return lp, nats, norm

    def token_logprobs_backward(
        self,
        logits: Tensor,
        targets: Tensor,
        temperature: float,
        norm: Tensor,
        nats: Tensor,
        grad: Tensor,
        pull: Tensor | None,
    ) -> None:
        """Turn logits into their gradient; see `Kernels`."""
        rows, vocabulary = logits.shape
        if rows:
            given = (norm, nats, grad, norm if pull is None else pull, vocabulary)
            code.token_logprobs_backward[rows, triton.cdiv(vocabulary, TILE)](
                logits, targets, temperature, *given, pull is not None, TILE
            )

    def sample(
        self, logits: Tensor, temperature: Tensor, uniforms: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Sample as `sampling.sample` does; logits are dense and unchanged, the rest is fp32."""
        tokens = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
        lp, nats = logits.new_empty(2, len(logits), dtype=torch.float32)
        if len(logits):
            given = (temperature.float().contiguous(), uniforms.float().contiguous())
            code.sample[(len(logits),)](logits, *given, tokens, lp, nats, logits.shape[1], TILE)
        return tokens, lp, nats

    def widen_add(self, total: Tensor, x: Tensor) -> None:
        """Add dense x to fp32 sums of its shape."""
        total.add_(x)

    def write(self, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
        """Write keys and values of new tokens into the cache.

        Args:
            k: [N, kv_heads, d]; only the first dimension may have gaps.
            v: likewise.
            keys: of one layer, [blocks, kv_heads, block, d], dense.
            values: likewise.
            slots: each token's index among all blocks' tokens, int32 [N]; negative ones are
                not written.
        """
        _, kv_heads, block, d = keys.shape
        code.write[(len(slots),)](
            *(k, k.stride(0), v, v.stride(0), keys, values, slots),
            *(kv_heads, block, d, triton.next_power_of_2(kv_heads * d)),
        )

    def attend(
        self,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        tables: Tensor,
        tiles: Tensor,
        queries: int,
        scale: float,
    ) -> Tensor:
        """Attend each token to its sequence, up to itself.

        Args:
            q: [N, heads, d], dense; d is a power of two, at least 16.
            keys: of one layer, [blocks, kv_heads, block, d], dense.
            values: likewise.
            tables: the blocks of each sequence, int32 [sequences, width].
            tiles: int32 [tiles, 4], each a run of tokens of one sequence: the sequence, the
                first token, their number, and the number of the sequence's tokens before it.
                Empty tiles are skipped.
            queries: most tokens of a tile.
            scale: of queries times keys.

        Returns:
            [N, heads, d], undefined where no tile has the token.
        """
        _, kv_heads, block, d = keys.shape
        share, out = q.shape[1] // kv_heads, torch.empty_like(q)
        rows = max(16, triton.next_power_of_2(queries * share))
        code.attend[len(tiles), kv_heads](
            *(q, keys, values, out, tables, tables.shape[1], tiles, scale),
            *(share, kv_heads, block, d, queries, rows, REACH),
        )
        return out
