"""The loop over time as an ONNX Scan.

In a model that torch has exported, each scan is one operation, `linnet::scan`. This file translates it to
ONNX's Scan: the states are carried from step to step; the projections, the mask and the resets are the inputs
of each time step; the body is what kernels are compiled from too, the list of operations of an elementwise
step (onnx_lines.py) or the graph of any other (onnx_graph.py).

onnxscript is imported only when a model is translated.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import torch

from linnet.deploy.onnx_body import Body
from linnet.deploy.onnx_graph import STRUCTURAL, GraphBody
from linnet.deploy.onnx_lines import LineBody
from linnet.deploy.onnx_nodes import COMPOSED, NAMES, Nodes, Sizes, record, size_of
from linnet.program.operands import Operands
from linnet.program.plan import Plan, plan_called


def missing_operation(plan: Plan) -> str | None:
    """Return why a step cannot be translated to ONNX, or None."""
    step: Any = plan.traced.forward
    operations = [each.op for each in (step.nodes if plan.traced.sizes else step.lines)]
    unknown = [op for op in operations if op not in {*NAMES, *COMPOSED, *STRUCTURAL, "copy"}]
    return f"there is no translation of the operation {unknown[0]!r} in its step yet" if unknown else None


def translation_table(scans: list[Sizes]) -> dict[Callable, Callable]:
    """Return the translation of `linnet::scan` for torch.onnx.export; it appends to `scans`."""
    numbers = count()

    def scan(plan: Any, tensors: Any, mask: Any, resets: Any, reverse: Any) -> Any:
        operands = Operands(plan_called(plan), tensors[0], tensors[1:], (mask, resets, reverse))
        scans.append((size_of(operands.joint, 0), size_of(operands.joint, 1)))
        nodes, results = scan_nodes(f"scan{next(numbers)}", operands)
        record(nodes)
        return results

    return {torch.ops.linnet.scan.default: scan}


def name_sizes(model: Any, scans: list[Sizes]) -> None:
    """Rename the dynamic sizes of the first scan to "time" and "batch" everywhere in the model."""
    named = zip(scans[0], ("time", "batch"), strict=True) if scans else ()
    names = {size: name for size, name in named if isinstance(size, str)}
    for value in (*model.graph.inputs, *(result for node in model.graph for result in node.outputs)):
        for axis in range(len(value.shape or ())):
            size = size_of(value, axis)
            value.shape[axis] = names.get(size, size) if isinstance(size, str) else size


def scan_nodes(name: str, operands: Operands) -> tuple[list[Any], list[Any]]:
    """Return the nodes of a scan, and its results: the output and the final states."""
    nodes = Nodes(name, operands.joint.dtype)
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
        body=body_of(f"{name}.step", operands, nodes).graph(),
        num_scan_inputs=len(along_time),
        scan_input_directions=[backwards] * len(along_time),
        scan_output_directions=[backwards],
    )
    return nodes.nodes, [y, *finals]


def body_of(name: str, operands: Operands, outer: Nodes) -> Body:
    return (GraphBody if operands.plan.traced.sizes else LineBody)(name, operands, outer)
