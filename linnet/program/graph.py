"""A step whose operations read other channels than their own: values with shapes, and a few operations.

    pointwise     as in `linnet.program.trace`, of operands that are broadcast to the shape of the result
    sum, amax     over some of the dimensions of an operand
    gather        the numbers of an operand at constant places
    scatter_add   zeros, to which each number of an operand is added at a constant place
    place         zeros, into which operands are written: a concatenation, or the gradient of a slice
    product       x and a matrix of weights, and perhaps a bias; only in steps that are exported
    copy          an operand, in the order of its dimensions

A slice, a repetition or another shape is no operation: an operand is read with an offset and strides. Shapes
are those of one sequence of the batch.

The gradient of a step is such a graph, too: that of a gather is a scatter_add, that of a slice a place, that
of a repetition a sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.program.views import View, whole

# A view of an input, a constant or an earlier result; or a number, or the name of one (program/pattern.py).
Value = View | float | str

REDUCTIONS = ("sum", "amax")
TRUTHS = ("gt", "ge", "lt", "le", "eq", "ne", "logical_and", "logical_or", "logical_not")


@dataclass(frozen=True)
class Node:
    """`result`, of `shape`, = op(*operands).

    axes      of the operand: those that a reduction runs over
    table     of a gather or a scatter_add: for each number of the result, or of the operand, its place
    targets   of a place: for each operand, where in the result it is written
    parts     of a product with a block-diagonal matrix; see program/blocks.py
    """

    result: str
    op: str
    operands: tuple[Value, ...]
    shape: tuple[int, ...]
    axes: tuple[int, ...] = ()
    table: tuple[int, ...] = ()
    targets: tuple[View, ...] = ()
    parts: int = 1

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def views(self) -> list[View]:
        return [value for value in self.operands if isinstance(value, View)]

    @property
    def is_pointwise(self) -> bool:
        return self.op not in (*REDUCTIONS, "gather", "scatter_add", "place")

    def __str__(self) -> str:
        over = f", over {list(self.axes)}" if self.axes else ""
        return f"{self.result} {list(self.shape)} = {self.op}({', '.join(map(str, self.operands))}{over})"


@dataclass(frozen=True)
class Graph:
    """Operations from named inputs to named outputs. `constants` are numbers that do not change, by name."""

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[tuple[str, Value], ...]
    constants: tuple[tuple[str, tuple[float, ...]], ...] = ()

    def __str__(self) -> str:
        constants = [f"{name} = {len(numbers)} numbers" for name, numbers in self.constants]
        returned = [f"{name} = {value}" for name, value in self.outputs]
        lines = [f"inputs: {', '.join(self.inputs)}", *constants, *map(str, self.nodes), *returned]
        return "\n".join(lines)


def needed(nodes: Sequence[Node], values: Iterable[Value]) -> list[Node]:
    """Those of the operations that some values depend on."""
    bases, kept = {value.base for value in values if isinstance(value, View)}, []
    for node in reversed(nodes):
        if node.result in bases:
            kept.append(node)
            bases |= {view.base for view in node.views}
    return kept[::-1]


# ------------------------------------------------------------------------------------ interpreting


def interpret(
    graph: Graph, values: Mapping[str, Tensor], matrices: Sequence[Tensor] = ()
) -> dict[str, Tensor]:
    """Compute the outputs [B, size] from inputs [B, ...] by torch's operations, which autograd records.

    matrices   those of the inner products, if `values` do not have the results of these
    """
    like = next(iter(values.values()))
    known = Known(graph, like, matrices)
    known |= {name: value.reshape(len(value), -1) for name, value in values.items()}
    for name, numbers in graph.constants:
        known[name] = like.new_tensor(numbers).expand(len(like), -1)
    for node in graph.nodes:
        known[node.result] = computed(node, known, like).reshape(len(like), -1)
    return {name: flat(value, known, like) for name, value in graph.outputs}


class Known(dict[str, Tensor]):
    """The values of a graph [B, size] by name; the products of a step are computed when they are read."""

    def __init__(self, graph: Graph, like: Tensor, matrices: Sequence[Tensor]):
        super().__init__()
        self.sources, self.like = dict(graph.outputs), like
        self.matrices = {f"made.{i}": matrix for i, matrix in enumerate(matrices)}

    def __missing__(self, name: str) -> Tensor:
        source = self.sources[name.replace("made", "inner")]
        self[name] = F.linear(flat(source, self, self.like), self.matrices[name])
        return self[name]


def flat(value: Value, known: Mapping[str, Tensor], like: Tensor) -> Tensor:
    read = read_value(value, known, like)
    return read.reshape(len(like), -1) if isinstance(value, View) else read


def read_value(value: Value, known: Mapping[str, Tensor], like: Tensor) -> Tensor:
    """[B, *shape] of a view, or a number."""
    if not isinstance(value, View):
        return like.new_tensor(float(value))
    base = known[value.base]
    if value == whole(value.base, value.shape) and value.size == base.shape[1]:
        return base.reshape(len(base), *value.shape)
    return base[:, places(value)].reshape(len(base), *value.shape)


def places(view: View) -> list[int]:
    """The place of each number of a view in its base; without torch, since an exporter may be tracing."""
    found = np.array([view.offset])
    for size, stride in zip(view.shape, view.strides, strict=True):
        found = np.add.outer(found, np.arange(size) * stride).ravel()
    return found.tolist()


def computed(node: Node, known: Mapping[str, Tensor], like: Tensor) -> Tensor:
    batch = len(like)
    operands = [read_value(value, known, like) for value in node.operands]
    if node.op in REDUCTIONS:
        (x,) = operands
        axes = [axis + 1 for axis in node.axes]
        return (x.sum(axes) if node.op == "sum" else x.amax(axes)) if axes else x
    if node.op == "gather":
        return operands[0].reshape(batch, -1)[:, torch.tensor(node.table)]
    if node.op == "scatter_add":
        zeros = like.new_zeros(batch, node.size)
        return zeros.index_add(1, torch.tensor(node.table), operands[0].reshape(batch, -1))
    if node.op == "place":
        return placed(node, operands, like)
    return pointwise(node, operands, batch)


def placed(node: Node, operands: Sequence[Tensor], like: Tensor) -> Tensor:
    made = like.new_zeros(len(like), node.size)
    for operand, target in zip(operands, node.targets, strict=True):
        piece = (
            operand.expand(len(like), *target.shape)
            if operand.dim()
            else operand.expand(len(like), target.size)
        )
        made = made.index_copy(1, torch.tensor(places(target)), piece.reshape(len(like), -1))
    return made


def pointwise(node: Node, operands: Sequence[Tensor], batch: int) -> Tensor:
    shape = (batch, *node.shape)
    # Operands of fewer dimensions are broadcast from the last one on, after the batch.
    spread = [
        x if x.dim() == 0 else x.reshape(batch, *[1] * (len(shape) - x.dim()), *x.shape[1:]).expand(shape)
        for x in operands
    ]
    made = spread[0].clone() if node.op == "copy" else getattr(torch, node.op)(*spread)
    return made.expand(shape)
