"""The loop over time as an ONNX Scan.

In a model that torch has exported, each scan is one operation, `linnet::scan`. This file translates it to
ONNX's Scan: the states are carried from step to step; the projections, the mask and the resets are the inputs
of each time step; the body is what kernels are compiled from too, the list of operations of an elementwise
step (onnx_lines.py) or the graph of any other (onnx_graph.py).

onnxscript is imported only when a model is translated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linnet.deploy.onnx_body import Body
from linnet.deploy.onnx_graph import STRUCTURAL, GraphBody
from linnet.deploy.onnx_int8 import Int8Body
from linnet.deploy.onnx_lines import LineBody
from linnet.deploy.onnx_nodes import COMPOSED, NAMES, Nodes
from linnet.program.operands import Operands
from linnet.program.plan import Plan
from linnet.program.planning import check_int8
from linnet.program.unit import CannotFuse


def missing_operation(plan: Plan) -> str | None:
    """Return why a step cannot be translated to ONNX, or None."""
    step: Any = plan.traced.forward
    operations = [each.op for each in (step.nodes if plan.traced.sizes else step.lines)]
    unknown = [op for op in operations if op not in {*NAMES, *COMPOSED, *STRUCTURAL, "copy"}]
    return f"there is no translation of the operation {unknown[0]!r} in its step yet" if unknown else None


def missing_int8(cell: Any, plans: Sequence[Plan]) -> str | None:
    """Return why the steps of a cell with int8 matrices cannot be translated, or None."""
    try:
        check_int8(plans)
        for stage in cell.stages():
            for attribute in stage.recurrence:
                getattr(cell, attribute).used()
    except CannotFuse as error:
        return error.reason
    return None


def add_scan(nodes: Nodes, operands: Operands, scales: Sequence[Any] = ()) -> list[Any]:
    """Return the output and the final states.

    scales   of the rows of the matrices, if these are int8
    """
    axis = nodes.constant([2])
    flags = [flag for flag in (operands.mask, operands.resets) if flag is not None]
    columns = [nodes.add("Unsqueeze", flag, axis) for flag in flags]
    along_time = [operands.joint, *operands.extras, *columns]
    backwards = int(operands.reverse)
    *finals, y = nodes.add_many(
        "Scan",
        len(operands.states) + 1,
        *operands.states,
        *along_time,
        body=body_of(f"{nodes.name}.step", operands, nodes, scales).graph(),
        num_scan_inputs=len(along_time),
        scan_input_directions=[backwards] * len(along_time),
        scan_output_directions=[backwards],
    )
    return [y, *finals]


def body_of(name: str, operands: Operands, outer: Nodes, scales: Sequence[Any]) -> Body:
    if scales:
        return Int8Body(name, operands, outer, scales)
    return (GraphBody if operands.plan.traced.sizes else LineBody)(name, operands, outer)
