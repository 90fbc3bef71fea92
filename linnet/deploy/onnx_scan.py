"""The traced step as the body of an ONNX Scan.

In a model that torch has exported, each scan is one operation, `linnet::scan`. This file translates it to
ONNX's Scan: the states are carried from step to step; the projections, the mask and the resets are the inputs
of each time step; the body is the list of operations that kernels are compiled from too. Weights are values
of the outer graph, which the body may read.

onnxscript is imported only when a model is translated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import torch

from linnet.program.operands import Operands
from linnet.program.plan import Plan, plan_called
from linnet.program.trace import Line, Operand

# ONNX's names for the operations of a traced step.
NAMES = {
    **{"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "maximum": "Max", "minimum": "Min"},
    **{"pow": "Pow", "neg": "Neg", "abs": "Abs", "sign": "Sign", "exp": "Exp", "log": "Log", "sqrt": "Sqrt"},
    **{"sin": "Sin", "cos": "Cos", "floor": "Floor", "sigmoid": "Sigmoid", "tanh": "Tanh"},
    **{"gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual", "eq": "Equal"},
    **{"where": "Where", "logical_and": "And", "logical_or": "Or", "logical_not": "Not"},
}
# Operations that ONNX does not have, composed of others.
COMPOSED: dict[str, Callable[..., Any]] = {
    "ne": lambda body, a, b: body.add("Not", body.add("Equal", a, b)),
    "expm1": lambda body, x: body.add("Sub", body.add("Exp", x), body.number(1.0)),
    "log1p": lambda body, x: body.add("Log", body.add("Add", x, body.number(1.0))),
}

# The length and the batch size of a scan: a number if it is fixed, a name if it is dynamic.
Sizes = tuple[int | str, int | str]


def missing_operation(plan: Plan) -> str | None:
    """Return why a step cannot be translated to ONNX, or None."""
    if plan.traced.sizes:
        return "its channels depend on each other by more than matrix products"
    unknown = [line.op for line in plan.traced.forward.lines if line.op not in NAMES | COMPOSED]
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


def record(nodes: Sequence[Any]) -> None:
    """Add nodes to the model that is being translated."""
    from onnxscript import evaluator

    # During a translation, onnxscript's evaluator is torch's recorder of nodes.
    evaluator.default().nodes.extend(nodes)  # type: ignore[attr-defined]


def size_of(value: Any, axis: int) -> int | str:
    """Return a size; if torch found a dynamic size to be fixed, its name is a number."""
    size = str(value.shape[axis])
    return int(size) if size.isdigit() else size


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
    nodes = Nodes(name)
    axis = nodes.constant([2])
    flags = [flag for flag in (operands.mask, operands.resets) if flag is not None]
    columns = [nodes.add("Unsqueeze", flag, axis) for flag in flags]
    pairs = zip(operands.matrices, shapes_of(operands), strict=True)
    matrices = [nodes.transposed(matrix, shape) for matrix, shape in pairs]
    along_time = [operands.joint, *operands.extras, *columns]
    backwards = int(operands.reverse)
    *finals, y = nodes.add_many(
        "Scan",
        len(operands.states) + 1,
        *operands.states,
        *along_time,
        body=Body(f"{name}.step", operands).graph(matrices),
        num_scan_inputs=len(along_time),
        scan_input_directions=[backwards] * len(along_time),
        scan_output_directions=[backwards],
    )
    return nodes.nodes, [y, *finals]


class Blocks(NamedTuple):
    """The shape of a matrix; see program/blocks.py. A dense one has one head.

    rows, depth   of a block
    """

    parts: int
    heads: int
    rows: int
    depth: int


def shapes_of(operands: Operands) -> list[Blocks]:
    plan, found = operands.plan, []
    for (_, parts), heads, matrix in zip(plan.matrices, plan.heads, operands.matrices, strict=True):
        rows, depth = (int(size_of(matrix, axis)) for axis in range(2))
        found.append(Blocks(len(parts), heads, rows // (len(parts) * heads), depth))
    return found


class Nodes:
    """ONNX nodes in the order in which they run; each of their outputs gets a unique name."""

    def __init__(self, name: str):
        self.name = name
        self.nodes: list[Any] = []

    def add(self, kind: str, *inputs: Any, **attributes: Any) -> Any:
        return self.add_many(kind, 1, *inputs, **attributes)[0]

    def add_many(self, kind: str, count: int, *inputs: Any, **attributes: Any) -> Sequence[Any]:
        from onnxscript import ir

        node = ir.Node("", kind, inputs, ir.convenience.convert_attributes(attributes), num_outputs=count)
        for i, value in enumerate(node.outputs):
            value.name = f"{self.name}.{len(self.nodes)}.{i}"
        self.nodes.append(node)
        return node.outputs

    def constant(self, value: Any, dtype: Any = None) -> Any:
        from onnxscript import ir

        return self.add("Constant", value=ir.tensor(value, dtype=dtype))

    def reshaped(self, value: Any, *shape: int) -> Any:
        return self.add("Reshape", value, self.constant(list(shape)))

    def transposed(self, matrix: Any, shape: Blocks) -> Any:
        """The matrix as `product` reads it: [depth, columns], or [heads, depth, columns of a head]."""
        if shape.heads == 1:
            return self.add("Transpose", matrix, perm=[1, 0])
        cut = self.reshaped(matrix, *shape)
        return self.reshaped(self.add("Transpose", cut, perm=[1, 3, 0, 2]), shape.heads, shape.depth, -1)

    def product(self, x: Any, matrix: Any, shape: Blocks) -> Any:
        """x [B, inputs] -> [B, columns]."""
        if shape.heads == 1:
            return self.add("MatMul", x, matrix)
        parts, heads, rows, depth = shape
        made = self.add("MatMul", self.reshaped(x, -1, heads, 1, depth), matrix)
        by_part = self.add("Transpose", self.reshaped(made, -1, heads, parts, rows), perm=[0, 2, 1, 3])
        return self.reshaped(by_part, -1, parts * heads * rows)

    def split(self, joint: Any, names: Sequence[str]) -> dict[str, Any]:
        """Split a joint tensor into parts, by name."""
        if len(names) == 1:
            return {names[0]: joint}
        parts = self.add_many("Split", len(names), joint, axis=-1, num_outputs=len(names))
        return dict(zip(names, parts, strict=True))


class Body(Nodes):
    """One time step: its inputs, and the nodes that compute the new states and the output."""

    def __init__(self, name: str, operands: Operands):
        from onnxscript.ir import DataType

        super().__init__(name)
        self.operands, self.traced = operands, operands.plan.traced
        self.dtype, self.shapes = operands.joint.dtype, shapes_of(operands)
        self.inputs: list[Any] = []
        self.numbers: dict[str, Any] = {}
        # The matrices of inner products.
        self.inner: list[Any] = []
        # In the order in which Scan passes them.
        self.before = {state: self.take(state, self.dtype) for state in self.traced.states}
        self.joint = self.take("joint", self.dtype)
        self.extras = [self.take(f"extra{i}", self.dtype) for i in range(len(operands.extras))]
        self.mask = None if operands.mask is None else self.take("mask", DataType.BOOL)
        self.resets = None if operands.resets is None else self.take("resets", DataType.BOOL)

    def take(self, name: str, dtype: Any) -> Any:
        from onnxscript import ir

        value = ir.Value(name=f"{self.name}.{name}", type=ir.TensorType(dtype))
        self.inputs.append(value)
        return value

    def graph(self, matrices: Sequence[Any]) -> Any:
        from onnxscript import ir

        states = self.start()
        values = self.run_lines({**self.inputs_of_step(states, matrices), **states})
        made, states_made = dict(self.traced.forward.outputs), [f"new.{name}" for name in self.traced.states]
        y, *new = [self.expanded(made[name], values) for name in ("y", *states_made)]
        if self.mask is not None:
            new = [self.add("Where", self.mask, *pair) for pair in zip(new, states.values(), strict=True)]
            y = self.add("Where", self.mask, y, self.number(0.0))
        outputs: list[Any] = []
        for value in (*new, y):
            outputs.append(self.distinct(value, outputs))
            # onnxruntime up to 1.23 needs both where it cannot infer them.
            outputs[-1].type, outputs[-1].shape = self.state_type(), ir.Shape([None, None])
        return ir.Graph(self.inputs, outputs, nodes=self.nodes, name=self.name)

    def state_type(self) -> Any:
        return next(iter(self.before.values())).type

    def start(self) -> dict[str, Any]:
        """Return the states at the start of the step: zeros at a reset."""
        if self.resets is None:
            return self.before
        zero = self.number(0.0)
        return {name: self.add("Where", self.resets, zero, state) for name, state in self.before.items()}

    def inputs_of_step(self, states: dict[str, Any], matrices: Sequence[Any]) -> dict[str, Any]:
        operands, parts = self.operands, dict(zip(self.traced.weights, self.operands.weights, strict=True))
        count = len(operands.plan.products)
        for i, product in enumerate(operands.plan.products):
            made = self.product(states[product.state], matrices[i], self.shapes[i])
            parts |= self.split(made, product.parts)
        self.inner = list(matrices[count:])
        extras = dict(zip(operands.plan.extras, self.extras, strict=True))
        return parts | self.split(self.joint, operands.plan.projected) | extras

    def run_lines(self, values: dict[str, Any]) -> dict[str, Any]:
        for line in self.traced.forward.lines:
            values[line.result] = self.emit(line, [self.value(operand, values) for operand in line.operands])
        return values

    def emit(self, line: Line, operands: list[Any]) -> Any:
        if line.op in COMPOSED:
            return COMPOSED[line.op](self, *operands)
        return self.add(NAMES[line.op], *operands)

    def value(self, operand: Operand, values: dict[str, Any]) -> Any:
        if not isinstance(operand, str):
            return self.number(operand)
        if operand not in values:
            self.multiply(operand, values)
        return values[operand]

    def multiply(self, part: str, values: dict[str, Any]) -> None:
        """The inner product that makes `part`."""
        outputs = dict(self.traced.forward.outputs)
        for i, (_, parts, _) in enumerate(self.traced.inner):
            if part in parts:
                read = self.value(outputs[f"inner.{i}"], values)
                shape = self.shapes[len(self.shapes) - len(self.inner) + i]
                values |= self.split(self.product(read, self.inner[i], shape), parts)

    def number(self, value: float) -> Any:
        # The keys are texts, because -0.0 == 0.0.
        if str(value) not in self.numbers:
            self.numbers[str(value)] = self.constant(value, self.dtype)
        return self.numbers[str(value)]

    def expanded(self, operand: Operand, values: dict[str, Any]) -> Any:
        """Return a value as [B, H], even if it is a number or depends on weights only."""
        value = self.value(operand, values)
        if operand in self.batched():
            return value
        return self.add("Expand", value, self.add("Shape", next(iter(self.before.values()))))

    def batched(self) -> set[Operand]:
        """Return the names of all values that depend on an input or a state."""
        names: set[Operand] = {*self.traced.inputs, *self.traced.states}
        for line in self.traced.forward.lines:
            if names & set(line.operands):
                names.add(line.result)
        return names

    def distinct(self, value: Any, others: list[Any]) -> Any:
        """Return a value that is the result of a node and no other output, as outputs of a body must be."""
        return self.add("Identity", value) if value.producer() is None or value in others else value
