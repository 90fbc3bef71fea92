"""A recorded step of a model, before it becomes kernels: its operations, its results and their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from linnet.deploy.step.program import INPUT, OUTPUT, unique
from linnet.deploy.step.record import Node
from linnet.fuse.views import View, whole


@dataclass(frozen=True)
class Recorded:
    """A recorded step: its nodes, and which values are its results.

    constants   what the nodes read besides the input and the state, by name
    scales      of the rows of those constants that are int8 matrices
    names       readable names of the constants; equal names are the same weights
    x           the name of the buffer that the nodes read as the input
    tokens      the number of tokens if the input is a token, else 0
    table       the constant with a vector for each token; None: one-hot vectors
    start       the initial state by name
    results     the new state by name
    units       the name of the unit of each layer
    named       by layer: the values of its step by name
    """

    nodes: Sequence[Node]
    constants: Mapping[str, Tensor]
    scales: Mapping[str, Tensor]
    names: Mapping[str, str]
    x: str
    x_size: int
    tokens: int
    table: str | None
    start: Mapping[str, Tensor]
    output: View
    results: Mapping[str, View]
    units: Sequence[str]
    named: Sequence[Mapping[str, View]]


def needed(nodes: Sequence[Node], wanted: Sequence[View]) -> list[Node]:
    bases, kept = {view.base for view in wanted}, []
    for node in reversed(nodes):
        if node.result in bases:
            kept.append(node)
            bases |= {value.base for value in node.operands if isinstance(value, View)}
    return kept[::-1]


class Update(NamedTuple):
    """A value becomes a part of the state, from the number `offset` on."""

    value: View
    state: str
    offset: int


def state_updates(step: Recorded) -> Iterator[Update]:
    """The new state, piece by piece: a stack returns the states of its layers as one tensor."""
    joins = {node.result: node for node in step.nodes if node.op == "join"}
    for name, view in step.results.items():
        if view != whole(name, view.shape):
            for piece, offset in pieces_of(joins.get(view.base), view):
                yield Update(piece, name, offset)


def reads_value(node: Node, base: str) -> bool:
    return any(isinstance(value, View) and value.base == base for value in node.operands)


def pieces_of(node: Node | None, view: View) -> Iterator[tuple[View, int]]:
    """The values that a new buffer consists of, with their positions in it."""
    if node is None or view.offset or not view.is_contiguous:
        yield view, 0
        return
    offset = 0
    for piece in node.operands:
        assert isinstance(piece, View)
        yield piece, offset
        offset += piece.size


def buffer_names(step: Recorded) -> dict[str, str]:
    """Readable names of buffers: those in the step of a layer, or that of the matrix that makes them."""
    found = [(step.x, step.x)]
    for node in step.nodes:
        if node.op == "product" and isinstance(node.operands[1], View):
            found.append(
                (node.result, step.names[node.operands[1].base].removesuffix("_weight") + "_product")
            )
    for layer, values in enumerate(step.named):
        found += [(view.base, f"layer{layer}_{name}") for name, view in values.items()]
    names: dict[str, str] = {}
    taken = {INPUT, OUTPUT, *step.start, *step.names.values()}
    for base, name in found:
        if base not in names and base not in step.start:
            names[base] = unique(name, taken)
            taken.add(names[base])
    return names
