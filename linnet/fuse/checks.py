"""What a registered operation is given, against its plan: kernels read and write by address.

What fits the plan may still be of any strides, but for those that a kernel cannot follow; these are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from linnet.fuse.available import CPU_DTYPES, TRITON_DTYPES
from linnet.fuse.plan import Plan

Shape = tuple[int, ...]


def need(true: bool, problem: str) -> None:
    if not true:
        raise ValueError(f"linnet::scan {problem}")


def check_scan(
    plan: Plan, tensors: Sequence[Tensor], mask: Tensor | None, resets: Tensor | None, gpu: bool
) -> tuple[int, int, int]:
    """[T, B, H], if all that is given fits."""
    traced = plan.traced
    count = 1 + len(plan.extras) + len(traced.weights) + len(traced.states) + len(plan.products)
    need(len(tensors) == count, f"takes {count} tensors by its plan; got {len(tensors)}")
    joint = tensors[0]
    check_dtype(joint, gpu)
    shape = shape_of(plan, tensors)
    for tensor, (name, expected, stored) in zip(tensors, operand_shapes(plan, shape), strict=True):
        check_tensor(name, tensor, expected, joint.device, joint.dtype if stored else None)
    for name, flag in (("mask", mask), ("resets", resets)):
        if flag is not None:
            check_tensor(name, flag, shape[:2], joint.device, torch.bool)
    return shape


def check_dtype(joint: Tensor, gpu: bool) -> None:
    dtypes = TRITON_DTYPES if gpu else CPU_DTYPES
    need(joint.dtype in dtypes, f"takes projections of one of the dtypes {dtypes}; got {joint.dtype}")


def shape_of(plan: Plan, tensors: Sequence[Tensor]) -> tuple[int, int, int]:
    """The length and batch of the projections, and the channels of the first state."""
    joint, state = tensors[0], tensors[1 + len(plan.extras) + len(plan.traced.weights)]
    three = joint.dim() == 3 and state.dim() == 2 and all((*joint.shape, *state.shape))
    need(
        three,
        "takes projections [time, batch, parts * channels] and states [batch, channels], none of them empty; "
        f"got {tuple(joint.shape)} and {tuple(state.shape)}",
    )
    return (*joint.shape[:2], state.shape[1])


def operand_shapes(plan: Plan, shape: tuple[int, int, int]) -> Iterator[tuple[str, Shape, bool]]:
    """Of each tensor its name, its shape, and whether it has the dtype of the projections."""
    (steps, batch, size), traced = shape, plan.traced
    made = sum(len(product.parts) for product in plan.products)
    projected = len(traced.inputs) - len(plan.extras) - made
    yield "the projections", (steps, batch, projected * size), True
    for name in plan.extras:
        yield f"the input {name!r}", shape, True
    for name in traced.weights:
        yield f"the weight {name!r}", (size,), False
    for name in traced.states:
        yield f"the state {name!r}", (batch, size), False
    for product in plan.products:
        yield f"the matrix of {product.parts}", (len(product.parts) * size, size), False


def check_tensor(
    name: str, tensor: Tensor, shape: Shape, device: torch.device, dtype: torch.dtype | None
) -> None:
    """dtype None: any floating point."""
    found = tuple(tensor.shape)
    need(found == tuple(shape), f"takes {name} of shape {tuple(shape)}; got {found}")
    need(tensor.layout is torch.strided, f"takes {name} as a dense tensor; got {tensor.layout}")
    need(tensor.device == device, f"takes {name} on {device}; got {tensor.device}")
    fits = tensor.is_floating_point() if dtype is None else tensor.dtype is dtype
    need(fits, f"takes {name} of {dtype or 'a floating-point dtype'}; got {tensor.dtype}")


def check_backward(
    plan: Plan,
    tensors: Sequence[Tensor],
    kept: Sequence[Tensor],
    above: Sequence[Tensor],
    needed: Sequence[bool],
    flags: tuple[Any, Any, Any],
    gpu: bool,
) -> None:
    steps, batch, size = check_scan(plan, tensors, *flags[:2], gpu)
    need(len(needed) == len(tensors), f"has {len(tensors)} tensors; got {len(needed)} values of needed")
    states, products = len(plan.traced.states), len(plan.products)
    need(len(kept) == states + products, f"keeps {states + products} tensors by its plan; got {len(kept)}")
    need(len(above) == 1 + states, f"has {1 + states} gradients by its plan; got {len(above)}")
    joint = tensors[0]
    for sequence in kept[:states]:
        expected = (steps + 1, batch, size)
        check_tensor("the states of all steps", sequence, expected, joint.device, real_of(joint))
        need(sequence.stride(-1) == 1 or size == 1, "takes states with channels side by side")
    for product, room in zip(plan.products, kept[states:], strict=True):
        expected = (steps, batch, len(product.parts) * size)
        check_product(room, expected, joint.device, joint.dtype if gpu else real_of(joint))
    check_tensor("the gradient of the output", above[0], (steps, batch, size), joint.device, joint.dtype)
    for gradient in above[1:]:
        check_tensor("the gradient of a final state", gradient, (batch, size), joint.device, None)


def real_of(joint: Tensor) -> torch.dtype:
    """The dtype of arithmetic."""
    return torch.float64 if joint.dtype == torch.float64 else torch.float32


def check_product(room: Tensor, shape: Shape, device: torch.device, dtype: torch.dtype) -> None:
    """[T, B, parts * H], and on a CPU perhaps wider, as kernels left it."""
    wide = room.dim() == 3 and tuple(room.shape[:2]) == shape[:2] and room.shape[2] >= shape[2]
    need(wide, f"takes products of shape {shape} or wider; got {tuple(room.shape)}")
    check_tensor("the products", room[..., : shape[2]], shape, device, dtype)
    need(room.stride(-1) == 1, "takes products with channels side by side")
