"""The scan of a memory written by outer products as registered torch operations.

They serve everything that records operations instead of running them: torch.compile, torch.export,
torch.jit.trace, make_fx and fake tensors. These see one operation, `linnet::outer_scan`, with its shapes and
its gradient, so a graph does not grow with the number of time steps. Everything that the kernels depend on is
an argument, as a plain number, so that a saved program runs in any process that has imported linnet.

The modules that compile kernels are imported when an operation runs: importing this file needs no compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from linnet.fuse.available import no_cpu_kernels
from linnet.fuse.cpu.width import vector_width
from linnet.fuse.outer_inputs import OuterInputs, OuterSettings, falls_into_vectors

# The first results are the output and the final state; the others are for the gradient.
RESULTS = 2
# The arguments of linnet::outer_scan: the tensors with a gradient, then mask and resets, then the rest.
DIFFERENTIABLE = len(OuterInputs._fields)
TENSORS, ARGUMENTS = DIFFERENTIABLE + 2, DIFFERENTIABLE + 8


def outer_scan(
    inputs: OuterInputs, flags: Any, settings: OuterSettings, recorded: bool
) -> tuple[Tensor, Tensor]:
    """Return y [T, B, H] and the final state [B, H + M].

    A call that is not recorded runs the kernels directly: that costs less than the registered operation.
    """
    if recorded:
        y, final, *_ = outer_scan_op(*inputs, *flags, *settings)
        return y, final
    # Imported when first needed: it needs llvmlite.
    from linnet.fuse.cpu.outer_scan import OuterScan

    return OuterScan.apply(recipe_of(inputs.a, *settings), flags, *inputs)


@torch.library.custom_op("linnet::outer_scan", mutates_args=(), device_types="cpu")
def outer_scan_op(
    a: Tensor,
    state_matrix: Tensor,
    head_matrix: Tensor,
    bias: Tensor | None,
    state: Tensor,
    gain: Tensor | None,
    shift: Tensor | None,
    mask: Tensor | None,
    resets: Tensor | None,
    reverse: bool,
    memory: int,
    heads: int,
    relu: bool,
    mean: bool,
    eps: float | None,
) -> list[Tensor]:
    """The output, the final state, and what the gradient reads; see outer_scan.run_forward."""
    from linnet.fuse.cpu.outer_scan import run_forward

    recipe = recipe_of(a, memory, heads, relu, mean, eps)
    inputs = OuterInputs(a, state_matrix, head_matrix, bias, state, gain, shift)
    return run_forward(recipe, (mask, resets, reverse), inputs)


@outer_scan_op.register_fake
def outer_scan_shapes(
    a, state_matrix, head_matrix, bias, state, gain, shift, mask, resets, reverse, memory, *settings
):
    steps, batch, hidden = a.shape
    panel = vector_width(a.dtype)
    wide, for_heads = hidden + memory, -(-head_matrix.shape[0] // panel) * panel
    sizes = [(steps, batch, hidden), (batch, wide), (steps + 1, batch, wide), (steps, batch, wide)]
    sizes.append((steps, batch, for_heads))
    if gain is not None:
        sizes += [(steps, batch, hidden), (steps, batch, 1)]
    return [a.new_empty(size) for size in sizes]


@torch.library.custom_op("linnet::outer_scan_backward", mutates_args=(), device_types="cpu")
def outer_scan_backward_op(
    a: Tensor,
    state_matrix: Tensor,
    head_matrix: Tensor,
    bias: Tensor | None,
    state: Tensor,
    gain: Tensor | None,
    shift: Tensor | None,
    mask: Tensor | None,
    resets: Tensor | None,
    reverse: bool,
    memory: int,
    heads: int,
    relu: bool,
    mean: bool,
    eps: float | None,
    kept: Sequence[Tensor],
    dy: Tensor,
    dstate: Tensor,
) -> list[Tensor]:
    """Return the gradients of those of the first seven arguments that are not None."""
    from linnet.fuse.cpu.outer_scan import run_backward

    recipe = recipe_of(a, memory, heads, relu, mean, eps)
    inputs = OuterInputs(a, state_matrix, head_matrix, bias, state, gain, shift)
    found = run_backward(recipe, (mask, resets, reverse), inputs, list(kept), dy, dstate)
    return [gradient for gradient in found if gradient is not None]


@outer_scan_backward_op.register_fake
def outer_scan_backward_shapes(*arguments):
    # Contiguous for any inputs, as the kernel makes them.
    return [t.new_empty(t.shape) for t in arguments[:DIFFERENTIABLE] if t is not None]


def recipe_of(a: Tensor, *settings: Any) -> Any:
    """Return the recipe of the kernels for this machine."""
    from linnet.fuse.cpu.outer_scan import recipe_for

    recipe = recipe_for(a.dtype, a.shape[-1], *settings)
    if recipe is None:
        raise RuntimeError(
            "this program was exported on a machine with shorter vectors, and the sizes of its NRU do not "
            'fit those of this one; export it again here, or there within linnet.backend("reference")'
        )
    return recipe


def remember(ctx, inputs, output):
    ctx.others = inputs[TENSORS:]
    ctx.save_for_backward(*inputs[:TENSORS], *output[RESULTS:])
    ctx.set_materialize_grads(False)


def differentiate(ctx, gradients):
    tensors, kept = ctx.saved_tensors[:TENSORS], list(ctx.saved_tensors[TENSORS:])
    above = gradients[:RESULTS]
    if all(gradient is None for gradient in above):
        return (None,) * ARGUMENTS
    inputs = OuterInputs(*tensors[:DIFFERENTIABLE])
    dy, dstate = (
        torch.zeros_like(like) if gradient is None else gradient
        for gradient, like in zip(above, (inputs.a, inputs.state), strict=True)
    )
    found = iter(outer_scan_backward_op(*tensors, *ctx.others, kept, dy, dstate))
    of_inputs = [None if tensor is None else next(found) for tensor in inputs]
    return *of_inputs, *[None] * (ARGUMENTS - DIFFERENTIABLE)


outer_scan_op.register_autograd(differentiate, setup_context=remember)


# Whether there is a kernel: {(dtype, memory, heads): answer}. A compiler only reads it.
ANSWERS: dict[tuple[torch.dtype, int, int], bool] = {}


def has_kernel(dtype: torch.dtype, memory: int, heads: int) -> bool:
    """Whether p q^T divides into the vectors of this machine, and kernels can run here at all."""
    key = dtype, memory, heads
    if torch.compiler.is_compiling():
        return ANSWERS.get(key, False)
    if key not in ANSWERS:
        ANSWERS[key] = no_cpu_kernels() is None and falls_into_vectors(*key)
    return ANSWERS[key]
