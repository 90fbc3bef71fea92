"""Operators that move values and compute none: shapes, slices, joins."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.deploy.read.call import Call, axis_of, operator, scalar
from linnet.deploy.read.limits import checked_shape


@operator("Shape", of_shapes=True)
def shape(call: Call, x: Tensor) -> Tensor:
    start, end = call.integer("start", 0), call.integer("end")
    return torch.tensor(list(x.shape)[start:end], dtype=torch.int64)


@operator("Size", of_shapes=True)
def size(call: Call, x: Tensor) -> Tensor:
    return torch.tensor(x.numel(), dtype=torch.int64)


@operator("Constant")
def constant(call: Call) -> Tensor:
    attributes = call.node.attributes
    call.require(len(attributes) == 1, f"has {len(attributes)} values, and a constant has one")
    name, value = next(iter(attributes.items()))
    if name == "value" and isinstance(value, Tensor):
        return value
    kinds = {"value_int": torch.int64, "value_ints": torch.int64}
    kinds |= {"value_float": torch.float32, "value_floats": torch.float32}
    call.require(name in kinds and not isinstance(value, str), f"has a value of the kind {name!r}")
    return torch.tensor(value, dtype=kinds[name])


@operator("ConstantOfShape", host=(0,))
def constant_of_shape(call: Call, shape: list[int]) -> Tensor:
    value = call.get("value", Tensor, None)
    value = torch.zeros(1, dtype=torch.float32, device="cpu") if value is None else value
    call.require(value.numel() == 1, f"fills with {value.numel()} values, and not with one")
    return torch.full(checked_shape(shape, call.node.title), value.item(), dtype=value.dtype)


@operator("Reshape", host=(1,))
def reshape(call: Call, x: Tensor, shape: list[int]) -> Tensor:
    if not call.integer("allowzero", 0):
        call.require(all(n != 0 or i < x.dim() for i, n in enumerate(shape)), f"has the shape {shape[:16]}")
        shape = [x.shape[i] if n == 0 else n for i, n in enumerate(shape)]
    return x.reshape(shape)


@operator("Flatten")
def flatten(call: Call, x: Tensor) -> Tensor:
    axis = call.integer("axis", 1)
    axis = x.dim() if axis == x.dim() else axis_of(call, axis, x.dim())
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@operator("Transpose")
def transpose(call: Call, x: Tensor) -> Tensor:
    return x.permute(call.integers("perm", list(range(x.dim()))[::-1]))


@operator("Squeeze", host=(1,))
def squeeze(call: Call, x: Tensor, axes: list[int] | None = None) -> Tensor:
    axes = call.integers("axes") if axes is None else axes
    if axes is None:
        return x.squeeze()
    axes = [axis_of(call, axis, x.dim()) for axis in axes]
    call.require(all(x.shape[axis] == 1 for axis in axes), f"removes the axes {axes} of {tuple(x.shape)}")
    return x.squeeze(tuple(axes))


@operator("Unsqueeze", host=(1,))
def unsqueeze(call: Call, x: Tensor, axes: list[int] | None = None) -> Tensor:
    axes = call.integers("axes", []) if axes is None else axes
    rank = x.dim() + len(axes)
    for axis in sorted(axis_of(call, axis, rank) for axis in axes):
        x = x.unsqueeze(axis)
    return x


@operator("Expand", host=(1,))
def expand(call: Call, x: Tensor, shape: list[int]) -> Tensor:
    """Both shapes are broadcast; a 1 in `shape` leaves a dimension as it is."""
    checked_shape(shape, call.node.title)
    return x.expand(torch.broadcast_shapes(x.shape, shape))


@operator("Tile", host=(1,))
def tile(call: Call, x: Tensor, repeats: list[int]) -> Tensor:
    call.require(len(repeats) == x.dim(), f"repeats {len(repeats)} axes of {x.dim()}")
    checked_shape(repeats, call.node.title)
    return x.repeat(repeats)


@operator("Concat")
def concat(call: Call, *inputs: Tensor) -> Tensor:
    call.require(len(inputs) > 0, "joins nothing")
    return torch.cat(inputs, axis_of(call, call.integer("axis", 0), inputs[0].dim()))


@operator("Split", host=(1,))
def split(call: Call, x: Tensor, sizes: list[int] | None = None) -> Any:
    axis = axis_of(call, call.integer("axis", 0), x.dim())
    sizes = call.integers("split") if sizes is None else sizes
    if sizes is None:
        count = len(call.node.outputs)
        call.require(count > 0, "splits into nothing")
        each = -(-x.shape[axis] // count)
        sizes = [min(each, max(0, x.shape[axis] - i * each)) for i in range(count)]
    return x.split(checked_shape(sizes, call.node.title) if len(sizes) < 16 else sizes, axis)


@operator("Slice", host=(1, 2, 3, 4))
def slices(
    call: Call,
    x: Tensor,
    starts: list[int] | None = None,
    ends: list[int] | None = None,
    axes: list[int] | None = None,
    steps: list[int] | None = None,
) -> Tensor:
    starts, ends = starts or call.integers("starts", []), ends or call.integers("ends", [])
    axes = axes or call.integers("axes") or list(range(len(starts)))
    steps = steps or [1] * len(starts)
    lengths = {len(each) for each in (starts, ends, axes, steps)}
    call.require(len(lengths) == 1 and 0 not in steps, f"has {starts}, {ends}, {axes}, {steps}"[:200])
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        x = cut(x, axis_of(call, axis, x.dim()), slice(start, end, step))
    return x


def cut(x: Tensor, axis: int, part: slice) -> Tensor:
    """Return a slice; Python too cuts off what lies beyond the ends, such as an end of -2^63."""
    length = x.shape[axis]
    start, stop, step = part.indices(length)
    if step > 0:
        step = min(step, max(length, 1))
        return x[(slice(None),) * axis + (slice(start, max(start, stop), step),)]
    indices = torch.tensor(range(start, stop, step), dtype=torch.int64, device=x.device)
    return x.index_select(axis, indices)


@operator("Gather")
def gather(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    axis = axis_of(call, call.integer("axis", 0), x.dim())
    flat = whole(call, indices, x.shape[axis]).reshape(-1)
    return x.index_select(axis, flat).reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


@operator("GatherElements")
def gather_elements(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    axis = axis_of(call, call.integer("axis", 0), x.dim())
    return x.gather(axis, whole(call, indices, x.shape[axis]))


def whole(call: Call, indices: Tensor, length: int) -> Tensor:
    """Return indices as int64, none negative, after a check that all are within the axis."""
    call.require(not indices.is_floating_point(), "has indices that are not whole numbers")
    wide = indices.long()
    inside = wide.is_meta or is_recorded(wide) or bool(((wide >= -length) & (wide < length)).all())
    call.require(inside, f"has an index outside an axis of {length}")
    return torch.where(wide < 0, wide + length, wide)


def is_recorded(tensor: Tensor) -> bool:
    """Whether a tracer runs, under which values cannot be read."""
    return torch.compiler.is_compiling() or type(tensor) is not Tensor


@operator("Pad", host=(1, 3))
def pad(
    call: Call,
    x: Tensor,
    pads: list[int] | None = None,
    value: Tensor | None = None,
    axes: list[int] | None = None,
) -> Tensor:
    pads = call.integers("pads", []) if pads is None else pads
    axes = list(range(x.dim())) if axes is None else [axis_of(call, axis, x.dim()) for axis in axes]
    call.require(
        len(pads) == 2 * len(axes), f"pads {len(axes)} axes by {len(pads)} numbers, and needs two each"
    )
    before, after = [0] * x.dim(), [0] * x.dim()
    for axis, low, high in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        before[axis], after[axis] = low, high
    sizes = [n + low + high for n, low, high in zip(x.shape, before, after, strict=True)]
    checked_shape(sizes, call.node.title)
    return padded(call, x, before, after, value)


# ONNX's names of torch's modes.
MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def padded(call: Call, x: Tensor, before: list[int], after: list[int], value: Tensor | None) -> Tensor:
    mode = call.text("mode", "constant")
    call.require(mode in MODES, f"has mode = {mode[:40]!r}; Linnet reads {', '.join(MODES)}")
    if mode == "constant":
        # torch names the last dimension first.
        both = [n for pair in zip(before[::-1], after[::-1], strict=True) for n in pair]
        filled = call.number("value", 0.0) if value is None else value.reshape(())
        return constant_pad(x, both, filled)
    for axis in range(x.dim()):
        if before[axis] or after[axis]:
            x = padded_axis(x, axis, (before[axis], after[axis]), MODES[mode])
    return x


def constant_pad(x: Tensor, both: list[int], value: float | Tensor) -> Tensor:
    if not isinstance(value, Tensor):
        return F.pad(x, both, value=value)
    # The value is a tensor, which a tracer must not read.
    mask = F.pad(torch.ones_like(x, dtype=torch.bool), both, value=False)
    return torch.where(mask, F.pad(x, both), value.to(x.dtype))


def padded_axis(x: Tensor, axis: int, both: tuple[int, int], mode: str) -> Tensor:
    """Pad one axis; torch pads the last one of a tensor of three dimensions."""
    moved = x.movedim(axis, -1)
    flat = moved.reshape(1, -1, moved.shape[-1])
    done = F.pad(flat, both, mode=mode)
    return done.reshape(*moved.shape[:-1], done.shape[-1]).movedim(-1, axis)


@operator("OneHot", host=(1,))
def one_hot(call: Call, indices: Tensor, depth: Any, values: Tensor) -> Tensor:
    count = int(scalar(depth))
    checked_shape([*indices.shape, count], call.node.title)
    axis = axis_of(call, call.integer("axis", -1), indices.dim() + 1)
    wide = indices.long()
    wide = torch.where(wide < 0, wide + count, wide)
    hit = wide.unsqueeze(axis) == torch.arange(count).reshape(-1, *[1] * (indices.dim() - axis))
    return torch.where(hit, values[1], values[0])


@operator("Trilu", host=(1,))
def triangle(call: Call, x: Tensor, offset: Any = None) -> Tensor:
    k = 0 if offset is None else int(scalar(offset))
    call.require(abs(k) < 2**31, f"has the diagonal {k}")
    return torch.triu(x, k) if call.integer("upper", 1) else torch.tril(x, k)


@operator("CumSum", host=(1,))
def running_sum(call: Call, x: Tensor, axis: Any) -> Tensor:
    call.unless("exclusive", 0)
    call.unless("reverse", 0)
    return x.cumsum(axis_of(call, int(scalar(axis)), x.dim()), dtype=x.dtype)


@operator("DepthToSpace")
def depth_to_space(call: Call, x: Tensor) -> Tensor:
    block = call.integer("blocksize", 0)
    call.require(x.dim() == 4 and 0 < block < 2**15 and x.shape[1] % block**2 == 0, "has a wrong blocksize")
    if call.text("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, block)
    n, c, h, w = x.shape
    parts = x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(n, c // block**2, h * block, w * block)
