"""Runs a unit with int8 matrices with kernels; see linnet/recurrent/int8.py for the scheme."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linnet.program.operands import Operands
from linnet.program.plan import Plan
from linnet.program.planning import check_int8, sum_of_sizes, weights_of
from linnet.program.trace import name_in_unit
from linnet.program.unit import CannotFuse, Flags, Named, RunKernel, Unit
from linnet.run.int8_ops import int8_scan
from linnet.run.ops import compiled_scan

if TYPE_CHECKING:
    from linnet.run.plan_cache import PlansOrReason


def int8_kernel(cell: Unit, plans: PlansOrReason) -> RunKernel:
    """The kernels of a cell whose matrices are int8, for inference in float32."""
    if isinstance(plans, str):
        raise CannotFuse(plans)
    check_int8(plans)
    return partial(run_int8, cell, plans)


def run_int8(
    cell: Any, plans: list[Plan], x: Tensor, state: Named, flags: Flags, recorded: bool
) -> tuple[Tensor, Named]:
    """x [T, B, input_size] -> the output [T, B, output_size] and the final state."""
    run_scan = scan_operation if recorded else scan
    inputs = cell.extra_inputs(x)
    sequences: Named = {}
    read: Named = {}
    finals: Named = {}
    joint = cell.input.joint(x)
    # A recorder shall not find a split into one part.
    joints = [joint] if len(plans) == 1 else joint.split([sum_of_sizes(cell, plan) for plan in plans], -1)
    for stage, plan, joint in zip(cell.stages(), plans, joints, strict=True):
        for attribute, name in stage.reads_new_state.items():
            inputs |= getattr(cell, attribute)(read[name])
        others = others_of(cell, stage, plan, inputs, x, state)
        matrices = [getattr(cell, attribute).used() for attribute in stage.recurrence]
        y, ends = run_scan(plan, flags, joint, others, matrices)
        finals |= dict(zip(stage.states, ends, strict=True))
        sequences[stage.states[0]] = read[stage.states[0]] = y
        if plan.raw is not None:
            read[stage.states[0]], _ = run_scan(plan.raw, flags, joint, others, matrices)
    return cell.output(y, sequences), finals


def scan(
    plan: Plan, flags: Flags, joint: Tensor, others: tuple[list[Tensor], ...], matrices: Sequence[Any]
) -> tuple[Tensor, list[Tensor]]:
    """matrices   the Int8Matrix of each product with the state"""
    from linnet.cpu import passes
    from linnet.cpu.int8_scan import run_sequence
    from linnet.program.operands import ends

    if matrices:
        panels = [matrix.panels() for matrix in matrices]
        return run_sequence(plan, flags, joint, others, panels)  # type: ignore[arg-type]
    extras, weights, states = others
    tensors = [*map(passes.laid_out, extras), *weights, *states]
    operands = Operands(plan, passes.laid_out(joint), tensors, flags)
    y, sequences, _ = passes.run_forward(operands, keep=False)
    return y, ends(operands, sequences, y.dtype)


def scan_operation(
    plan: Plan, flags: Flags, joint: Tensor, others: tuple[list[Tensor], ...], matrices: Sequence[Any]
) -> tuple[Tensor, list[Tensor]]:
    """`scan` as a registered operation."""
    tensors = [joint, *(tensor for group in others for tensor in group)]
    if matrices:
        numbers, scales = [matrix.numbers for matrix in matrices], [matrix.scales for matrix in matrices]
        y, *finals = int8_scan(plan.text, tensors, numbers, scales, *flags)
    else:
        y, *finals = compiled_scan(plan, tensors, *flags)
    return y, finals


def others_of(
    cell: Any, stage: Any, plan: Plan, inputs: Named, x: Tensor, state: Named
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """The extra inputs, weights and states that the scan of a stage reads."""
    shape = (*x.shape[:-1], cell.states[stage.states[0]])
    extras = [inputs[name_in_unit(name)].expand(shape) for name in plan.extras]
    weights = weights_of(cell, stage)
    if tuple(weights) != plan.traced.weights:
        raise CannotFuse(f"its weights with one number per channel are now {list(weights)}")
    states = [state[name] for name in stage.states]
    if any(each.dtype != torch.float32 for each in (x, *extras, *states)):
        raise CannotFuse("products of int8 are computed in float32")
    return extras, [weight.resolve_neg() for weight in weights.values()], states
