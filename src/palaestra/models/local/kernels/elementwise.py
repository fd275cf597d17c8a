"""Elementwise operations of a block, between its matrix products, forward and backward.

The backward passes are written by hand: autograd would save most intermediate results, these save
the inputs only. With compiled functions (see `fused.py`), each operation is one pass through
memory; otherwise tensor operations compute the same, in place.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from palaestra.models.local.kernels.fused import kernels_for, processor_kernels


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the RMS norm (Zhang and Sennrich 2019) of x [N, width], computed in at least fp32."""
    if x.is_cuda and weight.dtype is x.dtype:
        return F.rms_norm(x, (x.shape[-1],), weight, eps)  # one kernel there
    if not torch.is_grad_enabled():
        return _normed(x, weight, eps)[0]
    out: Tensor = _RMSNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
    return out


def gated(gate_up: Tensor) -> Tensor:
    """Apply SwiGLU's gate (Shazeer 2020): [N, 2 inner] to silu(first half) x second half."""
    if not torch.is_grad_enabled():
        return _opened(gate_up)
    out: Tensor = _Gated.apply(gate_up)  # type: ignore[no-untyped-call]
    return out


def rotated(
    qkv: Tensor, heads: int, kv_heads: int, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries and keys with rotary positions (Su et al. 2021), and values.

    Args:
        qkv: [N, heads + 2 kv_heads, d]; features i and i + d/2 of a head are one complex number.
        heads: of the queries, which come first.
        kv_heads: of the keys, and of the values.
        cos: of each position's angles, [N, 1, d / 2].
        sin: likewise.

    Returns:
        [N, heads, d], [N, kv_heads, d] and [N, kv_heads, d].
    """
    if not torch.is_grad_enabled():
        return _turned(qkv, heads, kv_heads, cos, sin)
    q, k, v = _Rotated.apply(qkv, heads, kv_heads, cos, sin)  # type: ignore[no-untyped-call]
    return q, k, v


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out, scale = _normed(x, weight, eps)
        ctx.save_for_backward(x, weight, scale)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, weight, scale = ctx.saved_tensors
        kernels = processor_kernels(x) if weight.dtype is x.dtype else None
        if kernels is not None:
            found, own = kernels.rms_norm_backward(grad, x, weight, scale)
            return found, own.to(weight.dtype) if ctx.needs_input_grad[1] else None, None
        # y = n w with n = x scale;  dx = scale (dy w - n mean(dy w n)),  dw = sum of dy n
        normed = x.to(scale.dtype, copy=True).mul_(scale)
        given = grad.to(scale.dtype, copy=True)
        product = given * normed
        own = weight.to(scale.dtype)
        grad_weight = product.sum(dim=0).to(weight.dtype) if ctx.needs_input_grad[1] else None
        mean = (product @ own).div_(x.shape[-1]).unsqueeze(-1)
        given.mul_(own).addcmul_(normed, mean, value=-1).mul_(scale)
        return given.to(x.dtype), grad_weight, None


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        return _opened(gate_up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (gate_up,) = ctx.saved_tensors
        kernels = kernels_for(gate_up)
        if kernels is not None:
            return kernels.gated_backward(grad, gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        found = torch.empty_like(gate_up)
        grad_gate, grad_up = found.chunk(2, dim=-1)
        opened = F.silu(gate)
        torch.mul(grad, opened, out=grad_up)
        torch.mul(grad, up, out=opened)
        torch.ops.aten.silu_backward.grad_input(opened, gate, grad_input=grad_gate)
        return found


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, heads: int, kv_heads: int, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(cos, sin)
        q, k, v = _turned(qkv, heads, kv_heads, cos, sin)
        return q, k, v.clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor
    ) -> tuple[Tensor, None, None, None, None]:
        cos, sin = ctx.saved_tensors
        heads, kv_heads = q.shape[1], k.shape[1]
        found = q.new_empty(len(q), heads + 2 * kv_heads, q.shape[2])
        _turn(q, cos, sin, found[:, :heads], back=True)
        _turn(k, cos, sin, found[:, heads : heads + kv_heads], back=True)
        found[:, heads + kv_heads :] = v
        return found, None, None, None, None


def _normed(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the normed rows, and each row's factor."""
    kernels = processor_kernels(x) if weight.dtype is x.dtype else None
    if kernels is not None:
        return kernels.rms_norm(x, weight, eps)
    wide = x.to(torch.promote_types(x.dtype, torch.float32), copy=True)
    scale = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    scale.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return wide.mul_(scale).mul_(weight.to(wide.dtype)).to(x.dtype), scale


def _opened(gate_up: Tensor) -> Tensor:
    kernels = kernels_for(gate_up)
    if kernels is not None:
        return kernels.gated(gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def _turned(
    qkv: Tensor, heads: int, kv_heads: int, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `rotated` returns; the values are a view."""
    own, theirs, v = qkv.split([heads, kv_heads, kv_heads], dim=1)
    q, k = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (own, theirs))
    _turn(own, cos, sin, q, back=False)
    _turn(theirs, cos, sin, k, back=False)
    return q, k, v


def _turn(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor, *, back: bool) -> None:
    """Multiply the complex numbers in x [N, heads, d] by cos + i sin [N, 1, d / 2], or divide."""
    kernels = kernels_for(x)
    if kernels is not None and x.stride()[1:] == (x.shape[2], 1) == out.stride()[1:]:
        kernels.rotate(x, cos, sin, out, back=back)
        return
    sign = -1 if back else 1
    (a, b), (real, imaginary) = x.chunk(2, dim=-1), out.chunk(2, dim=-1)
    torch.mul(a, cos, out=real).addcmul_(b, sin, value=-sign)
    torch.mul(b, cos, out=imaginary).addcmul_(a, sin, value=sign)
