"""The one place that decides which backend runs, and runs it.

`choose_backend` decides for a unit and an input. If a module runs on the reference although a kernel could be
expected, a warning gives the reason, once.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling, is_dynamo_compiling

from linnet.fuse import quick
from linnet.fuse.backends import (
    BACKENDS,
    CPU,
    REFERENCE,
    TRITON,
    Backend,
    Kernels,
    Recurrence,
    SingleStep,
    extra_inputs_of,
)
from linnet.fuse.fused import UnitRun, project
from linnet.fuse.fused import run_pair as run_fused_pair
from linnet.fuse.random_state import RandomState
from linnet.fuse.recording import is_recorded, opaque_to_kernels
from linnet.fuse.unit import ByNature, CannotFuse, Flags, Named, Unit

log = logging.getLogger("linnet")


class FallbackWarning(UserWarning):
    """A unit runs on the reference loop, which is many times slower than the kernel that it could have."""


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
    random = RandomState(x.device) if is_noisy(recurrence, chosen) else None
    try:
        return chosen.run(recurrence, x, state, flags)
    except CannotFuse as error:
        chosen = fall_back(recurrence.cell, error.reason)
    if random is not None:  # kernels have drawn masks; the loop draws the same
        random.restore()
    return chosen.run(recurrence, x, state, flags)


def is_noisy(recurrence: Recurrence, chosen: Backend) -> bool:
    """Whether kernels may draw random numbers and then be refused. A compiler decides before it draws."""
    return recurrence.cell.training and isinstance(chosen, Kernels) and not chosen.mode.recorded


def run_quickly(
    recurrence: Recurrence, x: Tensor, state: Named, reverse: bool
) -> tuple[Tensor, Named] | None:
    """A layer over x [T, B, input_size] by what an earlier call has prepared; None if not possible."""
    if not may_use_cpu_kernels() or not isinstance(recurrence, nn.Module) or x.is_meta:
        return None
    if len(x) > 1:
        return quick.quick_scan(recurrence, x, state, reverse)  # type: ignore[arg-type]
    if torch.is_grad_enabled():
        return None if reverse else quick.quick_recorded_step(recurrence, recurrence, x, state)  # type: ignore[arg-type]
    made = quick.quick_step(recurrence, recurrence, x[0], state)  # type: ignore[arg-type]
    return None if made is None else (made[0][None], made[1])


def step_quickly(single: SingleStep, x: Tensor, state: Named) -> tuple[Tensor, Named] | None:
    if not torch.is_grad_enabled():
        return quick.quick_step(single, single.cell, x, state)
    made = quick.quick_recorded_step(single, single.cell, x[None], state)
    return None if made is None else (made[0][0], made[1])


def run_step(cell: Unit, x: Tensor, state: Named) -> tuple[Tensor, Named]:
    """One step of a cell on its own, x [B, input_size]: the output [B, output_size] and the new state."""
    if is_compiling():  # a compiler fuses the operations of a single step itself
        return REFERENCE.run_step(cell, x, state)
    single = SingleStep(cell)
    if may_use_cpu_kernels():
        made = step_quickly(single, x, state)
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


def recorded_step_again(layer: Any, x: Tensor, states: Sequence[Any]) -> tuple[Tensor, Named] | None:
    """`step_again` of a layer with gradients, x [1, B, input_size]."""
    return quick.recorded_step_again(layer, x, states) if may_use_cpu_kernels() else None


def run_pair(
    recurrences: Sequence[Recurrence], x: Tensor, states: Sequence[Named], flags: Sequence[Flags]
) -> tuple[Tensor, list[Named]] | None:
    """Both directions of a layer in one launch: their outputs side by side, and the final state of each.

    None if the chosen backend cannot do this; the directions then run one after the other.
    """
    if not kernels_for(x).runs_pairs or any(choose_backend(each, x) is not TRITON for each in recurrences):
        return None
    random = RandomState(x.device)
    given = zip(recurrences, states, flags, strict=True)
    try:
        return run_fused_pair([projected_run(each, x, state, own) for each, state, own in given], x)
    except CannotFuse:  # each direction, run separately, draws the same masks and gives the reason
        random.restore()
        return None


def projected_run(recurrence: Recurrence, x: Tensor, state: Named, flags: Flags) -> tuple[UnitRun, Tensor]:
    """A run of one direction, and its projection: masks are drawn in the order of `Kernels.run`."""
    inputs, cell = extra_inputs_of(recurrence, x), recurrence.cell
    plans = recurrence.plans_for(tuple(inputs))
    if isinstance(plans, str):
        raise CannotFuse(plans)
    return UnitRun(cell, plans, recurrence.after, inputs, state, flags), project(cell.input, x)
