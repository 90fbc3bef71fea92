"""The graphs of a step that is not elementwise as text; see program/plan_text.py.

    {"nodes": [[result, operation, shape, operands, axes, table, targets], ...],
     "outputs": [...], "constants": {...}}

An operand is a number or a view: [base, offset, shape, strides].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from linnet.program.graph import REDUCTIONS, TRUTHS, Graph, Node, Value
from linnet.program.malformed import check_kinds, fields, need
from linnet.program.trace import COUNTS
from linnet.program.views import View

# The largest value of a graph, and the largest number in one: far more than a row of a unit has.
MOST_NUMBERS = 1 << 28
OTHERS = (*REDUCTIONS, "gather", "scatter_add", "place", "copy")


def shaped_value(graph: Graph) -> dict[str, Any]:
    nodes = [
        [
            node.result,
            node.op,
            node.shape,
            [value_of(operand) for operand in node.operands],
            node.axes,
            node.table,
            [value_of(target) for target in node.targets],
        ]
        for node in graph.nodes
    ]
    outputs = [value_of(value) for _, value in graph.outputs]
    return {"nodes": nodes, "outputs": outputs, "constants": dict(graph.constants)}


def value_of(value: Any) -> Any:
    return [value.base, value.offset, value.shape, value.strides] if isinstance(value, View) else value


# --------------------------------------------------------------------------------------- reading


def read_sizes(value: Any, expected: Sequence[str]) -> dict[str, int]:
    """The number of channels of each operand, in this order."""
    sizes = fields(value, expected)
    need(all(is_count(size) for size in sizes.values()), f"sizes must be positive numbers; got {sizes}")
    return {name: sizes[name] for name in expected}


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_NUMBERS


def read_shaped(value: Any, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> Graph:
    """A graph with these inputs and outputs, which are given with their sizes."""
    graph = fields(value, ("nodes", "outputs", "constants"))
    reader = Reader(dict(inputs))
    constants = reader.constants(graph["constants"])
    need(isinstance(graph["nodes"], list), f"nodes must be a list; got {graph['nodes']!r}")
    nodes = tuple(reader.node(node) for node in graph["nodes"])
    results = graph["outputs"]
    whole = isinstance(results, list) and len(results) == len(outputs)
    need(whole, f"a graph needs the {len(outputs)} outputs {list(outputs)}; got {results!r}")
    values = [reader.operand(result) for result in results]
    for (name, size), found in zip(outputs.items(), values, strict=True):
        need(not isinstance(found, View) or found.size == size, f"the output {name!r} has not {size} numbers")
        need(not reader.is_truth(found), "an output is a truth value")
    return Graph(tuple(inputs), nodes, tuple(zip(outputs, values, strict=True)), constants)


class Reader:
    """Reads nodes; `known` are the sizes of all values so far."""

    def __init__(self, known: dict[str, int]):
        self.known, self.truths = known, set[str]()

    def constants(self, value: Any) -> tuple[tuple[str, tuple[float, ...]], ...]:
        need(isinstance(value, dict), f"constants must be numbers by name; got {value!r}")
        for name, numbers in value.items():
            right = isinstance(numbers, list) and numbers and all(map(is_number, numbers))
            need(bool(right) and name not in self.known, f"the constant {name!r} must be a list of numbers")
            self.known[name] = len(numbers)
        return tuple((name, tuple(map(float, numbers))) for name, numbers in value.items())

    def node(self, value: Any) -> Node:
        whole = isinstance(value, list) and len(value) == 7 and all(isinstance(v, list) for v in value[2:])
        need(
            whole and all(isinstance(v, str) for v in value[:2]), f"a node must have 7 fields; got {value!r}"
        )
        result, op, shape, operands, axes, table, targets = value
        need(op in COUNTS or op in OTHERS, f"there is no operation {op!r}")
        need(bool(result) and result not in self.known, f"the name {result!r} is taken or empty")
        self.check_shape(shape)
        self.known[result] = math.prod(shape)
        node = Node(
            result,
            op,
            tuple(self.operand(operand, result) for operand in operands),
            tuple(shape),
            self.numbers(axes),
            self.numbers(table),
            tuple(self.view(target, {"": math.prod(shape)}) for target in targets),
        )
        self.check(node)
        return node

    def check_shape(self, shape: list[Any]) -> None:
        right = all(map(is_count, shape)) and math.prod(shape) <= MOST_NUMBERS
        need(right, f"a shape must have positive numbers, not too large; got {shape}")

    def numbers(self, value: list[Any]) -> tuple[int, ...]:
        right = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < MOST_NUMBERS for n in value)
        need(right, f"axes and places must be numbers from 0 on; got {str(value)[:50]}")
        return tuple(value)

    def operand(self, value: Any, result: str = "") -> Value:
        if isinstance(value, list):
            return self.view(value, {name: size for name, size in self.known.items() if name != result})
        need(is_number(value), f"an operand must be a view or a number; got {value!r}")
        return float(value)

    def view(self, value: Any, known: Mapping[str, int]) -> View:
        whole = isinstance(value, list) and len(value) == 4 and isinstance(value[0], str)
        need(
            whole and all(isinstance(v, list) for v in value[2:]), f"a view must have 4 fields; got {value!r}"
        )
        base, offset, shape, strides = value
        need(base in known, f"{base!r} is read before it is computed")
        self.check_shape(shape)
        first, *rest = self.numbers([offset, *strides])
        need(len(rest) == len(shape), f"a view needs a stride for each dimension; got {value!r}")
        last = first + sum((size - 1) * stride for size, stride in zip(shape, rest, strict=True))
        need(last < known[base], f"a view reads number {last} of {base!r}, which has {known[base]}")
        return View(base, first, tuple(shape), tuple(rest))

    def is_truth(self, value: Value) -> bool:
        return isinstance(value, View) and value.base in self.truths

    def check(self, node: Node) -> None:
        truths = [self.is_truth(value) for value in node.operands]
        if node.op in COUNTS:
            need(len(truths) == COUNTS[node.op], f"{node.op} takes {COUNTS[node.op]} operands; got {node}")
            check_kinds(node.op, truths)
        elif node.op != "place":
            need(len(node.views) == len(truths) == 1 or node.op == "copy", f"{node.op} takes one operand")
        if node.op in COUNTS or node.op == "copy":
            self.check_broadcast(node)
        else:
            self.check_structure(node)
            need(not any(truths) or node.op == "gather", f"{node.op} got truth values for numbers")
        if node.op in TRUTHS or (node.op in ("copy", "gather") and any(truths)):
            self.truths.add(node.result)

    def check_broadcast(self, node: Node) -> None:
        need(len(node.operands) > 0, f"{node.op} has no operands")
        for view in node.views:
            pairs = zip(view.shape[::-1], node.shape[::-1], strict=False)
            right = len(view.shape) <= len(node.shape) and all(a in (1, b) for a, b in pairs)
            need(right, f"an operand of shape {view.shape} cannot be broadcast to {node.shape}")

    def check_structure(self, node: Node) -> None:
        if node.op == "place":
            pairs = list(zip(node.operands, node.targets, strict=False))
            same = all(isinstance(v, View) and v.shape == target.shape for v, target in pairs)
            need(
                same and len(node.operands) == len(node.targets) > 0, "place takes a target for each operand"
            )
            return
        (x,) = node.views
        if node.op in REDUCTIONS:
            valid = list(node.axes) == sorted(set(node.axes)) and all(
                axis < len(x.shape) for axis in node.axes
            )
            need(valid, f"{node.op} of {x.shape} cannot run over the axes {node.axes}")
            kept = math.prod(size for axis, size in enumerate(x.shape) if axis not in node.axes)
            need(kept == node.size, f"{node.op} makes {kept} numbers; got the shape {node.shape}")
            return
        many, most = (node.size, x.size) if node.op == "gather" else (x.size, node.size)
        need(len(node.table) == many and max(node.table) < most, f"the table of {node.op} does not fit")


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
