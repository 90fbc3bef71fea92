"""The three backends, and the one place that decides which of them runs.

    reference   calls the unit's `step` in a loop over time; defines the result
    cpu         kernels for the CPU, compiled by LLVM
    triton      kernels for GPUs, compiled by Triton

`choose_backend` decides for a unit and an input. If a module runs on the reference although a kernel could be
expected, a warning gives the reason, once.
"""

from __future__ import annotations

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from types import ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling, is_dynamo_compiling

from linnet.fuse import available, quick, reference
from linnet.fuse.devices import check_devices
from linnet.fuse.fused import Mode, UnitRun, fit_together, load_kernels, run_unit
from linnet.fuse.fused import run_pair as run_fused_pair
from linnet.fuse.hooks import hook_obstacle
from linnet.fuse.int8 import int8_kernel
from linnet.fuse.plan_cache import PlanCache, PlansOrReason
from linnet.fuse.recording import is_recorded, opaque_to_kernels
from linnet.fuse.unit import ByNature, CannotFuse, Flags, Named, OwnKernel, Unit

log = logging.getLogger("linnet")
NO_FLAGS: Flags = (None, None, False)


class FallbackWarning(UserWarning):
    """A unit runs on the reference loop, which is many times slower than the kernel that it could have."""


class Recurrence(Protocol):
    """What a backend runs over time: a unit, and what is done to its inputs and to its state."""

    @property
    def cell(self) -> Unit: ...

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


# -------------------------------------------------------------------------------- the backends


class Backend(ABC):
    """Runs a unit over sequences, x [T, B, input_size], or for a single step, x [B, input_size]."""

    name: str

    @abstractmethod
    def obstacle(self, x: Tensor) -> str | None:
        """Why this backend cannot run on x, or None."""

    @abstractmethod
    def run(self, recurrence: Recurrence, x: Tensor, state: Named, flags: Flags) -> tuple[Tensor, Named]:
        """Return the output [T, B, output_size] and the final state."""

    @abstractmethod
    def run_step(self, cell: Unit, x: Tensor, state: Named) -> tuple[Tensor, Named]:
        """Return the output [B, output_size] and the new state."""


class Reference(Backend):
    """Calls `step` in a loop over time."""

    name = "reference"

    def obstacle(self, x: Tensor) -> str | None:
        return None

    def run(self, recurrence: Recurrence, x: Tensor, state: Named, flags: Flags) -> tuple[Tensor, Named]:
        cell = recurrence.cell
        check_devices(cell, cell.unit_name, x)
        inputs = {**cell.project(x), **recurrence.state_noise(x)}
        step = partial(recurrence.step, masks=recurrence.state_masks(state))
        return reference.scan(step, inputs, state, *flags)

    def run_step(self, cell: Unit, x: Tensor, state: Named) -> tuple[Tensor, Named]:
        check_devices(cell, cell.unit_name, x)
        return cell.advance(cell.project(x), state)


class Kernels(Backend):
    """Runs kernels that are compiled from the traced step. Raises CannotFuse if that is impossible."""

    # Whether the kernels compute the projection of the input, too.
    projects: bool
    # Whether both directions of a layer can run in one launch.
    runs_pairs: bool
    dtypes: tuple[torch.dtype, ...]
    # Whether there are kernels for steps with products within.
    has_inner_products: bool

    def __init__(self, recorded: bool = False):
        self.mode = Mode(self.passes, self.projects, recorded)
        # The same backend for a call that a compiler or a tracer records.
        self.when_recorded = self if recorded else type(self)(recorded=True)

    @abstractmethod
    def passes(self) -> ModuleType:
        """Import the module that launches the kernels."""

    @abstractmethod
    def own_kernel(self, cell: Unit, x: Tensor) -> OwnKernel | None:
        """The unit's own hand-written kernel, or None."""

    @abstractmethod
    def can_compile(self, x: Tensor) -> bool:
        """Whether torch.compile may use its registered operations on x."""

    def run(self, recurrence: Recurrence, x: Tensor, state: Named, flags: Flags) -> tuple[Tensor, Named]:
        cell = recurrence.cell
        if cell.is_quantised:
            return self.int8_kernel(recurrence, x)(x, state, flags, self.mode.recorded)
        own = None if recurrence.changes_state else self.own_kernel(cell, x)
        if own is not None:
            # torch computes the projection for such a kernel, and accepts a matrix on meta without an error.
            check_devices(cell, cell.unit_name, x)
            return own(x, state, flags, self.mode.recorded)
        inputs = extra_inputs_of(recurrence, x)
        plans = recurrence.plans_for(tuple(inputs))
        if isinstance(plans, str):
            raise CannotFuse(plans)
        if not self.has_inner_products and any(plan.traced.inner for plan in plans):
            raise CannotFuse(ByNature(f"there is no {self.name} kernel for products within a step"))
        masks = recurrence.state_masks(state)
        run = UnitRun(recurrence.cell, plans, recurrence.after, inputs, state, flags, masks)
        return run_unit(run, x, self.mode)

    def int8_kernel(self, recurrence: Recurrence, x: Tensor) -> OwnKernel:
        """The kernel of a unit whose matrices are int8."""
        raise CannotFuse(f"there is no int8 kernel for {x.device.type}")

    def run_step(self, cell: Unit, x: Tensor, state: Named) -> tuple[Tensor, Named]:
        y, new = self.run(SingleStep(cell), x[None], state, NO_FLAGS)
        return y[0], new

    def advance(self, cell: Unit, joint: Tensor, extras: Named, state: Named) -> tuple[Tensor, Named]:
        """`run_step` from inputs that are projected already, [B, ...]."""
        plans = SingleStep(cell).plans_for(tuple(extras))
        if isinstance(plans, str):
            raise CannotFuse(plans)
        inputs = {name: extra[None] for name, extra in extras.items()}
        run = UnitRun(cell, plans, unchanged, inputs, state, NO_FLAGS)
        y, new = run_unit(run, joint[None], self.mode, is_projected=True)
        return y[0], new


class Cpu(Kernels):
    """Kernels for the CPU."""

    name = "cpu"
    projects, runs_pairs, has_inner_products = True, False, True
    dtypes = available.CPU_DTYPES

    def obstacle(self, x: Tensor) -> str | None:
        if x.device.type != "cpu":
            return f"there is no kernel for {x.device.type}"
        return available.no_cpu_kernels() if x.dtype in self.dtypes else f"there is no kernel for {x.dtype}"

    def can_compile(self, x: Tensor) -> bool:
        return x.device.type == "cpu" and x.dtype in self.dtypes and available.HAS_LLVM

    def passes(self) -> ModuleType:
        from linnet.fuse.cpu import passes

        return passes

    def own_kernel(self, cell: Unit, x: Tensor) -> OwnKernel | None:
        if not is_compiling():
            load_kernels()
        return cell.own_kernel(x.dtype)

    def int8_kernel(self, recurrence: Recurrence, x: Tensor) -> OwnKernel:
        if torch.is_grad_enabled() and x.requires_grad:
            raise CannotFuse("rounding to int8 has no gradient")
        load_kernels()
        plans = recurrence.plans_for(tuple(extra_inputs_of(recurrence, x)))
        return int8_kernel(recurrence.cell, plans)


class Triton(Kernels):
    """Kernels for GPUs. torch's own matrix products are the fastest there, so projections are left to it."""

    name = "triton"
    projects, runs_pairs, has_inner_products = False, True, False
    dtypes = available.TRITON_DTYPES

    def obstacle(self, x: Tensor) -> str | None:
        reason = available.no_triton_kernels()
        if reason is not None:
            return reason
        if x.device.type != "cuda" and not available.is_interpreted():
            return (
                f"x is on {x.device}, and Triton's kernels run on a GPU; "
                "move the module and x with .to('cuda')"
            )
        return None if x.dtype in self.dtypes else f"there is no Triton kernel for {x.dtype}"

    def can_compile(self, x: Tensor) -> bool:
        return x.dtype in self.dtypes and available.HAS_TRITON and available.HAS_LLVM

    def passes(self) -> ModuleType:
        from linnet.fuse.triton import passes

        return passes

    def own_kernel(self, cell: Unit, x: Tensor) -> OwnKernel | None:
        """Hand-written kernels exist for the CPU only."""
        return None


REFERENCE, CPU, TRITON = Reference(), Cpu(), Triton()
BACKENDS = ("reference", "cpu", "triton")


def unchanged(y: Tensor, new: Named, old: Named, inputs: Named) -> tuple[Tensor, Named]:
    return y, new


class SingleStep:
    """One step of a cell that is not part of a layer: without noise, and with nothing after the step."""

    changes_state = False
    after = staticmethod(unchanged)

    def __init__(self, cell: Unit):
        self.cell = cell

    def obstacle(self, recorded: bool) -> str | None:
        return hook_obstacle(self.cell)

    def state_noise(self, x: Tensor) -> Named:
        return {}

    def state_masks(self, state: Named) -> Named:
        return {}

    @property
    def plan_cache(self) -> PlanCache:
        attributes = self.cell.__dict__
        return attributes.get("plan_cache") or attributes.setdefault("plan_cache", PlanCache())

    def plans_for(self, extras: tuple[str, ...]) -> PlansOrReason:
        return self.plan_cache.get(self.cell, extras, unchanged)

    def step(self, inputs: Named, state: Named, masks: Named) -> tuple[Tensor, Named]:
        return self.cell.advance(inputs, state)


def extra_inputs_of(recurrence: Recurrence, x: Tensor) -> Named:
    return {**recurrence.cell.extra_inputs(x), **recurrence.state_noise(x)}


# ---------------------------------------------------------------------------------- the choice

# The name that `linnet.backend` was given.
requested: ContextVar[str | None] = ContextVar("linnet_backend", default=None)


@contextmanager
def backend(name: str | None) -> Iterator[None]:
    """Within this context all modules run on the backend `name`: "reference", "cpu" or "triton".

    Without it, or with None, each module runs on the kernels for its device, if there are any.
    """
    if name is not None and name not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(map(repr, BACKENDS))}; got {name!r}")
    token = requested.set(name)
    try:
        yield
    finally:
        requested.reset(token)


def may_use_cpu_kernels() -> bool:
    """Whether no other backend was requested."""
    return requested.get() in (None, "cpu")


def kernels_for(x: Tensor) -> Kernels:
    """The kernels for x: those that were requested, or else those for its device."""
    name = None if is_compiling() else requested.get()
    by_triton = x.device.type == "cuda" if name is None else name == "triton"
    return TRITON if by_triton else CPU


def choose_backend(recurrence: Recurrence, x: Tensor) -> Backend:
    """Return the backend that runs `recurrence` on x."""
    if x.shape[-2] == 0:
        return REFERENCE  # an empty batch, for which torch's operations have nothing to compute either
    recorded = is_recorded(x)
    if not (recorded or recurrence.cell.pays(x.shape[:-2].numel())) and requested.get() is None:
        return REFERENCE
    obstacle, kernels = recurrence.obstacle(recorded), kernels_for(x)
    if is_compiling():
        # torch.compile can trace neither the context variable nor a warning.
        if not is_dynamo_compiling() and requested.get() == "reference":
            return REFERENCE
        return kernels.when_recorded if obstacle is None and kernels.can_compile(x) else REFERENCE
    if requested.get() == "reference":
        return REFERENCE
    reason = obstacle or opaque_to_kernels(x) or kernels.obstacle(x)
    if reason is not None:
        return fall_back(recurrence.cell, reason)
    return kernels.when_recorded if recorded else kernels


def may_use_cpu_kernel(x: Tensor) -> bool:
    """Whether a kernel may compute a single operation on x, such as a product, in place of torch's."""
    if is_compiling() or requested.get() not in (None, "cpu") or torch.is_autocast_enabled("cpu"):
        return False
    return CPU.obstacle(x) is None and not is_recorded(x) and opaque_to_kernels(x) is None


def fall_back(cell: Unit, reason: str) -> Backend:
    """Return the reference, and warn once. If a backend was requested by name, raise an error instead."""
    if not is_compiling():
        if requested.get() is not None:
            raise RuntimeError(
                f'backend("{requested.get()}") was requested, but {cell.unit_name} cannot run on it: {reason}'
            )
        warn_once(cell.unit_name, reason)
    return REFERENCE


@cache
def warn_once(unit: str, reason: str) -> None:
    text = f"{unit} runs on the reference loop: {reason}"
    if isinstance(reason, ByNature):
        log.info(text)
    else:
        warnings.warn(
            f'{text}. linnet.backend("reference") selects the loop without this warning.',
            FallbackWarning,
            stacklevel=2,
        )


# ------------------------------------------------------------------------------------ running


def run(recurrence: Recurrence, x: Tensor, state: Named, flags: Flags) -> tuple[Tensor, Named]:
    """Run over x [T, B, input_size]: the output [T, B, output_size] and the final state."""
    if not is_compiling() and flags[:2] == (None, None):
        made = run_quickly(recurrence, x, state, flags[2])
        if made is not None:
            return made
    chosen = choose_backend(recurrence, x)
    try:
        return chosen.run(recurrence, x, state, flags)
    except CannotFuse as error:
        chosen = fall_back(recurrence.cell, error.reason)
    return chosen.run(recurrence, x, state, flags)


def run_quickly(
    recurrence: Recurrence, x: Tensor, state: Named, reverse: bool
) -> tuple[Tensor, Named] | None:
    """A layer over x [T, B, input_size] by what an earlier call has prepared; None if not possible."""
    if not may_use_cpu_kernels() or not isinstance(recurrence, nn.Module) or x.is_meta:
        return None
    if len(x) > 1:
        return quick.quick_scan(recurrence, x, state, reverse)  # type: ignore[arg-type]
    made = quick.quick_step(recurrence, recurrence, x[0], state)  # type: ignore[arg-type]
    return None if made is None else (made[0][None], made[1])


def run_step(cell: Unit, x: Tensor, state: Named) -> tuple[Tensor, Named]:
    """One step of a cell on its own, x [B, input_size]: the output [B, output_size] and the new state."""
    if is_compiling():  # a compiler fuses the operations of a single step itself
        return REFERENCE.run_step(cell, x, state)
    single = SingleStep(cell)
    if may_use_cpu_kernels():
        made = quick.quick_step(single, cell, x, state)
        if made is not None:
            return made
    chosen = choose_backend(single, x)
    try:
        return chosen.run_step(cell, x, state)
    except CannotFuse as error:
        chosen = fall_back(cell, error.reason)
    return chosen.run_step(cell, x, state)


def kernels_of_steps(cell: Unit, x: Tensor) -> Kernels | None:
    """The kernels that advance a cell from projected inputs; None if `cell.advance` is the way."""
    if is_compiling() or not cell.pays(1):  # a compiler fuses the operations of a single step itself
        return None
    if cell.structural_obstacle() is not None:  # such as a projection of its own
        return None
    chosen = choose_backend(SingleStep(cell), x)
    if not isinstance(chosen, Kernels) or chosen.mode.recorded or cell.is_quantised:
        return None
    return None if chosen.own_kernel(cell, x) is not None else chosen  # that one is for whole sequences


def advance(
    kernels: Kernels, cell: Unit, joint: Tensor, extras: Named, state: Named
) -> tuple[Tensor, Named] | None:
    """One step from projected inputs; None, after a warning, if kernels cannot do it."""
    try:
        return kernels.advance(cell, joint, extras, state)
    except CannotFuse as error:
        fall_back(cell, error.reason)
        return None


def step_again(root: nn.Module, x: Tensor, states: Sequence[Any]) -> tuple[Tensor, list[Tensor]] | None:
    """One step of a cell or layer that has stepped with tensors like these before.

    None if anything has changed.
    """
    if is_compiling() or not may_use_cpu_kernels():
        return None
    return quick.step_again(root, x, states)


def run_pair(
    recurrences: Sequence[Recurrence], x: Tensor, states: Sequence[Named], flags: Sequence[Flags]
) -> tuple[Tensor, list[Named]] | None:
    """Both directions of a layer in one launch: their outputs side by side, and the final state of each.

    None if the chosen backend cannot do this; the directions then run one after the other.
    """
    if not kernels_for(x).runs_pairs or any(choose_backend(each, x) is not TRITON for each in recurrences):
        return None
    inputs = [extra_inputs_of(each, x) for each in recurrences]
    plans = [each.plans_for(tuple(names)) for each, names in zip(recurrences, inputs, strict=True)]
    if not fit_together(plans):
        return None
    runs = [
        UnitRun(each.cell, *arguments)
        for each, *arguments in zip(
            recurrences, plans, [each.after for each in recurrences], inputs, states, flags, strict=True
        )
    ]
    try:
        return run_fused_pair(runs, x)
    except CannotFuse:  # each direction, run separately, gives the reason
        return None
