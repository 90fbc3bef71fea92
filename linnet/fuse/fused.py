"""Runs a unit with kernels, given its plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple

from torch import Tensor, bfloat16, is_autocast_enabled
from torch.compiler import is_compiling

from linnet.fuse.available import multiplies_bfloat16
from linnet.fuse.forks import compiling
from linnet.fuse.plan import Fusible, Plan
from linnet.fuse.planning import After, matrices_of, one_step, sum_of_sizes, weights_of
from linnet.fuse.trace import name_in_unit
from linnet.fuse.unit import CannotFuse, Flags, Named, Stage, Unit

# With fewer multiplications, a product of bfloat16 by torch is no faster than one of float32 by the kernel.
ENOUGH = 1 << 24


@cache
def load_kernels() -> ModuleType:
    """Import everything that compiles and runs kernels, under the lock that a fork waits for."""
    with compiling:
        from linnet.fuse import scan
        from linnet.fuse.cpu import outer_scan  # noqa: F401
        from linnet.fuse.triton import pair  # noqa: F401

        return scan


def scan_module() -> ModuleType:
    """linnet.fuse.scan, imported when first needed: it needs llvmlite."""
    if not is_compiling():
        return load_kernels()
    from linnet.fuse import scan

    return scan


class Mode(NamedTuple):
    """How the kernels of a backend are called."""

    # Imports the module with its passes: linnet.fuse.cpu.passes or linnet.fuse.triton.passes.
    passes: Callable[[], ModuleType]
    # Whether the kernels compute the projection of the input, too.
    projects: bool
    # Whether a compiler or a tracer records the call, which then has to be a registered operation.
    recorded: bool


class UnitRun(NamedTuple):
    """One run of a unit over x [T, B, input_size].

    plans          one for each stage of the unit
    extra_inputs   the inputs of the step besides the projections, [T, B, size] by name
    masks          by state: which of its channels the recurrent matrices read
    """

    cell: Unit
    plans: list[Plan]
    after: After
    extra_inputs: Named
    state: Named
    flags: Flags
    masks: Mapping[str, Tensor] = {}


def run_unit(run: UnitRun, x: Tensor, mode: Mode, is_projected: bool = False) -> tuple[Tensor, Named]:
    """Return the output [T, B, output_size] and the final state. `is_projected`: x is the projection.

    Raises CannotFuse if the weights do not fit the plans, before anything is read by its address.
    """
    scan, (cell, plans, after, inputs, state, flags, masks) = scan_module(), run
    if not mode.recorded:
        x = x.resolve_neg() if x.is_neg() else x
    sequences: Named = {}
    read: Named = {}
    finals: Named = {}
    parts = split(cell, x, plans) if is_projected else projections(cell, x, plans, mode)
    for stage, plan, projected in zip(cell.stages(), plans, parts, strict=True):
        for attribute, name in stage.reads_new_state.items():
            inputs |= project_new_state(getattr(cell, attribute), read[name])
        drops = [masks[product.state] for product in plan.products] if masks else ()
        others = scan.OtherOperands(*operands_of(cell, stage, plan, inputs, x, state), *flags, drops=drops)
        if not mode.recorded:  # a registered operation has its own checks
            check_fit(cell, plan, projected, others)
        step = partial(one_step, cell, stage, after)
        y, new = scan.scan(Fusible(plan, step), projected, others, mode.passes, mode.recorded)
        finals |= new
        # A stage whose state is read by another, or by the output, returns this state as its output.
        sequences[stage.states[0]] = read[stage.states[0]] = y
        if plan.raw is not None:
            fusible = Fusible(plan.raw, partial(step, raw=True))
            read[stage.states[0]], _ = scan.scan(fusible, projected, others, mode.passes, mode.recorded)
    # Under autocast a scan computes in another dtype than that of the state.
    ends = {name: scan.as_dtype(s, state[name].dtype) for name, s in finals.items()}
    return cell.output(y, sequences), ends


def project_new_state(projection: Any, state: Tensor) -> Named:
    check_device(projection, state)
    return projection(state)


def check_device(projection: Any, x: Tensor) -> None:
    """torch accepts a matrix on meta without an error, and without gradients it returns arbitrary numbers."""
    for matrix in (projection.weight, reduction_of(projection)):
        if matrix is not None and matrix.device != x.device:
            raise CannotFuse(f"a matrix is on {matrix.device}, and x is on {x.device}")


def reduction_of(projection: Any) -> Tensor | None:
    """The matrix that reduces x to a lower rank, if it is a parameter."""
    return projection._parameters.get("reduce")


def projections(cell: Unit, x: Tensor, plans: list[Plan], mode: Mode) -> Sequence[Any]:
    """Return the projection for each stage, or its operands if the kernel is to compute it."""
    projection = cell.input
    in_kernel = mode.projects and not mode.recorded and not is_autocast_enabled(x.device.type)
    possible = in_kernel and len(plans) == 1 and plans[0].is_even and projection.is_plain
    if possible and not is_faster_by_torch(projection, x):
        if reduction_of(projection) is not None:  # torch computes this product
            check_device(projection, x)
        return [scan_module().Source(projection.prepare(x), projection.weight, projection.bias)]
    return split(cell, project(projection, x), plans)


def is_faster_by_torch(projection: Any, x: Tensor) -> bool:
    """Whether torch projects x [T, B, D] faster than the kernel, which multiplies bfloat16 as float32."""
    many = x.dtype is bfloat16 and x.numel() * len(projection.weight) >= ENOUGH
    return many and multiplies_bfloat16()


def split(cell: Unit, joint: Tensor, plans: list[Plan]) -> Sequence[Tensor]:
    """The projection of each stage."""
    return [joint] if len(plans) == 1 else joint.split([sum_of_sizes(cell, plan) for plan in plans], -1)


def project(projection: Any, x: Tensor) -> Tensor:
    check_device(projection, x)
    return projection.joint(x)


def operands_of(
    cell: Unit, stage: Stage, plan: Plan, inputs: Named, x: Tensor, state: Named
) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    """Return the extra inputs, weights, states and matrices that the scan of a stage reads."""
    weights, matrices = weights_of(cell, stage, plan.inner), matrices_of(cell, stage, plan.inner)
    if tuple(weights) != plan.traced.weights:
        raise CannotFuse(f"its weights with one number per channel are now {list(weights)}")
    extras = extras_of(cell, stage, plan, inputs, x)
    return extras, list(weights.values()), [state[name] for name in stage.states], matrices


def extras_of(cell: Unit, stage: Stage, plan: Plan, inputs: Named, x: Tensor) -> list[Tensor]:
    """Return the inputs of the step besides the projections, in the order of the plan."""
    extras = []
    for name in plan.extras:
        # An extra input that is joined with a state is as wide as that.
        shape = (*x.shape[:-1], state_size(cell, stage, plan, name))
        extra = inputs[name_in_unit(name)]
        extras.append(extra if extra.shape == shape else extra.expand(shape))
    return extras


def state_size(cell: Unit, stage: Stage, plan: Plan, name: str) -> int:
    """The number of channels of the states that an extra input is joined with."""
    groups = plan.groups
    return next(cell.states[state] for state in stage.states if groups[state] == groups[name])


def check_fit(cell: Unit, plan: Plan, projected: Any, others: Any) -> None:
    reason = scan_module().misfit(plan, projected, others)
    if reason is not None:
        raise CannotFuse(f"{reason}, which is not what {cell.unit_name} was built with")


# ------------------------------------------------------------------------------- both directions


def fit_together(plans: Sequence[list[Plan]]) -> bool:
    """Whether two directions with these plans can run in one launch: the same step, without a matrix."""
    if any(len(each) > 1 or each[0].matrices for each in plans):
        return False
    return len({each[0].text for each in plans}) == 1


def run_pair(pair: Sequence[tuple[UnitRun, Tensor]], x: Tensor) -> tuple[Tensor, list[Named]]:
    """Run both directions in one launch: their outputs side by side, and the final state of each.

    pair   for each direction its run, and the projection of x
    """
    runs = [run for run, _ in pair]
    if not fit_together([run.plans for run in runs]):
        raise CannotFuse("its directions have different steps")
    scan = scan_module()
    from linnet.fuse.triton.pair import Scanned, pair_scan

    scanned = []
    for (cell, (plan,), after, inputs, state, flags, _), joint in pair:
        stage = cell.stages()[0]
        others = scan.OtherOperands(*operands_of(cell, stage, plan, inputs, x, state), *flags)
        check_fit(cell, plan, joint, others)
        scanned.append(Scanned(Fusible(plan, partial(one_step, cell, stage, after)), joint, others))
    y, finals = pair_scan(*scanned)
    pairs = zip(finals, runs, strict=True)
    return y, [{name: s.to(run.state[name].dtype) for name, s in final.items()} for final, run in pairs]
