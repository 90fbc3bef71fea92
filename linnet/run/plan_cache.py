"""The plans of one cell, created when first needed and looked up by what they depend on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from itertools import count
from types import MethodType
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.compiler import is_compiling, is_exporting

from linnet.base.torch_private import has_any_global_hook, mark_constant
from linnet.program.plan import Plan
from linnet.program.planning import After, make_plans
from linnet.program.settings import Settings
from linnet.program.substitute import attributes_read
from linnet.program.trace import undisturbed
from linnet.program.unit import CannotFuse, Unit
from linnet.program.whole_step import dtype_of
from linnet.run.available import no_cpu_kernels, no_triton_kernels

# How many plans a cell keeps: one for each mode and for each recent value of an option.
MOST_PLANS = 32
# One plan for each stage of the unit; or the reason why there are none.
PlansOrReason = list[Plan] | str


class PlanCache:
    """The plans of one cell. They reference functions, so a copy of a cell makes its own plans."""

    is_cache = True

    def __init__(self) -> None:
        self.plans: dict[tuple, PlansOrReason] = {}
        self.settings = Settings()
        # A step that is not elementwise is recorded in the dtype of arithmetic, for which it may ask.
        self.depends_on_dtype = False
        # Code that torch.compile traces refers to a cache by its number; see `plans_when_compiled`.
        self.number = next(NUMBERS)
        CACHES[self.number] = self
        # Weak references to the cell and to what is done after its step; see `refer`.
        self.cell: Callable[[], Any] = lambda: None
        self.after: Callable[[], Any] = lambda: None
        # What was decided for the cell or its layer, and how many calls in a row it was of no use to.
        self.decision: Any = None
        self.wasted = 0

    def refer(self, cell: Unit, after: After) -> None:
        """Make plans for this cell when a compiler asks for them, which cannot pass the cell itself."""
        self.cell, self.after = weakref.ref(cell), weak_function(after)

    def __deepcopy__(self, memo: dict) -> PlanCache:
        return PlanCache()

    def __reduce__(self) -> tuple:
        return PlanCache, ()

    def get(self, cell: Unit, extras: tuple[str, ...], after: After, *options: str) -> PlansOrReason:
        """Return the plans for a step with these extra inputs; or the reason why there are none.

        options: attributes that `after`, a method, reads from its object. A plan is found again only if
        these, and everything that the step reads from the cell, have the same values.
        """
        if is_compiling():
            return self.get_compiled(cell, extras, after, options)
        return self.find(cell, extras, after, options)

    def find(self, cell: Unit, extras: tuple[str, ...], after: After, options: tuple) -> PlansOrReason:
        plans = self.plans.get(self.key(cell, extras, after, options))
        return self.make(cell, extras, after, options) if plans is None else plans

    def key(self, cell: Unit, extras: tuple[str, ...], after: After, options: tuple) -> tuple:
        dtype = dtype_of(cell) if self.depends_on_dtype else None
        return (cell.training, *extras, *values_of(after, options), self.settings.key(cell), dtype)

    def make(self, cell: Unit, extras: tuple[str, ...], after: After, options: tuple) -> PlansOrReason:
        names: set[str] = set()
        token = attributes_read.set(names)
        try:
            plans = plans_or_reason(cell, extras, after, values_of(after, options))
        finally:
            attributes_read.reset(token)
        if not isinstance(plans, str):
            self.depends_on_dtype |= bool(plans[0].traced.sizes)
            # The projections of inner products are operands of kernels, which are compared at each call.
            names -= {product.attribute for plan in plans for product in plan.traced.inner}
        self.settings.add(cell, names)
        plans = self.settings.opaque(cell, names) or plans
        if isinstance(plans, str) and may_pass():
            return plans
        # New names make the keys longer. Older plans are then not found any more, and are deleted first.
        self.plans[self.key(cell, extras, after, options)] = plans
        for old in list(self.plans)[:-MOST_PLANS]:
            self.plans.pop(old, None)
        self.refer(cell, after)
        return plans

    def get_compiled(
        self, cell: Unit, extras: tuple[str, ...], after: After, options: tuple
    ) -> PlansOrReason:
        """For torch.compile: the plans for the present values, with guards on these values."""
        plans, numbers, owned = plans_when_compiled(self.number, extras, options)
        self.settings.show(cell)  # after the plans are made, which adds settings
        # A compiler may treat a number as dynamic. A comparison makes it a constant.
        same = [attribute_of(cell, path) == value for path, value in numbers]
        same += [getattr(after.__self__, name) == value for name, value in owned]  # type: ignore[attr-defined]
        if not all(same):
            raise AssertionError("the settings of a unit changed while it was compiled")
        return plans


def attribute_of(cell: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        cell = getattr(cell, name)
    return cell


def numbers_in(path: tuple[str, ...], module: Any) -> list[tuple[tuple[str, ...], Any]]:
    """The numbers among the attributes of a module and of its children, with the way to them."""
    found = [((*path, n), v) for n, v in vars(module).items() if n[0] != "_" and isinstance(v, (int, float))]
    for name, child in module._modules.items():
        found += numbers_in((*path, name), child) if child is not None else []
    return found


def may_pass() -> bool:
    """Whether a reason may be gone at the next call, with what `undisturbed` cannot switch off.

    Global hooks run on modules that a step calls; numbers that it creates have the default dtype.
    """
    return bool(has_any_global_hook()) or torch.get_default_dtype() not in (torch.float32, torch.float64)


def values_of(after: After, options: tuple) -> tuple:
    return tuple(getattr(after.__self__, name) for name in options)  # type: ignore[attr-defined]


NUMBERS = count()
# All caches that are alive, by number.
CACHES: WeakValueDictionary[int, PlanCache] = WeakValueDictionary()


def weak_function(function: After) -> Callable[[], Any]:
    """A reference that does not keep alive the object of which `function` is a method."""
    return weakref.WeakMethod(function) if isinstance(function, MethodType) else lambda: function


@mark_constant
def plans_when_compiled(number: int, extras: tuple[str, ...], options: tuple) -> Any:
    """Called by torch.compile while it traces; the compiled code contains the result as a constant.

    The compiler does not trace this function, so the arguments are numbers and strings only.
    """
    cache = CACHES[number]
    cell, after = cache.cell(), cache.after()
    if cell is None:
        raise RuntimeError("a unit that has not run yet cannot be compiled; call the module once before")
    with undisturbed():
        plans = cache.find(cell, extras, after, options)
    own, settings = cell.__dict__, cache.settings
    numbers: list[tuple[tuple[str, ...], Any]] = []
    numbers += [((n,), own[n]) for n in ("training", *settings.names) if isinstance(own.get(n), (int, float))]
    for name in settings.names:
        if name in cell._modules:
            numbers += numbers_in((name,), cell._modules[name])
    owned = [(name, getattr(after.__self__, name)) for name in options]
    # An exported program keeps the present values, so it needs no guards.
    unguarded = None if is_exporting() else settings.unguarded(cell)
    return unguarded or plans, tuple(numbers), tuple(owned)


def plans_or_reason(cell: Unit, extras: Sequence[str], after: After, options: tuple) -> PlansOrReason:
    reason = no_cpu_kernels()
    if reason is not None and no_triton_kernels() is not None:
        return reason
    try:
        # Hidden from tracers: plans are made once, so a tracer would record other operations each time.
        with undisturbed():
            return make_plans(cell, extras, after, options)
    except CannotFuse as error:
        return error.reason
