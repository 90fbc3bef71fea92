"""The fused loop over time as an autograd function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.fuse import reference
from linnet.fuse.checks import Sizes, operand_shapes
from linnet.fuse.cpu import passes
from linnet.fuse.cpu.passes import Backward, projection_gradients, run_projected
from linnet.fuse.in_place import changeable
from linnet.fuse.operands import Flags, Operands, Source, as_dtype
from linnet.fuse.ops import compiled_scan
from linnet.fuse.plan import Fusible, Plan
from linnet.fuse.recording import unreadable
from linnet.fuse.samples import for_each_sample
from linnet.fuse.states import collect, is_collecting
from linnet.fuse.trace import Step, bias_of


class OtherOperands(NamedTuple):
    """The operands of a scan other than its projection; see `Operands`."""

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


def scan(
    fusible: Fusible,
    projected: Source | Tensor,
    others: OtherOperands,
    load_passes: Callable[[], ModuleType],
    recorded: bool,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the output [T, B, H] and the final states by name.

    projected     the projection, or its operands if the kernel is to compute it
    load_passes   imports linnet.fuse.cpu.passes or linnet.fuse.triton.passes, which have the same functions
    recorded      a compiler or a tracer records the call: use the registered operation
    """
    if isinstance(projected, Source):
        return projected_scan(fusible, projected, others)
    return fused_scan(fusible, projected, others, load_passes(), recorded)


def misfit(plan: Plan, projected: Source | Tensor, others: OtherOperands) -> str | None:
    """Return which operand does not fit the plan, or None. Kernels read operands by their addresses.

    The check is complete only if something differs from the previous call.
    """
    x, *projecting = projected if isinstance(projected, Source) else (projected,)
    weights = [w for w in (*projecting, *others.weights, *others.matrices) if w is not None]
    free = torch.is_autocast_enabled(x.device.type)
    kinds = (free, others.states[0].shape[-1], x.shape[-1], x.dtype, x.device, [kind_of(w) for w in weights])
    if plan.fits == kinds:
        return None
    try:
        wrong = [
            wrong_kind(name, w, shape, None if free else x)
            for name, w, shape in expected(plan, projected, others)
        ]
    except ValueError as error:
        return str(error)
    reason = next(filter(None, wrong), None)
    if reason is None:
        plan.fits = kinds
    return reason


def kind_of(tensor: Tensor) -> tuple:
    return type(tensor), tensor.shape, tensor.dtype, tensor.device, tensor.layout, tensor.is_neg()


def expected(
    plan: Plan, projected: Source | Tensor, others: OtherOperands
) -> Iterator[tuple[str, Tensor, tuple[int, ...]]]:
    """Each operand that no time step changes, with its name and the shape it must have."""
    like = projected.x if isinstance(projected, Source) else projected
    sizes = plan.sizes(others.weights, others.states, others.matrices)
    (_, shape, _), *shapes = operand_shapes(plan, Sizes.of(plan, len(like), like.shape[1], sizes))
    if isinstance(projected, Source):
        yield "the input matrix", projected.weight, (shape[-1], like.shape[-1])
        if projected.bias is not None:
            whole = max(1, min(shape[-1], projected.bias.numel()) // sizes[0]) * sizes[0]
            yield "the input bias", projected.bias, (whole,)
    else:
        yield "the projected input", projected, shape
    operands = (*others.extras, *others.weights, *others.states, *others.matrices)
    fixed = {id(tensor) for tensor in (*others.weights, *others.matrices)}
    for (name, shape, _), tensor in zip(shapes, operands, strict=True):
        if id(tensor) in fixed:
            yield name, tensor, shape


def wrong_kind(name: str, tensor: Tensor, shape: tuple[int, ...], x: Tensor | None) -> str | None:
    """Why `tensor` cannot be read as one of `shape`, and of the dtype and device of x if that is given."""
    if tuple(tensor.shape) != shape:
        return f"{name} has the shape {tuple(tensor.shape)} instead of {shape}"
    if x is not None and (tensor.dtype, tensor.device) != (x.dtype, x.device):
        return f"{name} is {tensor.dtype} on {tensor.device}, and x is {x.dtype} on {x.device}"
    reason = unreadable(tensor)
    return None if reason is None else f"{name} {reason}"


def fused_scan(
    fusible: Fusible,
    joint: Tensor,
    others: OtherOperands,
    kernels: ModuleType = passes,
    recorded: bool = False,
) -> tuple[Tensor, dict[str, Tensor]]:
    """`reference.scan` in one kernel: return the output [T, B, H] and the final states by name."""
    tensors = (kernels.laid_out(joint), *others.tensors(joint.dtype, kernels.laid_out))
    if recorded:
        # By name: torch.compile of torch 2.10 cannot trace properties of named tuples.
        flags = others.mask, others.resets, others.reverse
        y, *finals = compiled_scan(fusible.plan, tensors, *flags)
    else:
        how = (kernels, others.flags, others.drops, wants_gradients(tensors))
        y, *finals = FusedScan.apply(fusible, *how, *tensors)
    return y, dict(zip(fusible.plan.traced.states, finals, strict=True))


def projected_scan(
    fusible: Fusible, source: Source, others: OtherOperands
) -> tuple[Tensor, dict[str, Tensor]]:
    """`fused_scan` of F.linear(x, weight, bias), which is not visible outside this function.

    So the kernel can compute it and reuse its memory: for the gradients in training, and for the next
    time steps in inference.
    """
    tensors = others.tensors(source.x.dtype)
    if wants_gradients((*source, *tensors)):
        y, *finals = ProjectedScan.apply(fusible, others.flags, others.drops, None, *source, *tensors)
    else:
        y, finals = without_gradients(fusible.plan, source, others, tensors)
    return y, dict(zip(fusible.plan.traced.states, finals, strict=True))


def without_gradients(
    plan: Plan, source: Source, others: OtherOperands, tensors: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    keep = is_collecting()
    _, y, sequences, _ = run_projected(plan, others.flags, source, tensors, others.drops, keep)
    if keep:
        collect(dict(zip(plan.traced.states, sequences, strict=True)), others.reverse)
    return y, ends(sequences, others.reverse, y.dtype)


def wants_gradients(tensors: Sequence[Tensor | None]) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def ends(sequences: Sequence[Tensor], reverse: bool, dtype: torch.dtype) -> list[Tensor]:
    """The final states: copies, so that the states of all steps can be freed."""
    last = 0 if reverse else -1
    return [sequence[last].to(dtype, copy=len(sequence) > 1) for sequence in sequences]


# For the arguments of FusedScan and of ProjectedScan that are not tensors.
NO_GRADIENTS, NOT_TENSORS = (None,) * 5, (None,) * 4


def save(ctx: Any, flags: Flags, tensors: Sequence[Tensor | None]) -> None:
    """Save tensors for backward; the mask and the resets, too, so that autograd detects changes in place."""
    *masks, ctx.reverse = flags
    ctx.save_for_backward(*masks, *tensors)


def saved(ctx: Any) -> tuple[Flags, list[Any]]:
    mask, resets, *tensors = ctx.saved_tensors
    return (mask, resets, ctx.reverse), tensors


class FusedScan(torch.autograd.Function):
    """The scan of a projection that is part of autograd's graph."""

    @staticmethod
    def forward(ctx, fusible: Fusible, kernels, flags: Flags, drops, keep: bool, *tensors):
        operands = Operands.of(fusible.plan, flags, tensors, drops=drops)
        y, sequences, products = kernels.run_forward(operands, keep or is_collecting())
        collect(dict(zip(fusible.plan.traced.states, sequences, strict=True)), operands.reverse)
        finals = ends(sequences, operands.reverse, y.dtype)
        if not keep:
            return y.detach(), *finals
        ctx.fusible, ctx.kernels, ctx.drops = fusible, kernels, drops
        y, sequences, ctx.changes = changeable(y, sequences)
        save(ctx, flags, (*tensors, *sequences, *products))
        return y, *finals

    @staticmethod
    @for_each_sample
    def backward(ctx, dy, *dfinals):
        (plan, step), (flags, tensors) = ctx.fusible, saved(ctx)
        sequences, products = kept(plan, tensors)
        needed = ctx.needs_input_grad[5:]
        if torch.is_grad_enabled():
            tensors = aliases(tensors)
            operands = Operands.of(plan, flags, tensors, drops=ctx.drops)
            return *NO_GRADIENTS, *reference_gradients(step, operands, tensors, needed, (dy, *dfinals))
        operands = Operands.of(plan, flags, tensors, drops=ctx.drops)
        if ctx.changes:
            _, sequences, products = ctx.kernels.run_forward(operands, keep=True)
        return *NO_GRADIENTS, *ctx.kernels.Backward(operands, sequences, products, needed).run(dy, dfinals)


class ScanResults(NamedTuple):
    """What a scan with gradients writes: the projections, the output, and what its backward pass reads."""

    joint: Tensor
    y: Tensor
    sequences: list[Tensor]  # of each state, [T + 1, B, H]
    products: list[Tensor]
    finals: list[Tensor]


class ProjectedScan(torch.autograd.Function):
    """The scan of a projection that only this function sees: its gradient may overwrite it."""

    @staticmethod
    def forward(ctx, fusible: Fusible, flags: Flags, drops, prepared, x, weight, bias, *tensors):
        """`prepared`: a prepared_scan.PreparedPair, a recorded_step.RecordedStep, or None."""
        ctx.fusible, ctx.drops, ctx.unused, ctx.prepared = fusible, drops, [True], prepared
        source = Source(x, weight, bias)
        run = partial(forward_of, fusible.plan, flags, drops) if prepared is None else prepared.forward
        joint, y, sequences, products, finals = run(source, tensors)
        y, sequences, ctx.changes = changeable(y, sequences)
        save(ctx, flags, (x, weight, bias, joint, *tensors, *sequences, *products))
        return y, *finals

    @staticmethod
    @for_each_sample
    def backward(ctx, dy, *dfinals):
        (plan, step), (flags, (x, weight, bias, joint, *tensors)) = ctx.fusible, saved(ctx)
        sequences, products = kept(plan, tensors)
        needed = ctx.needs_input_grad[4:]
        if torch.is_grad_enabled():
            sources = aliases([x, weight, bias, *tensors])
            operands = Operands.of(
                plan, flags, (Source(*sources[:3]).linear(), *sources[3:]), drops=ctx.drops
            )
            return *NOT_TENSORS, *reference_gradients(step, operands, sources, needed, (dy, *dfinals))
        source = Source(x, weight, bias)
        overwrites = ctx.prepared is None or ctx.prepared.overwrites_projection
        is_overwritten = overwrites and not is_first(ctx.unused)
        if is_overwritten or ctx.changes:
            # The first backward has overwritten the projection, or the output was changed in place. Compute
            # all again by the same kernel, so that it is rounded in the same way.
            again, _, sequences, products = run_projected(plan, flags, source, tensors, ctx.drops, keep=True)
            joint = again.joint
        operands = Operands.of(plan, flags, (joint, *tensors), source, ctx.drops)
        wanted = (any(needed[:3]), *needed[3:])
        if ctx.prepared is None:
            backward = Backward(operands, sequences, products, wanted, in_place=True)
            djoint, *others = backward.run(dy, dfinals)
        else:
            djoint, *others = ctx.prepared.backward(operands, sequences, products, (dy, *dfinals), wanted)
        return *NOT_TENSORS, *projection_gradients(djoint, source, needed[:3]), *others


def forward_of(
    plan: Plan, flags: Flags, drops: Sequence[Tensor], source: Source, tensors: Sequence[Tensor]
) -> ScanResults:
    operands, y, sequences, products = run_projected(plan, flags, source, tensors, drops, keep=True)
    collect(dict(zip(plan.traced.states, sequences, strict=True)), operands.reverse)
    finals = ends(sequences, operands.reverse, y.dtype)
    return ScanResults(operands.joint, y, sequences, products, finals)


def kept(plan: Plan, tensors: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Take off the end of saved tensors the states of all steps, and what `run_forward` has kept else."""
    products = [tensors.pop() for _ in (*plan.matrices, *plan.traced.inner)][::-1]
    return [tensors.pop() for _ in plan.traced.states][::-1], products


def is_first(unused: list[bool]) -> bool:
    """True for one caller only, even if several threads call at once: list.pop is atomic."""
    try:
        return unused.pop()
    except IndexError:
        return False


def reference_gradients(step: Step, operands: Operands, sources, needed, above) -> list[Tensor | None]:
    """Gradients of `sources`, from which the operands are computed, that can be differentiated again."""
    y, finals = reference_scan(step, operands)
    results = (y, *(finals[name] for name in operands.plan.traced.states))
    pairs = [(result, a) for result, a in zip(results, above, strict=True) if result.requires_grad]
    wanted = [tensor for tensor, need in zip(sources, needed, strict=True) if need]
    outputs, gradients = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(outputs, wanted, gradients, create_graph=True, allow_unused=True))
    return [next(found) if need else None for need in needed]


def aliases(tensors: Sequence[Tensor | None]) -> list[Any]:
    """Views of the tensors, as separate inputs: one of them may be a function of another."""
    return [None if tensor is None else tensor.view_as(tensor) for tensor in tensors]


def reference_scan(step: Step, operands: Operands) -> tuple[Tensor, dict[str, Tensor]]:
    plan, count = operands.plan, len(operands.plan.products)
    joint = by_part(operands, operands.joint, operands.joint_names)
    parts = {**joint, **dict(zip(operands.extra_names, operands.extras, strict=True))}
    weights = dict(zip(plan.traced.weights, operands.weights, strict=True))
    states = dict(zip(plan.traced.states, operands.states, strict=True))

    def advance(part, state):
        for i, (product, matrix) in enumerate(zip(plan.products, operands.matrices[:count], strict=True)):
            visible = state[product.state] * operands.drops[i] if operands.drops else state[product.state]
            part = {**part, **by_part(operands, F.linear(visible, matrix), product.parts)}
        return step(part, state, weights, **({"multiply": multiply} if plan.traced.inner else {}))

    def multiply(attribute, source, names, biased):
        number = [inner.attribute for inner in plan.traced.inner].index(attribute)
        made = by_part(operands, F.linear(source, operands.matrices[count + number]), names)
        return {n: made[n] + weights[bias_of(n)] if n in biased else made[n] for n in names}

    return reference.scan(advance, parts, states, operands.mask, operands.resets, operands.reverse)


def by_part(operands: Operands, joint: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    columns = joint.split([operands.size_of(name) for name in names], -1)
    return dict(zip(names, columns, strict=True))
