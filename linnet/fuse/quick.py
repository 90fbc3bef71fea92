"""A step without gradients, or a sequence, which reuses what was decided and prepared for an earlier one.

Everything that the decision depends on is compared at each call; see `fuse/watch.py`. An unusual call (with
a tracer, a subclass of Tensor, autocast) runs through the general path instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from linnet.fuse.available import no_cpu_kernels
from linnet.fuse.forks import compiling
from linnet.fuse.fused import load_kernels
from linnet.fuse.plan import Method
from linnet.fuse.plan_cache import PlanCache, PlansOrReason
from linnet.fuse.planning import check_int8
from linnet.fuse.pools import Pools
from linnet.fuse.recording import is_recording, is_transformed
from linnet.fuse.states import is_collecting
from linnet.fuse.unit import CannotFuse, Named, Unit
from linnet.fuse.watch import Watch

if TYPE_CHECKING:
    from linnet.fuse.cpu.cell_step import CellStep
    from linnet.fuse.prepared_backward import PreparedBackward
    from linnet.fuse.prepared_scan import PreparedScan
    from linnet.fuse.recorded_step import RecordedStep

KERNEL_DTYPES = (torch.float32, torch.float64)
# A module that so often had other weights at the next call, as with torch.func.functional_call, is not worth
# preparing for.
MOST_WASTED = 8


UNCOUNTED = (
    "its int8 matrices are inference tensors, whose changes torch does not count; quantize the model, load "
    "it and move it outside of torch.inference_mode()"
)


class Stepped(Protocol):
    """A cell on its own, or a layer."""

    @property
    def cell(self) -> Unit: ...

    @property
    def changes_state(self) -> bool: ...

    @property
    def plan_cache(self) -> PlanCache: ...

    def obstacle(self, recorded: bool) -> str | None: ...

    def plans_for(self, extras: tuple[str, ...]) -> PlansOrReason: ...


class Prepared:
    """What is prepared for a cell or a layer, valid until it changes. `reason`: why nothing is, or None."""

    def __init__(self, stepped: Stepped, root: nn.Module):
        cell = stepped.cell
        self.reason: str | None = None
        self.is_reused = False
        self.steps: Pools[CellStep] = Pools()
        self.scans: Pools[PreparedScan] = Pools()
        self.backwards: Pools[PreparedBackward] = Pools()
        self.recorded: Pools[RecordedStep] = Pools()
        try:
            self.method = method_of(stepped)
        except CannotFuse as error:
            self.reason = error.reason
        self.watch = Watch(root, [module for module in cell.modules() if module is not cell])
        self.watch.watch_settings(stepped.plan_cache.settings, cell)
        if self.watch.hooked:
            self.reason = "it has hooks"
        elif not self.watch.originals.are_counted:
            self.reason = UNCOUNTED


def prepared_for(stepped: Stepped, root: nn.Module) -> Prepared:
    """What is prepared for `stepped`.

    root   the cell or the layer, which contains everything that a call depends on
    """
    cache, prepared = stepped.plan_cache, stepped.plan_cache.prepared
    if prepared is not None and prepared.watch.holds(root):
        prepared.is_reused = True
        return prepared
    cache.wasted = 0 if prepared is None or prepared.is_reused else cache.wasted + 1
    cache.prepared = prepared = Prepared(stepped, root)
    return prepared


def method_of(stepped: Stepped) -> Method:
    """How kernels run a step of the cell without gradients; raises CannotFuse if they cannot."""
    cell = stepped.cell
    reason = no_cpu_kernels() or stepped.obstacle(recorded=False)
    if reason is not None:
        raise CannotFuse(reason)
    if stepped.changes_state and cell.training:
        raise CannotFuse("noise is drawn at each step")
    may_own = not (stepped.changes_state or cell.is_quantised)
    own = may_own and cell.own_kernel(cell.input.weight.dtype) is not None
    if own:
        return Method([], own=True)
    plans = stepped.plans_for(extra_names(cell))
    if isinstance(plans, str):
        raise CannotFuse(plans)
    if cell.is_quantised:
        check_int8(plans)
    return Method(plans, own=False)


def extra_names(cell: Unit) -> tuple[str, ...]:
    try:
        return tuple(cell.extra_inputs(torch.empty(1, 1, cell.input_size, device="meta")))
    except (RuntimeError, NotImplementedError) as error:
        # The general path calls it with real numbers: an error of its own is raised there.
        raise CannotFuse("its extra inputs can only be computed from real numbers") from error


def quick_step(stepped: Stepped, root: nn.Module, x: Tensor, state: Named) -> tuple[Tensor, Named] | None:
    """x [B, input_size] -> the output and the new state; None if this call must use the general path.

    root   the cell or the layer, which contains everything that the step depends on
    """
    states = list(state.values())
    # The loop returns the results of an empty batch.
    if not len(x) or not is_usual() or not all(map(is_readable, (x, *states))):
        return None
    prepared, cell = prepared_for(stepped, root), stepped.cell
    if prepared.reason is not None or prepared.steps.reason is not None:
        return None
    made = prepared.steps.run(
        (x.shape, x.dtype),
        lambda: new_step(cell, prepared.method, x),
        lambda step: step(laid_out(x), [laid_out(s) for s in states]),
    )
    return None if made is None else (made[0], dict(zip(state, made[1], strict=True)))


def new_step(cell: Unit, method: Method, x: Tensor) -> CellStep:
    load_kernels()
    with compiling:  # a fork waits for the import
        from linnet.fuse.cpu.cell_step import CellStep
    return CellStep(cell, method, x)


def prepared_call(stepped: Stepped, root: nn.Module, x: Tensor, state: Named, kind: str) -> Prepared | None:
    """What is prepared for a call over x [T, B, input_size]; None if it must use the general path.

    kind   the pools that the call uses: "recorded" or "scans"
    """
    if not is_undisturbed() or is_collecting() or not all(map(is_readable, (x, *state.values()))):
        return None
    if stepped.plan_cache.wasted >= MOST_WASTED or not x.shape[1]:
        return None
    prepared = prepared_for(stepped, root)
    # Asked of what is prepared for the module as it is now: a reason may have passed.
    able = prepared.reason is None and getattr(prepared, kind).reason is None
    return prepared if able else None


def wants_gradients(prepared: Prepared, x: Tensor, states: Iterable[Tensor]) -> bool:
    tensors = (x, *states, *prepared.watch.placed)
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def quick_recorded_step(
    stepped: Stepped, root: nn.Module, x: Tensor, state: Named
) -> tuple[Tensor, Named] | None:
    """`quick_step` with gradients, x [1, B, input_size]."""
    prepared = prepared_call(stepped, root, x, state, "recorded")
    if prepared is None or not wants_gradients(prepared, x, state.values()):
        return None
    module = recorded_steps_module()
    make = partial(module.RecordedStep, stepped.cell, prepared.method, x[0], prepared.backwards)
    return prepared.recorded.run((x.shape, x.dtype), make, lambda step: module.run(step, stepped, x, state))


@cache
def recorded_steps_module() -> ModuleType:
    load_kernels()
    with compiling:  # a fork waits for the import
        from linnet.fuse import recorded_step
    return recorded_step


def quick_scan(layer: Stepped, x: Tensor, state: Named, reverse: bool) -> tuple[Tensor, Named] | None:
    """x [T, B, input_size] -> the output and the final state; None if this call must use the general path."""
    prepared = prepared_call(layer, layer, x, state, "scans")  # type: ignore[arg-type]
    if prepared is None or not scans_module().suits(prepared.method, x):
        return None
    scans = scans_module()
    key = scans.key_of(x, reverse, wants_gradients(prepared, x, state.values()))
    make = partial(scans.PreparedScan, layer.cell, prepared.method, key, state)
    return prepared.scans.run(key, make, lambda scan: scans.run(scan, prepared.backwards, layer, x, state))


@cache
def scans_module() -> ModuleType:
    load_kernels()
    with compiling:  # a fork waits for the import
        from linnet.fuse import prepared_scan
    return prepared_scan


def step_again(root: nn.Module, x: Tensor, states: Sequence[Any]) -> tuple[Tensor, list[Tensor]] | None:
    """One more step with tensors of the same kinds as in an earlier step, which checked them.

    root   a cell or a layer, as in `quick_step`

    None if anything is different.
    """
    cache = root.__dict__.get("plan_cache")
    if cache is None or type(x) is not Tensor or torch.is_grad_enabled():
        return None
    prepared: Any = cache.prepared
    pool = None if prepared is None else prepared.steps.find((x.shape, x.dtype))
    if not pool:
        return None
    try:
        step = pool.pop()
    except IndexError:  # another thread has taken the last one
        return None
    same = step.fits(x, states) and is_usual() and prepared.watch.holds(root)
    results = step(x, states) if same else None
    pool.append(step)
    return results


def recorded_step_again(layer: Stepped, x: Tensor, states: Sequence[Any]) -> tuple[Tensor, Named] | None:
    """`step_again` with gradients, x [1, B, input_size]."""
    prepared: Any = layer.plan_cache.prepared
    pool = None if prepared is None else prepared.recorded.find((x.shape, x.dtype))
    if not pool or is_collecting():
        return None
    try:
        step = pool.pop()
    except IndexError:  # another thread has taken the last one
        return None
    same = step.fits(x, states) and is_undisturbed() and prepared.watch.holds(layer)
    wanted = same and wants_gradients(prepared, x, states)
    named = dict(zip(layer.cell.states, states, strict=False))
    results = recorded_steps_module().run(step, layer, x, named) if wanted else None
    pool.append(step)
    return results


def is_usual() -> bool:
    """Whether this is a call without gradients that kernels may run."""
    return not torch.is_grad_enabled() and is_undisturbed()


def is_undisturbed() -> bool:
    """Whether nothing records or changes operations, so that kernels may replace them."""
    return not (is_recording() or is_transformed() or torch.is_autocast_enabled("cpu"))


def is_readable(tensor: Tensor) -> bool:
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.dtype in KERNEL_DTYPES
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_neg()
    )


def laid_out(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(1) == 1 else tensor.contiguous()
