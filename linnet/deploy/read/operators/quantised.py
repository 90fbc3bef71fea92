"""Whole numbers of eight bits with a scale and a zero point.

Products of whole numbers are exact: they are computed in float32 if no sum can exceed 2^24, the largest whole
number up to which float32 has all, and in float64 otherwise.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from linnet.deploy.read.call import Call, axis_of, operator
from linnet.deploy.read.operators.products import columns, convolution

RANGES = {torch.uint8: (0, 255), torch.int8: (-128, 127), torch.int16: (-(2**15), 2**15 - 1)}
EXACT = 2**24


def along(call: Call, value: Tensor, x: Tensor) -> Tensor:
    """Return a scale or a zero point so that it applies to its axis of x."""
    if value.numel() == 1:
        return value.reshape(())
    axis = axis_of(call, call.integer("axis", 1), x.dim())
    call.require(value.dim() == 1 and len(value) == x.shape[axis], "has scales that do not fit its axis")
    return value.reshape(-1, *[1] * (x.dim() - axis - 1))


@operator("QuantizeLinear")
def quantize(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    call.unless("block_size", 0)
    zero = torch.zeros((), dtype=torch.uint8) if zero is None else zero
    call.require(zero.dtype in RANGES, f"rounds to {zero.dtype}, which Linnet does not read")
    shifted = torch.round(x / along(call, scale, x)) + along(call, zero, x).to(x.dtype)
    return shifted.clamp(*RANGES[zero.dtype]).to(zero.dtype)


@operator("DequantizeLinear")
def dequantize(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    call.unless("block_size", 0)
    whole = x.to(torch.int32)
    whole = whole if zero is None else whole - along(call, zero, x).to(torch.int32)
    return whole.to(scale.dtype) * along(call, scale, x)


@operator("DynamicQuantizeLinear")
def dynamic_quantize(call: Call, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Choose the scale so that the range of x, with 0 in it, becomes 0 to 255."""
    call.require(x.numel() > 0, "has no values to take the range of")
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = (high - low) / 255
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    zero = torch.round((0 - low) / scale).clamp(0, 255)
    y = (torch.round(x / scale) + zero).clamp(0, 255)
    return y.to(torch.uint8), scale, zero.to(torch.uint8)


def centred(value: Tensor, zero: Tensor | None, terms: int) -> Tensor:
    """Return value - zero in a type in which a sum of `terms` products is exact."""
    dtype = torch.float32 if terms * 2**16 <= EXACT else torch.float64
    value = value.to(dtype)
    return value if zero is None else value - zero.to(dtype)


@operator("MatMulInteger")
def matmul_integer(
    call: Call, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    terms = a.shape[-1] if a.dim() else 1
    per_row = a_zero is not None and a_zero.dim() == 1 and len(a_zero) > 1
    a_zero = a_zero.unsqueeze(-1) if per_row and a_zero is not None else a_zero
    return torch.matmul(centred(a, a_zero, terms), centred(b, b_zero, terms)).to(torch.int32)


@operator("ConvInteger", workspace=lambda *given: 2 * columns(*given))
def convolution_integer(
    call: Call, x: Tensor, weight: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None
) -> Any:
    terms = math.prod(weight.shape[1:])
    if w_zero is not None and w_zero.numel() > 1:
        w_zero = w_zero.reshape(-1, *[1] * (weight.dim() - 1))
    y = convolution(call, centred(x, x_zero, terms), centred(weight, w_zero, terms))
    return y.to(torch.int32)
