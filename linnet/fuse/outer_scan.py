"""The kernels of a memory written by outer products, as a function that autograd knows."""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.fuse import jit, outer
from linnet.fuse.call import Call, Flags, side_by_side, vector_width
from linnet.fuse.kept import Kept
from linnet.fuse.memory import new_empty
from linnet.fuse.outer import OuterRecipe


def recipe_for(
    dtype: torch.dtype, hidden: int, memory: int, heads: int, relu: bool, mean: bool, eps: float | None
) -> OuterRecipe | None:
    """What to build for these sizes, or None if they do not fall into vectors."""
    bits = 64 if dtype == torch.float64 else 32
    recipe = OuterRecipe(hidden, memory, heads, relu, mean, bits, vector_width(dtype), eps)
    return recipe if recipe.fits() else None


# Each size of NRU has kernels of its own; those of the last few are kept.
KERNELS: Kept[jit.Compiled] = Kept(recent=16)


def kernel(recipe: OuterRecipe, name: str) -> jit.Compiled:
    emit = outer.forward_ir if name == "forward" else outer.backward_ir
    return KERNELS.get((recipe, name), lambda: jit.compile_function(emit(recipe), name))


def outer_scan(
    recipe: OuterRecipe,
    a: Tensor,
    state_matrix: Tensor,
    head_matrix: Tensor,
    bias: Tensor | None,
    state: Tensor,
    flags: Flags,
    gain: Tensor | None = None,
    shift: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """a [T, B, H], matrices [H, H + M] and [heads, H + M], state [B, H + M] -> y [T, B, H], final state.

    gain and shift [H] are those of the layer norm, if the recipe has one.
    """
    tensors = (side_by_side(a), state_matrix, head_matrix, bias, state, gain, shift)
    return OuterScan.apply(recipe, flags, *tensors)


class OuterScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, recipe: OuterRecipe, flags: Flags, a, state_matrix, head_matrix, bias, state, gain, shift
    ):
        steps, batch, hidden = a.shape
        call = new_call(recipe, flags, a, bias, head_matrix)
        call.put("a", a)
        states = new_empty((steps + 1, batch, hidden + recipe.memory), a.dtype)
        states[-1 if flags[2] else 0] = state
        call.put("state", states)
        z = call.room("z", hidden + recipe.memory, steps)
        call.room("product", call.put_packed("packed.state", state_matrix))
        heads = call.room("heads", call.put_packed("packed.heads", head_matrix), steps)
        y = call.room("y", hidden, steps)
        kept = []
        if gain is not None:
            call.put("gain", gain.contiguous())
            call.put("shift", shift.contiguous())
            kept = [call.room("normed", hidden, steps), call.room("rate", 1, steps)]
        call.run(kernel(recipe, "forward"), recipe.forward_operands, hidden)
        ctx.recipe, ctx.flags = recipe, flags
        ctx.save_for_backward(a, state_matrix, head_matrix, bias, states, z, heads, gain, *kept)
        return y, states[0 if flags[2] else -1].clone()

    @staticmethod
    def backward(ctx, dy, dstate):
        if torch.is_grad_enabled():
            raise RuntimeError(
                'NRU by its kernel has no second derivative; run it within linnet.backend("reference")'
            )
        a, state_matrix, head_matrix, bias, states, z, heads, gain, *kept = ctx.saved_tensors
        recipe, flags = ctx.recipe, ctx.flags
        steps, _, hidden = a.shape
        call = new_call(recipe, flags, a, bias, head_matrix)
        for name, tensor in (("state", states), ("z", z), ("heads", heads), ("dy", side_by_side(dy))):
            call.put(name, tensor)
        da, dheads = call.room("da", hidden, steps), call.room("dheads", len(head_matrix), steps)
        carry = call.put("carry", dstate.clone(memory_format=torch.contiguous_format))
        call.room("dz", call.put_packed("packed.heads", head_matrix.T))
        call.room("through", call.put_packed("packed.state", state_matrix.T))
        if gain is not None:
            call.put("gain", gain.contiguous())
            normed, _ = (
                call.put(name, tensor) for name, tensor in zip(("normed", "rate"), kept, strict=True)
            )
            dnorm = call.room("dnorm", hidden, steps)
        call.run(kernel(recipe, "backward"), recipe.backward_operands, hidden)
        before = states[1:] if flags[2] else states[:-1]
        if flags[1] is not None:
            before = before.masked_fill(flags[1][..., None], 0)
        by_state = da.flatten(0, 1).T @ before.flatten(0, 1)
        by_heads = dheads.flatten(0, 1).T @ z.flatten(0, 1)
        dbias = None if bias is None else dheads.sum((0, 1))
        by_norm = (None, None) if gain is None else ((dnorm * normed).sum((0, 1)), dnorm.sum((0, 1)))
        return None, None, da, by_state, by_heads, dbias, carry, *by_norm


def new_call(recipe: OuterRecipe, flags: Flags, a: Tensor, bias: Tensor | None, head_matrix: Tensor) -> Call:
    call = Call(tuple(a.shape), flags, a.dtype)  # type: ignore[arg-type]
    call.put("zeros", a.new_zeros(max(a.shape[-1] + recipe.memory, len(head_matrix)) + 64))
    call.put("bias", a.new_zeros(len(head_matrix)) if bias is None else bias.contiguous())
    return call
