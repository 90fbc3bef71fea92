"""The kernels of a memory written by outer products, as an autograd function."""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.fuse.cpu import jit, outer
from linnet.fuse.cpu.call import Call, side_by_side
from linnet.fuse.cpu.kernel_cache import KernelCache
from linnet.fuse.cpu.memory import new_empty
from linnet.fuse.cpu.outer_heads import OuterRecipe
from linnet.fuse.cpu.width import vector_width
from linnet.fuse.operands import Flags
from linnet.fuse.outer_inputs import Misfit, OuterInputs, falls_into_vectors
from linnet.fuse.recording import unreadable
from linnet.fuse.samples import for_each_sample
from linnet.fuse.states import collect

# Names for errors, whose readers know the unit and not this file.
CALLED = {
    "state_matrix": "the recurrent matrix",
    "head_matrix": "the matrix of the heads",
    "bias": "the bias of the heads",
    "state": "the state [h; m]",
    "gain": "the weight of the layer norm",
    "shift": "the bias of the layer norm",
}


def recipe_for(
    dtype: torch.dtype, hidden: int, memory: int, heads: int, relu: bool, mean: bool, eps: float | None
) -> OuterRecipe | None:
    """The recipe for these sizes, or None if they do not divide into vectors."""
    bits = 64 if dtype == torch.float64 else 32
    if not falls_into_vectors(dtype, memory, heads):
        return None
    return OuterRecipe(hidden, memory, heads, relu, mean, bits, vector_width(dtype), eps)


# Each size of NRU has kernels of its own; those of the last few are kept.
KERNELS: KernelCache[jit.Compiled] = KernelCache(recent=16)


def kernel(recipe: OuterRecipe, name: str) -> jit.Compiled:
    emit = getattr(outer, f"{name}_ir")
    return KERNELS.get((recipe, name), lambda: jit.compile_recipe(recipe, emit, name))


class OuterScan(torch.autograd.Function):
    """A recipe, (mask, resets, reverse) and the OuterInputs -> y [T, B, H], the final state [B, H + M]."""

    @staticmethod
    def forward(ctx, recipe: OuterRecipe, flags: Flags, *tensors):
        mask, resets, ctx.reverse = flags
        y, final, *kept = run_forward(recipe, flags, OuterInputs(*tensors))
        h, m = kept[0].tensor_split([y.shape[-1]], -1)
        collect({"h": h, "m": m}, ctx.reverse)
        ctx.recipe = recipe
        # The flags too: torch then detects if they are changed before the backward pass.
        ctx.save_for_backward(mask, resets, *tensors, *kept)
        return y, final

    @staticmethod
    @for_each_sample
    def backward(ctx, dy, dstate):
        if torch.is_grad_enabled():
            raise RuntimeError(
                'the kernel of NRU has no second derivative; run it within linnet.backend("reference")'
            )
        mask, resets, *saved = ctx.saved_tensors
        inputs, kept = OuterInputs(*saved[: len(OuterInputs._fields)]), saved[len(OuterInputs._fields) :]
        gradients = run_backward(ctx.recipe, (mask, resets, ctx.reverse), inputs, kept, dy, dstate)
        return None, None, *gradients


def run_forward(recipe: OuterRecipe, flags: Flags, inputs: OuterInputs) -> list[Tensor]:
    """Return the output, the final state, and what backward reads: states, z, heads, and two for a norm."""
    check_inputs(recipe, flags, inputs)
    steps, batch, hidden = inputs.a.shape
    call = new_call(recipe, flags, inputs)
    call.put("a", side_by_side(inputs.a))
    states = new_empty((steps + 1, batch, hidden + recipe.memory), inputs.a.dtype)
    states[-1 if flags[2] else 0] = inputs.state
    call.put("state", states)
    z = call.buffer("z", hidden + recipe.memory, steps)
    call.buffer("product", call.put_packed("matrix.state", inputs.state_matrix))
    heads = call.buffer("heads", call.put_packed("matrix.heads", inputs.head_matrix), steps)
    y = call.buffer("y", hidden, steps)
    kept = [states, z, heads]
    if inputs.gain is not None and inputs.shift is not None:
        call.put("gain", inputs.gain.contiguous())
        call.put("shift", inputs.shift.contiguous())
        kept += [call.buffer("normed", hidden, steps), call.buffer("rate", 1, steps)]
    call.run(kernel(recipe, "forward"), recipe.forward_operands, hidden)
    return [y, states[0 if flags[2] else -1].clone(), *kept]


def run_backward(
    recipe: OuterRecipe, flags: Flags, inputs: OuterInputs, kept: list[Tensor], dy: Tensor, dstate: Tensor
) -> list[Tensor | None]:
    """Return the gradients of the inputs, in order; None for an input that is None."""
    states, z, heads, *normed_and_rate = kept
    steps, _, hidden = inputs.a.shape
    call = new_call(recipe, flags, inputs)
    for name, tensor in (("state", states), ("z", z), ("heads", heads), ("dy", side_by_side(dy))):
        call.put(name, tensor)
    da, dheads = call.buffer("da", hidden, steps), call.buffer("dheads", len(inputs.head_matrix), steps)
    carry = call.put("carry", dstate.clone(memory_format=torch.contiguous_format))
    call.buffer("dz", call.put_packed("matrix.heads", inputs.head_matrix.T))
    call.buffer("state_gradient", call.put_packed("matrix.state", inputs.state_matrix.T))
    if inputs.gain is not None:
        call.put("gain", inputs.gain.contiguous())
        normed, _ = map(call.put, ("normed", "rate"), normed_and_rate)
        dnorm = call.buffer("dnorm", hidden, steps)
    call.run(kernel(recipe, "backward"), recipe.backward_operands, hidden)
    before = states[1:] if flags[2] else states[:-1]
    if flags[1] is not None:
        before = before.masked_fill(flags[1][..., None], 0)
    by_state = da.flatten(0, 1).T @ before.flatten(0, 1)
    by_heads = dheads.flatten(0, 1).T @ z.flatten(0, 1)
    dbias = None if inputs.bias is None else dheads.sum((0, 1))
    by_norm = (None, None) if inputs.gain is None else ((dnorm * normed).sum((0, 1)), dnorm.sum((0, 1)))
    return [da, by_state, by_heads, dbias, carry, *by_norm]


def new_call(recipe: OuterRecipe, flags: Flags, inputs: OuterInputs) -> Call:
    a, wide = inputs.a, len(inputs.head_matrix)
    call = Call(tuple(a.shape), flags, a.dtype)  # type: ignore[arg-type]
    call.put("zeros", a.new_zeros(max(a.shape[-1] + recipe.memory, wide) + 64))
    call.put("bias", a.new_zeros(wide) if inputs.bias is None else inputs.bias.contiguous())
    return call


def check_inputs(recipe: OuterRecipe, flags: Flags, inputs: OuterInputs) -> None:
    """A kernel gets addresses only: with other shapes it would access memory outside of a tensor."""
    steps, batch, hidden = inputs.a.shape
    if hidden != recipe.hidden:
        raise Misfit(f"the projected input must have {recipe.hidden} channels; got {hidden}")
    wide, for_heads = hidden + recipe.memory, 2 * recipe.heads + 4 * recipe.root
    shapes = ((hidden, wide), (for_heads, wide), (for_heads,), (batch, wide), (hidden,), (hidden,))
    for name, tensor, shape in zip(OuterInputs._fields[1:], inputs[1:], shapes, strict=True):
        if tensor is not None:
            check_tensor(CALLED[name], tensor, shape, inputs.a)
    for name, flag in zip(("mask", "resets"), flags[:2], strict=True):
        if flag is not None and (flag.shape != (steps, batch) or flag.dtype != torch.bool):
            raise Misfit(
                f"{name} must be torch.bool of shape {(steps, batch)}; got {flag.dtype} {tuple(flag.shape)}"
            )


def check_tensor(name: str, tensor: Tensor, shape: tuple[int, ...], like: Tensor) -> None:
    reason = unreadable(tensor)
    if reason is not None:
        raise Misfit(f"{name} {reason}")
    if tensor.shape != shape:
        raise Misfit(f"{name} must have shape {shape}; got {tuple(tensor.shape)}")
    if tensor.device != like.device:
        raise Misfit(f"{name} is on {tensor.device} and the input on {like.device}; use .to(device)")
    if tensor.dtype != like.dtype:
        raise Misfit(f"{name} is {tensor.dtype} and the input {like.dtype}; use .to(dtype)")
