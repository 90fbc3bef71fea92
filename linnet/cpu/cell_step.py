"""One step of a unit as part of a `StepProgram`, and as a program of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from linnet.cpu.steps import StepProgram, set_flags
from linnet.program.plan import Plan
from linnet.program.planning import matrices_of, weights_of
from linnet.program.trace import name_in_unit
from linnet.program.unit import ByNature, CannotFuse, Named, Stage, Unit
from linnet.program.whole_step import derived_operands


def append_step(
    program: StepProgram, cell: Unit, plans: Sequence[Plan], x: Tensor, old: Tensor, new: Tensor
) -> Tensor:
    """Append one step of `cell`, and return its output [B, output_size].

    old, new   [B, sum of sizes]: its states side by side
    """
    before, after = by_name(cell.states, old), by_name(cell.states, new)
    joint = program.operations(x, cell.input.operations())
    inputs = {**by_name(cell.input.parts, joint), **views_of(x, cell.extra_inputs)}
    if plans[0].derived is not None:
        return append_whole(program, cell, plans[0], inputs, before, after)
    outputs: Named = {}
    read: Named = {}
    for stage, plan in zip(cell.stages(), plans, strict=True):
        for attribute, state in stage.reads_new_state.items():
            projection = getattr(cell, attribute)
            inputs |= by_name(projection.parts, program.operations(read[state], projection.operations()))
        known = {**inputs, **products(program, cell, stage, before)}
        made = {part for product in plan.traced.inner for part in product.parts}
        named = {name: known[name_in_unit(name)] for name in plan.traced.inputs if name not in made}
        weights = stage_weights(cell, stage, plan)
        matrices = matrices_of(cell, stage, plan.inner) if plan.inner else []
        if plan.raw is not None:
            read[stage.states[0]] = program.scan(plan.raw, named, weights, before, after, matrices)
        y = outputs[stage.states[0]] = program.scan(plan, named, weights, before, after, matrices)
        read.setdefault(stage.states[0], y)
    return gathered(program, cell.output, y, outputs)


def append_whole(
    program: StepProgram, cell: Unit, plan: Plan, inputs: Named, before: Named, after: Named
) -> Tensor:
    """Append a step that is not elementwise, with the output of the unit."""
    assert plan.derived is not None
    if not plan.derived.are_parameters:
        raise CannotFuse(ByNature("its weights are computed from its parameters"))
    weights, matrices = derived_operands(cell, plan.derived)
    given = [name for name in plan.traced.inputs if name_in_unit(name) in inputs]
    named = {name: inputs[name_in_unit(name)] for name in given}
    return program.scan(
        plan, named, dict(zip(plan.traced.weights, weights, strict=True)), before, after, matrices
    )


def by_name(sizes: dict[str, int], tensor: Tensor) -> Named:
    """Split consecutive columns by name."""
    if tensor.shape[-1] != sum(sizes.values()):
        raise CannotFuse(f"its parts have {tensor.shape[-1]} columns instead of {sum(sizes.values())}")
    return dict(zip(sizes, tensor.split(list(sizes.values()), -1), strict=True))


def products(program: StepProgram, cell: Unit, stage: Stage, state: Named) -> Named:
    """The products with the previous state. Their biases, if they have any, are weights of the plan."""
    made: Named = {}
    for attribute, name in stage.recurrence.items():
        projection = getattr(cell, attribute)
        made |= by_name(projection.parts, program.operations(state[name], [projection.product()]))
    return made


def stage_weights(cell: Unit, stage: Stage, plan: Plan) -> Named:
    weights = weights_of(cell, stage, plan.inner)
    if tuple(weights) != plan.traced.weights:
        raise CannotFuse(f"its weights with one number per channel are now {list(weights)}")
    if not all(weight.is_contiguous() for weight in weights.values()):
        raise CannotFuse(ByNature("one of its weights is a number for all channels"))
    return weights


def views_of(x: Tensor, function: Callable[[Tensor], Named]) -> Named:
    """The results of a function of [T, B, size] as views of x [B, size]; CannotFuse if they are no views."""
    example = torch.empty(1, *x.shape, dtype=x.dtype, device="meta")
    found: Named = {}
    for name, view in function(example).items():
        if view.untyped_storage()._cdata != example.untyped_storage()._cdata or view.stride(-1) != 1:
            raise CannotFuse(f"its input {name!r} is not a part of x")
        found[name] = x.as_strided(view.shape[1:], view.stride()[1:], view.storage_offset())
    return found


def gathered(
    program: StepProgram, output: Callable[[Tensor, Named], Tensor], y: Tensor, states: Named
) -> Tensor:
    """The result of `output` for y and the states, if it only concatenates some of their columns."""
    sources = [y, *states.values()]
    runs = list(columns_of(output, sources, tuple(states)))
    if len(runs) == 1 and runs[0] == (0, 0, y.shape[-1]):
        return y
    target = program.buffer(sum(count for _, _, count in runs))
    pairs, first = [], 0
    for number, start, count in runs:
        pairs.append((sources[number][:, start : start + count], target[:, first : first + count]))
        first += count
    program.copy(*pairs)
    return target


def columns_of(
    output: Callable[[Tensor, Named], Tensor], sources: Sequence[Tensor], names: Sequence[str]
) -> Iterator[tuple[int, int, int]]:
    """Yield the columns of the output as (source, first, count): found by numbering all columns."""
    sizes = [source.shape[-1] for source in sources]
    numbers = torch.arange(sum(sizes), dtype=torch.float64, device="cpu")

    def made(marks: Tensor) -> Tensor:
        first, *rest = marks[None, None].split(sizes, -1)
        return output(first, dict(zip(names, rest, strict=True)))[0, 0]

    found = made(numbers).round().long()
    marks = torch.rand(len(numbers), dtype=torch.float64, device="cpu", generator=torch.Generator())
    within = bool(((found >= 0) & (found < len(numbers))).all())
    if not within or not torch.equal(made(marks), marks[found]):
        raise CannotFuse("its output is not made of columns of its states")
    yield from runs_of(found.tolist(), sizes)


def runs_of(columns: list[int], sizes: list[int]) -> Iterator[tuple[int, int, int]]:
    """Consecutive columns, which are numbered across all sources, as runs within one source."""
    positions = [(number, at) for number, size in enumerate(sizes) for at in range(size)]
    start = 0
    for end in range(1, len(columns) + 1):
        here = positions[columns[end]] if end < len(columns) else None
        number, at = positions[columns[end - 1]]
        if here != (number, at + 1):
            first = positions[columns[start]][1]
            yield number, first, end - start
            start = end


class PreparedStep:
    """What the steps of a cell on the tensors of a caller share: which tensors they take.

    shapes   those of the states, [B, size] each
    """

    dtype: torch.dtype
    shapes: list[torch.Size]

    def fits(self, x: Tensor, states: Sequence[Any]) -> bool:
        """Whether x, of the shape and dtype of an earlier one, and the states can be read by address."""
        if len(states) != len(self.shapes) or not is_simple(x):
            return False
        for state, shape in zip(states, self.shapes, strict=True):
            if type(state) is not Tensor or state.shape != shape or state.dtype is not self.dtype:
                return False
            if not is_simple(state):
                return False
        return True


class CellStep(PreparedStep):
    """One step of a cell without gradients: x [B, input_size] and the states, by name."""

    def __init__(self, cell: Unit, plans: Sequence[Plan], like: Tensor):
        batch, dtype = len(like), like.dtype
        self.program = program = StepProgram(batch, dtype)
        total = sum(cell.states.values())
        x, old, new = program.buffer(like.shape[-1]), program.buffer(total), program.buffer(total)
        before, after = by_name(cell.states, old).values(), by_name(cell.states, new).values()
        self.reads = program.copy((x, x), *zip(before, before, strict=True))
        self.clears = program.clear(old)
        y = append_step(program, cell, plans, x, old, new)
        self.writes = program.copy((y, y), *zip(after, after, strict=True))
        # The results of each call are created like these.
        self.y, *self.new = [
            torch.empty_like(made, memory_format=torch.contiguous_format) for made in (y, *after)
        ]
        self.dtype, self.shapes, self.each = dtype, [made.shape for made in self.new], y.element_size()
        self.writes[3] = self.y.nbytes // batch
        for i, made in enumerate(self.new):
            self.writes[6 * i + 9] = made.nbytes // batch
        program.finish()
        self.nbytes = program.nbytes

    def __call__(
        self, x: Tensor, states: Sequence[Tensor], resets: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """resets [B]: True where the states are zeros."""
        set_flags(self.clears, resets)
        reads, writes, each = self.reads, self.writes, self.each
        reads[0], reads[2] = x.data_ptr(), x.stride(0) * each
        at = 6
        for state in states:
            reads[at], reads[at + 2] = state.data_ptr(), state.stride(0) * each
            at += 6
        y = torch.empty_like(self.y)
        writes[1] = y.data_ptr()
        new, at = [], 7
        for like in self.new:
            made = torch.empty_like(like)
            writes[at] = made.data_ptr()
            new.append(made)
            at += 6
        self.program.run()
        return y, new


def is_simple(tensor: Tensor) -> bool:
    """Whether the tensor is on the CPU, with contiguous rows and no pending negation."""
    return tensor.is_cpu and tensor.layout is torch.strided and tensor.stride(-1) == 1 and not tensor.is_neg()
