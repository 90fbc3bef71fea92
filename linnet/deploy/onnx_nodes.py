"""Nodes of an ONNX model, and ONNX's names for the operations of a step.

onnxscript is imported only when a model is translated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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

# Operators that are not ONNX's own, with their domains.
DOMAINS = {"DynamicQuantizeLSTM": "com.microsoft"}

# A size for Reshape: that of the same dimension before. An empty batch has no size that could be computed.
KEPT = 0

# The length and the batch size of a scan: a number if it is fixed, a name if it is dynamic.
Sizes = tuple[int | str, int | str]


def record(nodes: Sequence[Any]) -> None:
    """Add nodes to the model that is being translated."""
    from onnxscript import evaluator

    # During a translation, onnxscript's evaluator is torch's recorder of nodes.
    evaluator.default().nodes.extend(nodes)  # type: ignore[attr-defined]


def size_of(value: Any, axis: int) -> int | str:
    """Return a size; if torch found a dynamic size to be fixed, its name is a number."""
    size = str(value.shape[axis])
    return int(size) if size.isdigit() else size


class Blocks(NamedTuple):
    """The shape of a matrix; see program/blocks.py. A dense one has one head.

    rows, depth   of a block
    """

    parts: int
    heads: int
    rows: int
    depth: int


class Nodes:
    """ONNX nodes in the order in which they run; each of their outputs gets a unique name."""

    def __init__(self, name: str, dtype: Any = None):
        """`dtype`: that of `number`."""
        self.name, self.dtype = name, dtype
        self.nodes: list[Any] = []
        self.numbers: dict[str, Any] = {}

    def add(self, kind: str, *inputs: Any, **attributes: Any) -> Any:
        return self.add_many(kind, 1, *inputs, **attributes)[0]

    def add_many(self, kind: str, count: int, *inputs: Any, **attributes: Any) -> Sequence[Any]:
        from onnxscript import ir

        given = ir.convenience.convert_attributes(attributes)
        node = ir.Node(DOMAINS.get(kind, ""), kind, inputs, given, num_outputs=count)
        for i, value in enumerate(node.outputs):
            value.name = f"{self.name}.{len(self.nodes)}.{i}"
        self.nodes.append(node)
        return node.outputs

    def constant(self, value: Any, dtype: Any = None) -> Any:
        from onnxscript import ir

        return self.add("Constant", value=ir.tensor(value, dtype=dtype))

    def number(self, value: float) -> Any:
        # The keys are texts, because -0.0 == 0.0.
        if str(value) not in self.numbers:
            self.numbers[str(value)] = self.constant(value, self.dtype)
        return self.numbers[str(value)]

    def compute(self, op: str, operands: Sequence[Any]) -> Any:
        """An operation of a step."""
        return COMPOSED[op](self, *operands) if op in COMPOSED else self.add(NAMES[op], *operands)

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
        made = self.add("MatMul", self.reshaped(x, KEPT, heads, 1, depth), matrix)
        by_part = self.add("Transpose", self.reshaped(made, KEPT, heads, parts, rows), perm=[0, 2, 1, 3])
        return self.reshaped(by_part, KEPT, parts * heads * rows)

    def split(self, joint: Any, names: Sequence[str], sizes: Sequence[int] = ()) -> dict[str, Any]:
        """Split a joint tensor into parts, by name; without `sizes` they are equally large."""
        if len(names) == 1:
            return {names[0]: joint}
        inputs = (joint, self.constant(list(sizes))) if sizes else (joint,)
        count = {} if sizes else {"num_outputs": len(names)}
        parts = self.add_many("Split", len(names), *inputs, axis=-1, **count)
        return dict(zip(names, parts, strict=True))
