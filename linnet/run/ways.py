"""The ways to run a unit over time, with one interface.

    Loop        calls the unit's `step` in a loop over time; defines the result
    Scan        one kernel for all time steps, for the CPU (compiled by LLVM) or for GPUs (by Triton), with
                its gradients. A compiler or a tracer records the same kernel as a registered operation
    SingleStep  one native program for a single time step without gradients

`run/choose.py` decides which one runs. All draw random numbers in the same order, so that a seed gives the
same masks: the noise on the state, the masks of the state, what `extra_inputs` draws, and the mask of the
input of the projection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from linnet.program.padding import cleared
from linnet.program.readable import is_transformed_by_func
from linnet.program.restart import restart_inputs
from linnet.program.unit import ByNature, CannotFuse, Flags, Named, RunKernel, Unit
from linnet.run import available, reference
from linnet.run.bound_unit import BoundUnit, Mode, load_kernels
from linnet.run.decision import Answers, Decision, Recurrence
from linnet.run.devices import check_devices
from linnet.run.hooks import hook_obstacle
from linnet.run.int8 import int8_kernel
from linnet.run.plan_cache import PlanCache, PlansOrReason
from linnet.triton import is_interpreted

if TYPE_CHECKING:
    from linnet.cpu.cell_step import CellStep


class Way(ABC):
    """Runs a unit over x [T, B, input_size]."""

    name: str
    # Of the five in run/choose.py.
    kind: str

    @abstractmethod
    def why(self, x: Tensor) -> str:
        """Describe what runs, if nothing stood in the way."""

    @abstractmethod
    def run(
        self,
        recurrence: Recurrence,
        answers: Answers,
        x: Tensor,
        state: Named,
        flags: Flags,
        reset_state: Named | None = None,
    ) -> tuple[Tensor, Named]:
        """Return the output [T, B, output_size] and the final state; raise CannotFuse if impossible."""


class Loop(Way):
    """Calls `step` in a loop over time."""

    name, kind = "reference", "loop"

    def why(self, x: Tensor) -> str:
        if not x.shape[1]:
            return "an empty batch has nothing to compute"
        if not torch.is_grad_enabled() or x.shape[0] > 2:
            return 'linnet.backend("reference") requests it'
        return "its kernels, one for each of its stages, do not pay for so few steps with gradients"

    def run(
        self,
        recurrence: Recurrence,
        answers: Answers | None,
        x: Tensor,
        state: Named,
        flags: Flags,
        reset_state: Named | None = None,
    ) -> tuple[Tensor, Named]:
        cell, x = recurrence.cell, cleared(x)
        check_devices(cell, cell.unit_name, x)
        noise, masks = recurrence.state_noise(x), recurrence.state_masks(state)
        inputs = {**cell.project(x), **noise}
        return reference.scan(partial(recurrence.step, masks=masks), inputs, state, *flags, reset_state)


class SingleStep(Way):
    """One step by a native program, without gradients. The program is kept with the decision."""

    name, kind = "step", "step"

    def why(self, x: Tensor) -> str:
        return f"one native program for a step of {x.shape[1]} rows, without gradients"

    def run(
        self,
        recurrence: Recurrence,
        answers: Answers,
        x: Tensor,
        state: Named,
        flags: Flags,
        reset_state: Named | None = None,
    ) -> tuple[Tensor, Named]:
        row, states, resets = laid_out(x[0]), list(state.values()), flags[1]
        resets = None if resets is None else resets[0]
        if reset_state is not None and resets is not None:
            starts = [reset_state[name].reshape(s.shape) for name, s in state.items()]
            states = [torch.where(resets[:, None], *pair) for pair in zip(starts, states, strict=True)]
            resets = None
        y, new = self.run_rows(recurrence, answers, row, [laid_out(s) for s in states], resets)
        return y[None], dict(zip(state, new, strict=True))

    def run_rows(
        self,
        recurrence: Recurrence,
        decision: Answers,
        x: Tensor,
        states: list[Tensor],
        resets: Tensor | None,
    ) -> tuple[Tensor, list[Tensor]]:
        """x [B, input_size] -> the output and the new states."""
        assert isinstance(decision, Decision)
        pool = decision.steps.of((x.shape, x.dtype))
        step = pool.take() or self.new_step(recurrence, decision, x)
        results = step(x, states, resets)
        pool.append(step)
        return results

    def has_program(self, recurrence: Recurrence, decision: Decision, x: Tensor) -> bool:
        """Whether there is a program for x [B, input_size], after trying to make one."""
        pool = decision.steps.of((x.shape, x.dtype))
        if pool:
            return True
        if isinstance(decision.method, str):
            return False
        try:
            pool.append(self.new_step(recurrence, decision, x))
        except CannotFuse as error:
            decision.method = error.reason
            return False
        return True

    def new_step(self, recurrence: Recurrence, decision: Decision, x: Tensor) -> CellStep:
        load_kernels()
        from linnet.cpu.cell_step import CellStep

        return CellStep(recurrence.cell, decision.method_for(recurrence), x)


def laid_out(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(1) == 1 else tensor.contiguous()


class Scan(Way):
    """Runs kernels that are compiled from the traced step."""

    # Whether the kernels compute the projection of the input, too.
    projects: bool
    # Whether both directions of a layer can run in one launch.
    runs_pairs: bool
    dtypes: tuple[torch.dtype, ...]
    # Whether there are kernels for every step that can be recorded.
    runs_all_steps: bool

    def __init__(self, recorded: bool = False):
        self.mode = Mode(self.passes, self.projects, recorded)
        self.kind = "operation" if recorded else "scan"
        # The same kernels as a registered operation, for a call that a compiler or a tracer records.
        self.when_recorded = self if recorded else type(self)(recorded=True)

    @abstractmethod
    def passes(self) -> ModuleType:
        """Import the module that launches the kernels."""

    def why(self, x: Tensor) -> str:
        what = f"{self.name} kernels over {x.shape[0]} steps of {x.shape[1]} rows"
        return (
            f"{what}, as an operation that a compiler, a tracer or torch.func knows"
            if self.mode.recorded
            else what
        )

    @property
    def is_transformed(self) -> bool:
        """Whether torch.func transforms the call, which it cannot do with hand-written kernels."""
        return self.mode.recorded and not is_compiling() and is_transformed_by_func()

    @abstractmethod
    def obstacle(self, x: Tensor) -> str | None:
        """Why these kernels cannot run on x, or None."""

    @abstractmethod
    def can_compile(self, x: Tensor) -> bool:
        """Whether torch.compile may use its registered operations on x."""

    def run(
        self,
        recurrence: Recurrence,
        answers: Answers,
        x: Tensor,
        state: Named,
        flags: Flags,
        reset_state: Named | None = None,
    ) -> tuple[Tensor, Named]:
        cell = recurrence.cell
        if cell.is_quantised and reset_state is not None:
            raise CannotFuse("its int8 kernel resets to zeros only")
        if cell.is_quantised:
            x = cleared(x)
            return self.int8_kernel(recurrence, answers, x)(x, state, flags, self.mode.recorded)
        noise, masks = recurrence.state_noise(x), recurrence.state_masks(state)
        reads_as_it_is = hasattr(cell.extra_inputs, "only_selects")
        inputs = {**cell.extra_inputs(x if reads_as_it_is else cleared(x)), **noise}
        if reset_state is not None and flags[1] is not None:
            countable = x.is_cpu and not self.mode.recorded
            inputs |= restart_inputs(cell, flags[1], reset_state, masks, countable)
        unit = self.unit(recurrence, answers, tuple(inputs))
        return unit.run(recurrence, answers, x, inputs, state, flags, masks)

    def unit(self, recurrence: Recurrence, answers: Answers, extras: tuple[str, ...]) -> BoundUnit:
        """The unit, bound to the plans for a step with these extra inputs."""
        known = answers.units.get((self.name, *extras))
        if known is not None:
            return known
        plans = answers.plans_for(recurrence, extras)
        plans = [plan if plan.hoisted is None else plan.hoisted for plan in plans]
        missing = [available.not_on_gpu(plan.traced) for plan in plans if not self.runs_all_steps]
        lacking = next(filter(None, missing), None)
        if lacking is not None:
            raise CannotFuse(ByNature(f"there is no {self.name} kernel for {lacking}"))
        made = BoundUnit(recurrence.cell, answers, plans, self.mode)
        answers.keep_unit((self.name, *extras), made)
        return made

    def int8_kernel(self, recurrence: Recurrence, answers: Answers, x: Tensor) -> RunKernel:
        """The kernel of a unit whose matrices are int8."""
        raise CannotFuse(f"there is no int8 kernel for {x.device.type}")

    def advance(
        self, recurrence: Recurrence, answers: Answers, joint: Tensor, extras: Named, state: Named
    ) -> tuple[Tensor, Named]:
        """One step from inputs that are projected already, [B, ...]."""
        unit = self.unit(recurrence, answers, tuple(extras))
        inputs = {name: extra[None] for name, extra in extras.items()}
        sources = unit.split(recurrence.cell, joint[None])
        y, new = unit.run_stages(recurrence, answers, sources, inputs, state)
        return y[0], new


class Cpu(Scan):
    """Kernels for the CPU."""

    name = "cpu"
    projects, runs_pairs, runs_all_steps = True, False, True
    dtypes = available.CPU_DTYPES

    def obstacle(self, x: Tensor) -> str | None:
        if x.device.type != "cpu":
            return f"there is no kernel for {x.device.type}"
        return available.no_cpu_kernels() if x.dtype in self.dtypes else f"there is no kernel for {x.dtype}"

    def can_compile(self, x: Tensor) -> bool:
        return x.device.type == "cpu" and x.dtype in self.dtypes and available.HAS_LLVM

    def passes(self) -> ModuleType:
        from linnet.cpu import passes

        return passes

    def int8_kernel(self, recurrence: Recurrence, answers: Answers, x: Tensor) -> RunKernel:
        if torch.is_grad_enabled() and x.requires_grad:
            raise CannotFuse("rounding to int8 has no gradient")
        if not self.mode.recorded:
            load_kernels()
        plans = answers.plans_for(recurrence, tuple(extra_inputs_of(recurrence, x)))
        return int8_kernel(recurrence.cell, plans)


class Triton(Scan):
    """Kernels for GPUs. torch's own matrix products are the fastest there, so projections are left to it."""

    name = "triton"
    projects, runs_pairs, runs_all_steps = False, True, False
    dtypes = available.TRITON_DTYPES

    def obstacle(self, x: Tensor) -> str | None:
        reason = available.no_triton_kernels()
        if reason is not None:
            return reason
        if x.device.type != "cuda" and not is_interpreted():
            return (
                f"x is on {x.device}, and Triton's kernels run on a GPU; "
                "move the module and x with .to('cuda')"
            )
        return None if x.dtype in self.dtypes else f"there is no Triton kernel for {x.dtype}"

    def can_compile(self, x: Tensor) -> bool:
        return x.dtype in self.dtypes and available.HAS_TRITON and available.HAS_LLVM

    def passes(self) -> ModuleType:
        from linnet.triton import passes

        return passes


REFERENCE, STEP, CPU, TRITON = Loop(), SingleStep(), Cpu(), Triton()
BACKENDS = ("reference", "cpu", "triton")


def unchanged(y: Tensor, new: Named, old: Named, inputs: Named) -> tuple[Tensor, Named]:
    return y, new


class CellAlone:
    """A cell that is not part of a layer: without noise, and with nothing after the step."""

    changes_state = False
    after = staticmethod(unchanged)

    def __init__(self, cell: Unit):
        self.cell = cell

    @property
    def root(self) -> nn.Module:
        return self.cell

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
        y, new = self.cell.run_stages(inputs, state)
        return self.cell.output(y, new), new


def extra_inputs_of(recurrence: Recurrence, x: Tensor) -> Named:
    noise = recurrence.state_noise(x)
    return {**recurrence.cell.extra_inputs(x), **noise}
