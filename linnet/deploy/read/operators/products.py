"""Products with matrices, convolutions and pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.deploy.read.call import Call, operator
from linnet.deploy.read.limits import bytes_of, checked_shape


@operator("MatMul")
def matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


@operator("Gemm")
def gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    call.require(a.dim() == b.dim() == 2, "multiplies tensors that are not matrices")
    a = a.t() if call.integer("transA", 0) else a
    transposed = bool(call.integer("transB", 0))
    if alpha == beta == 1.0 and transposed and c is not None and c.dim() == 1 and len(c) == len(b):
        return F.linear(a, b, c)
    product = a @ (b.t() if transposed else b)
    product = product if alpha == 1.0 else product * alpha
    if c is None:
        return product
    sum_of = product + (c if beta == 1.0 else c * beta)
    call.require(sum_of.shape == product.shape, "adds a tensor that is larger than the product")
    return sum_of


# ------------------------------------------------------------------------------------ convolutions


class Window:
    """The attributes that convolutions and pooling share, for `count` dimensions of space."""

    def __init__(self, call: Call, count: int, kernel: Sequence[int]):
        self.call, self.count = call, count
        call.require(count in (1, 2, 3), f"has {count} dimensions of space, and Linnet reads one to three")
        self.kernel = self.numbers("kernel_shape", list(kernel), 1)
        self.strides = self.numbers("strides", [1] * count, 1)
        self.dilations = self.numbers("dilations", [1] * count, 1)

    def numbers(self, name: str, usual: list[int], least: int, each: int = 1) -> list[int]:
        values = self.call.integers(name, usual, least) or usual
        right = len(values) == each * self.count and all(value < 2**31 for value in values)
        self.call.require(right, f"has {name} = {values[:8]} for {self.count} dimensions of space")
        return values

    def pads(self, space: Sequence[int]) -> tuple[list[int], list[int]]:
        """How much to pad before and after each dimension."""
        how = self.call.text("auto_pad", "NOTSET")
        if how in ("SAME_UPPER", "SAME_LOWER"):
            return self.same_pads(space, more_after=how == "SAME_UPPER")
        self.call.require(how in ("NOTSET", "VALID"), f"has auto_pad = {how[:40]!r}")
        given = self.numbers("pads", [0] * 2 * self.count, 0, each=2)
        given = [0] * 2 * self.count if how == "VALID" else given
        return given[: self.count], given[self.count :]

    def same_pads(self, space: Sequence[int], more_after: bool) -> tuple[list[int], list[int]]:
        """Pad so that there is one result for each stride."""
        before, after = [], []
        for n, k, s, d in zip(space, self.kernel, self.strides, self.dilations, strict=True):
            missing = max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
            less, more = missing // 2, missing - missing // 2
            before.append(less if more_after else more)
            after.append(more if more_after else less)
        return before, after

    def padded(self, x: Tensor, value: float = 0.0) -> tuple[Tensor, list[int]]:
        """Return x and the padding that a function of torch adds itself; it adds as much before as after."""
        before, after = self.pads(x.shape[2:])
        sizes = [n + a + b for n, a, b in zip(x.shape[2:], before, after, strict=True)]
        checked_shape([*x.shape[:2], *sizes], self.call.node.title)
        if before == after:
            return x, before
        both = [n for pair in zip(before[::-1], after[::-1], strict=True) for n in pair]
        return F.pad(x, both, value=value), [0] * self.count


CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED: dict[int, Callable[..., Tensor]] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}


def columns(call: Call, results: Sequence[Tensor], x: Tensor, weight: Tensor, *rest: Any) -> int:
    """Bytes of the matrix that a convolution may make: each value of one side as often as it is read."""
    wide, narrow = (x, results[0]) if call.node.operator != "ConvTranspose" else (results[0], x)
    sizes = [len(x), wide.shape[1], *weight.shape[2:], *narrow.shape[2:]]
    return bytes_of(sizes, torch.float32, call.node.title)


def groups_of(call: Call, x: Tensor, weight: Tensor) -> int:
    groups = call.integer("group", 1)
    call.require(
        x.dim() == weight.dim() and x.dim() > 2, f"has x of {x.dim()} dimensions, and weights of another"
    )
    right = groups > 0 and x.shape[1] % groups == 0 and len(weight) % groups == 0
    call.require(right, f"has {groups} groups of {x.shape[1]} channels")
    return groups


@operator("Conv", workspace=columns)
def convolution(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    groups = groups_of(call, x, weight)
    window = Window(call, x.dim() - 2, weight.shape[2:])
    call.require(window.kernel == list(weight.shape[2:]), "has a kernel_shape that its weights do not have")
    x, pads = window.padded(x)
    convolve = CONVOLUTIONS[window.count]
    return convolve(x, weight, bias, window.strides, pads, window.dilations, groups)


@operator("ConvTranspose", workspace=columns)
def transposed(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    groups = groups_of(call, x, weight)
    window = Window(call, x.dim() - 2, weight.shape[2:])
    extra = window.numbers("output_padding", [0] * window.count, 0)
    call.require("output_shape" not in call.node.attributes, "has output_shape, which Linnet does not read")
    call.require(call.text("auto_pad", "NOTSET") == "NOTSET", "has auto_pad, which Linnet does not read")
    before, after = window.pads(x.shape[2:])
    # What is padded more after than before is cut off afterwards.
    less = [min(pair) for pair in zip(before, after, strict=True)]
    function = TRANSPOSED[window.count]
    y = function(x, weight, bias, window.strides, less, extra, groups, window.dilations)
    for axis, (low, high, each) in enumerate(zip(before, after, less, strict=True), start=2):
        y = y.narrow(axis, low - each, y.shape[axis] - (low - each) - (high - each))
    return y


# ----------------------------------------------------------------------------------------- pooling

MAX_POOL: dict[int, Callable[..., Any]] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE_POOL: dict[int, Callable[..., Any]] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def pool_window(call: Call, x: Tensor) -> Window:
    call.require(x.dim() > 2 and "kernel_shape" in call.node.attributes, "has no dimension to pool over")
    return Window(call, x.dim() - 2, [])


@operator("MaxPool")
def max_pool(call: Call, x: Tensor) -> Tensor:
    call.unless("storage_order", 0)
    call.require(len(call.node.outputs) == 1, "returns indices, which Linnet does not compute")
    window = pool_window(call, x)
    x, pads = window.padded(x, -math.inf)
    if any(2 * p > k for p, k in zip(pads, window.kernel, strict=True)):
        # torch pads by at most half of the kernel itself.
        x, pads = F.pad(x, [n for p in pads[::-1] for n in (p, p)], value=-math.inf), [0] * window.count
    ceil = bool(call.integer("ceil_mode", 0))
    return MAX_POOL[window.count](x, window.kernel, window.strides, pads, window.dilations, ceil)


@operator("AveragePool")
def average_pool(call: Call, x: Tensor) -> Tensor:
    window = pool_window(call, x)
    call.require(set(window.dilations) == {1}, "has dilations, which Linnet does not read")
    ceil, counts_pads = bool(call.integer("ceil_mode", 0)), bool(call.integer("count_include_pad", 0))
    before, after = window.pads(x.shape[2:])
    small = all(2 * p <= k for p, k in zip(before, window.kernel, strict=True))
    call.require(before == after and small, "pads more on one side or by more than half of the kernel")
    return AVERAGE_POOL[window.count](x, window.kernel, window.strides, before, ceil, counts_pads)


@operator("GlobalAveragePool")
def global_average(call: Call, x: Tensor) -> Tensor:
    call.require(x.dim() > 2, "has no dimension to pool over")
    return x.mean(tuple(range(2, x.dim())), keepdim=True)


@operator("GlobalMaxPool")
def global_max(call: Call, x: Tensor) -> Tensor:
    call.require(x.dim() > 2, "has no dimension to pool over")
    return x.amax(tuple(range(2, x.dim())), keepdim=True)


@operator("Resize", host=(1, 2, 3))
def resize(
    call: Call, x: Tensor, roi: Any = None, scales: list[float] | None = None, sizes: Any = None
) -> Tensor:
    """Only what repeats values whole: nearest neighbours at a whole scale."""
    call.require(call.text("mode", "nearest") == "nearest", "interpolates, which Linnet does not read")
    factors = scales or [n / max(m, 1) for n, m in zip(sizes or [], x.shape, strict=False)]
    right = len(factors) == x.dim() and all(f == int(f) and 1 <= f < 2**31 for f in factors)
    call.require(right, f"has the scales {factors[:8]}, and Linnet reads whole ones")
    wanted = [n * int(f) for n, f in zip(x.shape, factors, strict=True)]
    checked_shape(wanted, call.node.title)
    for axis, factor in enumerate(factors):
        x = x.repeat_interleave(int(factor), axis) if factor != 1 else x
    return x
