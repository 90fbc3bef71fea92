"""What is decided for a cell or a layer: once, and valid until it changes.

A call needs plans, weights that fit them, and no hooks on the modules that kernels do not call. Finding all
this out takes longer than many a kernel runs, so the answers are kept with the module, and `Watch` says at
each call whether they still hold. The first call and the thousandth run the same code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from linnet.base.pools import Pools
from linnet.program.operands import Source
from linnet.program.owned import named_tensors
from linnet.program.plan import Plan
from linnet.program.planning import check_int8, computed_weights, matrices_of, weights_of
from linnet.program.unit import CannotFuse, Named, Unit
from linnet.program.whole_step import derived_operands
from linnet.run.available import no_cpu_kernels
from linnet.run.change import Watch
from linnet.run.plan_cache import PlanCache, PlansOrReason

if TYPE_CHECKING:
    from linnet.cpu.cell_step import CellStep

UNCOUNTED = (
    "its int8 matrices are inference tensors, whose changes torch does not count; quantize the model, load "
    "it and move it outside of torch.inference_mode()"
)
# A module that had other weights in so many calls in a row, as with torch.func.functional_call, is not worth
# watching, but for one call in `RETRY`.
MOST_WASTED, RETRY = 8, 64


class Recurrence(Protocol):
    """What runs over time: a unit, and what is done to its inputs and to its state."""

    @property
    def cell(self) -> Unit: ...

    @property
    def root(self) -> nn.Module:
        """The module that contains everything that a call depends on."""

    @property
    def plan_cache(self) -> PlanCache: ...

    @property
    def changes_state(self) -> bool:
        """Whether noise is applied to the state, which hand-written kernels do not do."""

    def obstacle(self, recorded: bool) -> str | None:
        """Why kernels cannot run it, or None."""

    def state_noise(self, x: Tensor) -> Named:
        """Draw the masks that `after` applies to the state, [T, B, size] by name."""

    def state_masks(self, state: Named) -> Named:
        """Draw the masks for the state as the recurrent matrices read it, by state."""

    def plans_for(self, extras: tuple[str, ...]) -> PlansOrReason:
        """The plans for a step with these extra inputs; or the reason why there are none."""

    def step(self, inputs: Named, state: Named, masks: Named) -> tuple[Tensor, Named]:
        """One time step, with all that is done to the state."""

    def after(self, y: Tensor, new: Named, old: Named, inputs: Named) -> tuple[Tensor, Named]:
        """What is done to the output and the state after the step of the cell."""


class Weights(NamedTuple):
    """The tensors of a stage that no time step changes: one number per channel each, and matrices."""

    own: list[Tensor]
    matrices: list[Tensor]
    # A part of a parameter, such as the bias of one gate, is a view, which autograd must record.
    are_parameters: bool

    @classmethod
    def of(cls, own: list[Tensor], matrices: list[Tensor]) -> Weights:
        return cls(own, matrices, all(type(tensor) is nn.Parameter for tensor in (*own, *matrices)))

    def detached(self) -> Weights:
        """The same, where parts of parameters have no gradients."""
        return self._replace(own=[w if type(w) is nn.Parameter else w.detach() for w in self.own])


class Input(NamedTuple):
    """The projection of the input.

    is_plain   a kernel may compute it, as a single product
    is_bare    there is nothing before that product

    The others are those of a Source.
    """

    is_plain: bool
    is_bare: bool
    weight: Tensor
    bias: Tensor | None
    heads: int
    second: Tensor | None
    apart: int

    def source(self, x: Tensor) -> Source:
        return Source(x, self.weight, self.bias, self.heads, self.second, self.apart)


class Answers:
    """The plans and weights of a cell or a layer, found for one call.

    obstacle   why kernels cannot run it; None if they can
    """

    # The kinds of operands that were found to fit the plans, and units with their plans, if they stay so.
    fits: Collection[tuple] = ()
    units: Mapping[tuple, Any] = {}

    def __init__(self, recurrence: Recurrence, recorded: bool = False):
        self.obstacle = recurrence.obstacle(recorded)
        self.stages = recurrence.cell.stages()

    def plans_for(self, recurrence: Recurrence, extras: tuple[str, ...]) -> list[Plan]:
        """Return the plans for a step with these extra inputs; raise CannotFuse if there are none."""
        plans = recurrence.plans_for(extras)
        if isinstance(plans, str):
            raise CannotFuse(plans)
        return plans

    def weights_of(self, cell: Unit, number: int, plan: Plan, parts: bool = False) -> Weights:
        """The weights of a stage; raise CannotFuse if they are not those of the plan.

        parts   those that are parts of a parameter need no gradients: the scan has the whole parameter
        """
        if parts:
            return self.weights_of(cell, number, plan).detached()
        if plan.derived is not None:
            return Weights.of(*derived_operands(cell, plan.derived))
        stage = self.stages[number]
        own, matrices = weights_of(cell, stage, plan.inner), matrices_of(cell, stage, plan.inner)
        if plan.before is not None and tuple(own) == plan.before.inputs:
            own = computed_weights(plan.before, own, plan.traced.weights)
        if tuple(own) != plan.traced.weights:
            raise CannotFuse(f"its weights with one number per channel are now {list(own)}")
        return Weights.of(list(own.values()), matrices)

    def keep_unit(self, key: tuple, unit: Any) -> None:
        """Keep a fused.BoundUnit for further calls."""

    def accept(self, x: Tensor) -> None:
        """Note that kernels have run on x."""

    def input_of(self, cell: Unit) -> Input:
        projection = cell.input
        how = projection.is_plain, projection.is_bare
        bias, second = (*projection.bias_tensors, None, None)[:2]
        apart = projection.apart if second is not None else 0
        return Input(*how, projection.weight, bias, projection.heads, second, apart)

    def are_fixed(self, cell: Unit, tensors: Sequence[Tensor | None]) -> bool:
        """Whether the next call finds the same weights."""
        return False


class Decision(Answers):
    """The answers for all calls until the module changes."""

    def __init__(self, recurrence: Recurrence):
        super().__init__(recurrence)
        self.units: dict[tuple, Any] = {}
        # The dtypes and widths of inputs that passed all checks, and that kernels have run on.
        self.accepted: set[tuple[torch.dtype, int]] = set()
        # Of each stage, with their plan: a call with other extra inputs may have a plan of another sort.
        self.weights: dict[int, tuple[Plan, Weights]] = {}
        self.input: Input | None = None
        # The fused.BoundUnit that warm calls run without further questions; None: not known yet.
        self.direct: Any = None
        self.fits: set[tuple] = set()
        self.steps: Pools[CellStep] = Pools()
        # How kernels run a single step, or why they do not.
        self.method: list[Plan] | str | None = None
        self.watch = watch_of(recurrence)

    def plans_for(self, recurrence: Recurrence, extras: tuple[str, ...]) -> list[Plan]:
        plans = super().plans_for(recurrence, extras)
        self.watch.watch_settings(recurrence.plan_cache.settings, recurrence.cell)
        return plans

    def keep_unit(self, key: tuple, unit: Any) -> None:
        self.units[key] = unit

    def accept(self, x: Tensor) -> None:
        self.accepted.add((x.dtype, x.shape[-1]))

    def weights_of(self, cell: Unit, number: int, plan: Plan, parts: bool = False) -> Weights:
        if plan.before is not None:
            return super().weights_of(cell, number, plan)
        known, kept = self.weights.get(number, (None, None))
        kept = kept if known is plan else None
        if kept is not None and (parts or not torch.is_grad_enabled() or kept.are_parameters):
            return kept
        weights = super().weights_of(cell, number, plan, parts)
        if kept is None and self.are_fixed(cell, [*weights.own, *weights.matrices]):
            with torch.no_grad():
                # Not views, which could not be read once the whole was changed in place with gradients.
                self.weights[number] = plan, super().weights_of(cell, number, plan).detached()
        return weights

    def input_of(self, cell: Unit) -> Input:
        if self.input is not None:
            return self.input
        found = super().input_of(cell)
        if self.are_fixed(cell, (found.weight, found.bias, found.second)):
            self.input = found
        return found

    def are_fixed(self, cell: Unit, tensors: Sequence[Tensor | None]) -> bool:
        """Whether all are watched parameters, or parts of them; a parametrisation computes others."""
        owned = {tensor.untyped_storage()._cdata for _, tensor in named_tensors(cell) if is_parameter(tensor)}
        return all(tensor is None or tensor.untyped_storage()._cdata in owned for tensor in tensors)

    def method_for(self, recurrence: Recurrence) -> list[Plan]:
        """How kernels run a single step without gradients; raise CannotFuse if they cannot."""
        if self.method is None and not self.watch.originals.are_counted:
            self.method = UNCOUNTED
        elif self.method is None:
            try:
                self.method = method_of(recurrence)
                self.watch.watch_settings(recurrence.plan_cache.settings, recurrence.cell)
            except CannotFuse as error:
                self.method = error.reason
        if isinstance(self.method, str):
            raise CannotFuse(self.method)
        return self.method

    def needs_gradients(self, x: Tensor, state: Iterable[Tensor]) -> bool:
        """Whether autograd records a call."""
        if not torch.is_grad_enabled():
            return False
        return any(tensor.requires_grad for tensor in (x, *state, *self.watch.placed))


def watch_of(recurrence: Recurrence) -> Watch:
    cell = recurrence.cell
    watch = Watch(recurrence.root, [module for module in cell.modules() if module is not cell])
    watch.watch_settings(recurrence.plan_cache.settings, cell)
    return watch


def answers_for(recurrence: Recurrence) -> Answers:
    """The decision of an earlier call, if it still holds, or a new one."""
    cache, known = recurrence.plan_cache, recurrence.plan_cache.decision
    if known is not None and known.watch.holds(recurrence.root):
        cache.wasted = 0
        return known
    cache.wasted += 1
    if cache.wasted > MOST_WASTED and cache.wasted % RETRY:
        return Answers(recurrence)
    cache.decision = made = Decision(recurrence)
    return made


def method_of(recurrence: Recurrence) -> list[Plan]:
    """How kernels run a step of the cell without gradients; raises CannotFuse if they cannot."""
    cell = recurrence.cell
    reason = no_cpu_kernels() or recurrence.obstacle(recorded=False)
    if reason is not None:
        raise CannotFuse(reason)
    if recurrence.changes_state and cell.training:
        raise CannotFuse("noise is drawn at each step")
    if computes_weights(recurrence.root):
        raise CannotFuse("its weights are computed at each call, and a native step keeps their addresses")
    plans = recurrence.plans_for(extra_names(cell))
    if isinstance(plans, str):
        raise CannotFuse(plans)
    if cell.is_quantised:
        check_int8(plans)
    return plans


def computes_weights(root: nn.Module) -> bool:
    """Whether a weight is computed from parameters at each call, as by a parametrization."""
    modules = list(root.modules())
    if any("parametrizations" in module._modules for module in modules):
        return True
    # Copies that modules keep, as those of int8, are watched; see linnet/run/change.py.
    others = [module for module in modules if not getattr(type(module), "keeps_copies", False)]
    held = [tensor for module in others for tensor in weights_in(module)]
    read = [tensor for _, tensor in named_tensors(root) if is_parameter(tensor)]
    owned = {tensor.untyped_storage()._cdata for tensor in (*read, *root.buffers())}
    return any(isinstance(t, Tensor) and t.untyped_storage()._cdata not in owned for t in held)


def is_parameter(tensor: Tensor) -> bool:
    """Not what a parametrization has computed, which is another tensor at the next call."""
    return isinstance(tensor, nn.Parameter)


def weights_in(module: nn.Module) -> list[Any]:
    """The matrix and the biases of a module as it reads them, if it has some."""
    biases = getattr(module, "bias_tensors", None)
    return [getattr(module, "weight", None), *([getattr(module, "bias", None)] if biases is None else biases)]


def extra_names(cell: Unit) -> tuple[str, ...]:
    try:
        return tuple(cell.extra_inputs(torch.empty(1, 1, cell.input_size, device="meta")))
    except (RuntimeError, NotImplementedError) as error:
        # The scan calls it with real numbers: an error of its own is raised there.
        raise CannotFuse("its extra inputs can only be computed from real numbers") from error
