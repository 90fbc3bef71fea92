"""The fused loop over time as a function that autograd knows."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.fuse import passes, reference, triton_passes
from linnet.fuse.backend import runs_by_triton
from linnet.fuse.call import as_dtype
from linnet.fuse.operands import Operands, Source
from linnet.fuse.passes import Backward, is_plain, projection_gradients, run_projected
from linnet.fuse.plan import Fusible, Plan
from linnet.fuse.stream import run_step
from linnet.fuse.trace import Step


class Beside(NamedTuple):
    """What a scan reads beside its projection; see `Operands`."""

    extras: Sequence[Tensor]
    weights: Sequence[Tensor]
    states: Sequence[Tensor]
    matrices: Sequence[Tensor] = ()
    mask: Tensor | None = None
    resets: Tensor | None = None
    reverse: bool = False
    drops: Sequence[Tensor] = ()

    @property
    def flags(self) -> tuple[Tensor | None, Tensor | None, bool]:
        return self.mask, self.resets, self.reverse

    def tensors(self, dtype: torch.dtype, laid_out=passes.laid_out) -> tuple[Tensor, ...]:
        extras = [laid_out(as_dtype(extra, dtype)) for extra in self.extras]
        return (*extras, *self.weights, *self.states, *self.matrices)


def passes_for(tensor: Tensor) -> ModuleType:
    """Those of the kernels that run on `tensor`; both modules have the same functions."""
    return triton_passes if runs_by_triton(tensor) else passes


def fused_scan(fusible: Fusible, joint: Tensor, beside: Beside) -> tuple[Tensor, dict[str, Tensor]]:
    """What `reference.scan` computes, in one kernel: the output [T, B, H] and the final states by name."""
    kernels = passes_for(joint)
    tensors = (kernels.laid_out(joint), *beside.tensors(joint.dtype, kernels.laid_out))
    if torch.compiler.is_compiling():
        from linnet.fuse.ops import compiled_scan

        y, *finals = compiled_scan(fusible.plan, tensors, *beside.flags)
    else:
        how = (kernels, beside.flags, beside.drops, wants_gradients(tensors))
        y, *finals = FusedScan.apply(fusible, *how, *tensors)
    return y, dict(zip(fusible.plan.traced.states, finals, strict=True))


def projected_scan(fusible: Fusible, source: Source, beside: Beside) -> tuple[Tensor, dict[str, Tensor]]:
    """`fused_scan` of F.linear(x, weight, bias), which never leaves this function.

    So the kernel may make it, and its memory can be used again: for the gradients in training, and
    for the next steps without.
    """
    tensors = beside.tensors(source.x.dtype)
    if wants_gradients((*source, *tensors)):
        y, *finals = ProjectedScan.apply(fusible, beside.flags, beside.drops, *source, *tensors)
    else:
        y, finals = without_gradients(fusible.plan, source, beside, tensors)
    return y, dict(zip(fusible.plan.traced.states, finals, strict=True))


def without_gradients(
    plan: Plan, source: Source, beside: Beside, tensors: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    alone = len(source.x) == 1 and beside.mask is None and beside.resets is None
    if alone and is_plain(plan, source.x, beside.drops):
        made = run_step(plan, source, *beside[:4])
        if made is not None:
            return made
    _, y, sequences, _ = run_projected(plan, beside.flags, source, tensors, beside.drops, keep=False)
    return y, ends(sequences, beside.reverse, y.dtype)


def wants_gradients(tensors: Sequence[Tensor | None]) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def ends(sequences: Sequence[Tensor], reverse: bool, dtype: torch.dtype) -> list[Tensor]:
    """The final states; of a sequence, a copy, since it is not to live as long."""
    last = 0 if reverse else -1
    return [sequence[last].to(dtype, copy=len(sequence) > 1) for sequence in sequences]


# Of what is no tensor among the arguments of FusedScan.
NO_GRADIENTS = (None,) * 5


class FusedScan(torch.autograd.Function):
    """The scan of a projection that autograd sees."""

    @staticmethod
    def forward(ctx, fusible: Fusible, kernels, flags: tuple[Any, Any, Any], drops, keep: bool, *tensors):
        operands = Operands.of(fusible.plan, flags, tensors, drops=drops)
        y, sequences, products = kernels.run_forward(operands, keep)
        ctx.fusible, ctx.kernels, ctx.flags, ctx.drops = fusible, kernels, flags, drops
        if keep:
            ctx.save_for_backward(*tensors, *sequences, *products)
        return y, *ends(sequences, operands.reverse, y.dtype)

    @staticmethod
    def backward(ctx, dy, *dfinals):
        (plan, step), saved = ctx.fusible, list(ctx.saved_tensors)
        products = [saved.pop() for _ in plan.products][::-1]
        sequences = [saved.pop() for _ in plan.traced.states][::-1]
        needed = ctx.needs_input_grad[5:]
        if torch.is_grad_enabled():
            saved = aliases(saved)
            operands = Operands.of(plan, ctx.flags, saved, drops=ctx.drops)
            return *NO_GRADIENTS, *reference_gradients(step, operands, saved, needed, (dy, *dfinals))
        operands = Operands.of(plan, ctx.flags, saved, drops=ctx.drops)
        return *NO_GRADIENTS, *ctx.kernels.Backward(operands, sequences, products, needed).run(dy, dfinals)


class ProjectedScan(torch.autograd.Function):
    """The scan of a projection that nobody else sees: its gradient overwrites it."""

    @staticmethod
    def forward(ctx, fusible: Fusible, flags: tuple[Any, Any, Any], drops, x, weight, bias, *tensors):
        ctx.fusible, ctx.flags, ctx.drops, ctx.used = fusible, flags, drops, False
        how = (flags, Source(x, weight, bias), tensors, drops)
        operands, y, sequences, products = run_projected(fusible.plan, *how, keep=True)
        ctx.save_for_backward(x, weight, bias, operands.joint, *tensors, *sequences, *products)
        return y, *ends(sequences, operands.reverse, y.dtype)

    @staticmethod
    def backward(ctx, dy, *dfinals):
        (plan, step), (x, weight, bias, joint, *saved) = ctx.fusible, ctx.saved_tensors
        products = [saved.pop() for _ in plan.products][::-1]
        sequences = [saved.pop() for _ in plan.traced.states][::-1]
        needed = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():
            sources = aliases([x, weight, bias, *saved])
            tensors = (Source(*sources[:3]).linear(), *sources[3:])
            operands = Operands.of(plan, ctx.flags, tensors, drops=ctx.drops)
            return None, None, None, *reference_gradients(step, operands, sources, needed, (dy, *dfinals))
        source = Source(x, weight, bias)
        if ctx.used:
            # Differentiated for a second time: the projection, overwritten by then, is made anew, and
            # in the same way, since other sums would round otherwise.
            joint = run_projected(plan, ctx.flags, source, saved, ctx.drops, keep=True)[0].joint
        operands = Operands.of(plan, ctx.flags, (joint, *saved), source, ctx.drops)
        ctx.used = True
        backward = Backward(operands, sequences, products, (any(needed[:3]), *needed[3:]), in_place=True)
        djoint, *others = backward.run(dy, dfinals)
        return None, None, None, *projection_gradients(djoint, source, needed[:3]), *others


def reference_gradients(step: Step, operands: Operands, sources, needed, above) -> list[Tensor | None]:
    """Gradients of `sources`, which make the operands: through the loop, to be differentiated again."""
    y, finals = reference_scan(step, operands)
    results = (y, *(finals[name] for name in operands.plan.traced.states))
    pairs = [(result, a) for result, a in zip(results, above, strict=True) if result.requires_grad]
    wanted = [tensor for tensor, need in zip(sources, needed, strict=True) if need]
    outputs, gradients = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(outputs, wanted, gradients, create_graph=True, allow_unused=True))
    return [next(found) if need else None for need in needed]


def aliases(tensors: Sequence[Tensor | None]) -> list[Any]:
    """The same tensors as inputs of their own: one of them may have been made from another."""
    return [None if tensor is None else tensor.view_as(tensor) for tensor in tensors]


def reference_scan(step: Step, operands: Operands) -> tuple[Tensor, dict[str, Tensor]]:
    plan, size = operands.plan, operands.shape[-1]
    names = (*operands.joint_names, *operands.extra_names)
    parts = dict(zip(names, (*operands.joint.split(size, -1), *operands.extras), strict=True))
    weights = dict(zip(plan.traced.weights, operands.weights, strict=True))
    states = dict(zip(plan.traced.states, operands.states, strict=True))

    def advance(part, state):
        for i, (product, matrix) in enumerate(zip(plan.products, operands.matrices, strict=True)):
            seen = state[product.state] * operands.drops[i] if operands.drops else state[product.state]
            columns = F.linear(seen, matrix).split(size, -1)
            part = {**part, **dict(zip(product.parts, columns, strict=True))}
        return step(part, state, weights)

    return reference.scan(advance, parts, states, operands.mask, operands.resets, operands.reverse)
