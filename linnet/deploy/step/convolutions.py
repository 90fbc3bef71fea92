"""Convolutions and pooling within a frame, in terms of what a graph has: windows are views.

A window is no copy: it is the operand, read with other strides, [*positions, channels, *kernel]. So a
convolution is a product of windows and a matrix of weights, and pooling is a reduction over windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.program.graph import Value
from linnet.program.record import StepRecorder, reduced
from linnet.program.trace import NotPointwise, user_line
from linnet.program.views import View, row_major

Sizes = Sequence[int]


def windows(x: View, kernel: Sizes, stride: Sizes, dilation: Sizes, positions: Sizes) -> View:
    """x [N, C, *sizes] as [N, *positions, C, *kernel]."""
    batch, channels, *along = x.strides
    strides = (
        *(batch, *(step * by for step, by in zip(along, stride, strict=True)), channels),
        *(step * by for step, by in zip(along, dilation, strict=True)),
    )
    return View(x.base, x.offset, (x.shape[0], *positions, x.shape[1], *kernel), strides)


def reach(kernel: Sizes, stride: Sizes, dilation: Sizes, positions: Sizes) -> list[int]:
    """How many numbers, along each dimension, the windows of these positions read."""
    each = zip(kernel, stride, dilation, positions, strict=True)
    return [(count - 1) * step + (size - 1) * apart + 1 for size, step, apart, count in each]


def in_zeros(recorder: StepRecorder, x: View, before: Sizes, wanted: Sizes, apart: Sizes) -> View:
    """x [N, C, *sizes] in zeros [N, C, *wanted], from `before` on, each number `apart` from the next."""
    fits = all(size == whole for size, whole in zip(x.shape[2:], wanted, strict=True))
    if not any(before) and fits and all(step == 1 for step in apart):
        return x
    shape = (*x.shape[:2], *wanted)
    strides = row_major(shape)
    offset = sum(first * stride for first, stride in zip(before, strides[2:], strict=True))
    spread = (*strides[:2], *(step * stride for step, stride in zip(apart, strides[2:], strict=True)))
    target = View("", offset, x.shape, spread)
    return recorder.node("place", (x,), shape, targets=(target,))


def cut(x: View, first: Sizes, sizes: Sizes) -> View:
    """The numbers of x [N, C, *...] from `first` on, at most `sizes` of them."""
    kept = [min(size, have - at) for size, have, at in zip(sizes, x.shape[2:], first, strict=True)]
    offset = x.offset + sum(at * stride for at, stride in zip(first, x.strides[2:], strict=True))
    return View(x.base, offset, (*x.shape[:2], *kept), x.strides)


# ------------------------------------------------------------------------------------ convolutions


def convolution(
    recorder: Any,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> View:
    if not recorder.is_dynamic(x) or recorder.is_dynamic(weight):
        raise NotPointwise(f"the step computes the weights of a convolution{user_line()}")
    view, whole = recorder.number_of(x), (len(padding) * [0], len(padding) * [1])
    result = torch.convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    positions = result.shape[2:]
    if transposed:
        # The same as a convolution with the reversed kernel, over numbers that are `stride` apart.
        before = [d * (k - 1) - p for d, k, p in zip(dilation, weight.shape[2:], padding, strict=True)]
        weight, apart, stride = recorder.derived(reversed_kernel(weight, groups), weight), stride, whole[1]
    else:
        before, apart = list(padding), whole[1]
    if any(first < 0 for first in before):
        raise NotPointwise(
            "a transposed convolution with a padding above dilation * (kernel_size - 1) is not exported"
            f"{user_line()}"
        )
    wanted = reach(weight.shape[2:], stride, dilation, positions)
    fitting = [
        max(0, -(-(size - first) // step)) for size, first, step in zip(wanted, before, apart, strict=True)
    ]
    inside = in_zeros(recorder, cut(view, whole[0], fitting), before, wanted, apart)
    read = windows(inside, weight.shape[2:], stride, dilation, positions)
    recorder.scalable = lambda scale, shift: by_channel(recorder, read, weight, bias, groups, scale, shift)
    return multiplied(recorder, read, weight, bias, groups)


def reversed_kernel(weight: Tensor, groups: int) -> Tensor:
    """The weights [inputs, outputs / groups, *kernel] as [outputs, inputs / groups, *kernel], reversed."""
    by_group = weight.detach().unflatten(0, (groups, -1)).transpose(1, 2)
    return by_group.flip(list(range(3, by_group.dim()))).flatten(0, 1).contiguous()


def multiplied(recorder: Any, read: View, weight: Tensor, bias: Tensor | None, groups: int) -> View:
    """Windows [N, *positions, C, *kernel] times the weights: [N, outputs, *positions]."""
    outputs, inputs = weight.shape[:2]
    spatial = weight.dim() - 2
    if inputs == 1 and outputs == groups:
        return by_each_channel(recorder, read, weight, bias)
    places = read.shape[: 1 + spatial]
    matrix = weight.reshape(outputs, -1).T
    made = recorder.product_node(read, matrix, bias, math.prod(places))
    shape = (*places, outputs)
    return moved_dimension(View(made.base, 0, shape, row_major(shape)), len(shape) - 1, 1)


def by_each_channel(recorder: Any, read: View, weight: Tensor, bias: Tensor | None) -> View:
    """A kernel for each channel: products and their sum, in a loop."""
    channels, spatial = len(weight), weight.dim() - 2
    factors = recorder.named_constant(weight.reshape(channels, *[1] * spatial, *weight.shape[2:]))
    by_channel = moved_dimension(read, 1 + spatial, 1)
    terms = recorder.add("mul", by_channel, factors)
    total = reduced(recorder, "sum", terms, list(range(2 + spatial, 2 + 2 * spatial)))
    if bias is None:
        return total
    return recorder.add("add", total, recorder.named_constant(bias.reshape(channels, *[1] * spatial)))


def moved_dimension(view: View, source: int, target: int) -> View:
    order = [axis for axis in range(len(view.shape)) if axis != source]
    order.insert(target, source)
    return View(
        view.base,
        view.offset,
        tuple(view.shape[axis] for axis in order),
        tuple(view.strides[axis] for axis in order),
    )


def by_channel(
    recorder: Any, read: View, weight: Tensor, bias: Tensor | None, groups: int, scale: Tensor, shift: Tensor
) -> View:
    """The convolution whose outputs are scaled and shifted: with other weights, at no cost."""
    scaled = recorder.derived(weight * scale.view(-1, *[1] * (weight.dim() - 1)), weight)
    moved = shift if bias is None else bias * scale + shift
    return multiplied(
        recorder, read, scaled, recorder.derived(moved, weight if bias is None else bias), groups
    )


# ----------------------------------------------------------------------------------------- pooling


def max_pooled(
    recorder: Any,
    x: Tensor,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
) -> tuple[View, None]:
    """The maxima; where they are is not known."""
    count = len(kernel)
    kernel, stride = list(kernel), list(stride or kernel)
    padding, dilation = spread(padding, count), spread(dilation, count)
    result = F.max_pool2d(x, kernel, stride, padding, dilation, ceil_mode)
    wanted = reach(kernel, stride, dilation, result.shape[-count:])
    if any(d > 1 and p for d, p in zip(dilation, padding, strict=True)):
        raise NotPointwise(f"max pooling with padding and dilation is not exported{user_line()}")
    view = four_dimensional(recorder.number_of(x))
    # The nearest number lies in the same window, so that repeating it does not change the maximum.
    view = repeated_at_ends(recorder, view, padding, wanted)
    read = windows(view, kernel, stride, dilation, result.shape[-count:])
    return pooled(recorder, "amax", read, count, tuple(result.shape)), None


def spread(value: Sizes, count: int) -> list[int]:
    return list(value) * count if len(value) == 1 else list(value)


def four_dimensional(view: View) -> View:
    """With a batch, as torch allows to leave it out."""
    if len(view.shape) == 4:
        return view
    return View(view.base, view.offset, (1, *view.shape), (0, *view.strides))


def repeated_at_ends(recorder: Any, x: View, before: Sizes, wanted: Sizes) -> View:
    if not any(before) and all(size <= have for size, have in zip(wanted, x.shape[2:], strict=True)):
        return x
    places = torch.arange(x.size).view(x.shape)
    for axis, (first, size) in enumerate(zip(before, wanted, strict=True), start=2):
        near = (torch.arange(size) - first).clamp(0, x.shape[axis] - 1)
        places = places.index_select(axis, near)
    return recorder.node("gather", (x,), places.shape, table=tuple(places.flatten().tolist()))


def pooled(recorder: Any, kind: str, read: View, count: int, shape: tuple[int, ...]) -> View:
    """A reduction over windows [N, *positions, C, *kernel]: [N, C, *positions], in this `shape`."""
    by_channel = moved_dimension(read, 1 + count, 1)
    made = reduced(recorder, kind, by_channel, list(range(2 + count, 2 + 2 * count)))
    return made.reshaped(shape) if made.is_contiguous else recorder.node("copy", (made,), shape)


def average_pooled(
    recorder: Any,
    x: Tensor,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    count = len(kernel)
    kernel, stride, padding = list(kernel), list(stride or kernel), spread(padding, count)
    if ceil_mode or (any(padding) and not count_include_pad and divisor_override is None):
        raise NotPointwise(
            "average pooling with ceil_mode=True, or with padding and count_include_pad=False, is not "
            f"exported{user_line()}"
        )
    result = F.avg_pool2d(x, kernel, stride, padding)
    wanted = reach(kernel, stride, [1] * count, result.shape[-count:])
    view = four_dimensional(recorder.number_of(x))
    fitting = [size - first for size, first in zip(wanted, padding, strict=True)]
    view = in_zeros(recorder, cut(view, [0] * count, fitting), padding, wanted, [1] * count)
    read = windows(view, kernel, stride, [1] * count, result.shape[-count:])
    total = pooled(recorder, "sum", read, count, tuple(result.shape))
    return recorder.add("div", total, float(divisor_override or math.prod(kernel)))


def adaptive_max_pooled(recorder: Any, x: Tensor, output: Sizes) -> tuple[View, None]:
    sizes = x.shape[-len(output) :]
    if any(size % wanted for size, wanted in zip(sizes, output, strict=True)):
        raise NotPointwise(
            f"adaptive max pooling of {list(sizes)} to {list(output)} has windows of different sizes; "
            f"choose a size that divides{user_line()}"
        )
    return max_pooled(recorder, x, [size // wanted for size, wanted in zip(sizes, output, strict=True)])
