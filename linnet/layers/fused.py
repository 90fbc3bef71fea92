"""How a unit becomes a plan for a fused kernel, or why it does not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from linnet.fuse.plan import Fusible, Plan, Product
from linnet.fuse.trace import NotPointwise, Step, Traced, interpret, trace
from linnet.units.cell import Cell, Parts, Stage, argument_names, call_by_name

# What is done to the state after the step: output, new state, old state, inputs -> output, new state.
After = Callable[[Tensor, Parts, Parts, Parts], tuple[Tensor, Parts]]


class CannotFuse(Exception):  # noqa: N818, it is a reason more than an error
    """The reason why a unit runs by the reference loop."""


def make_plans(cell: Cell, beside: Sequence[str], after: After) -> list[Fusible]:
    """A plan for each stage of `cell`; `beside` are the parts that do not come from its projection."""
    check_anatomy(cell)
    read = [
        name
        for stage in cell.stages()
        for name in cell.input.parts
        if name in argument_names(getattr(type(cell), stage.step))
    ]
    if read != list(cell.input.parts):
        raise CannotFuse(f"its steps read the parts {read} of {list(cell.input.parts)}")
    return [make_plan(cell, stage, beside, after) for stage in cell.stages()]


def make_plan(cell: Cell, stage: Stage, beside: Sequence[str], after: After) -> Fusible:
    reads = argument_names(getattr(type(cell), stage.step))
    stays = [f"stay.{name}" for name in stage.states]
    through = [part for attribute in stage.through for part in getattr(cell, attribute).parts]
    projected = tuple(name for name in cell.input.parts if name in reads)
    extras = (*(name for name in beside if name in reads or name in stays), *through)
    check_sizes(cell, stage, (*projected, *through))
    products = tuple(
        Product(state, tuple(getattr(cell, attribute).parts)) for attribute, state in stage.recurrence.items()
    )
    made = [part for product in products for part in product.parts]

    def step(inputs: Parts, states: Parts, weights: Parts) -> tuple[Tensor, Parts]:
        biased = {name: inputs[name] + weights[f"bias.{name}"] for name in made if f"bias.{name}" in weights}
        unit = with_weights(cell, weights)
        y, new = call_by_name(getattr(unit, stage.step), {**inputs, **biased, **states})
        return after(y, new, states, inputs)

    try:
        traced = trace(step, [*projected, *extras, *made], stage.states, list(weights_of(cell, stage)))
    except NotPointwise as reason:
        raise CannotFuse(str(reason)) from reason
    check_traced(traced, step, cell.states[stage.states[0]])
    return Fusible(Plan(traced, extras, products), step)


def check_traced(traced: Traced, step: Step, size: int) -> None:
    """A step that looks at shapes or values may do one thing with scalars and another with tensors."""
    source = torch.Generator().manual_seed(0)
    groups = [
        {name: torch.rand(2, size, generator=source, dtype=torch.float64) for name in names}
        for names in (traced.inputs, traced.states, traced.weights)
    ]
    with torch.no_grad():
        try:
            y, new = step(*groups)
        except RuntimeError as error:
            raise CannotFuse(f"its step runs on scalars alone: {error}") from error
        ours = interpret(traced.forward, {name: t for group in groups for name, t in group.items()})
    theirs = {"y": y, **{f"new.{name}": new[name] for name in traced.states}}
    if not all(torch.allclose(ours[name].expand(2, size), theirs[name]) for name in ours):
        raise CannotFuse("its step computes one thing with scalars and another with tensors")


def check_anatomy(cell: Cell) -> None:
    if type(cell).project is not Cell.project:
        raise CannotFuse("its projection is its own")
    if type(cell).recur is not Cell.recur:
        raise CannotFuse("its recurrence is no plain matrix")
    if cell.projection is not None:
        raise CannotFuse("its projected output recurs")


def check_sizes(cell: Cell, stage: Stage, parts: Sequence[str]) -> None:
    """Kernels go along channels: all that a stage reads and writes must have the same number."""
    sizes = {cell.states[name] for name in (*stage.states, *stage.recurrence.values())}
    sizes |= {cell.input.parts[name] for name in parts if name in cell.input.parts}
    for attribute in (*stage.recurrence, *stage.through):
        sizes |= set(getattr(cell, attribute).parts.values())
    if len(sizes) > 1 or not set(stage.recurrence.values()) <= set(stage.states):
        raise CannotFuse(f"its states and parts are of different sizes, {sorted(sizes)}")


def with_weights(cell: Cell, weights: Parts) -> Any:
    """The same cell with other tensors for its own parameters: scalars to trace with, for example."""
    other = copy.copy(cell)
    other.__dict__ = {**cell.__dict__, "_parameters": dict(weights)}
    return other


def weights_of(cell: Cell, stage: Stage) -> Parts:
    """What a step reads that is one number a channel: the cell's own parameters, and recurrent biases."""
    size = cell.states[stage.states[0]]
    own = cell.named_parameters(recurse=False)
    weights: Parts = {name: weight for name, weight in own if weight.shape == (size,)}
    for attribute in stage.recurrence:
        matrix = getattr(cell, attribute)
        if matrix.bias is not None:
            weights |= {f"bias.{name}": bias for name, bias in matrix.biases().items()}
    return weights


def matrices_of(cell: Cell, stage: Stage) -> list[Tensor]:
    return [getattr(cell, attribute).weight for attribute in stage.recurrence]


def sum_of_sizes(cell: Cell, plan: Plan) -> int:
    """How wide the projections of a stage are, side by side."""
    return sum(cell.input.parts[name] for name in plan.traced.inputs if name in cell.input.parts)
