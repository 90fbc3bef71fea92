"""A single step without gradients, which reuses what was decided and prepared for the previous one.

Everything that the decision depends on is compared at each call; see `fuse/watch.py`. An unusual call (with
a tracer, a subclass of Tensor, autocast) runs through the general path instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from linnet.fuse.available import no_cpu_kernels
from linnet.fuse.forks import compiling
from linnet.fuse.fused import load_kernels
from linnet.fuse.plan import Method
from linnet.fuse.plan_cache import PlanCache, PlansOrReason
from linnet.fuse.planning import check_int8
from linnet.fuse.recording import is_recording, is_transformed
from linnet.fuse.unit import CannotFuse, Named, Unit
from linnet.fuse.watch import Watch

if TYPE_CHECKING:
    from linnet.fuse.cpu.cell_step import CellStep

KERNEL_DTYPES = (torch.float32, torch.float64)
# Programs are kept for this many batch sizes.
MOST_SIZES = 8


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


class QuickSteps:
    """The programs of one cell, valid until the cell changes. `reason`: why there are none, or None."""

    def __init__(self, stepped: Stepped, root: nn.Module):
        cell = stepped.cell
        self.reason: str | None = None
        self.pools: dict[tuple, list[CellStep]] = {}
        try:
            self.method = method_of(stepped)
        except CannotFuse as error:
            self.reason = error.reason
        self.watch = Watch(root, [module for module in cell.modules() if module is not cell])
        self.watch.watch_settings(stepped.plan_cache.settings, cell)
        if self.watch.hooked:
            self.reason = "it has hooks"

    def pool_for(self, x: Tensor) -> list[CellStep]:
        """The programs for x that no thread is using."""
        key = (x.shape, x.dtype)
        if key not in self.pools and len(self.pools) >= MOST_SIZES:
            self.pools.clear()
        return self.pools.setdefault(key, [])

    def take(self, cell: Unit, x: Tensor, pool: list[CellStep]) -> CellStep | None:
        try:
            return pool.pop()
        except IndexError:
            pass
        load_kernels()
        with compiling:  # a fork waits for the import
            from linnet.fuse.cpu.cell_step import CellStep
        try:
            return CellStep(cell, self.method, x)
        except CannotFuse as error:
            self.reason = error.reason
            return None


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
    example = torch.empty(1, 1, cell.input_size, device="meta")
    plans = stepped.plans_for(tuple(cell.extra_inputs(example)))
    if isinstance(plans, str):
        raise CannotFuse(plans)
    if cell.is_quantised:
        check_int8(plans)
    return Method(plans, own=False)


def quick_step(stepped: Stepped, root: nn.Module, x: Tensor, state: Named) -> tuple[Tensor, Named] | None:
    """x [B, input_size] -> the output and the new state; None if this call must use the general path.

    root   the cell or the layer, which contains everything that the step depends on
    """
    states = list(state.values())
    if not is_usual() or not all(map(is_readable, (x, *states))):
        return None
    cache, cell = stepped.plan_cache, stepped.cell
    steps: Any = cache.steps
    if steps is None or not steps.watch.holds(root):
        steps = cache.steps = QuickSteps(stepped, root)
    pool = None if steps.reason is not None else steps.pool_for(x)
    step = None if pool is None else steps.take(cell, x, pool)
    if pool is None or step is None:
        return None
    y, new = step(laid_out(x), [laid_out(s) for s in states])
    pool.append(step)
    return y, dict(zip(state, new, strict=True))


def step_again(root: nn.Module, x: Tensor, states: Sequence[Any]) -> tuple[Tensor, list[Tensor]] | None:
    """One more step with tensors of the same kinds as in an earlier step, which checked them.

    root   a cell or a layer, as in `quick_step`

    None if anything is different.
    """
    cache = root.__dict__.get("plan_cache")
    if cache is None or type(x) is not Tensor or torch.is_grad_enabled():
        return None
    steps: Any = cache.steps
    pool = None if steps is None else steps.pools.get((x.shape, x.dtype))
    if not pool:
        return None
    try:
        step = pool.pop()
    except IndexError:  # another thread has taken the last one
        return None
    same = step.fits(x, states) and is_usual() and steps.watch.holds(root)
    results = step(x, states) if same else None
    pool.append(step)
    return results


def is_usual() -> bool:
    """Whether nothing records or changes operations, so that kernels may replace them."""
    return not (
        torch.is_grad_enabled() or is_recording() or is_transformed() or torch.is_autocast_enabled("cpu")
    )


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
