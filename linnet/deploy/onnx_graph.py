"""A step that is not elementwise as ONNX nodes: the graph that kernels are compiled from too.

Each value of the graph (program/graph.py) is a tensor [B, *shape], or [1, *shape] if it is the same for all
sequences. Shapes are without leading ones: torch records a batch of one. A view is a slice, or a Gather if
its numbers are not side by side; what it repeats is broadcast by the operation that reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from linnet.deploy.onnx_body import Body
from linnet.deploy.onnx_nodes import KEPT, Nodes
from linnet.program.graph import Graph, Node, Value, places
from linnet.program.operands import Operands
from linnet.program.trace import LOGICAL
from linnet.program.views import View

REDUCED = {"sum": "ReduceSum", "amax": "ReduceMax"}


class Held(NamedTuple):
    """A tensor [B, *shape], and the nodes to which what reads it is added.

    is_batched   whether it has a row for each sequence, and not one for all of them
    """

    tensor: Any
    shape: tuple[int, ...]
    nodes: Nodes
    is_batched: bool


class GraphBody(Body):
    def __init__(self, name: str, operands: Operands, outer: Nodes):
        super().__init__(name, operands, outer)
        self.recorded: Graph = self.traced.forward  # type: ignore[assignment]
        self.sizes, self.held = dict(self.traced.sizes), dict[str, Held]()
        # What several nodes read: views, and the shape of a column, [B, 1].
        self.picked: dict[View, Any] = {}
        self.column: Any = None

    def step(self, states: dict[str, Any]) -> list[Any]:
        self.hold_inputs(states)
        self.hold_weights()
        for node in self.recorded.nodes:
            STRUCTURAL.get(node.op, GraphBody.pointwise)(self, node)
        names = ("y", *self.traced.states)
        return [self.rows(value, self.sizes[name]) for name, value in zip(names, self.results, strict=True)]

    # -------------------------------------------------------------------------------------- values

    def hold_inputs(self, states: dict[str, Any]) -> None:
        projected = self.operands.plan.projected
        parts = self.split(self.joint, projected, [self.sizes[name] for name in projected])
        for name, tensor in {**parts, **self.extras, **states}.items():
            self.held[name] = Held(tensor, (self.sizes[name],), self, True)

    def hold_weights(self) -> None:
        """Views of weights and constants are computed before the loop."""
        for name, weight in self.weights.items():
            row = self.outer.reshaped(weight, 1, self.sizes[name])
            self.held[name] = Held(row, (self.sizes[name],), self.outer, False)
        for name, numbers in self.recorded.constants:
            row = self.outer.constant([numbers], self.dtype)
            self.held[name] = Held(row, (len(numbers),), self.outer, False)

    def hold(self, node: Node, tensor: Any, shape: Sequence[int]) -> None:
        """`tensor`, [B, *shape], is the result of a node."""
        batched = any(self.of(view.base).is_batched for view in node.views)
        self.held[node.result] = Held(tensor, tuple(shape), self, batched)

    def of(self, base: str) -> Held:
        """The value of this name; an inner product is computed when it is first read."""
        if base not in self.held:
            number = int(base.removeprefix("made."))
            read = f"inner.{number}"
            x = self.rows(dict(self.recorded.outputs)[read], self.sizes[read])
            self.held[base] = Held(self.multiplied(x, number), (self.sizes[base],), self, True)
        return self.held[base]

    # --------------------------------------------------------------------------------------- views

    def read(self, view: View) -> Any:
        """[B, *shape]."""
        held = self.of(view.base)
        if is_complete(view, held) and view.shape == held.shape:
            return held.tensor
        flat = self.flat(view)
        return flat if len(view.shape) == 1 else held.nodes.reshaped(flat, KEPT, *view.shape)

    def flat(self, view: View) -> Any:
        """[B, size]: its numbers one after the other."""
        view = view.reshaped((view.size,)) if view.is_contiguous else view
        if view not in self.picked:
            self.picked[view] = self.pick(view, self.of(view.base))
        return self.picked[view]

    def pick(self, view: View, held: Held) -> Any:
        nodes = held.nodes
        size = math.prod(held.shape)
        flat = held.tensor if len(held.shape) == 1 else nodes.reshaped(held.tensor, KEPT, size)
        if is_complete(view, held):
            return flat
        if view.is_contiguous:
            ends = ([view.offset], [view.offset + view.size], [1])
            return nodes.add("Slice", flat, *map(nodes.constant, ends))
        return nodes.add("Gather", flat, nodes.constant(places(view)), axis=1)

    def rows(self, value: Value, size: int) -> Any:
        """[B, size], with a row for each sequence."""
        if not isinstance(value, View):
            return self.repeated(self.add("Expand", self.number(float(value)), self.constant([1, size])))
        flat = self.flat(value)
        return flat if self.of(value.base).is_batched else self.repeated(flat)

    def repeated(self, row: Any) -> Any:
        """[1, size] -> [B, size]."""
        if self.column is None:
            batch = self.add("Shape", self.first_state, start=0, end=1)
            self.column = self.add("Concat", batch, self.constant([1]), axis=0)
        return self.add("Expand", row, self.column)

    # ---------------------------------------------------------------------------------- operations

    def pointwise(self, node: Node) -> None:
        shape = without_leading_ones(node.shape)
        views = [compact(aligned(view, len(shape))) for view in node.views]
        operands = self.operands_of(node, views)
        made = operands[0] if node.op == "copy" else self.compute(node.op, operands)
        if torch.broadcast_shapes(*(view.shape for view in views)) != shape:
            made = self.add("Expand", made, self.constant([1, *shape]))
        self.hold(node, made, shape)

    def operands_of(self, node: Node, views: Sequence[View]) -> list[Any]:
        """The operands, given those of them that are views as they are to be read."""
        left = iter(views)
        number = self.truth if node.op in LOGICAL else self.number
        return [
            self.read(next(left)) if isinstance(value, View) else number(float(value))
            for value in node.operands
        ]

    def truth(self, value: float) -> Any:
        return self.constant(bool(value))

    def reduction(self, node: Node) -> None:
        (view,) = node.views
        # Leading ones are dropped, up to the first axis.
        first = min(len(view.shape) - len(without_leading_ones(view.shape)), *node.axes)
        x = aligned(view, len(view.shape) - first)
        axes = [axis - first for axis in node.axes]
        after_batch = self.constant([axis + 1 for axis in axes])
        made = self.add(REDUCED[node.op], self.read(x), after_batch, keepdims=1)
        self.hold(node, made, [1 if axis in axes else size for axis, size in enumerate(x.shape)])

    def gather(self, node: Node) -> None:
        (view,) = node.views
        made = self.add("Gather", self.flat(view), self.constant(list(node.table)), axis=1)
        self.hold(node, made, (node.size,))

    def scatter_add(self, node: Node) -> None:
        (view,) = node.views
        where = self.repeated(self.constant([list(node.table)]))
        source = self.rows(view, view.size)
        made = self.add("ScatterElements", self.rows(0.0, node.size), where, source, axis=1, reduction="add")
        self.held[node.result] = Held(made, (node.size,), self, True)

    def place(self, node: Node) -> None:
        """The operands side by side, and a zero if there are gaps; then each number in its place."""
        pieces = [self.rows(view, view.size) for view in node.views]
        table = places_in_pieces(node)
        if None in table:
            pieces.append(self.rows(0.0, 1))
        count = sum(view.size for view in node.views)
        order = [count if place is None else place for place in table]
        made = pieces[0] if len(pieces) == 1 else self.add("Concat", *pieces, axis=1)
        if order != list(range(count)):
            made = self.add("Gather", made, self.constant(order), axis=1)
        self.held[node.result] = Held(made, (node.size,), self, True)


# The operations of a graph that are not pointwise.
STRUCTURAL: dict[str, Callable[[GraphBody, Node], None]] = {
    **dict.fromkeys(REDUCED, GraphBody.reduction),
    "gather": GraphBody.gather,
    "scatter_add": GraphBody.scatter_add,
    "place": GraphBody.place,
}


def places_in_pieces(node: Node) -> list[int | None]:
    """For each number of a place: which of the numbers of its operands it is; None if it is 0."""
    table: list[int | None] = [None] * node.size
    start = 0
    for target in node.targets:
        for i, place in enumerate(places(target)):
            table[place] = start + i
        start += target.size
    return table


# --------------------------------------------------------------------------------------- dimensions


def without_leading_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """At least one dimension stays."""
    ones = next((axis for axis, size in enumerate(shape) if size > 1), len(shape))
    return tuple(shape[ones:]) or (1,)


def aligned(view: View, rank: int) -> View:
    """The same numbers with `rank` dimensions: ones are added in front, or dropped there."""
    missing = rank - len(view.shape)
    shape = (*[1] * missing, *view.shape[max(0, -missing) :])
    return View(view.base, view.offset, shape, (*[0] * missing, *view.strides[max(0, -missing) :]))


def compact(view: View) -> View:
    """Without repetitions: a dimension of the stride 0 has the size 1."""
    shape = tuple(size if stride else 1 for size, stride in zip(view.shape, view.strides, strict=True))
    return View(view.base, view.offset, shape, view.strides)


def is_complete(view: View, held: Held) -> bool:
    """Whether a view reads all numbers of a value, in their order."""
    return view.offset == 0 and view.is_contiguous and view.size == math.prod(held.shape)
