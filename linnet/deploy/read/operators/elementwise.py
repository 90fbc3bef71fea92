"""Arithmetic, comparisons and activations: each value of the result depends on one value of each input."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.deploy.read.call import Call, operator, present, scalar
from linnet.deploy.read.tensors import dtype_of

ONE: dict[str, Any] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Asin": torch.asin,
    "Atan": torch.atan,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "IsNaN": torch.isnan,
    "Log": torch.log,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
}
TWO: dict[str, Any] = {
    "Add": torch.add,
    "And": torch.logical_and,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Mul": torch.mul,
    "Or": torch.logical_or,
    "Sub": torch.sub,
    "Xor": torch.logical_xor,
}


def add_plain(name: str, function: Callable[..., Tensor], count: int) -> None:
    """Add an operator that has no attributes, and the function of torch that computes it."""

    @operator(name)
    def run(call: Call, *inputs: Tensor) -> Tensor:
        call.require(len(inputs) == count, f"has {len(inputs)} inputs, and needs {count}")
        return function(*inputs)


for _name, _function in ONE.items():
    add_plain(_name, _function, 1)
for _name, _function in TWO.items():
    add_plain(_name, _function, 2)


@operator("Identity", "Dropout")
def identity(call: Call, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None) -> Any:
    """Dropout does nothing in inference; its second output is the mask."""
    return (x, torch.ones_like(x, dtype=torch.bool)) if len(call.node.outputs) > 1 else x


@operator("Div")
def divide(call: Call, a: Tensor, b: Tensor) -> Tensor:
    if a.is_floating_point():
        return a / b
    call.require(b.is_meta or not bool((b == 0).any()), "divides whole numbers by zero")
    return torch.div(a, b, rounding_mode="trunc")


@operator("Mod")
def modulo(call: Call, a: Tensor, b: Tensor) -> Tensor:
    if not a.is_floating_point():
        call.require(b.is_meta or not bool((b == 0).any()), "divides whole numbers by zero")
    return torch.fmod(a, b) if call.integer("fmod", 0) else torch.remainder(a, b)


@operator("Pow")
def power(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The result has the type of the base."""
    if not a.is_floating_point() and not b.is_floating_point():
        # torch refuses negative powers of whole numbers, and converts slowly.
        return torch.pow(a.double(), b.double()).to(a.dtype)
    return torch.pow(a, b).to(a.dtype)


@operator("Where")
def where(call: Call, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(condition.bool(), a, b)


@operator("Max")
def largest(call: Call, *inputs: Tensor) -> Tensor:
    return reduce(torch.maximum, inputs)


@operator("Min")
def smallest(call: Call, *inputs: Tensor) -> Tensor:
    return reduce(torch.minimum, inputs)


@operator("Sum")
def total(call: Call, *inputs: Tensor) -> Tensor:
    return reduce(torch.add, inputs)


@operator("Mean")
def mean(call: Call, *inputs: Tensor) -> Tensor:
    return reduce(torch.add, inputs) / len(inputs)


@operator("Cast")
def cast(call: Call, x: Tensor) -> Tensor:
    return x.to(dtype_of(call.integer("to", 0), call.node.title))


@operator("CastLike")
def cast_like(call: Call, x: Tensor, like: Tensor) -> Tensor:
    return x.to(like.dtype)


# ------------------------------------------------------------------------------------- activations


@operator("Clip")
def clip(call: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if call.version < 11:
        return x.clamp(call.number("min", -math.inf), call.number("max", math.inf))
    if not present(low, high):
        return x
    # As in ONNX, the upper bound wins if the bounds are in the wrong order.
    x = x if low is None else torch.maximum(x, low.reshape(()))
    return x if high is None else torch.minimum(x, high.reshape(()))


@operator("LeakyRelu")
def leaky_relu(call: Call, x: Tensor) -> Tensor:
    return F.leaky_relu(x, call.number("alpha", 0.01))


@operator("PRelu")
def prelu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, slope * x, x)


@operator("Elu")
def elu(call: Call, x: Tensor) -> Tensor:
    return F.elu(x, call.number("alpha", 1.0))


@operator("Selu")
def selu(call: Call, x: Tensor) -> Tensor:
    alpha, gamma = call.number("alpha", 1.6732632), call.number("gamma", 1.0507010)
    return gamma * torch.where(x > 0, x, alpha * torch.expm1(x))


@operator("Celu")
def celu(call: Call, x: Tensor) -> Tensor:
    call.require(call.number("alpha", 1.0) != 0, "has alpha = 0, by which it divides")
    return F.celu(x, call.number("alpha", 1.0))


@operator("Gelu")
def gelu(call: Call, x: Tensor) -> Tensor:
    how = call.text("approximate", "none")
    call.require(how in ("none", "tanh"), f"has approximate = {how[:40]!r}, which ONNX does not have")
    return F.gelu(x, approximate=how)


@operator("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    return (x * call.number("alpha", 0.2) + call.number("beta", 0.5)).clamp(0, 1)


@operator("HardSwish")
def hard_swish(call: Call, x: Tensor) -> Tensor:
    return x * (x / 6 + 0.5).clamp(0, 1)


@operator("Mish")
def mish(call: Call, x: Tensor) -> Tensor:
    return F.mish(x)


@operator("Softmax", "LogSoftmax")
def softmax(call: Call, x: Tensor) -> Tensor:
    function = torch.softmax if call.node.operator == "Softmax" else torch.log_softmax
    if call.version >= 13:
        return function(x, call.integer("axis", -1))
    # Before version 13 all dimensions from `axis` on are one.
    axis = call.integer("axis", 1)
    flat = x.flatten(axis) if x.dim() > 1 else x
    return function(flat, flat.dim() - 1).reshape(x.shape)


@operator("Range", host=(0, 1, 2))
def counting(call: Call, start: Any, limit: Any, step: Any) -> Tensor:
    first, last, by = (scalar(each) for each in (start, limit, step))
    right = all(isinstance(each, (int, float)) and math.isfinite(each) for each in (first, last, by)) and by
    call.require(bool(right), f"counts from {first} to {last} by {by}, which does not end")
    count = max(0, math.ceil((last - first) / by))
    call.require(count < 2**40, f"counts {count:,} numbers")
    numbers = torch.arange(count, dtype=torch.int64) * by + first
    return numbers if isinstance(first, int) else numbers.float()
