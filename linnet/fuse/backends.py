"""The three backends, with one interface, and what they run.

reference   calls the unit's `step` in a loop over time; defines the result
cpu         kernels for the CPU, compiled by LLVM
triton      kernels for GPUs, compiled by Triton

All draw random numbers in the same order, so that a seed gives the same masks: the noise on the state, the
masks of the state, what `extra_inputs` draws, and the mask of the input of the projection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from types import ModuleType
from typing import Protocol

import torch
from torch import Tensor
from torch.compiler import is_compiling

from linnet.fuse import available, reference
from linnet.fuse.devices import check_devices
from linnet.fuse.fused import Mode, UnitRun, load_kernels, run_unit
from linnet.fuse.hooks import hook_obstacle
from linnet.fuse.int8 import int8_kernel
from linnet.fuse.plan_cache import PlanCache, PlansOrReason
from linnet.fuse.unit import ByNature, CannotFuse, Flags, Named, OwnKernel, Unit

NO_FLAGS: Flags = (None, None, False)


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
        noise, masks = recurrence.state_noise(x), recurrence.state_masks(state)
        inputs = {**cell.project(x), **noise}
        return reference.scan(partial(recurrence.step, masks=masks), inputs, state, *flags)

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
        noise, masks = recurrence.state_noise(x), recurrence.state_masks(state)
        inputs = {**cell.extra_inputs(x), **noise}
        plans = recurrence.plans_for(tuple(inputs))
        if isinstance(plans, str):
            raise CannotFuse(plans)
        if not self.has_inner_products and any(plan.traced.inner for plan in plans):
            raise CannotFuse(ByNature(f"there is no {self.name} kernel for products within a step"))
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
    noise = recurrence.state_noise(x)
    return {**recurrence.cell.extra_inputs(x), **noise}
