"""How a unit becomes a plan for a fused kernel, or why it does not, and how it runs by it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, partial
from itertools import count
from types import MethodType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor, is_autocast_enabled, nn
from torch.compiler import is_compiling

from linnet.fuse.backend import has_triton, is_watched, may_fuse, missing, runs_by_triton
from linnet.fuse.forks import compiling
from linnet.fuse.hooks import hooked_submodule
from linnet.fuse.plan import Fusible, Plan, Product
from linnet.fuse.settings import Settings, note_reads
from linnet.fuse.trace import (
    NotPointwise,
    Step,
    Traced,
    interpret,
    name_in_unit,
    safe_name,
    trace,
    undisturbed,
)
from linnet.fuse.unit import ByNature, CannotFuse, Named, OwnKernel, Stage, Unit

# What is done to the state after the step: output, new state, old state, inputs -> output, new state.
After = Callable[[Tensor, Named, Named, Named], tuple[Tensor, Named]]


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


class Kernels:
    """The plans of one cell, made when first needed. They hold functions: a copy makes its own."""

    def __init__(self) -> None:
        self.plans: dict[tuple, list[Plan] | str] = {}
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

    def plans_for(self, cell: Unit, beside: tuple[str, ...], after: After, *options: str) -> list[Plan] | str:
        """The plans for a pass with these parts beside the projections; or why there are none.

        options: attributes that `after`, a method, reads of its object. A plan made with other values of
        these, or of what the step reads of the cell, is another plan.
        """
        if is_compiling():
            return self.compiled(cell, beside, after, options)
        return self.find(cell, beside, after, options)

    def find(self, cell: Unit, beside: tuple[str, ...], after: After, options: tuple) -> list[Plan] | str:
        plans = self.plans.get(self.key(cell, beside, after, options))
        return self.make(cell, beside, after, options) if plans is None else plans

    def key(self, cell: Unit, beside: tuple[str, ...], after: After, options: tuple) -> tuple:
        values = [getattr(after.__self__, name) for name in options]  # type: ignore[attr-defined]
        return (cell.training, *beside, *values, self.settings.key(cell))

    def make(self, cell: Unit, beside: tuple[str, ...], after: After, options: tuple) -> list[Plan] | str:
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

    def compiled(self, cell: Unit, beside: tuple[str, ...], after: After, options: tuple) -> list[Plan] | str:
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
    with undisturbed():
        plans = kernels.find(cell, beside, after, options)
    own, settings = cell.__dict__, kernels.settings
    numbers = [(n, own[n]) for n in ("training", *settings.names) if isinstance(own.get(n), (int, float))]
    owned = [(name, getattr(after.__self__, name)) for name in options]
    return settings.unguarded(cell) or plans, tuple(numbers), tuple(owned)


# What torch.compiler.assume_constant_result does; that would import the compiler, which takes a second.
plans_when_compiled._dynamo_marked_constant = True  # type: ignore[attr-defined]


def plans_or_reason(cell: Unit, beside: Sequence[str], after: After) -> list[Plan] | str:
    reason = missing()
    if reason is not None and not has_triton():
        return reason
    try:
        # A tracer must not see it: plans are made only once, and it would find something else each time.
        with undisturbed():
            return make_plans(cell, beside, after)
    except CannotFuse as error:
        return error.reason


def kernel_for(cell: Unit, x: Tensor) -> OwnKernel | None:
    """What runs `cell` by itself over x's like; None, and a warning, if nothing does."""
    if not may_fuse(cell.unit_name, x, hook_obstacle(cell)):
        return None
    own = own_kernel(cell, x)
    if own is not None:
        return own
    kernels = cell.__dict__.get("kernels") or cell.__dict__.setdefault("kernels", Kernels())
    parts = cell.extra_inputs(x[None])
    plans = kernels.plans_for(cell, tuple(parts), nothing_after)
    if isinstance(plans, str):
        may_fuse(cell.unit_name, x, plans)
        return None
    return partial(run_by_kernel, cell, plans, parts, nothing_after)


def hook_obstacle(cell: Unit) -> str | None:
    """Who keeps a cell from its kernel: a kernel calls none of the modules inside the cell."""
    name = hooked_submodule(cell)
    return None if name is None else f"somebody listens to {name} by a hook, and kernels do not call modules"


def own_kernel(cell: Unit, x: Tensor) -> OwnKernel | None:
    """The kernel that the unit has of its own; these are for the CPU."""
    if runs_by_triton(x):
        return None
    if not is_compiling():
        load_kernels()
    return cell.own_kernel(x.dtype)


def nothing_after(y: Tensor, new: Named, old: Named, parts: Named) -> tuple[Tensor, Named]:
    return y, new


def run_by_kernel(
    cell: Unit,
    plans: list[Plan],
    parts: Named,
    after: After,
    x: Tensor,
    state: Named,
    flags: tuple[Any, Any, Any],
    drops: Mapping[str, Tensor] = {},
) -> tuple[Tensor, Named]:
    """What stands beside the projections of x, x [T, B, input_size], state, (mask, resets, reverse).

    drops: by state, what of it the recurrent matrices read. Raises CannotFuse where the weights do not fit
    the plans, before anything is read by its address.
    """
    scan, watched = scanning(), is_watched(x)
    if not watched:
        x = x.resolve_neg() if x.is_neg() else x
    sequences: Named = {}
    finals: Named = {}
    for stage, plan, made in zip(cell.stages(), plans, projections(cell, x, plans, watched), strict=True):
        for attribute, name in stage.reads_new_state.items():
            parts |= read_through(getattr(cell, attribute), sequences[name])
        masks = [drops[product.state] for product in plan.products] if drops else ()
        beside = scan.Beside(*beside_of(cell, stage, plan, parts, x, state), *flags, drops=masks)
        if not watched:  # a registered operation checks for itself
            check_fit(cell, plan, made, beside)
        y, new = scan.scan(Fusible(plan, partial(one_step, cell, stage, after)), made, beside)
        finals |= new
        # A stage that others read, or that the output is made of, gives its state as its output.
        sequences[stage.states[0]] = y
    # Under autocast a scan computes in another dtype than that of the state.
    ends = {name: scan.as_dtype(s, state[name].dtype) for name, s in finals.items()}
    return cell.output(y, sequences), ends


def scanning() -> Any:
    """linnet.fuse.scan, imported when first needed: what makes kernels is not there on every machine."""
    if not is_compiling():
        return load_kernels()
    from linnet.fuse import scan

    return scan


@cache
def load_kernels() -> ModuleType:
    """Import everything that compiles and runs kernels, under the lock that a fork waits for."""
    with compiling:
        from linnet.fuse import scan
        from linnet.fuse.cpu import outer_scan  # noqa: F401
        from linnet.fuse.triton import pair  # noqa: F401

        return scan


def read_through(projection: nn.Module, state: Tensor) -> Named:
    """What a later stage reads of a state. torch's product with a matrix on meta is no error: see to it."""
    if projection.weight.device != state.device:
        raise CannotFuse(f"a matrix is on {projection.weight.device}, and x is on {state.device}")
    return projection(state)


def check_fit(cell: Unit, plan: Plan, made: Any, beside: Any) -> None:
    reason = scanning().misfit(plan, made, beside)
    if reason is not None:
        raise CannotFuse(f"{reason}, which is not what {cell.unit_name} was built with")


def beside_of(
    cell: Unit, stage: Stage, plan: Plan, parts: Named, x: Tensor, state: Named
) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    """Extras, weights, states, matrices: what a scan of x reads beside its projection."""
    shape = (*x.shape[:-1], cell.states[stage.states[0]])
    extras = [parts[name_in_unit(name)] for name in plan.extras]
    extras = [part if part.shape == shape else part.expand(shape) for part in extras]
    weights = weights_of(cell, stage)
    if tuple(weights) != plan.traced.weights:
        raise CannotFuse(
            f"its weights of one number a channel are {list(weights)}, not those it was built with"
        )
    return extras, list(weights.values()), [state[name] for name in stage.states], matrices_of(cell, stage)


class Way(NamedTuple):
    """One of the two ways along a sequence: the cell, its plan, what it reads, where it starts, its flags."""

    cell: Unit
    plan: Plan
    after: After
    parts: Named
    state: Named
    flags: tuple[Any, Any, Any]


def fit_together(plans: Sequence[list[Plan] | str]) -> bool:
    """Whether two directions with these plans can run in one launch: the same step, without a matrix."""
    if any(isinstance(each, str) or len(each) > 1 or each[0].products for each in plans):
        return False
    return len({each[0].text for each in plans if not isinstance(each, str)}) == 1


def run_pair(ways: Sequence[Way], x: Tensor) -> tuple[Tensor, list[Named]]:
    """Both directions by one launch: the outputs side by side, and the final states of each."""
    scan = scanning()
    from linnet.fuse.triton.pair import Scanned, pair_scan

    scanned = []
    for cell, plan, after, parts, state, flags in ways:
        stage, joint = cell.stages()[0], cell.input.joint(x)
        beside = scan.Beside(*beside_of(cell, stage, plan, parts, x, state), *flags)
        check_fit(cell, plan, joint, beside)
        scanned.append(Scanned(Fusible(plan, partial(one_step, cell, stage, after)), joint, beside))
    y, finals = pair_scan(*scanned)
    pairs = zip(finals, ways, strict=True)
    return y, [{name: s.to(way.state[name].dtype) for name, s in final.items()} for final, way in pairs]


def projections(cell: Unit, x: Tensor, plans: list[Plan], watched: bool) -> Sequence[Any]:
    """For each stage its projection, or what the kernel makes it of, where nobody else needs to see it."""
    projection = cell.input
    # On a GPU torch's own products are the best there are, and nothing is gained by hiding them.
    apart = watched or runs_by_triton(x) or is_autocast_enabled(x.device.type)
    seen = len(plans) > 1 or not projection.is_plain or apart
    if not seen:
        return [scanning().Source(projection.prepare(x), projection.weight, projection.bias)]
    joint = projection.joint(x)
    return [joint] if len(plans) == 1 else joint.split([sum_of_sizes(cell, plan) for plan in plans], -1)


def make_plans(cell: Unit, beside: Sequence[str], after: After) -> list[Plan]:
    """A plan for each stage of `cell`; `beside` are the parts that do not come from its projection."""
    obstacle = cell.structural_obstacle()
    if obstacle is not None:
        raise CannotFuse(obstacle)
    read = [
        name for stage in cell.stages() for name in cell.input.parts if name in cell.arguments[stage.step]
    ]
    if read != list(cell.input.parts):
        raise CannotFuse(f"its steps read the parts {read} of {list(cell.input.parts)}")
    return [make_plan(cell, stage, beside, after) for stage in cell.stages()]


def make_plan(cell: Unit, stage: Stage, beside: Sequence[str], after: After) -> Plan:
    reads = cell.arguments[stage.step]
    stays = [f"{what}.{name}" for name in stage.states for what in ("stay", "drop")]
    through = [part for attribute in stage.reads_new_state for part in getattr(cell, attribute).parts]
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
    """A stage of `cell` with `weights` for its own, and what is then done to the state."""
    inputs = {name_in_unit(name): value for name, value in inputs.items()}
    biases = {name.removeprefix("bias."): w for name, w in weights.items() if name.startswith("bias.")}
    known = {**inputs, **{name: inputs[name] + bias for name, bias in biases.items()}, **states}
    y, new = with_parameters(cell, weights).call_by_name(stage.step, known)
    return after(y, new, states, inputs)


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
    with torch.no_grad():
        groups = [
            {name: torch.rand(2, size, generator=source, dtype=torch.float64) for name in names}
            for names in (traced.inputs, traced.states, traced.weights)
        ]
        try:
            y, new = step(*groups)
        except RuntimeError as error:
            raise CannotFuse(f"its step runs on scalars alone: {error}") from error
        ours = interpret(traced.forward, {name: t for group in groups for name, t in group.items()})
        theirs = {"y": y, **{f"new.{name}": new[name] for name in traced.states}}
        if not all(torch.allclose(ours[name].expand(2, size), theirs[name]) for name in ours):
            raise CannotFuse("its step computes one thing with scalars and another with tensors")


def check_sizes(cell: Unit, stage: Stage, parts: Sequence[str]) -> None:
    """Kernels go along channels: all that a stage reads and writes must have the same number."""
    sizes = {cell.states[name] for name in (*stage.states, *stage.recurrence.values())}
    sizes |= {cell.input.parts[name] for name in parts if name in cell.input.parts}
    for attribute in (*stage.recurrence, *stage.reads_new_state):
        sizes |= set(getattr(cell, attribute).parts.values())
    if len(sizes) > 1 or not set(stage.recurrence.values()) <= set(stage.states):
        raise CannotFuse(ByNature(f"its states and parts are of different sizes, {sorted(sizes)}"))


def with_parameters(module: nn.Module, parameters: Mapping[str, Tensor]) -> Any:
    """The same module with other parameters of its own: scalars to trace with, for example.

    `module` itself stays as it is, since other threads may be using it.
    """
    other = object.__new__(type(module))
    other.__dict__ = {**module.__dict__, "_parameters": dict(parameters)}
    names = reading.get()
    if names is not None:
        note_reads(other, names)
    return other


def with_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> Any:
    """`with_parameters` for some of the parameters, by their names in `module.named_parameters()`."""
    inner: dict[str, dict[str, Tensor]] = {}
    own = dict(module._parameters)
    for path, weight in weights.items():
        first, _, rest = path.partition(".")
        if rest:
            inner.setdefault(first, {})[rest] = weight
        else:
            own[path] = weight  # type: ignore[assignment]
    other = with_parameters(module, own)  # type: ignore[arg-type]
    changed = {name: with_weights(module._modules[name], theirs) for name, theirs in inner.items()}  # type: ignore[arg-type]
    other.__dict__["_modules"] = {**module._modules, **changed}
    return other


def weights_of(cell: Unit, stage: Stage) -> Named:
    """What a step reads that is one number a channel: the cell's own parameters, and recurrent biases."""
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
    """How wide the projections of a stage are, side by side."""
    names = map(name_in_unit, plan.traced.inputs)
    return sum(cell.input.parts[name] for name in names if name in cell.input.parts)
