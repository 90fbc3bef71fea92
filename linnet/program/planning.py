"""Creates the plans of a unit, or gives the reason why it cannot be fused."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.program.plan import Plan, Product
from linnet.program.restart import restarted, starts_of
from linnet.program.shared_traces import shared_trace
from linnet.program.substitute import with_parameters
from linnet.program.trace import (
    Hoisted,
    Inner,
    Multiply,
    NotPointwise,
    Pointwise,
    Step,
    Traced,
    bias_of,
    in_kernel,
    in_unit,
    interpret,
    name_in_unit,
    safe_name,
    trace,
    trace_hoisted,
)
from linnet.program.unit import ByNature, CannotFuse, Named, Stage, Unit
from linnet.program.whole_step import After, whole_plan


def make_plans(cell: Unit, extras: Sequence[str], after: After, options: tuple[Any, ...] = ()) -> list[Plan]:
    """Return a plan for each stage of `cell`, whose step reads `extras` besides the projections.

    options   the values of the options that `after` reads from its object
    """
    obstacle = cell.structural_obstacle()
    if obstacle is not None:
        raise CannotFuse(obstacle)
    try:
        return elementwise_plans(cell, extras, after, options)
    except CannotFuse:
        if cell.is_quantised:  # there are no kernels of int8 for steps that are not elementwise
            raise
        return [whole_plan(cell, extras, after, options)]


def elementwise_plans(
    cell: Unit, extras: Sequence[str], after: After, options: tuple[Any, ...]
) -> list[Plan]:
    """A plan for each stage of a unit whose channels depend on each other only by matrix products."""
    obstacle = cell.elementwise_obstacle()
    if obstacle is not None:
        raise CannotFuse(obstacle)
    if not hasattr(cell.output, "only_selects"):  # it may not be 0 at padded steps, and reads any state
        raise CannotFuse(ByNature("its output is computed from its states"))
    read = [
        name for stage in cell.stages() for name in cell.input.parts if name in cell.arguments[stage.step]
    ]
    if read != list(cell.input.parts):
        raise CannotFuse(f"its steps read the parts {read} of {list(cell.input.parts)}")
    return [plan_of_stage(cell, stage, extras, after, options) for stage in cell.stages()]


def plan_of_stage(
    cell: Unit, stage: Stage, extras: Sequence[str], after: After, options: tuple[Any, ...]
) -> Plan:
    """The plan of a stage; with a second one, if later stages read another output than that of the unit."""
    plan = make_plan(cell, stage, extras, after, options)
    read = {state for other in cell.stages() for state in other.reads_new_state.values()}
    if read & set(stage.states):
        raw = make_plan(cell, stage, extras, after, options, raw=True)
        plan.raw = None if raw.text == plan.text else raw
        plan.hoisted = None
    return plan


def make_plan(
    cell: Unit,
    stage: Stage,
    extras: Sequence[str],
    after: After,
    options: tuple[Any, ...],
    raw: bool = False,
) -> Plan:
    names = stage_names(cell, stage, extras)
    done_after = (type(getattr(after, "__self__", None)), getattr(after, "__func__", after), *options)
    context = (stage.step, stage.states, names, cell.training, raw, *done_after)
    traced = shared_trace(cell, context, partial(trace_stage, cell, stage, names, after, raw))
    plan = checked_plan(cell, stage, names, traced.traced)
    hoisted = traced.hoisted or (as_it_is(traced.traced) if single_numbers(cell, stage) else None)
    if hoisted is not None:
        plan.hoisted = Plan(hoisted.traced, plan.extras, plan.products, before=hoisted.before)
    return plan


def as_it_is(traced: Traced) -> Hoisted:
    """A step of which nothing is computed before, but that its weights are made as wide as its states."""
    return Hoisted(traced, Pointwise(traced.weights, (), ()))


class StageTrace(NamedTuple):
    """The traced step of a stage; and, if this pays, without what depends on weights alone."""

    traced: Traced
    hoisted: Hoisted | None

    @property
    def inner(self) -> tuple[Inner, ...]:
        return self.traced.inner


class StageNames(NamedTuple):
    """What a stage reads besides its states, by name."""

    projected: tuple[str, ...]
    extras: tuple[str, ...]  # further inputs, and then the parts that are projected from new states
    of_new_states: tuple[str, ...]
    products: tuple[Product, ...]
    weights: tuple[str, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        made = (name_in_unit(part) for product in self.products for part in product.parts)
        return (*self.projected, *self.extras, *made)


def stage_names(cell: Unit, stage: Stage, extras: Sequence[str]) -> StageNames:
    reads = cell.arguments[stage.step]
    added = [f"{kind}.{name}" for name in stage.states for kind in ("stay", "drop")]
    made = [part for attribute in stage.recurrence for part in getattr(cell, attribute).parts]
    added += starts_of((*stage.states, *made))
    of_new_states = [part for attribute in stage.reads_new_state for part in getattr(cell, attribute).parts]
    products = tuple(
        Product(safe_name(state), tuple(map(safe_name, matrix.parts)), matrix.heads)
        for matrix, state in ((getattr(cell, name), state) for name, state in stage.recurrence.items())
    )
    names = StageNames(
        projected=tuple(name for name in cell.input.parts if name in reads),
        extras=(*(name for name in extras if name in reads or name in added), *of_new_states),
        of_new_states=tuple(of_new_states),
        products=products,
        weights=tuple(weight_sizes(cell, stage)),
    )
    check_names(names.inputs, stage.states, names.weights)
    return names


def trace_stage(cell: Unit, stage: Stage, names: StageNames, after: After, raw: bool) -> StageTrace:
    step = partial(one_step, cell, stage, after, raw=raw)
    try:
        inputs, states = ([safe_name(name) for name in group] for group in (names.inputs, stage.states))
        traced = trace(step, inputs, states, names.weights, multiplies=True)
        hoisted = None if traced.inner else trace_hoisted(step, inputs, states, names.weights)
    except NotPointwise as reason:
        raise CannotFuse(str(reason)) from reason
    if traced.inner and single_numbers(cell, stage):
        raise CannotFuse(ByNature("it has products within its step, and a weight for all channels"))
    checked_plan(cell, stage, names, traced)  # first, since these checks give the simpler reasons
    check_traced(traced, step, cell.states[stage.states[0]])
    return StageTrace(traced, hoisted)


def checked_plan(cell: Unit, stage: Stage, names: StageNames, traced: Traced) -> Plan:
    plan = Plan(traced, tuple(map(safe_name, names.extras)), names.products)
    if traced.inner:
        check_names([name_in_unit(name) for name in traced.inputs], stage.states, traced.weights)
        check_groups(cell, stage, plan)
    else:
        check_sizes(cell, stage, (*names.projected, *names.of_new_states))
    return plan


def one_step(
    cell: Unit,
    stage: Stage,
    after: After,
    inputs: Named,
    states: Named,
    weights: Named,
    multiply: Multiply | None = None,
    raw: bool = False,
) -> tuple[Tensor, Named]:
    """Run a stage of `cell` with `weights` in place of its own, and then `after`.

    multiply   computes the inner products, in place of the projections of the cell
    raw        return the output as it is before `after`
    """
    inputs, states = in_unit(inputs), in_unit(states)
    inputs, states = restarted(inputs, inputs), restarted(states, inputs)
    biases = {name.removeprefix("bias."): w for name, w in weights.items() if name.startswith("bias.")}
    biased = {name: inputs[name] + bias for name, bias in biases.items() if name in inputs}
    changed = with_parameters(cell, weights)
    if multiply is None:
        y, new = changed.call_by_name(stage.step, {**inputs, **biased, **states})
    else:
        products = {name: InnerProduct(cell, name, multiply) for name in inner_projections(cell)}
        changed.__dict__["_modules"] = {**cell._modules, **products}
        y, new = changed.call_by_name(stage.step, {**inputs, **biased, **states})
        y, new = changed.project_output(y, new)
    changed_y, new = after(y, new, states, inputs)
    return (y if raw else changed_y), in_kernel(new)


def step_of(cell: Unit, stage: Stage, after: After, plan: Plan) -> Step:
    """The step that a plan was made from, in terms of the weights of the plan."""
    if plan.before is None:
        return partial(one_step, cell, stage, after)
    return partial(interpreted_step, plan.traced)


def interpreted_step(traced: Traced, inputs: Named, states: Named, weights: Named) -> tuple[Tensor, Named]:
    made = interpret(traced.forward, {**inputs, **states, **weights})
    like = next(iter(states.values()))
    return made["y"].expand_as(like), {name: made[f"new.{name}"].expand_as(s) for name, s in states.items()}


def inner_projections(cell: Unit) -> list[str]:
    """The projections that a step may call, or that project its output: their products are inner products."""
    others = {name for stage in cell.stages() for name in (*stage.recurrence, *stage.reads_new_state)}
    children = cell._modules.items()
    return [
        name for name, child in children if hasattr(child, "parts") and name != "input" and name not in others
    ]


class InnerProduct:
    """Replaces a projection of a cell that a step calls with something that it has computed.

    Not a module, whose call runs the global hooks that exist at this moment: a trace is kept longer.
    """

    def __init__(self, cell: Unit, attribute: str, multiply: Multiply):
        self.cell, self.attribute, self.multiply = cell, attribute, multiply

    def __call__(self, source: Tensor) -> Named:
        projection = getattr(self.cell, self.attribute)
        check_bare(self.cell, self.attribute)
        parts, biased = (list(map(safe_name, n)) for n in (projection.parts, projection.biased_parts))
        made = self.multiply(self.attribute, source, parts, biased, projection.heads)
        return {name_in_unit(name): part for name, part in made.items()}


def check_names(parts: Sequence[str], states: Sequence[str], weights: Sequence[str]) -> None:
    """Kernels find operands by name. A part or a state may have any name."""
    names = [*parts, *states, *weights]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise CannotFuse(
            f"two of its parts, states and parameters are called {twice[0]!r}; rename one of them"
        )
    taken = [name for name in weights if safe_name(name) != name]
    if taken:
        raise CannotFuse(f"a parameter is called {taken[0]!r}, which is a name that kernels use; rename it")


def check_traced(traced: Traced, step: Step, size: int) -> None:
    """A step that depends on shapes or values may compute something else with scalars than with tensors."""
    source = torch.Generator().manual_seed(0)
    read: Named = {}
    with torch.no_grad():
        groups = [
            {name: torch.rand(2, size, generator=source, dtype=torch.float64) for name in names}
            for names in (traced.inputs, traced.states, traced.weights)
        ]
        inputs, states, weights = groups
        made = {part for product in traced.inner for part in product.parts}
        given = {name: value for name, value in inputs.items() if name not in made}

        def multiply(_: str, what: Tensor, parts: Sequence[str], biased: Sequence[str], heads: int) -> Named:
            read[f"inner.{len(read)}"] = what
            return {n: inputs[n] + weights[bias_of(n)] if n in biased else inputs[n] for n in parts}

        try:
            y, new = step(given, states, weights, multiply=multiply)
        except RecursionError:  # of the caller: there may be room at the next call
            raise
        except RuntimeError as error:
            raise CannotFuse(f"its step runs on scalars only: {error}") from error
        ours = interpret(traced.forward, {name: t for group in groups for name, t in group.items()})
        theirs = {"y": y, **{f"new.{name}": new[name] for name in traced.states}, **read}
        if not all(torch.allclose(ours[name].expand(2, size), theirs[name]) for name in ours):
            raise CannotFuse("its step computes something else with scalars than with tensors")


def check_int8(plans: Sequence[Plan]) -> None:
    """The step of a unit whose matrices are int8 may have no inner products."""
    if any(plan.traced.inner or plan.traced.sizes for plan in plans):
        raise CannotFuse(ByNature("there are no kernels of int8 for products within a step"))


def check_sizes(cell: Unit, stage: Stage, parts: Sequence[str]) -> None:
    """Kernels loop over channels, so everything that a stage reads and writes must have the same number."""
    sizes = {cell.states[name] for name in (*stage.states, *stage.recurrence.values())}
    sizes |= {cell.input.parts[name] for name in parts if name in cell.input.parts}
    for attribute in (*stage.recurrence, *stage.reads_new_state):
        sizes |= set(getattr(cell, attribute).parts.values())
    if len(sizes) > 1 or not set(stage.recurrence.values()) <= set(stage.states):
        raise CannotFuse(ByNature(f"its states and parts have different sizes, {sorted(sizes)}"))


def check_groups(cell: Unit, stage: Stage, plan: Plan) -> None:
    """Everything that one operation joins must have the same number of channels."""
    inner = plan.inner
    expected = {name: cell.input.parts[name_in_unit(name)] for name in plan.projected}
    for attribute in (*stage.recurrence, *inner):
        expected |= {safe_name(name): size for name, size in getattr(cell, attribute).parts.items()}
    states = [torch.empty(1, cell.states[name], device="meta") for name in stage.states]
    try:
        weights = [torch.empty(n, device="meta") for n in weight_sizes(cell, stage, inner).values()]
        sizes = plan.sizes(weights, states, matrices_of(cell, stage, inner))
    except ValueError as error:
        raise CannotFuse(ByNature(f"its states and parts are of different sizes: {error}")) from error
    wrong = [name for name, size in expected.items() if size != sizes[plan.groups[name]]]
    held = {plan.groups[safe_name(name)] for name in stage.states}
    wrong += [name for name in plan.extras if plan.groups[name] not in held]
    if wrong or not set(stage.recurrence.values()) <= set(stage.states):
        raise CannotFuse(ByNature(f"its states and parts are of different sizes, as {wrong[:1]}"))


def weights_of(cell: Unit, stage: Stage, inner: Sequence[str] = ()) -> Named:
    """Return the weights with one number per channel: the cell's own parameters, and biases of products.

    inner   the projections of inner products
    """
    sizes = {cell.states[name] for name in stage.states}
    own = cell.unit_parameters.items()
    weights: Named = {name: w for name, w in own if w is not None and w.dim() == 1 and len(w) in sizes}
    weights |= {name: w.expand(max(sizes)) for name, w in single_numbers(cell, stage).items()}
    for attribute in (*stage.recurrence, *inner):
        matrix = getattr(cell, attribute)
        if matrix.bias is not None:
            weights |= {bias_of(name): bias for name, bias in matrix.biases().items()}
    return weights


def weight_sizes(cell: Unit, stage: Stage, inner: Sequence[str] = ()) -> dict[str, int]:
    """The names and sizes of `weights_of`, without a view of any: these may be inside of a transform."""
    states = {cell.states[name] for name in stage.states}
    own = {n: w.shape[0] for n, w in cell.unit_parameters.items() if w is not None and w.dim() == 1}
    sizes = {name: size for name, size in own.items() if size in states}
    sizes |= dict.fromkeys(single_numbers(cell, stage), max(states))
    for attribute in (*stage.recurrence, *inner):
        matrix = getattr(cell, attribute)
        if matrix.bias is not None:
            sizes |= {bias_of(name): matrix.parts[name] for name in matrix.biased_parts}
    return sizes


def single_numbers(cell: Unit, stage: Stage) -> Named:
    """The weights with one number for all channels, if all states have the same number of channels."""
    sizes = {cell.states[name] for name in stage.states}
    if len(sizes) > 1 or sizes == {1}:
        return {}
    own = cell.unit_parameters.items()
    return {name: w for name, w in own if w is not None and w.shape == (1,)}


def computed_weights(before: Pointwise, own: Named, names: Sequence[str]) -> Named:
    """The weights of these names: those of the unit, and what is computed from them."""
    for name, weight in own.items():
        if not weight.is_floating_point():  # the operations of the step itself may not take it
            raise CannotFuse(f"its weight {name} has the dtype {weight.dtype}")
    known = {**own, **interpret(before, own)}
    size = next(iter(own.values())).shape
    return {name: known[name].expand(size).contiguous() for name in names}


def check_bare(cell: Unit, attribute: str) -> None:
    """A kernel computes an inner product from its matrix and its bias alone."""
    if not getattr(getattr(cell, attribute), "is_bare", False):
        raise CannotFuse(ByNature(f"{attribute}, which its step calls, is more than a product"))


def matrices_of(cell: Unit, stage: Stage, inner: Sequence[str] = ()) -> list[Tensor]:
    for attribute in inner:
        check_bare(cell, attribute)
    return [getattr(cell, attribute).weight for attribute in (*stage.recurrence, *inner)]


def sum_of_sizes(cell: Unit, plan: Plan) -> int:
    """Return the width of the projections of a stage together."""
    names = map(name_in_unit, plan.traced.inputs)
    return sum(cell.input.parts[name] for name in names if name in cell.input.parts)
