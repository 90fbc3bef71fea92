"""Runs a unit with kernels, given its plans: its stages one after the other, each of them one scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import accumulate, pairwise
from types import ModuleType
from typing import Any, NamedTuple

from torch import Tensor, bfloat16, is_autocast_enabled
from torch.compiler import is_compiling

from linnet.base.forks import compiling
from linnet.program.operands import NO_FLAGS, Source, as_dtype
from linnet.program.padding import Padding, cleared, padding_of
from linnet.program.plan import Fusible, Plan
from linnet.program.planning import step_of, sum_of_sizes
from linnet.program.readable import is_transformed_by_func
from linnet.program.trace import name_in_unit, safe_name
from linnet.program.unit import ByNature, CannotFuse, Flags, Named, Stage, Unit
from linnet.program.whole_step import whole_stage
from linnet.run.available import multiplies_bfloat16
from linnet.run.decision import Answers, Recurrence
from linnet.run.ops import compiled_scan
from linnet.run.transformed import transformed_scan

# With fewer multiplications, a product of bfloat16 by torch is no faster than one of float32 by the kernel.
ENOUGH = 1 << 24


@cache
def load_kernels() -> ModuleType:
    """Import everything that compiles and runs kernels, under the lock that a fork waits for."""
    with compiling:
        from linnet.cpu import cell_step  # noqa: F401
        from linnet.run import (
            pair,  # noqa: F401
            scan,
        )

        return scan


def scan_module() -> ModuleType:
    """linnet.run.scan, imported when first needed: it needs llvmlite."""
    if not is_compiling():
        return load_kernels()
    from linnet.run import scan

    return scan


class Mode(NamedTuple):
    """How the kernels of a backend are called."""

    # Imports the module with its passes: linnet.cpu.passes or linnet.triton.passes.
    passes: Callable[[], ModuleType]
    # Whether the kernels compute the projection of the input, too.
    projects: bool
    # Whether a compiler or a tracer records the call, which then has to be a registered operation.
    recorded: bool


class BoundUnit:
    """A unit with the plans of its stages, for inputs of one kind.

    It is made once for a module, as long as that does not change, and runs for each call.
    """

    def __init__(self, cell: Unit, answers: Answers, plans: list[Plan], mode: Mode):
        # It does not reference the answers, which may reference it.
        self.is_whole = bool(plans[0].traced.sizes)
        self.stages = (whole_stage(cell),) if self.is_whole else answers.stages
        self.plans, self.mode = plans, mode
        # Whether the input of each stage is given besides the projections, and how wide it is.
        self.extras = [extra_sizes(cell, stage, plan) for stage, plan in zip(self.stages, plans, strict=True)]
        self.kernels: tuple[ModuleType, ModuleType] | None = None
        # Whether the output of the scan is that of the unit.
        self.gives_output = len(plans) == 1 and type(cell).output is Unit.output
        self.projects = mode.projects and not mode.recorded and all(plan.is_even for plan in plans)

    def run(
        self,
        recurrence: Recurrence,
        answers: Answers,
        x: Tensor,
        inputs: Named,
        state: Named,
        flags: Flags,
        masks: Mapping[str, Tensor],
    ) -> tuple[Tensor, Named]:
        """Return the output [T, B, output_size] and the final state, for x [T, B, input_size].

        inputs   the inputs of the step besides the projections, [T, B, size] by name
        masks    by state: which of its channels the recurrent matrices read

        Raises CannotFuse if the weights do not fit the plans, before anything is read by its address.
        """
        padding = padding_of(flags[0]) if self.mode.projects and not self.mode.recorded else None
        if padding is None and not self.mode.recorded and x.is_neg():
            x = x.resolve_neg()
        sources = self.projections(recurrence.cell, answers, x, padding)
        if padding is None:
            return self.run_stages(recurrence, answers, sources, inputs, state, flags, masks)
        inputs = {name: padding.pack_extra(extra.expand(*x.shape[:-1], -1)) for name, extra in inputs.items()}
        flags = (None, padding.pack_flags(flags[1]), flags[2])
        y, ends = self.run_stages(recurrence, answers, sources, inputs, state, flags, masks, padding)
        return y if self.pads(padding) else padding.give(y), ends

    def run_direct(
        self, recurrence: Recurrence, answers: Answers, x: Tensor, states: Sequence[Tensor], flags: Flags
    ) -> tuple[Tensor, list[Tensor]]:
        """`run` of a call like one that it ran before, if it `is_direct`; without padding."""
        cell, source = recurrence.cell, answers.input_of(recurrence.cell).source(x)
        tensors = self.operands(cell, answers, 0, source, cell.extra_inputs(x), states)
        plan = self.plans[0]
        fusible = Fusible(plan, step_of(cell, self.stages[0], recurrence.after, plan))
        return self.scan(fusible, source, tensors, flags, (), None)

    def is_direct(self, recurrence: Recurrence, answers: Answers) -> bool:
        """Whether it is one scan of x itself and the state, with nothing before or after."""
        known = answers.input_of(recurrence.cell)
        has_one_scan = self.projects and self.plans[0].raw is None and (self.gives_output or self.is_whole)
        has_one_scan &= self.plans[0].traced.states == tuple(map(safe_name, recurrence.cell.states))
        bare = known.is_plain and known.is_bare and reduction_of(recurrence.cell.input) is None
        return has_one_scan and bare and not recurrence.changes_state

    def run_stages(
        self,
        recurrence: Recurrence,
        answers: Answers,
        sources: Sequence[Source],
        inputs: Named,
        state: Named,
        flags: Flags = NO_FLAGS,
        masks: Mapping[str, Tensor] = {},
        padding: Padding | None = None,
    ) -> tuple[Tensor, Named]:
        """`run` from projections, or from their operands if the kernel is to compute them."""
        cell = recurrence.cell
        if self.is_whole and masks:
            raise CannotFuse(ByNature("there are no kernels for state_dropout in a step like this"))
        sequences: Named = {}
        read: Named = {}
        finals: Named = {}
        for number, stage in enumerate(self.stages):
            for attribute, name in stage.reads_new_state.items():
                inputs |= project_new_state(getattr(cell, attribute), read[name])
            plan, source = self.plans[number], sources[number]
            states = [state[name] for name in stage.states]
            tensors = self.operands(cell, answers, number, source, inputs, states)
            if not self.mode.recorded:  # a registered operation has its own checks
                self.check_fit(cell, answers, number, source, tensors)
            drops = [masks[name_in_unit(product.state)] for product in plan.products] if masks else ()
            step = step_of(cell, stage, recurrence.after, plan)
            y, new = self.scan(Fusible(plan, step), source, tensors, flags, drops, padding)
            finals |= zip(stage.states, new, strict=True)
            # A stage whose state is read by another, or by the output, returns this state as its output.
            sequences[stage.states[0]] = read[stage.states[0]] = y
            if plan.raw is not None:
                fusible = Fusible(plan.raw, partial(step, raw=True))
                read[stage.states[0]], _ = self.scan(fusible, source, tensors, flags, drops, padding)
        # Under autocast a scan computes in another dtype than that of the state.
        ends = {name: as_dtype(end, state[name].dtype) for name, end in finals.items()}
        return (y if self.is_whole else cell.output(y, sequences)), ends

    def scan(
        self,
        fusible: Fusible,
        source: Source,
        tensors: Sequence[Tensor],
        flags: Flags,
        drops: Sequence[Tensor],
        padding: Padding | None,
    ) -> tuple[Tensor, list[Tensor]]:
        if self.mode.recorded:
            given = (source.x, *tensors)
            if not is_compiling() and is_transformed_by_func():
                y, *finals = transformed_scan(fusible, given, flags)
            else:
                y, *finals = compiled_scan(fusible.plan, given, *flags)
            return y, finals
        if self.kernels is None:
            self.kernels = load_kernels(), self.mode.passes()
        scan, passes = self.kernels
        call = scan.Call(fusible, passes, flags, drops, padding, self.pads(padding))
        return scan.fused_scan(call, source, tensors)

    def pads(self, padding: Padding | None) -> bool:
        """Whether the scan writes its output with padded steps."""
        return padding is not None and self.gives_output and not padding.packs_output

    def operands(
        self,
        cell: Unit,
        answers: Answers,
        number: int,
        source: Source,
        inputs: Named,
        states: Sequence[Tensor],
    ) -> list[Tensor]:
        """The extra inputs, weights, states and matrices that the scan of a stage reads."""
        own, matrices, _ = answers.weights_of(cell, number, self.plans[number], parts=source.apart > 0)
        tensors = []
        for name, size in self.extras[number]:
            # An extra input that is joined with a state is as wide as that.
            extra, shape = inputs[name], (*source.x.shape[:-1], size)
            tensors.append(extra if extra.shape == shape else extra.expand(shape))
        return [*tensors, *own, *states, *matrices]

    def check_fit(
        self, cell: Unit, answers: Answers, number: int, source: Source, tensors: Sequence[Tensor]
    ) -> None:
        """Raise CannotFuse if an operand does not fit the plan. Kernels read operands by their addresses."""
        x = source.x
        plan = self.plans[number]
        kind = (number, plan.text, x.shape[-1], x.dtype, x.device)
        if kind in answers.fits and not is_autocast_enabled(x.device.type):
            return
        reason = scan_module().misfit(plan, source, tensors)
        if reason is not None:
            raise CannotFuse(f"{reason}, which is not what {cell.unit_name} was built with")
        extras, weights, states = plan.ends
        projection = (source.weight, source.bias, source.second)
        if answers.are_fixed(cell, [*projection, *tensors[extras:weights], *tensors[states:]]):
            answers.fits.add(kind)  # type: ignore[attr-defined]

    def projections(
        self, cell: Unit, answers: Answers, x: Tensor, padding: Padding | None
    ) -> Sequence[Source]:
        """The projection for each stage, or its operands if the kernel is to compute it."""
        known = answers.input_of(cell)
        if self.projects and known.is_plain and not is_better_by_torch(known.weight, x):
            if reduction_of(cell.input) is not None:  # torch computes this product
                check_device(cell.input, x)
            x = x if known.is_bare else cell.input.prepare(cleared(x))
            x = x if padding is None else padding.pack(x)
            return self.parts_of(cell, known.source(x))
        return self.split(cell, project(cell.input, x, padding))

    def parts_of(self, cell: Unit, whole: Source) -> Sequence[Source]:
        """The operands of the projection of each stage."""
        if len(self.plans) == 1:
            return (whole,)
        x, weight, bias, heads, *_ = whole.summed()
        # The first parts may have no bias.
        unbiased = len(weight) - (0 if bias is None else len(bias))
        ends = [*accumulate(sum_of_sizes(cell, plan) for plan in self.plans[:-1])]
        sources = []
        # The last part is all that is left, so that a matrix with too many rows is refused.
        for first, beyond in pairwise([0, *ends, len(weight)]):
            part = None if bias is None else bias[max(0, first - unbiased) : max(0, beyond - unbiased)]
            part = None if part is None or not len(part) else part
            sources.append(Source(x, weight[first:beyond], part, heads))
        return sources

    def split(self, cell: Unit, joint: Tensor) -> list[Source]:
        """The projection of each stage."""
        if len(self.plans) == 1:
            return [Source(joint, None, None)]
        sizes = [sum_of_sizes(cell, plan) for plan in self.plans]
        return [Source(part, None, None) for part in joint.split(sizes, -1)]


def extra_sizes(cell: Unit, stage: Stage, plan: Plan) -> list[tuple[str, int]]:
    """The inputs of the step besides the projections, in the order of the plan, with their sizes."""
    return [(name_in_unit(name), state_size(cell, stage, plan, name)) for name in plan.extras]


def is_better_by_torch(weight: Tensor, x: Tensor) -> bool:
    """Whether torch should project x [T, B, D]: in the dtype of autocast, or with instructions for bfloat16,
    which the kernel multiplies as float32."""
    if is_autocast_enabled(x.device.type):
        return True
    many = x.dtype is bfloat16 and x.numel() * weight.shape[0] >= ENOUGH
    return many and multiplies_bfloat16()


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


def project(projection: Any, x: Tensor, padding: Padding | None = None) -> Tensor:
    check_device(projection, x)
    if padding is None:
        return projection.joint(x)
    # Packed in between: masks of the input are one for each sequence.
    return projection.affine(padding.pack(projection.prepare(cleared(x))))


def state_size(cell: Unit, stage: Stage, plan: Plan, name: str) -> int:
    """The number of channels of the states that an extra input is joined with."""
    if plan.traced.sizes:
        return dict(plan.traced.sizes)[name]
    groups = plan.groups
    return next(cell.states[state] for state in stage.states if groups[safe_name(state)] == groups[name])


# ------------------------------------------------------------------------------- both directions


def fit_together(plans: Sequence[list[Plan]]) -> bool:
    """Whether two directions with these plans can run in one launch: the same step, without a matrix."""
    if any(len(each) > 1 or each[0].matrices for each in plans):
        return False
    return len({each[0].text for each in plans}) == 1


class Side(NamedTuple):
    """One direction of a layer."""

    recurrence: Recurrence
    answers: Answers
    unit: BoundUnit
    inputs: Named
    joint: Tensor  # the projection of x
    state: Named
    flags: Flags


def run_pair(sides: Sequence[Side]) -> tuple[Tensor, list[Named]]:
    """Run both directions in one launch: their outputs side by side, and the final state of each."""
    if not fit_together([side.unit.plans for side in sides]):
        raise CannotFuse("its directions have different steps")
    from linnet.run.pair import Scanned, pair_scan
    from linnet.triton.passes import laid_out

    scanned = []
    for recurrence, answers, unit, inputs, joint, state, flags in sides:
        cell, (plan,), stage = recurrence.cell, unit.plans, unit.stages[0]
        source = Source(joint, None, None)
        tensors = unit.operands(cell, answers, 0, source, inputs, [state[name] for name in stage.states])
        unit.check_fit(cell, answers, 0, source, tensors)
        step = step_of(cell, stage, recurrence.after, plan)
        extras = [laid_out(as_dtype(extra, source.x.dtype)) for extra in tensors[: len(plan.extras)]]
        operands = (laid_out(source.x), *extras, *tensors[len(plan.extras) :])
        scanned.append(Scanned(Fusible(plan, step), flags, operands))
    y, finals = pair_scan(*scanned)
    pairs = zip(finals, sides, strict=True)
    return y, [{name: s.to(side.state[name].dtype) for name, s in final.items()} for final, side in pairs]
