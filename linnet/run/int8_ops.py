"""Products and scans with int8 matrices as registered torch operations, for torch.compile and torch.export.

As those of run/ops.py: a compiler or a tracer records each as one operation. The matrices are given as whole
numbers and their scales, and packed at each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from linnet.base.forks import compiling
from linnet.program.plan import Plan, plan_called
from linnet.run.available import no_cpu_kernels
from linnet.run.operation_checks import check_int8_linear, check_int8_scan

if TYPE_CHECKING:
    from linnet.cpu.int8 import Int8Blocks, Int8Panels


def packed(numbers: Tensor, scales: Tensor, heads: int, parts: int) -> Int8Panels | Int8Blocks:
    reason = no_cpu_kernels()
    if reason is not None:
        raise RuntimeError(f"a product of int8, of a compiled or exported module, cannot run here: {reason}")
    with compiling:  # a fork waits for the import
        from linnet.cpu.int8 import Int8Blocks, Int8Panels
    if heads == 1:
        return Int8Panels(numbers, scales)
    return Int8Blocks(numbers, scales, heads, (len(numbers) // parts,) * parts)


@torch.library.custom_op("linnet::int8_linear", mutates_args=(), device_types="cpu")
def int8_linear(
    x: Tensor, numbers: Tensor, scales: Tensor, bias: Tensor | None, heads: int, parts: int
) -> Tensor:
    """The product of linnet/recurrent/int8.py: x [..., K] -> [..., N]."""
    check_int8_linear(x, numbers, scales, bias, heads, parts)
    rows = x.reshape(-1, x.shape[-1])
    made = packed(numbers, scales, heads, parts).times(rows, bias)
    return made.view(*x.shape[:-1], len(numbers))


@int8_linear.register_fake
def int8_linear_shape(
    x: Tensor, numbers: Tensor, scales: Tensor, bias: Tensor | None, heads: int, parts: int
) -> Tensor:
    return x.new_empty(*x.shape[:-1], len(numbers))


@torch.library.custom_op("linnet::int8_scan", mutates_args=(), device_types="cpu")
def int8_scan(
    plan: str,
    tensors: Sequence[Tensor],
    numbers: Sequence[Tensor],
    scales: Sequence[Tensor],
    mask: Tensor | None,
    resets: Tensor | None,
    reverse: bool,
) -> list[Tensor]:
    """Return the output and the final states.

    tensors           the projections, extra inputs, weights and states
    numbers, scales   of each matrix
    """
    known = plan_called(plan)
    check_int8_scan(known, tensors, numbers, scales, mask, resets)
    matrices = [
        packed(each, scale, product.heads, len(product.parts))
        for each, scale, product in zip(numbers, scales, known.products, strict=True)
    ]
    from linnet.cpu.int8_scan import run_sequence

    extras, weights, _ = known.ends
    joint, *others = tensors
    grouped = (others[:extras], others[extras:weights], others[weights:])
    y, finals = run_sequence(known, (mask, resets, reverse), joint, grouped, matrices)
    return [y.clone(), *(final.clone() for final in finals)]


@int8_scan.register_fake
def int8_scan_shapes(
    plan: str,
    tensors: Sequence[Tensor],
    numbers: Sequence[Tensor],
    scales: Sequence[Tensor],
    mask: Tensor | None,
    resets: Tensor | None,
    reverse: bool,
) -> list[Tensor]:
    joint, states = tensors[0], states_of(plan_called(plan), tensors)
    return [joint.new_empty(*joint.shape[:2], states[0].shape[-1]), *map(torch.empty_like, states)]


def states_of(plan: Plan, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    return tensors[1 + len(plan.extras) + len(plan.traced.weights) :]
