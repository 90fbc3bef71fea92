"""The fused scan as registered torch operations, for torch.compile and torch.export.

Eager code uses an autograd.Function instead, which costs less per call; both run the same kernels.
A compiler knows an operation by its name, its shapes and its gradient, and does not trace into it, so a
graph does not grow with the number of time steps.

`import linnet` registers the operations, so that a saved program can be loaded; the modules that compile
kernels are imported when an operation runs. Any code can call a registered operation, and kernels read by
address, so all arguments are checked against the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linnet.base.forks import compiling
from linnet.cpu.width import vector_width
from linnet.program.plan import Plan, plan_called
from linnet.program.unit import Flags
from linnet.run.available import no_cpu_kernels
from linnet.run.operation_checks import check_backward, check_scan

if TYPE_CHECKING:
    from linnet.program.operands import Operands


@torch.library.custom_op("linnet::scan", mutates_args=(), device_types="cpu")
def scan_op(
    plan: str, tensors: Sequence[Tensor], mask: Tensor | None, resets: Tensor | None, reverse: bool
) -> list[Tensor]:
    """Return the output, the final states, the states of all steps and the products of all steps."""
    return scan_by(cpu_passes(), plan, tensors, mask, resets, reverse)


@scan_op.register_kernel("cuda")
def scan_on_gpu(
    plan: str, tensors: Sequence[Tensor], mask: Tensor | None, resets: Tensor | None, reverse: bool
) -> list[Tensor]:
    return scan_by(gpu_passes(), plan, tensors, mask, resets, reverse)


def cpu_passes() -> ModuleType:
    reason = no_cpu_kernels()
    if reason is not None:
        raise RuntimeError(f"linnet::scan, of a compiled or exported module, cannot run here: {reason}")
    with compiling:  # a fork waits for the import
        from linnet.cpu import passes

    return passes


def gpu_passes() -> ModuleType:
    from linnet.triton import passes as triton_passes

    return triton_passes


def is_gpu(kernels: ModuleType) -> bool:
    return kernels.__name__ == "linnet.triton.passes"


def laid_out(kernels: ModuleType, plan: Plan, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copy the sequences (the joint projection and the extras) if the kernels cannot read their strides."""
    count = 1 + len(plan.extras)
    return [*map(kernels.laid_out, tensors[:count]), *tensors[count:]]


def operands_of(plan: Plan, flags: Flags, tensors: Sequence[Tensor]) -> Operands:
    from linnet.program.operands import Operands

    return Operands(plan, tensors[0], tensors[1:], flags)


def scan_by(
    kernels: ModuleType,
    text: str,
    tensors: Sequence[Tensor],
    mask: Tensor | None,
    resets: Tensor | None,
    reverse: bool,
) -> list[Tensor]:
    plan = plan_called(text)
    check_scan(plan, tensors, mask, resets, gpu=is_gpu(kernels))
    operands = operands_of(plan, (mask, resets, reverse), laid_out(kernels, plan, tensors))
    y, sequences, products = kernels.run_forward(operands, keep=True, share=False)
    last = 0 if reverse else -1
    finals = [sequence[last].to(y.dtype, copy=True) for sequence in sequences]
    return [y, *finals, *sequences, *products]


@scan_op.register_fake
def scan_shapes(
    plan: str, tensors: Sequence[Tensor], mask: Tensor | None, resets: Tensor | None, reverse: bool
) -> list[Tensor]:
    operands = operands_of(plan_called(plan), (mask, resets, reverse), tensors)
    steps, batch, _ = operands.shape
    joint, states = operands.joint, operands.plan.traced.states
    sizes = [operands.size_of(name) for name in states]
    sequences = [joint.new_empty(steps + 1, batch, size, dtype=operands.real) for size in sizes]
    wide, dtype = product_kind(operands)
    products = [joint.new_empty(steps, batch, columns, dtype=dtype) for columns in wide]
    return [
        joint.new_empty(steps, batch, operands.size_of("y")),
        *(joint.new_empty(batch, size) for size in sizes),
        *sequences,
        *products,
    ]


def product_kind(operands: Operands) -> tuple[list[int], torch.dtype]:
    """How wide products are, and of which dtype: on the CPU whole panels, in the dtype of arithmetic.

    Then what inner products read.
    """
    if operands.joint.device.type == "cuda":
        return [len(matrix) for matrix in operands.matrices], operands.dtype
    panel = vector_width(operands.real)
    wide = [-(-len(matrix) // panel) * panel for matrix in operands.matrices]
    inner = [operands.size_of(f"inner.{i}") for i in range(len(operands.plan.traced.inner))]
    return [*wide, *inner], operands.real


@torch.library.custom_op("linnet::scan_backward", mutates_args=(), device_types="cpu")
def scan_backward_op(
    plan: str,
    tensors: Sequence[Tensor],
    kept: Sequence[Tensor],
    above: Sequence[Tensor],
    needed: Sequence[bool],
    mask: Tensor | None,
    resets: Tensor | None,
    reverse: bool,
) -> list[Tensor]:
    """Return the gradients of those `tensors` that need one."""
    return gradients_by(cpu_passes(), plan, tensors, kept, above, needed, (mask, resets, reverse))


@scan_backward_op.register_kernel("cuda")
def scan_backward_on_gpu(
    plan: str,
    tensors: Sequence[Tensor],
    kept: Sequence[Tensor],
    above: Sequence[Tensor],
    needed: Sequence[bool],
    mask: Tensor | None,
    resets: Tensor | None,
    reverse: bool,
) -> list[Tensor]:
    return gradients_by(gpu_passes(), plan, tensors, kept, above, needed, (mask, resets, reverse))


def gradients_by(
    kernels: ModuleType,
    text: str,
    tensors: Sequence[Tensor],
    kept: Sequence[Tensor],
    above: Sequence[Tensor],
    needed: Sequence[bool],
    flags: Flags,
) -> list[Tensor]:
    plan = plan_called(text)
    check_backward(plan, tensors, kept, above, needed, flags, gpu=is_gpu(kernels))
    operands = operands_of(plan, flags, laid_out(kernels, plan, tensors))
    count = len(plan.traced.states)
    states = kernels.Kept(kept[:count], kept[count:])
    gradients = kernels.run_backward(operands, states, needed, above)
    return [
        gradient for gradient, need in zip(gradients, needed, strict=True) if need and gradient is not None
    ]


@scan_backward_op.register_fake
def scan_backward_shapes(
    plan: str,
    tensors: Sequence[Tensor],
    kept: Sequence[Tensor],
    above: Sequence[Tensor],
    needed: Sequence[bool],
    mask: Tensor | None,
    resets: Tensor | None,
    reverse: bool,
) -> list[Tensor]:
    return [torch.empty_like(tensor) for tensor, need in zip(tensors, needed, strict=True) if need]


def remember(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.plan, tensors, mask, resets, ctx.reverse = inputs
    ctx.counts = len(tensors), len(output)
    ctx.needed = [tensor.requires_grad for tensor in tensors]
    ctx.flags = mask is not None, resets is not None
    flags = [flag for flag in (mask, resets) if flag is not None]
    ctx.save_for_backward(*tensors, *output[1 + len(plan_called(ctx.plan).traced.states) :], *flags)
    ctx.set_materialize_grads(False)


def differentiate(ctx: Any, gradients: Sequence[Tensor | None]) -> tuple[Any, ...]:
    states = len(plan_called(ctx.plan).traced.states)
    saved = list(ctx.saved_tensors)
    resets = saved.pop() if ctx.flags[1] else None
    mask = saved.pop() if ctx.flags[0] else None
    tensors, kept = saved[: ctx.counts[0]], saved[ctx.counts[0] :]
    operands, joint = operands_of(plan_called(ctx.plan), (mask, resets, ctx.reverse), tensors), tensors[0]
    likes = [joint.new_zeros(*joint.shape[:2], operands.size_of("y"))]
    likes += [joint.new_zeros(sequence.shape[1:]) for sequence in kept[:states]]
    above = [
        like if gradient is None else gradient
        for like, gradient in zip(likes, gradients[: 1 + states], strict=True)
    ]
    found = iter(
        scan_backward_op(ctx.plan, tensors, kept, above, ctx.needed, mask, resets, ctx.reverse)
        if any(ctx.needed)
        else []
    )
    return None, [next(found) if need else None for need in ctx.needed], None, None, None


scan_op.register_autograd(differentiate, setup_context=remember)


def compiled_scan(
    plan: Plan, tensors: Sequence[Tensor], mask: Tensor | None, resets: Tensor | None, reverse: bool
) -> list[Tensor]:
    """Return the output and the final states."""
    results = scan_op(plan.text, list(tensors), mask, resets, reverse)
    return results[: 1 + len(plan.traced.states)]
