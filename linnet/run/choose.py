"""The one place that decides how a unit runs, and runs it. There are five ways:

    loop        `step` in a loop over time, which defines the result: if "reference" was requested, for an
                empty batch, and if kernels cannot run, with a warning that gives the reason, once
    operation   the kernel as a registered operation: while a compiler or a tracer records the call, and under
                torch.func
    scan        the kernel over all time steps, on the CPU or by Triton, with gradients
    step        a native program for one time step: without gradients, on the CPU
    stepwise    a kernel for each time step, if something else is computed between two of them, such as
                attention: see run/stepwise.py

Conditions of a call are checked at each call; those of the module are in its `Decision`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling, is_dynamo_compiling

from linnet.program.operands import NO_FLAGS
from linnet.program.readable import (
    FakeTensor,
    is_dispatched,
    is_in_older_onnx_export,
    is_recorded,
    is_recording,
    is_transformed,
    is_transformed_by_func,
    opaque_to_kernels,
    opaque_to_operations,
)
from linnet.program.restart import named_starts
from linnet.program.unit import ByNature, CannotFuse, Flags, Named, Unit
from linnet.run.bound_unit import BoundUnit, Side, project
from linnet.run.bound_unit import run_pair as run_fused_pair
from linnet.run.decision import Answers, Decision, Recurrence, answers_for, extra_names
from linnet.run.devices import check_devices
from linnet.run.kept_states import collects, is_collecting
from linnet.run.observed import is_observing, note
from linnet.run.random_state import RandomState
from linnet.run.ways import (
    BACKENDS,
    CPU,
    REFERENCE,
    STEP,
    TRITON,
    CellAlone,
    Scan,
    Way,
    extra_inputs_of,
)

log = logging.getLogger("linnet")
STEP_DTYPES = (torch.float32, torch.float64)


class FallbackWarning(UserWarning):
    """A unit runs on the reference loop, which is many times slower than the kernel that it could have."""


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


# ---------------------------------------------------------------------------------- the choice


class Choice(NamedTuple):
    """The way that a call takes. `reason`: why it is the loop, although kernels could be expected."""

    way: Way
    answers: Any
    reason: str | None = None


LOOP = Choice(REFERENCE, None)


def choose(recurrence: Recurrence, x: Tensor, state: Named, flags: Flags) -> Choice:
    """Decide how `recurrence` runs over x [T, B, input_size]."""
    name = requested.get()
    if name == "reference" or not x.shape[1]:
        return LOOP
    recorded = is_dispatched() or type(x) is FakeTensor or is_transformed_by_func()
    if recorded and is_in_older_onnx_export():
        check_not_unrolled(recurrence.cell, x)
        return LOOP
    if not recorded and name is None and not recurrence.cell.pays(x.shape[0]) and torch.is_grad_enabled():
        return LOOP
    choice = choose_kernels(recurrence, x, recorded)
    if x.shape[0] == 1 and flags[0] is None and choice.way is CPU:
        return choice._replace(way=STEP) if is_native_step(recurrence, choice.answers, x, state) else choice
    return choice


def check_not_unrolled(cell: Unit, x: Tensor) -> None:
    """The older exporter writes all operations of the loop, and dynamic axes would not reach its length."""
    if x.shape[0] > 1:
        raise RuntimeError(
            f"torch.onnx.export(dynamo=False) would write each of the {int(x.shape[0])} steps of "
            f"{cell.unit_name}, for this length only; use linnet.export_onnx, or torch.onnx.export with "
            "dynamo=True, which write one operator for any length. To fix the length, export within "
            'linnet.backend("reference")'
        )


def choose_kernels(recurrence: Recurrence, x: Tensor, recorded: bool) -> Choice:
    """The kernels for all time steps; or the loop, with the reason."""
    kernels = kernels_for(x, requested.get())
    opaque = opaque_to_operations if recorded else opaque_to_kernels
    reason = opaque(x) or kernels.obstacle(x)
    if reason is not None:
        return Choice(REFERENCE, None, reason)
    answers = Answers(recurrence, recorded=True) if recorded else answers_for(recurrence)
    if answers.obstacle is not None:
        return Choice(REFERENCE, answers, answers.obstacle)
    return Choice(kernels.when_recorded if recorded else kernels, answers)


def choose_compiled(recurrence: Recurrence, x: Tensor) -> Choice:
    """torch.compile can trace neither the context variable nor a warning."""
    answers, kernels = Answers(recurrence, recorded=True), kernels_for(x)
    if not x.shape[1] or (not is_dynamo_compiling() and requested.get() == "reference"):
        return LOOP
    if answers.obstacle is None and kernels.can_compile(x):
        return Choice(kernels.when_recorded, answers)
    return LOOP


def is_native_step(recurrence: Recurrence, answers: Answers, x: Tensor, state: Named) -> bool:
    """Whether a native program runs this step: without gradients, on plain numbers."""
    states = state.values()
    if not isinstance(answers, Decision) or is_collecting() or not all(map(is_readable, (x, *states))):
        return False
    if torch.is_autocast_enabled("cpu") or answers.needs_gradients(x, states):
        return False
    return STEP.has_program(recurrence, answers, x[0])


def is_readable(tensor: Tensor) -> bool:
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.dtype in STEP_DTYPES
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_neg()
    )


def kernels_for(x: Tensor, name: str | None = None) -> Scan:
    """The kernels for x: those that were requested by name, or else those for its device."""
    by_triton = x.is_cuda if name is None else name == "triton"
    return TRITON if by_triton else CPU


def may_use_cpu_kernels() -> bool:
    """Whether no other backend was requested."""
    return requested.get() in (None, "cpu")


def may_use_cpu_kernel(x: Tensor) -> bool:
    """Whether a kernel may compute a single operation on x, such as a product, in place of torch's."""
    if is_compiling() or not may_use_cpu_kernels() or torch.is_autocast_enabled("cpu"):
        return False
    return CPU.obstacle(x) is None and not is_recorded(x) and opaque_to_kernels(x) is None


def is_recorded_product(x: Tensor) -> bool:
    """Whether a recorder gets a product of int8 with x as one operation: see run/int8_ops.py."""
    plain = x.dtype == torch.float32 and not is_transformed() and CPU.obstacle(x) is None
    return plain and is_recorded(x) and not is_in_older_onnx_export()


def fall_back(cell: Unit, reason: str) -> None:
    """Warn once that the loop runs. If a backend was requested by name, raise an error instead."""
    if is_compiling():
        return
    if requested.get() is not None:
        raise RuntimeError(
            f'backend("{requested.get()}") was requested, but {cell.unit_name} cannot run on it: {reason}'
        )
    warn_once(cell.unit_name, reason)


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


def run(
    recurrence: Recurrence, x: Tensor, state: Named, flags: Flags, reset_state: Named | None = None
) -> tuple[Tensor, Named]:
    """Run over x [T, B, input_size]: the output [T, B, output_size] and the final state.

    reset_state   the state at resets, [B, size] or [T, B, size] by name (default: zeros)
    """
    if is_compiling():
        return run_compiled(recurrence, x, state, flags, reset_state)
    given = state if reset_state is None else {**state, **named_starts(reset_state)}
    way, answers, reason = choose(recurrence, x, given, flags)
    if reason is not None:
        fall_back(recurrence.cell, reason)
    random = RandomState(x.device) if may_be_refused(recurrence, way, answers) else None
    try:
        results = way.run(recurrence, answers, x, state, flags, reset_state)
    except CannotFuse as error:
        way, reason = REFERENCE, error.reason
        fall_back(recurrence.cell, reason)
        if random is not None:  # kernels have drawn masks; the loop draws the same
            random.restore()
        results = way.run(recurrence, None, x, state, flags, reset_state)
    if way is CPU and reason is None and not recurrence.cell.is_quantised:
        answers.accept(x)
    if is_observing():
        note(recurrence.cell.unit_name, way.kind, reason or way.why(x))
    return results


def run_compiled(
    recurrence: Recurrence, x: Tensor, state: Named, flags: Flags, reset_state: Named | None
) -> tuple[Tensor, Named]:
    """`run` as a compiler traces it: without a context variable, a warning or a random state."""
    way, answers, _ = choose_compiled(recurrence, x)
    try:
        return way.run(recurrence, answers, x, state, flags, reset_state)
    except CannotFuse:
        return REFERENCE.run(recurrence, None, x, state, flags, reset_state)


def may_be_refused(recurrence: Recurrence, way: Way, answers: Answers) -> bool:
    """Whether kernels may draw random numbers and then be refused. A compiler decides before it draws."""
    return recurrence.cell.training and way in (CPU, TRITON) and not answers.fits


def run_step(cell: Unit, x: Tensor, state: Named) -> tuple[Tensor, Named]:
    """One step of a cell on its own, x [B, input_size]: the output [B, output_size] and the new state."""
    if is_compiling():  # a compiler fuses the operations of a single step itself
        return CellAlone(cell).step(cell.project(x), state, {})
    if requested.get() == "reference":  # the step itself, without a loop around it
        check_devices(cell, cell.unit_name, x)
        note(cell.unit_name, REFERENCE.kind, REFERENCE.why(x[None]))
        return CellAlone(cell).step(cell.project(x), state, {})
    y, new = run(CellAlone(cell), x[None], state, NO_FLAGS)
    return y[0], new


def bound_step(
    root: nn.Module, x: Tensor, states: Sequence[Any], resets: Tensor | None = None
) -> tuple[Tensor, list[Tensor]] | None:
    """One more native step with tensors of the same kinds as in an earlier one, which checked them.

    root     a cell or a layer
    resets   [B]: True where the states are zeros

    None if anything is different.
    """
    cache = root.__dict__.get("plan_cache")
    if cache is None or cache.decision is None or type(x) is not Tensor or torch.is_grad_enabled():
        return None
    decision = cache.decision
    pool = decision.steps.pools.get((x.shape, x.dtype))
    if not pool or requested.get() not in (None, "cpu") or is_recording() or is_transformed():
        return None
    step = pool.take()
    if step is None:
        return None
    usual = step.fits(x, states) and not torch.is_autocast_enabled("cpu") and not is_observing()
    results = step(x, states, resets) if usual and decision.watch.holds(root) else None
    pool.append(step)
    return results


def bound_scan(
    recurrence: Recurrence, x: Tensor, states: Sequence[Any], flags: Flags
) -> tuple[Tensor, list[Tensor]] | None:
    """A scan over x [T, B, input_size] of the kind of an earlier one, which checked its tensors.

    None if anything is different.
    """
    decision, cell = recurrence.plan_cache.decision, recurrence.cell
    steps, batch, width = x.shape
    if decision is None or (x.dtype, width) not in decision.accepted or not batch or not x.is_cpu:
        return None
    if not is_usual() or not (len(decision.stages) == 1 or cell.pays(steps)) or is_observing():
        return None
    for state, size in zip(states, cell.states.values(), strict=True):
        if type(state) is not Tensor or state.shape != (batch, size) or state.dtype is not x.dtype:
            return None
    if not decision.watch.holds(recurrence.root):
        return None
    if decision.direct is None:
        decision.direct = direct_unit(recurrence, decision)
    if decision.direct and flags[0] is None and x.dtype in STEP_DTYPES and not x.is_neg():
        return decision.direct.run_direct(recurrence, decision, x, states, flags)
    y, new = CPU.run(recurrence, decision, x, dict(zip(cell.states, states, strict=True)), flags)
    return y, [new[name] for name in cell.states]


def direct_unit(recurrence: Recurrence, decision: Decision) -> BoundUnit | Literal[False]:
    """The unit of calls without `reset_state`, if it needs nothing but x and the state."""
    try:
        unit = CPU.unit(recurrence, decision, extra_names(recurrence.cell))
    except CannotFuse:  # the scan that is not direct gives the reason
        return False
    return unit if unit.is_direct(recurrence, decision) else False


def is_usual() -> bool:
    """Whether nothing around a call, which no compiler traces, changes how it runs."""
    return (
        requested.get() in (None, "cpu")
        and not collects()
        and not is_dispatched()
        and not is_transformed()
        and not torch.is_autocast_enabled("cpu")
    )


def kernels_of_steps(cell: Unit, x: Tensor) -> Scan | None:
    """The kernels that advance a cell from projected inputs; None if `cell.advance` is the way."""
    if is_compiling() or not cell.pays(1):  # a compiler fuses the operations of a single step itself
        return None
    if cell.structural_obstacle() is not None:  # such as a projection of its own
        return None
    if requested.get() == "reference" or not x.shape[-2] or is_recorded(x):
        return None
    way, _, reason = choose_kernels(CellAlone(cell), x, recorded=False)
    if reason is not None:
        fall_back(cell, reason)
    if not isinstance(way, Scan) or cell.is_quantised:
        return None
    return way


def advance(
    kernels: Scan, cell: Unit, joint: Tensor, extras: Named, state: Named
) -> tuple[Tensor, Named] | None:
    """One step from projected inputs; None, after a warning, if kernels cannot do it."""
    recurrence = CellAlone(cell)
    note(cell.unit_name, "stepwise", f"one {kernels.name} kernel for each step, since others run in between")
    try:
        return kernels.advance(recurrence, answers_for(recurrence), joint, extras, state)
    except CannotFuse as error:
        fall_back(cell, error.reason)
        return None


def run_pair(
    recurrences: Sequence[Recurrence], x: Tensor, states: Sequence[Named], flags: Sequence[Flags]
) -> tuple[Tensor, list[Named]] | None:
    """Both directions of a layer in one launch: their outputs side by side, and the final state of each.

    None if the chosen kernels cannot do this; the directions then run one after the other.
    """
    if not kernels_for(x, requested.get()).runs_pairs:
        return None
    choices = [choose(*each) for each in zip(recurrences, [x] * 2, states, flags, strict=True)]
    if any(choice.way is not TRITON for choice in choices):
        return None
    random = RandomState(x.device)
    given = zip(recurrences, choices, states, flags, strict=True)
    try:
        return run_fused_pair([side_of(*each, x) for each in given])
    except CannotFuse:  # each direction, run separately, draws the same masks and gives the reason
        random.restore()
        return None


def side_of(recurrence: Recurrence, choice: Choice, state: Named, flags: Flags, x: Tensor) -> Side:
    """One direction, and its projection: masks are drawn in the order of `Scan.run`."""
    inputs = extra_inputs_of(recurrence, x)
    unit = TRITON.unit(recurrence, choice.answers, tuple(inputs))
    return Side(recurrence, choice.answers, unit, inputs, project(recurrence.cell.input, x), state, flags)
