"""Checks the arguments of a registered operation against its plan, because kernels read and write by address.

Any strides are accepted: operands whose strides a kernel cannot read are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.program.plan import Plan
from linnet.run.available import CPU_DTYPES, TRITON_DTYPES, not_on_gpu

Shape = tuple[int, ...]


def need(true: bool, problem: str) -> None:
    if not true:
        raise ValueError(f"linnet::scan {problem}")


def check_scan(
    plan: Plan, tensors: Sequence[Tensor], mask: Tensor | None, resets: Tensor | None, gpu: bool
) -> Sizes:
    """The sizes, if all that is given fits."""
    traced = plan.traced
    lacking = not_on_gpu(traced) if gpu else None
    need(lacking is None, f"has no kernel for a GPU for {lacking}")
    count = 1 + len(plan.extras) + len(traced.weights) + len(traced.states) + len(plan.matrices)
    need(len(tensors) == count, f"takes {count} tensors by its plan; got {len(tensors)}")
    joint = tensors[0]
    check_dtype(joint, gpu)
    sizes = sizes_of(plan, tensors)
    for tensor, (name, expected, stored) in zip(tensors, operand_shapes(plan, sizes), strict=True):
        check_tensor(name, tensor, expected, joint.device, joint.dtype if stored else None)
    for name, flag in (("mask", mask), ("resets", resets)):
        if flag is not None:
            check_tensor(name, flag, (sizes.steps, sizes.batch), joint.device, torch.bool)
    return sizes


def check_dtype(joint: Tensor, gpu: bool) -> None:
    dtypes = TRITON_DTYPES if gpu else CPU_DTYPES
    need(joint.dtype in dtypes, f"takes projections of one of the dtypes {dtypes}; got {joint.dtype}")


class Sizes(NamedTuple):
    """The length, the batch, and the number of channels of each input, state and weight by its name."""

    steps: int
    batch: int
    channels: Mapping[str, int]

    @classmethod
    def of(cls, plan: Plan, steps: int, batch: int, sizes: Sequence[int]) -> Sizes:
        """sizes: those of the groups of operands."""
        return cls(steps, batch, {name: sizes[group] for name, group in plan.groups.items()})


def sizes_of(plan: Plan, tensors: Sequence[Tensor]) -> Sizes:
    joint, state = tensors[0], tensors[1 + len(plan.extras) + len(plan.traced.weights)]
    three = joint.dim() == 3 and state.dim() == 2 and all((*joint.shape, *state.shape))
    need(
        three,
        "takes projections [time, batch, parts * channels] and states [batch, channels], none of them empty; "
        f"got {tuple(joint.shape)} and {tuple(state.shape)}",
    )
    steps, batch, _ = joint.shape
    return Sizes.of(plan, steps, batch, group_sizes(plan, tensors))


def group_sizes(plan: Plan, tensors: Sequence[Tensor]) -> tuple[int, ...]:
    first, traced = 1 + len(plan.extras), plan.traced
    groups = []
    for names, axes in ((traced.weights, 1), (traced.states, 2), (plan.matrices, 2)):
        groups.append(tensors[first : first + len(names)])
        if traced.inner:
            right = all(tensor.dim() == axes and all(tensor.shape) for tensor in groups[-1])
            need(right, f"takes {axes} dimensions of {list(names)}; got {[t.shape for t in groups[-1]]}")
        first += len(names)
    try:
        return plan.sizes(*groups)
    except ValueError as error:
        raise ValueError(f"linnet::scan got tensors that do not fit together: {error}") from error


def operand_shapes(plan: Plan, sizes: Sizes) -> Iterator[tuple[str, Shape, bool]]:
    """Yield for each tensor its name, its shape, and whether it must have the dtype of the projections."""
    (steps, batch, channels), traced = sizes, plan.traced
    yield "the projections", (steps, batch, sum(channels[name] for name in plan.projected)), True
    for name in plan.extras:
        yield f"the input {name!r}", (steps, batch, channels[name]), True
    for name in traced.weights:
        yield f"the weight {name!r}", (channels[name],), False
    for name in traced.states:
        yield f"the state {name!r}", (batch, channels[name]), False
    for (source, parts), heads in zip(plan.matrices, plan.heads, strict=True):
        check_heads(heads, [channels[name] for name in (source, *parts)])
        rows = sum(channels[part] for part in parts)
        yield f"the matrix of {parts}", (rows, channels[source] // heads), False


def check_heads(heads: int, sizes: Sequence[int]) -> None:
    uneven = [size for size in sizes if size % heads]
    need(not uneven, f"cannot cut {uneven[:1]} channels into {heads} heads of equal size")


def check_tensor(
    name: str, tensor: Tensor, shape: Shape, device: torch.device, dtype: torch.dtype | None
) -> None:
    """`dtype`: the required dtype; None: any floating-point dtype."""
    found = tuple(tensor.shape)
    need(found == tuple(shape), f"takes {name} of shape {tuple(shape)}; got {found}")
    need(tensor.layout is torch.strided, f"takes {name} as a dense tensor; got {tensor.layout}")
    need(tensor.device == device, f"takes {name} on {device}; got {tensor.device}")
    fits = tensor.is_floating_point() if dtype is None else tensor.dtype is dtype
    need(fits, f"takes {name} of {dtype or 'a floating-point dtype'}; got {tensor.dtype}")


def check_int8_scan(
    plan: Plan,
    tensors: Sequence[Tensor],
    numbers: Sequence[Tensor],
    scales: Sequence[Tensor],
    mask: Tensor | None,
    resets: Tensor | None,
) -> None:
    need(not (plan.traced.inner or plan.traced.sizes), "in int8 has no kernel for this plan")
    need(len(numbers) == len(scales), f"takes a scale for each matrix; got {len(numbers)} and {len(scales)}")
    need(bool(tensors), "takes projections; got no tensor")
    # Without memory: only the shapes of the matrices are checked.
    matrices = [tensors[0].new_empty(()).expand(each.shape) for each in numbers]
    check_scan(plan, [*tensors, *matrices], mask, resets, gpu=False)
    for tensor in tensors:
        need(tensor.dtype is torch.float32, f"in int8 takes tensors of float32; got {tensor.dtype}")
    for pair in zip(numbers, scales, strict=True):
        check_int8_matrix(*pair, tensors[0].device)


def check_int8_matrix(numbers: Tensor, scales: Tensor, device: torch.device) -> None:
    need(numbers.dim() == 2, f"takes int8 matrices of two dimensions; got {tuple(numbers.shape)}")
    check_tensor("an int8 matrix", numbers, tuple(numbers.shape), device, torch.int8)
    check_tensor("the scales of a matrix", scales, (len(numbers),), device, torch.float32)


def check_int8_linear(
    x: Tensor, numbers: Tensor, scales: Tensor, bias: Tensor | None, heads: int, parts: int
) -> None:
    check_int8_matrix(numbers, scales, x.device)
    count, depth = numbers.shape
    need(heads > 0 and parts > 0, f"takes at least one head and part; got {heads} and {parts}")
    need(count % (heads * parts) == 0, f"cannot cut {count} rows into {parts} parts of {heads} heads")
    check_tensor("x", x, (*x.shape[:-1], heads * depth), x.device, torch.float32)
    if bias is not None:
        check_tensor("the bias", bias, (count,), x.device, torch.float32)


def check_backward(
    plan: Plan,
    tensors: Sequence[Tensor],
    kept: Sequence[Tensor],
    above: Sequence[Tensor],
    needed: Sequence[bool],
    flags: tuple[Any, Any, Any],
    gpu: bool,
) -> None:
    steps, batch, channels = check_scan(plan, tensors, *flags[:2], gpu)
    need(len(needed) == len(tensors), f"has {len(tensors)} tensors; got {len(needed)} values of needed")
    states, widths = len(plan.traced.states), kept_widths(plan, channels)
    count = states + len(widths)
    need(len(kept) == count, f"keeps {count} tensors by its plan; got {len(kept)}")
    need(len(above) == 1 + states, f"has {1 + states} gradients by its plan; got {len(above)}")
    joint = tensors[0]
    sizes = [channels[name] for name in plan.traced.states]
    for sequence, size in zip(kept[:states], sizes, strict=True):
        expected = (steps + 1, batch, size)
        check_tensor("the states of all steps", sequence, expected, joint.device, real_of(joint))
        need(sequence.stride(-1) == 1 or size == 1, "takes states with channels side by side")
    for values, width in zip(kept[states:], widths, strict=True):
        check_product(values, (steps, batch, width), joint.device, joint.dtype if gpu else real_of(joint))
    expected = (steps, batch, channels["y"])
    check_tensor("the gradient of the output", above[0], expected, joint.device, joint.dtype)
    for gradient, size in zip(above[1:], sizes, strict=True):
        check_tensor("the gradient of a final state", gradient, (batch, size), joint.device, None)


def kept_widths(plan: Plan, channels: Mapping[str, int]) -> list[int]:
    """Of what is kept for the gradients besides the states: products, and what inner products read."""
    products = [sum(channels[part] for part in parts) for _, parts in plan.matrices]
    return [*products, *(channels[f"inner.{i}"] for i in range(len(plan.traced.inner)))]


def real_of(joint: Tensor) -> torch.dtype:
    """Return the dtype of arithmetic."""
    return torch.float64 if joint.dtype == torch.float64 else torch.float32


def check_product(values: Tensor, shape: Shape, device: torch.device, dtype: torch.dtype) -> None:
    """The products are [T, B, parts * H]; those of CPU kernels may be wider."""
    wide = values.dim() == 3 and tuple(values.shape[:2]) == shape[:2] and values.shape[2] >= shape[2]
    need(wide, f"takes products of shape {shape} or wider; got {tuple(values.shape)}")
    check_tensor("the products", values[..., : shape[2]], shape, device, dtype)
    need(values.stride(-1) == 1, "takes products with channels side by side")
