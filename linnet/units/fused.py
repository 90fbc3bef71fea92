"""How a unit becomes a plan for a fused kernel, or why it does not, and how it runs by it."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from itertools import count
from types import MethodType
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor, is_autocast_enabled
from torch.compiler import is_compiling
from torch.utils._python_dispatch import _disable_current_modes

from linnet.fuse.backend import has_triton, may_fuse, missing, runs_by_triton
from linnet.fuse.forks import load_kernels
from linnet.fuse.plan import Fusible, Plan, Product
from linnet.fuse.trace import NotPointwise, Step, Traced, interpret, name_in_unit, safe_name, trace
from linnet.units.cell import Cell, OwnKernel, Parts, Stage
from linnet.units.settings import Settings, note_reads

# What is done to the state after the step: output, new state, old state, inputs -> output, new state.
After = Callable[[Tensor, Parts, Parts, Parts], tuple[Tensor, Parts]]


# How many plans a cell keeps: one for each mode and each value that an option has had lately.
MOST_PLANS = 32
# While a step is traced: the names of the attributes that it reads of its cell.
reading: ContextVar[set[str] | None] = ContextVar("linnet_reading", default=None)


NUMBERS = count()
Asked = tuple[Callable[[], Any], Callable[[], Any]]


def nobody() -> None:
    return None


def weak_method(function: After) -> Callable[[], Any]:
    """The function, or None if the object it is a method of is gone."""
    return weakref.WeakMethod(function) if isinstance(function, MethodType) else lambda: function


class CannotFuse(Exception):  # noqa: N818, it is a reason more than an error
    """The reason why a unit runs by the reference loop."""


class Kernels:
    """The plans of one cell, made when first needed. They hold functions: a copy makes its own."""

    def __init__(self) -> None:
        self.plans: dict[tuple, list[Fusible] | str] = {}
        self.settings = Settings()
        # By which a compiler knows this object; see `plans_when_compiled`.
        self.number = next(NUMBERS)
        ALL_KERNELS[self.number] = self
        # The cell, and what happens after its step, where they are alive.
        self.asked: Asked = (nobody, nobody)

    def __deepcopy__(self, memo: dict) -> Kernels:
        return Kernels()

    def __reduce__(self) -> tuple:
        return Kernels, ()

    def plans_for(
        self, cell: Cell, beside: tuple[str, ...], after: After, *options: str
    ) -> list[Fusible] | str:
        """The plans for a pass with these parts beside the projections; or why there are none.

        options: attributes that `after`, a method, reads of its object. A plan made with other values of
        these, or of what the step reads of the cell, is another plan.
        """
        if is_compiling():
            return self.compiled(cell, beside, after, options)
        return self.find(cell, beside, after, options)

    def find(self, cell: Cell, beside: tuple[str, ...], after: After, options: tuple) -> list[Fusible] | str:
        plans = self.plans.get(self.key(cell, beside, after, options))
        return self.make(cell, beside, after, options) if plans is None else plans

    def key(self, cell: Cell, beside: tuple[str, ...], after: After, options: tuple) -> tuple:
        values = [getattr(after.__self__, name) for name in options]  # type: ignore[attr-defined]
        return (cell.training, *beside, *values, self.settings.key(cell))

    def make(self, cell: Cell, beside: tuple[str, ...], after: After, options: tuple) -> list[Fusible] | str:
        names: set[str] = set()
        token = reading.set(names)
        try:
            plans = plans_or_reason(cell, beside, after)
        finally:
            reading.reset(token)
        self.settings.add(cell, names)
        plans = self.settings.opaque(cell, names) or plans
        # New names make keys longer: plans from before are found no more, and are the first to go.
        self.plans[self.key(cell, beside, after, options)] = plans
        for old in list(self.plans)[:-MOST_PLANS]:
            self.plans.pop(old, None)
        self.asked = weakref.ref(cell), weak_method(after)
        return plans

    def compiled(
        self, cell: Cell, beside: tuple[str, ...], after: After, options: tuple
    ) -> list[Fusible] | str:
        """While a compiler looks: the plans for the values of now, which it is made to guard."""
        self.settings.show(cell)
        plans, numbers, owned = plans_when_compiled(self.number, beside, options)
        # A compiler may take a number for one that changes freely; compared, it is a constant.
        same = [getattr(cell, name) == value for name, value in numbers]
        same += [getattr(after.__self__, name) == value for name, value in owned]  # type: ignore[attr-defined]
        if not all(same):
            raise AssertionError("the settings of a unit changed while it was compiled")
        return plans


# All that a compiler may ask for.
ALL_KERNELS: WeakValueDictionary[int, Kernels] = WeakValueDictionary()


def plans_when_compiled(number: int, beside: tuple[str, ...], options: tuple) -> Any:
    """A compiler runs this while it compiles, and then takes the result for a constant.

    It sees arguments that are numbers and strings alone, and it must not look inside.
    """
    kernels = ALL_KERNELS[number]
    cell, after = kernels.asked[0](), kernels.asked[1]()
    if cell is None:
        raise RuntimeError("a unit that was not run yet cannot be compiled; call the module once before")
    with _disable_current_modes():
        plans = kernels.find(cell, beside, after, options)
    own, settings = cell.__dict__, kernels.settings
    numbers = [(n, own[n]) for n in ("training", *settings.names) if isinstance(own.get(n), (int, float))]
    owned = [(name, getattr(after.__self__, name)) for name in options]
    return settings.unguarded(cell) or plans, tuple(numbers), tuple(owned)


# What torch.compiler.assume_constant_result does; that would import the compiler, which takes a second.
plans_when_compiled._dynamo_marked_constant = True  # type: ignore[attr-defined]


def plans_or_reason(cell: Cell, beside: Sequence[str], after: After) -> list[Fusible] | str:
    reason = missing()
    if reason is not None and not has_triton():
        return reason
    try:
        return make_plans(cell, beside, after)
    except CannotFuse as reason:
        return str(reason)


def kernel_for(cell: Cell, x: Tensor) -> OwnKernel | None:
    """What runs `cell` by itself over x's like; None, and a word in the log, if nothing does."""
    own = own_kernel(cell, x)
    if own is not None:
        return own
    kernels = cell.__dict__.setdefault("kernels", Kernels())
    parts = cell.beside(x[None])
    plans = kernels.plans_for(cell, tuple(parts), nothing_after)
    if isinstance(plans, str):
        may_fuse(cell.unit_name, x, plans)
        return None
    return partial(run_by_kernel, cell, plans, parts)


def own_kernel(cell: Cell, x: Tensor) -> OwnKernel | None:
    """The kernel that the unit has of its own; these are for the CPU."""
    if runs_by_triton(x):
        return None
    load_kernels()
    return cell.own_kernel(x.dtype)


def nothing_after(y: Tensor, new: Parts, old: Parts, parts: Parts) -> tuple[Tensor, Parts]:
    return y, new


def run_by_kernel(
    cell: Cell,
    plans: list[Fusible],
    parts: Parts,
    x: Tensor,
    state: Parts,
    flags: tuple[Any, Any, Any],
    drops: Mapping[str, Tensor] = {},
) -> tuple[Tensor, Parts]:
    """What stands beside the projections of x, x [T, B, input_size], state, (mask, resets, reverse).

    drops: by state, what of it the recurrent matrices read.
    """
    # Imported when first needed: what makes kernels is not there on every machine.
    if not is_compiling():
        load_kernels()
        x = x.resolve_neg() if x.is_neg() else x
    from linnet.fuse.call import as_dtype
    from linnet.fuse.scan import Beside

    sequences: Parts = {}
    finals: Parts = {}
    for stage, fusible, scan in zip(cell.stages(), plans, scans(cell, x, plans), strict=True):
        for attribute, name in stage.through.items():
            parts |= getattr(cell, attribute)(sequences[name])
        masks = [drops[product.state] for product in fusible.plan.products] if drops else ()
        y, new = scan(Beside(*beside_of(cell, stage, fusible, parts, x, state), *flags, drops=masks))
        finals |= new
        # A stage that others read, or that the output is made of, gives its state as its output.
        sequences[stage.states[0]] = y
    # Under autocast a scan computes in another dtype than that of the state.
    return cell.output(y, sequences), {name: as_dtype(s, state[name].dtype) for name, s in finals.items()}


def beside_of(
    cell: Cell, stage: Stage, fusible: Fusible, parts: Parts, x: Tensor, state: Parts
) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    """Extras, weights, states, matrices: what a scan of x reads beside its projection."""
    shape = (*x.shape[:-1], cell.states[stage.states[0]])
    extras = [parts[name_in_unit(name)] for name in fusible.plan.extras]
    extras = [part if part.shape == shape else part.expand(shape) for part in extras]
    weights, matrices = list(weights_of(cell, stage).values()), matrices_of(cell, stage)
    return extras, weights, [state[name] for name in stage.states], matrices


class Way(NamedTuple):
    """One of the two ways along a sequence: the cell, its plan, what it reads, where it starts, its flags."""

    cell: Cell
    fusible: Fusible
    parts: Parts
    state: Parts
    flags: tuple[Any, Any, Any]


def fit_together(plans: Sequence[list[Fusible] | str]) -> bool:
    """Whether two directions with these plans can run in one launch: the same step, without a matrix."""
    if any(isinstance(each, str) or len(each) > 1 or each[0].plan.products for each in plans):
        return False
    return len({each[0].plan.text for each in plans if not isinstance(each, str)}) == 1


def run_pair(ways: Sequence[Way], x: Tensor) -> tuple[Tensor, list[Parts]]:
    """Both directions by one launch: the outputs side by side, and the final states of each."""
    load_kernels()
    from linnet.fuse.pair import Scanned, pair_scan
    from linnet.fuse.scan import Beside

    scanned = []
    for cell, fusible, parts, state, flags in ways:
        beside = Beside(*beside_of(cell, cell.stages()[0], fusible, parts, x, state), *flags)
        scanned.append(Scanned(fusible, cell.input.joint(x), beside))
    y, finals = pair_scan(*scanned)
    pairs = zip(finals, ways, strict=True)
    return y, [{name: s.to(way.state[name].dtype) for name, s in final.items()} for final, way in pairs]


def scans(cell: Cell, x: Tensor, plans: list[Fusible]) -> list[Callable[..., tuple[Tensor, Parts]]]:
    """For each stage the kernel with its projection; that of a single stage is never seen outside."""
    from linnet.fuse.scan import Source, fused_scan, projected_scan

    projection = cell.input
    # On a GPU torch's own products are the best there are, and nothing is gained by hiding them.
    apart = runs_by_triton(x) or is_compiling() or is_autocast_enabled(x.device.type)
    seen = len(plans) > 1 or not projection.is_plain or apart
    if not seen:
        source = Source(projection.prepare(x), projection.weight, projection.bias)
        return [partial(projected_scan, plans[0], source)]
    joint = projection.joint(x)
    sizes = [sum_of_sizes(cell, plan) for plan, _ in plans]
    joints = [joint] if len(plans) == 1 else joint.split(sizes, -1)
    return [partial(fused_scan, plan, part) for plan, part in zip(plans, joints, strict=True)]


def make_plans(cell: Cell, beside: Sequence[str], after: After) -> list[Fusible]:
    """A plan for each stage of `cell`; `beside` are the parts that do not come from its projection."""
    check_anatomy(cell)
    read = [name for stage in cell.stages() for name in cell.input.parts if name in cell.reads[stage.step]]
    if read != list(cell.input.parts):
        raise CannotFuse(f"its steps read the parts {read} of {list(cell.input.parts)}")
    return [make_plan(cell, stage, beside, after) for stage in cell.stages()]


def make_plan(cell: Cell, stage: Stage, beside: Sequence[str], after: After) -> Fusible:
    reads = cell.reads[stage.step]
    stays = [f"{what}.{name}" for name in stage.states for what in ("stay", "drop")]
    through = [part for attribute in stage.through for part in getattr(cell, attribute).parts]
    projected = tuple(name for name in cell.input.parts if name in reads)
    extras = (*(name for name in beside if name in reads or name in stays), *through)
    check_sizes(cell, stage, (*projected, *through))
    products = tuple(
        Product(state, tuple(map(safe_name, getattr(cell, attribute).parts)))
        for attribute, state in stage.recurrence.items()
    )
    made = [name_in_unit(part) for product in products for part in product.parts]
    weights = list(weights_of(cell, stage))
    check_names([*projected, *extras, *made], (*stage.states, *weights))

    def step(inputs: Parts, states: Parts, weights: Parts) -> tuple[Tensor, Parts]:
        inputs = {name_in_unit(name): value for name, value in inputs.items()}
        biased = {name: inputs[name] + weights[f"bias.{name}"] for name in made if f"bias.{name}" in weights}
        known = {**inputs, **biased, **states}
        y, new = with_weights(cell, weights).call_by_name(stage.step, known)
        return after(y, new, states, inputs)

    try:
        inputs = [safe_name(name) for name in (*projected, *extras, *made)]
        traced = trace(step, inputs, stage.states, weights)
    except NotPointwise as reason:
        raise CannotFuse(str(reason)) from reason
    check_traced(traced, step, cell.states[stage.states[0]])
    return Fusible(Plan(traced, tuple(map(safe_name, extras)), products), step)


def check_names(parts: Sequence[str], others: Sequence[str]) -> None:
    """Kernels know operands by name. A part may have any name; `others` are states and parameters."""
    names = [*parts, *others]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise CannotFuse(
            f"two of its parts, states and parameters are called {twice[0]!r}; rename one of them"
        )
    taken = [name for name in others if safe_name(name) != name]
    if taken:
        raise CannotFuse(
            f"a state or a parameter is called {taken[0]!r}, as is something in kernels; rename it"
        )


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
    names = reading.get()
    if names is not None:
        note_reads(other, names)
    return other


def weights_of(cell: Cell, stage: Stage) -> Parts:
    """What a step reads that is one number a channel: the cell's own parameters, and recurrent biases."""
    size = cell.states[stage.states[0]]
    own = cell._parameters.items()
    weights: Parts = {name: w for name, w in own if w is not None and w.shape == (size,)}
    for attribute in stage.recurrence:
        matrix = getattr(cell, attribute)
        if matrix.bias is not None:
            weights |= {f"bias.{name}": bias for name, bias in matrix.biases().items()}
    return weights


def matrices_of(cell: Cell, stage: Stage) -> list[Tensor]:
    return [getattr(cell, attribute).weight for attribute in stage.recurrence]


def sum_of_sizes(cell: Cell, plan: Plan) -> int:
    """How wide the projections of a stage are, side by side."""
    names = map(name_in_unit, plan.traced.inputs)
    return sum(cell.input.parts[name] for name in names if name in cell.input.parts)
