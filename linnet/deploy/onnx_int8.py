"""Products with int8 matrices as ONNX nodes: the scheme of linnet/recurrent/int8.py, integer for integer.

The bytes are unsigned, with 128 for 0: onnxruntime's products of signed bytes saturate on some machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from linnet.deploy.onnx_lines import LineBody
from linnet.deploy.onnx_nodes import KEPT, Blocks, Nodes
from linnet.program.operands import Operands
from linnet.recurrent.int8 import LEVELS

ZERO = 128


class Int8Matrix(NamedTuple):
    """A matrix as `product` reads it.

    numbers   bytes: [depth, columns], or [heads, depth, columns of a head]
    scales    [columns], or [heads, 1, columns of a head]
    """

    numbers: Any
    scales: Any
    shape: Blocks


def prepared(nodes: Nodes, numbers: Any, scales: Any, shape: Blocks) -> Int8Matrix:
    """Lay out a matrix [N, K / heads] with a scale for each row."""
    turned = nodes.transposed(numbers, shape)
    if shape.heads > 1:
        by_head = nodes.add("Transpose", nodes.reshaped(scales, *shape[:3]), perm=[1, 0, 2])
        scales = nodes.reshaped(by_head, shape.heads, 1, -1)
    return Int8Matrix(as_bytes(nodes, turned), scales, shape)


def as_bytes(nodes: Nodes, numbers: Any) -> Any:
    """Whole numbers from -127 to 127 as unsigned bytes."""
    from onnxscript.ir import DataType

    shifted = nodes.add("Add", nodes.add("Cast", numbers, to=DataType.FLOAT.value), nodes.number(float(ZERO)))
    return nodes.add("Cast", shifted, to=DataType.UINT8.value)


def product(nodes: Nodes, x: Any, matrix: Int8Matrix, lead: int) -> Any:
    """x, with `lead` dimensions before the channels, times a matrix."""
    if matrix.shape.heads == 1:
        return rounded_product(nodes, x, matrix)
    parts, heads, rows, depth = matrix.shape
    before = (KEPT,) * lead
    by_head = rounded_product(nodes, nodes.reshaped(x, *before, heads, 1, depth), matrix)
    axes = [*range(lead), lead + 1, lead, lead + 2]
    by_part = nodes.add("Transpose", nodes.reshaped(by_head, *before, heads, parts, rows), perm=axes)
    return nodes.reshaped(by_part, *before, parts * heads * rows)


def rounded_product(nodes: Nodes, x: Any, matrix: Int8Matrix) -> Any:
    """Round the rows of x, each with a factor of its own, and multiply."""
    from onnxscript.ir import DataType

    largest = nodes.add("ReduceMax", nodes.add("Abs", x), nodes.constant([-1]), keepdims=1)
    factors = nodes.add("Div", largest, nodes.number(float(LEVELS)))
    is_zero = nodes.add("Equal", factors, nodes.number(0.0))
    ratios = nodes.add("Div", x, nodes.add("Where", is_zero, nodes.number(1.0), factors))
    zero = nodes.constant(ZERO, DataType.UINT8)
    rows = as_bytes(nodes, nodes.add("Round", ratios))
    sums = nodes.add("MatMulInteger", rows, matrix.numbers, zero, zero)
    scaled = nodes.add("Mul", nodes.add("Cast", sums, to=DataType.FLOAT.value), matrix.scales)
    return nodes.add("Mul", scaled, factors)


class Int8Body(LineBody):
    """A step whose products with the states are those of int8."""

    def __init__(self, name: str, operands: Operands, outer: Nodes, scales: Sequence[Any]):
        super().__init__(name, operands, outer)
        given = zip(operands.matrices, scales, self.shapes, strict=True)
        self.int8 = [prepared(outer, *each) for each in given]

    def multiplied(self, x: Any, number: int) -> Any:
        return product(self, x, self.int8[number], lead=1)
