"""Quantised weights of a frozen base: linear layers that hold codes of 8 or 4 bits, and scales.

Weights only; a weight is `code x scale`:

    int8   codes from -127 to 127, a scale for each output (its largest weight / 127)
    nf4    one of 16 quantiles of a normal distribution, a scale for each 64 inputs of an output
           (their largest weight): the 4-bit NormalFloat of QLoRA

Scales are bf16, so a weight takes 1 byte, or 0.53. Acting and learning use the same numbers: the
dequantised weight, in the number format of the network. The engine dequantises as it multiplies
(`packed_matmul.c`), the learner one layer at a time, in the forward pass and again in the
backward pass. Whatever is no linear layer of a block stays as it is: embedding, head, norms,
routers.

Sources: Dettmers et al. 2023, "QLoRA" (NF4, adapters on a quantised base); Dettmers et al. 2022,
"LLM.int8()" (a scale for each output; here without outliers apart).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from palaestra.models.local.kernels.packed_matmul import Matrix, native_packed
from palaestra.models.local.kernels.weight_packing import COLUMNS
from palaestra.models.local.quantisation import FORMATS, Quantisation

GROUP = 64  # inputs that share a scale in nf4
AT_ONCE = (
    32  # blocks that are quantised at once: what is in use meanwhile is several times as large
)
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)


class QuantisedLinear(nn.Module):
    """A linear layer without bias whose weights are quantised and frozen.

    Outputs are stored in blocks of `COLUMNS`, filled up with zeros: codes [blocks, inputs, COLUMNS]
    (nf4: half the inputs, two codes in a byte, the first in its lower half), scales
    [blocks, groups, COLUMNS].
    """

    codes: Tensor
    scales: Tensor  # bf16 as int16: no conversion of the network's number format changes them
    table: Tensor  # the numbers of nf4's codes; empty for int8

    def __init__(self, weight: Tensor, quantisation: Quantisation) -> None:
        """Quantise a matrix [outputs, inputs] of any number format."""
        super().__init__()
        self.quantisation = quantisation
        self.out_features, self.in_features = weight.shape
        self.group = self.in_features if quantisation == "int8" else GROUP
        codes, scales = _quantised(weight.detach(), quantisation, self.group)
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales.bfloat16().view(torch.int16))
        numbers = NF4 if quantisation == "nf4" else ()
        self.register_buffer("table", torch.tensor(numbers, device=weight.device), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x [N, inputs]; return [N, outputs]."""
        if torch.is_grad_enabled() or not self._multiplies(x):
            return _Product.apply(x, self)  # type: ignore[no-untyped-call]
        native = native_packed()
        assert native is not None
        return native.multiply(x, self.matrix)

    @property
    def matrix(self) -> Matrix:
        """The layer as compiled code reads it; valid as long as the layer's tensors."""
        tensors, sizes = (self.codes, self.scales), (self.in_features, self.out_features)
        return Matrix(
            *(t.data_ptr() for t in tensors), *sizes, self.group, FORMATS.index(self.quantisation)
        )

    @torch.no_grad()
    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the dequantised weights [outputs, inputs]: those that all products use."""
        native = native_packed() if self.codes.device.type == "cpu" else None
        if native is not None and dtype in (torch.float32, torch.bfloat16):
            return native.dense(self.matrix, dtype)
        groups = self.scales.shape[1]
        scales = self.scales.view(torch.bfloat16).float()
        if self.quantisation == "int8":
            numbers = self.codes.view(torch.int8).float()
        else:
            both = torch.stack([self.codes & 15, self.codes >> 4], dim=2).flatten(1, 2)
            numbers = self.table[both[:, : self.in_features].int()]
        each = [min(self.group, self.in_features - at * self.group) for at in range(groups)]
        parts = [part * scales[:, i : i + 1] for i, part in enumerate(numbers.split(each, dim=1))]
        weight = torch.cat(parts, dim=1).to(dtype).transpose(1, 2)
        return weight.reshape(-1, self.in_features)[: self.out_features]

    def plain(self, dtype: torch.dtype) -> nn.Linear:
        """Return an ordinary layer with the dequantised weights."""
        layer = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        layer.weight = nn.Parameter(self.dense(dtype), requires_grad=False)
        return layer

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales."""
        return self.codes.nbytes + self.scales.nbytes

    def _multiplies(self, x: Tensor) -> bool:
        native = native_packed() if x.device.type == "cpu" else None
        return native is not None and native.multiplies(x.dtype, self.in_features)


class _Product(torch.autograd.Function):
    """A product with dequantised weights, which are not kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: QuantisedLinear) -> Tensor:
        ctx.layer = layer
        return F.linear(x, layer.dense(x.dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad @ ctx.layer.dense(grad.dtype), None


def _quantised(weight: Tensor, quantisation: Quantisation, group: int) -> tuple[Tensor, Tensor]:
    """Return codes and scales of a matrix [outputs, inputs], in the layout of the layer."""
    parts = [_blocks(rows, quantisation, group) for rows in weight.split(AT_ONCE * COLUMNS)]
    codes, scales = (torch.cat(each) for each in zip(*parts, strict=True))
    return codes, scales


def _blocks(weight: Tensor, quantisation: Quantisation, group: int) -> tuple[Tensor, Tensor]:
    """Return codes and scales of some outputs' weights."""
    outputs, inputs = weight.shape
    blocks, groups = -(-outputs // COLUMNS), -(-inputs // group)
    room = weight.new_zeros(blocks * COLUMNS, groups * group, dtype=torch.float32)
    room[:outputs, :inputs] = weight
    numbers = room.view(blocks, COLUMNS, groups, group)
    most = 127 if quantisation == "int8" else 1
    scales = (numbers.abs().amax(-1, keepdim=True) / most).bfloat16().float()
    numbers = numbers / scales.where(scales > 0, 1.0)
    if quantisation == "int8":
        codes = numbers.round_().clamp_(-most, most).to(torch.int8)
    else:
        table = torch.tensor(NF4, device=weight.device)
        middles = (table[1:] + table[:-1]) / 2
        codes = torch.bucketize(numbers, middles, out_int32=True).to(torch.uint8)
    codes = codes.flatten(2).transpose(1, 2)  # [blocks, inputs, COLUMNS]
    if quantisation == "int8":
        codes = codes[:, :inputs].view(torch.uint8)
    else:
        codes = codes[:, : inputs + inputs % 2]
        codes = codes[:, ::2] | codes[:, 1::2] << 4
    return codes.contiguous(), scales.squeeze(-1).transpose(1, 2).contiguous()
