"""How a unit becomes a plan for a fused kernel, or why it does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from linnet.fuse.plan import Plan, Product
from linnet.fuse.substitute import with_parameters
from linnet.fuse.trace import NotPointwise, Step, Traced, interpret, name_in_unit, safe_name, trace
from linnet.fuse.unit import ByNature, CannotFuse, Named, Stage, Unit

# What is done to the state after the step: output, new state, old state, inputs -> output, new state.
After = Callable[[Tensor, Named, Named, Named], tuple[Tensor, Named]]


def make_plans(cell: Unit, extras: Sequence[str], after: After) -> list[Plan]:
    """Return a plan for each stage of `cell`, whose step reads `extras` besides the projections."""
    obstacle = cell.structural_obstacle()
    if obstacle is not None:
        raise CannotFuse(obstacle)
    read = [
        name for stage in cell.stages() for name in cell.input.parts if name in cell.arguments[stage.step]
    ]
    if read != list(cell.input.parts):
        raise CannotFuse(f"its steps read the parts {read} of {list(cell.input.parts)}")
    return [make_plan(cell, stage, extras, after) for stage in cell.stages()]


def make_plan(cell: Unit, stage: Stage, extras: Sequence[str], after: After) -> Plan:
    reads = cell.arguments[stage.step]
    noise = [f"{kind}.{name}" for name in stage.states for kind in ("stay", "drop")]
    of_new_states = [part for attribute in stage.reads_new_state for part in getattr(cell, attribute).parts]
    projected = tuple(name for name in cell.input.parts if name in reads)
    extras = (*(name for name in extras if name in reads or name in noise), *of_new_states)
    check_sizes(cell, stage, (*projected, *of_new_states))
    products = tuple(
        Product(state, tuple(map(safe_name, getattr(cell, attribute).parts)))
        for attribute, state in stage.recurrence.items()
    )
    made = [name_in_unit(part) for product in products for part in product.parts]
    weights = list(weights_of(cell, stage))
    check_names([*projected, *extras, *made], (*stage.states, *weights))
    step = partial(one_step, cell, stage, after)
    try:
        inputs = [safe_name(name) for name in (*projected, *extras, *made)]
        traced = trace(step, inputs, stage.states, weights)
    except NotPointwise as reason:
        raise CannotFuse(str(reason)) from reason
    check_traced(traced, step, cell.states[stage.states[0]])
    return Plan(traced, tuple(map(safe_name, extras)), products)


def one_step(
    cell: Unit, stage: Stage, after: After, inputs: Named, states: Named, weights: Named
) -> tuple[Tensor, Named]:
    """Run a stage of `cell` with `weights` in place of its own, and then `after`."""
    inputs = {name_in_unit(name): value for name, value in inputs.items()}
    biases = {name.removeprefix("bias."): w for name, w in weights.items() if name.startswith("bias.")}
    known = {**inputs, **{name: inputs[name] + bias for name, bias in biases.items()}, **states}
    y, new = with_parameters(cell, weights).call_by_name(stage.step, known)
    return after(y, new, states, inputs)


def check_names(parts: Sequence[str], others: Sequence[str]) -> None:
    """Kernels find operands by name. A part may have any name; `others` are states and parameters."""
    names = [*parts, *others]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise CannotFuse(
            f"two of its parts, states and parameters are called {twice[0]!r}; rename one of them"
        )
    taken = [name for name in others if safe_name(name) != name]
    if taken:
        raise CannotFuse(
            f"a state or a parameter is called {taken[0]!r}, which is a name that kernels use; rename it"
        )


def check_traced(traced: Traced, step: Step, size: int) -> None:
    """A step that depends on shapes or values may compute something else with scalars than with tensors."""
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        groups = [
            {name: torch.rand(2, size, generator=source, dtype=torch.float64) for name in names}
            for names in (traced.inputs, traced.states, traced.weights)
        ]
        try:
            y, new = step(*groups)
        except RuntimeError as error:
            raise CannotFuse(f"its step runs on scalars only: {error}") from error
        ours = interpret(traced.forward, {name: t for group in groups for name, t in group.items()})
        theirs = {"y": y, **{f"new.{name}": new[name] for name in traced.states}}
        if not all(torch.allclose(ours[name].expand(2, size), theirs[name]) for name in ours):
            raise CannotFuse("its step computes something else with scalars than with tensors")


def check_sizes(cell: Unit, stage: Stage, parts: Sequence[str]) -> None:
    """Kernels loop over channels: everything that a stage reads and writes must have the same number."""
    sizes = {cell.states[name] for name in (*stage.states, *stage.recurrence.values())}
    sizes |= {cell.input.parts[name] for name in parts if name in cell.input.parts}
    for attribute in (*stage.recurrence, *stage.reads_new_state):
        sizes |= set(getattr(cell, attribute).parts.values())
    if len(sizes) > 1 or not set(stage.recurrence.values()) <= set(stage.states):
        raise CannotFuse(ByNature(f"its states and parts are of different sizes, {sorted(sizes)}"))


def weights_of(cell: Unit, stage: Stage) -> Named:
    """Return the weights with one number per channel: the cell's own parameters, and recurrent biases."""
    size = cell.states[stage.states[0]]
    own = cell._parameters.items()
    weights: Named = {name: w for name, w in own if w is not None and w.shape == (size,)}
    for attribute in stage.recurrence:
        matrix = getattr(cell, attribute)
        if matrix.bias is not None:
            weights |= {f"bias.{name}": bias for name, bias in matrix.biases().items()}
    return weights


def matrices_of(cell: Unit, stage: Stage) -> list[Tensor]:
    return [getattr(cell, attribute).weight for attribute in stage.recurrence]


def sum_of_sizes(cell: Unit, plan: Plan) -> int:
    """Return the width of the projections of a stage together."""
    names = map(name_in_unit, plan.traced.inputs)
    return sum(cell.input.parts[name] for name in names if name in cell.input.parts)
