"""The fused loop over time as an autograd function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.cpu import passes
from linnet.cpu.passes import Kept, projection_gradients
from linnet.program import blocks
from linnet.program.graph import interpret
from linnet.program.operands import (
    NO_FLAGS,
    Flags,
    Operands,
    Source,
    add_biases,
    as_dtype,
    ends,
    sum_of_biases,
)
from linnet.program.padding import Padding
from linnet.program.plan import Fusible, Plan
from linnet.program.readable import unreadable
from linnet.program.trace import Step, bias_of, name_in_unit
from linnet.program.unit import Named
from linnet.run import reference
from linnet.run.in_place import changeable
from linnet.run.kept_states import collect, collects
from linnet.run.operation_checks import Sizes, check_heads, operand_shapes
from linnet.run.samples import for_each_sample


def misfit(plan: Plan, source: Source, tensors: Sequence[Tensor]) -> str | None:
    """Return which operand does not fit the plan, or None. Kernels read operands by their addresses."""
    x = source.x
    free = torch.is_autocast_enabled(x.device.type)
    try:
        wrong = [
            wrong_kind(name, tensor, shape, None if free else x)
            for name, tensor, shape in expected(plan, source, tensors)
        ]
    except ValueError as error:
        return str(error)
    return next(filter(None, wrong), None)


def expected(
    plan: Plan, source: Source, tensors: Sequence[Tensor]
) -> Iterator[tuple[str, Tensor, tuple[int, ...]]]:
    """Each operand that no time step changes, with its name and the shape it must have."""
    x, weight, bias, heads = source[:4]
    extras, weights, states = plan.ends
    sizes = plan.sizes(tensors[extras:weights], tensors[weights:states], tensors[states:])
    (_, shape, _), *shapes = operand_shapes(plan, Sizes.of(plan, x.shape[0], x.shape[1], sizes))
    if weight is None:
        yield "the projected input", x, shape
    else:
        check_heads(heads, (x.shape[-1], sizes[0]))
        yield "the input matrix", weight, (shape[-1], x.shape[-1] // heads)
    if bias is not None:
        whole = max(1, min(shape[-1], bias.numel()) // sizes[0]) * sizes[0]
        yield "the input bias", bias, (whole,)
    if source.second is not None:
        yield "the second bias", source.second, (shape[-1],)
    for number, ((name, shape, _), tensor) in enumerate(zip(shapes, tensors, strict=True)):
        if extras <= number < weights or number >= states:
            yield name, tensor, shape


def wrong_kind(name: str, tensor: Tensor, shape: tuple[int, ...], x: Tensor | None) -> str | None:
    """Why `tensor` cannot be read as one of `shape`, and of the dtype and device of x if that is given."""
    if tuple(tensor.shape) != shape:
        return f"{name} has the shape {tuple(tensor.shape)} instead of {shape}"
    if x is not None and (tensor.dtype, tensor.device) != (x.dtype, x.device):
        return f"{name} is {tensor.dtype} on {tensor.device}, and x is {x.dtype} on {x.device}"
    reason = unreadable(tensor)
    return None if reason is None else f"{name} {reason}"


class Call(NamedTuple):
    """What a scan is besides its tensors.

    kernels       linnet.cpu.passes or linnet.triton.passes, which have the same functions
    input_heads   those of the matrix of the input
    apart         the last numbers of the second bias of the input, which are not added to the first: they
                  are one of the weights
    """

    fusible: Fusible
    kernels: ModuleType = passes
    flags: Flags = NO_FLAGS
    drops: Sequence[Tensor] = ()
    padding: Padding | None = None
    pads_output: bool = False
    input_heads: int = 1
    apart: int = 0

    @property
    def part(self) -> int:
        """Which of the tensors is a part of the second bias."""
        plan = self.fusible.plan
        return plan.ends[0] + next(i for i, n in enumerate(plan.traced.weights) if n.startswith("bias."))

    def source(self, x: Tensor, weight: Any, bias: Any, second: Any) -> Source:
        """The operands of the projection as kernels read them, with one bias."""
        if second is not None:
            add = sum_of_biases if torch.is_grad_enabled() else add_biases
            bias = add(bias, second, self.apart)
        return Source(x, weight, bias, self.input_heads)

    def operands(self, source: Any, tensors: Sequence[Tensor], joint: Tensor | None = None) -> Operands:
        """`joint`: the projections; None if they are still to be computed."""
        if source.weight is None:
            joint, source = source.x, None
        how = (self.flags, source, self.drops, self.padding, self.pads_output)
        return Operands(self.fusible.plan, joint, tensors, *how)

    def run(self, operands: Operands, keep: bool) -> tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]:
        """The output, the final states, and what the backward pass reads: the states and the products."""
        y, sequences, products = self.kernels.run_forward(operands, keep, share=not collects())
        if collects():
            names = map(name_in_unit, operands.plan.traced.states)
            collect(dict(zip(names, sequences, strict=True)), operands.reverse)
        return y, ends(operands, sequences, y.dtype), sequences, products


def fused_scan(call: Call, source: Source, tensors: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """`reference.scan` in one kernel: return the output [T, B, H] and the final states.

    source    the operands of the projection, or the projection itself
    tensors   the extra inputs, weights, states and matrices

    A projection that is given by its operands is not visible outside the scan. So the kernel can compute it
    and reuse its memory: for the gradients in training, and for the next time steps in inference.
    """
    plan, laid_out = call.fusible.plan, call.kernels.laid_out
    if source.weight is None:
        source = Source(laid_out(source.x), None, None)
    if plan.extras:
        extras = [laid_out(as_dtype(extra, source.x.dtype)) for extra in tensors[: len(plan.extras)]]
        tensors = [*extras, *tensors[len(plan.extras) :]]
    given = (*source[:3], source.second, *tensors)
    if source.heads > 1 or source.apart:
        call = call._replace(input_heads=source.heads, apart=source.apart)
    run = Scan.apply if wants_gradients(given) else without_gradients
    y, *finals = run(call, *given)
    return y, finals


def without_gradients(
    call: Call, x: Tensor, weight: Any, bias: Any, second: Any, *tensors: Tensor
) -> tuple[Tensor, ...]:
    operands = call.operands(call.source(x, weight, bias, second), tensors)
    y, finals, _, _ = call.run(operands, keep=collects())
    # Not a view of the states, which could not be changed in place once gradients are recorded again.
    return y.detach(), *finals


def wants_gradients(tensors: Sequence[Tensor | None]) -> bool:
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


class Scan(torch.autograd.Function):
    """A scan with gradients; x is the projection if `weight` is None."""

    @staticmethod
    def forward(
        ctx: Any, call: Call, x: Tensor, weight: Any, bias: Any, second: Any, *tensors: Tensor
    ) -> Any:
        operands = call.operands(call.source(x, weight, bias, second), tensors)
        y, finals, sequences, products = call.run(operands, keep=True)
        ctx.call, ctx.unused, ctx.is_single = call, [True], operands.is_single
        # Backward reads the states before each step: of a single one, those that were given.
        y, kept_sequences, ctx.changes = changeable(y, () if operands.is_single else sequences)
        joint = None if weight is None else operands.joint
        # The mask and the resets, too, so that autograd detects changes in place.
        mask, resets, _ = call.flags
        given = (x, weight, bias, second, joint, *tensors)
        ctx.save_for_backward(mask, resets, *given, *kept_sequences, *products)
        return y, *finals

    @staticmethod
    @for_each_sample
    def backward(ctx: Any, *above: Tensor) -> Any:
        call, needed = ctx.call, ctx.needs_input_grad[1:]
        mask, resets, x, weight, bias, second, joint, *tensors = ctx.saved_tensors
        if mask is not None or resets is not None:
            call = call._replace(flags=(mask, resets, call.flags[2]))
        states = kept(call.fusible.plan, tensors, ctx.is_single)
        if torch.is_grad_enabled():
            sources = aliases([x, weight, bias, second, *tensors])
            if call.apart:
                sources[4 + call.part] = sources[3][-call.apart :]
            return None, *differentiable_gradients(call, sources, needed, above)
        is_overwritten = weight is not None and not is_first(ctx.unused)
        # The numbers of the bias matter only if the projection is computed again.
        source = call.source(x, weight, bias, second if is_overwritten or ctx.changes else None)
        operands = call.operands(source, tensors, None if is_overwritten or ctx.changes else joint)
        if is_overwritten or ctx.changes:
            # The first backward has overwritten the projection, or the output was changed in place. Compute
            # all again by the same kernel, so that it is rounded in the same way.
            _, sequences, products = call.kernels.run_forward(operands, keep=True)
            states = Kept(operands.states if ctx.is_single else sequences, products)
        wanted, in_place = [any(needed[:4]), *needed[4:]], weight is not None
        if call.apart:
            wanted[1 + call.part] = needed[3]
        djoint, *others = call.kernels.run_backward(operands, states, wanted, above, in_place)
        if weight is None:
            return None, djoint, None, None, None, *others
        parts, needed_of = len(operands.plan.projected), (*needed[:2], needed[2] or needed[3])
        dx, dweight, dbias = projection_gradients(djoint, source, needed_of, parts)
        dsecond = None
        if needed[3] and dbias is not None:
            # Not the same tensor: users may add to one of the two in place.
            dsecond = torch.cat([dbias[: -call.apart], others[call.part]]) if call.apart else dbias.clone()
        if call.apart:
            others[call.part] = None
        return None, dx, dweight, dbias, dsecond, *others


def differentiable_gradients(call: Call, sources: list[Any], needed: Any, above: Any) -> list[Tensor | None]:
    """The gradients by the reference, which can be differentiated again."""
    plan = call.fusible.plan
    joint = sources[0] if sources[1] is None else call.source(*sources[:4]).linear(len(plan.projected))
    how = (call.flags, None, call.drops, call.padding, call.pads_output)
    operands = Operands(plan, joint, sources[4:], *how)
    return reference_gradients(call.fusible.step, operands, sources, needed, above)


def kept(plan: Plan, tensors: list[Tensor], is_single: bool) -> Kept:
    """Take off the end of saved tensors the states of all steps, and what `run_forward` has kept else."""
    products = [tensors.pop() for _ in (*plan.matrices, *plan.traced.inner)][::-1]
    _, weights, states = plan.ends
    if is_single:
        return Kept(tensors[weights:states], products)
    return Kept([tensors.pop() for _ in plan.traced.states][::-1], products)


def is_first(unused: list[bool]) -> bool:
    """True for one caller only, even if several threads call at once: list.pop is atomic."""
    try:
        return unused.pop()
    except IndexError:
        return False


def reference_gradients(
    step: Step,
    operands: Operands,
    sources: Sequence[Tensor],
    needed: Sequence[bool],
    above: Sequence[Tensor],
) -> list[Tensor | None]:
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
    if operands.padding is not None:
        y, finals = reference_scan(step, operands.unpacked())
        return (y if operands.pads_output else operands.padding.packed(y)), finals
    plan, count = operands.plan, len(operands.plan.products)
    joint = by_part(operands, operands.joint, operands.plan.projected)
    parts = {**joint, **dict(zip(operands.plan.extras, operands.extras, strict=True))}
    weights = dict(zip(plan.traced.weights, operands.weights, strict=True))
    states = dict(zip(plan.traced.states, operands.states, strict=True))

    def advance(part: Named, state: Named) -> tuple[Tensor, Named]:
        for i, (product, matrix) in enumerate(zip(plan.products, operands.matrices[:count], strict=True)):
            visible = state[product.state] * operands.drops[i] if operands.drops else state[product.state]
            made = blocks.linear(visible, matrix, None, product.heads, len(product.parts))
            part = {**part, **by_part(operands, made, product.parts)}
        if plan.traced.sizes:
            return interpreted_step(part, state)
        return step(part, state, weights, **({"multiply": multiply} if plan.traced.inner else {}))

    def interpreted_step(part: Named, state: Named) -> tuple[Tensor, Named]:
        known, batch = {**part, **state}, len(next(iter(state.values())))
        known |= {name: weight.expand(batch, -1) for name, weight in weights.items()}
        found = interpret(plan.traced.forward, known, operands.matrices)  # type: ignore[arg-type]
        return found["y"].expand(batch, -1), {name: found[f"new.{name}"] for name in state}

    def multiply(
        attribute: str, source: Tensor, names: Sequence[str], biased: Sequence[str], heads: int
    ) -> Named:
        number = [inner.attribute for inner in plan.traced.inner].index(attribute)
        matrix = operands.matrices[count + number]
        made = by_part(operands, blocks.linear(source, matrix, None, heads, len(names)), names)
        return {n: made[n] + weights[bias_of(n)] if n in biased else made[n] for n in names}

    return reference.scan(advance, parts, states, operands.mask, operands.resets, operands.reverse)


def by_part(operands: Operands, joint: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    columns = joint.split([operands.size_of(name) for name in names], -1)
    return dict(zip(names, columns, strict=True))
