"""The translations of Linnet's operations to ONNX, which torch.onnx.export finds once linnet is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch.fx import Graph

from linnet.base.torch_private import register_onnx_translation
from linnet.deploy.onnx_nodes import Blocks, Nodes, Sizes, record, size_of
from linnet.program.operands import Operands
from linnet.program.plan import plan_called

# Whether operators of onnxruntime may be written that are not ONNX's.
for_onnxruntime: ContextVar[bool] = ContextVar("linnet_for_onnxruntime", default=False)


def translate_scan(plan: str, tensors: Any, mask: Any, resets: Any, reverse: bool) -> list[Any]:
    """Return the output and the final states, as values of ONNX."""
    # Imported when a model is translated: these need all units.
    from linnet.deploy.onnx_operators import OperatorCall, source_of
    from linnet.deploy.onnx_scan import add_scan

    joint, *others = tensors
    # The number of nodes before it makes the name unique.
    name = f"scan{len(joint.graph)}"
    source = source_of(plan, joint, mask, resets)
    if source is None:
        nodes = Nodes(name, joint.dtype)
        results = add_scan(nodes, Operands(plan_called(plan), joint, others, (mask, resets, reverse)))
    else:
        nodes = OperatorCall(name, plan, others)
        results = nodes.add_operator(source, reverse)
    record(nodes.nodes)
    return results


def translate_int8_scan(
    plan: str, tensors: Any, numbers: Any, scales: Any, mask: Any, resets: Any, reverse: bool
) -> list[Any]:
    """`translate_scan` of a step whose matrices are int8."""
    from linnet.deploy.onnx_operators import LSTM_OPERATOR, Int8LSTMCall, operators, source_of
    from linnet.deploy.onnx_scan import add_scan

    joint, others = tensors[0], [*tensors[1:], *numbers]
    name = f"scan{len(joint.graph)}"
    wanted = for_onnxruntime.get() and operators().get(plan) is LSTM_OPERATOR
    source = source_of(plan, joint, mask, resets) if wanted else None
    if source is None:
        nodes = Nodes(name, joint.dtype)
        operands = Operands(plan_called(plan), joint, others, (mask, resets, reverse))
        results = add_scan(nodes, operands, scales)
    else:
        nodes = Int8LSTMCall(name, plan, others, scales)
        results = nodes.add_operator(source, reverse)
    record(nodes.nodes)
    return results


def translate_int8_linear(x: Any, numbers: Any, scales: Any, bias: Any, heads: int, parts: int) -> Any:
    """Return the product of x with an int8 matrix."""
    from linnet.deploy.onnx_int8 import prepared, product

    nodes = Nodes(f"int8_linear{len(x.graph)}", x.dtype)
    rows, depth = (int(size_of(numbers, axis)) for axis in range(2))
    matrix = prepared(nodes, numbers, scales, Blocks(parts, heads, rows // (parts * heads), depth))
    made = product(nodes, x, matrix, lead=len(x.shape) - 1)
    result = made if bias is None else nodes.add("Add", made, bias)
    record(nodes.nodes)
    return result


SCANS: dict[Any, Callable[..., Any]] = {
    torch.ops.linnet.scan.default: translate_scan,
    torch.ops.linnet.int8_scan.default: translate_int8_scan,
}
for operation, translate in {**SCANS, torch.ops.linnet.int8_linear.default: translate_int8_linear}.items():
    register_onnx_translation(operation, translate)


# ------------------------------------------------------------------------------------------ sizes


def sizes_of_scans(graph: Graph) -> list[Sizes]:
    """Return the length and the batch size of each scan of an exported graph."""
    scans = [node for node in graph.nodes if node.target in SCANS]
    joints = (scan.args[1][0].meta["val"] for scan in scans)
    return [(size_of(joint, 0), size_of(joint, 1)) for joint in joints]


def name_sizes(model: Any, scans: list[Sizes]) -> None:
    """Rename the dynamic sizes of the first scan to "time" and "batch" everywhere in the model."""
    named = zip(scans[0], ("time", "batch"), strict=True) if scans else ()
    names = {size: name for size, name in named if isinstance(size, str)}
    for value in values_of(model):
        for axis in range(len(value.shape or ())):
            size = size_of(value, axis)
            value.shape[axis] = names.get(size, size) if isinstance(size, str) else size


def values_of(model: Any) -> Iterator[Any]:
    yield from model.graph.inputs
    for node in model.graph:
        yield from node.outputs
