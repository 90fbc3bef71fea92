"""A step with inner products: what is computed before, between and after them, and of which size.

GRU with form="before" multiplies r h by a matrix, and LSTM with proj_size its output:

    phase 0    r h                    i, f, o, c, o tanh(c)
    product    n_h = W_n (r h)        p = P (o tanh(c))
    phase 1    n, h                   h = p

The gradient goes through the same phases in the opposite order. Values that one operation joins have the same
number of channels: they are a group. Above, everything of GRU is one group; of LSTM, h and p are another one
than all else. A phase has a piece of the traced step for each group that has something to compute in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from linnet.program.restart import start_of
from linnet.program.trace import Operand, Pointwise, Traced


class Piece(NamedTuple):
    """What is computed along the channels of one group. The graph has as inputs what it reads."""

    group: int
    graph: Pointwise


Phase = tuple[Piece, ...]


class Phases(NamedTuple):
    """The phases of both passes in the order in which they run, and the group of each operand.

    forward    before the first inner product, between the products, after the last one
    backward   after the last one, ..., before the first one
    """

    forward: tuple[Phase, ...]
    backward: tuple[Phase, ...]
    groups: Mapping[str, int]


@lru_cache(maxsize=256)
def phases_of(traced: Traced) -> Phases:
    """Return the phases; a ValueError if an inner product reads what depends on itself."""
    if (
        traced.sizes
    ):  # of a step that is not elementwise, each operand has a size of its own; see program/loops.py
        return Phases((), (), {name: i for i, (name, _) in enumerate(traced.sizes)})
    if not traced.inner:
        names = ("y", *traced.inputs, *traced.states, *traced.weights)
        forward, backward = Piece(0, traced.forward), Piece(0, traced.backward)
        return Phases(((forward,),), ((backward,),), dict.fromkeys(names, 0))
    groups = groups_of(traced)
    return Phases(forward_phases(traced, groups), backward_phases(traced, groups), groups)


def shared_phases(traced: Traced, name: str) -> int:
    """How often in a step of a kernel, "forward" or "backward", threads that share channels wait."""
    return len(traced.inner) + 1 if name == "forward" else 2


def forward_phases(traced: Traced, groups: Mapping[str, int]) -> tuple[Phase, ...]:
    """What an inner product reads is computed as soon as possible, all else in the last phase of its group.

    So a state is not written while its previous value is still to be read.
    """
    start = {part: i + 1 for i, product in enumerate(traced.inner) for part in product.parts}
    when = spread(traced.forward, start, max, 0)
    outputs = {name: depends(operand, when, 0) for name, operand in traced.forward.outputs}
    last = dict.fromkeys(groups.values(), 0)
    for name, phase in outputs.items():
        group = groups[subject(name)]
        last[group] = max(last[group], phase)
    for i in range(len(traced.inner)):
        check_order(i, outputs[f"inner.{i}"] <= i)
    phases = {n: p if n.startswith("inner.") else last[groups[subject(n)]] for n, p in outputs.items()}
    return tuple(pieces(traced.forward, groups, phases, i) for i in range(len(traced.inner) + 1))


def backward_phases(traced: Traced, groups: Mapping[str, int]) -> tuple[Phase, ...]:
    """Gradients of what an inner product has made as soon as possible, all else in a group's last phase."""
    count = len(traced.inner)
    when = spread(traced.backward, {f"dinner.{i}": i for i in range(count)}, min, count)
    outputs = {name: depends(operand, when, count) for name, operand in traced.backward.outputs}
    last = dict.fromkeys(groups.values(), count)
    for name, phase in outputs.items():
        group = groups[subject(name)]
        last[group] = min(last[group], phase)
    of_inner = {f"d.{part}": i for i, product in enumerate(traced.inner) for part in product.parts}
    for name, i in of_inner.items():
        check_order(i, outputs[name] > i)
    phases = {n: p if n in of_inner else last[groups[subject(n)]] for n, p in outputs.items()}
    return tuple(pieces(traced.backward, groups, phases, i) for i in range(count, -1, -1))


def first_phase(phases: Phases, parts: Sequence[str]) -> int:
    """The phase of the forward pass in which a product that makes these parts is needed."""
    reading = [
        i
        for i, pieces in enumerate(phases.forward)
        if any(part in piece.graph.inputs for piece in pieces for part in parts)
    ]
    return min(reading, default=len(phases.forward) - 1)


def check_order(i: int, right: bool) -> None:
    if not right:
        raise ValueError(f"inner product {i} reads what depends on its own result")


def subject(output: str) -> str:
    """The operand that an output of a graph, or an input of the backward graph, belongs to."""
    for prefix in ("new.", "d.", "dnew."):
        output = output.removeprefix(prefix)
    return {"dy": "y"}.get(output, output.removeprefix("d") if output.startswith("dinner.") else output)


def spread(
    graph: Pointwise, start: Mapping[str, int], join: Callable[[Iterable[int]], int], otherwise: int
) -> dict[Operand, int]:
    """In which phase each value can be computed."""
    when: dict[Operand, int] = {name: start.get(name, otherwise) for name in graph.inputs}
    for line in graph.lines:
        when[line.result] = join(depends(operand, when, otherwise) for operand in line.operands)
    return when


def depends(operand: Operand, when: Mapping[Operand, int], otherwise: int) -> int:
    return when.get(operand, otherwise)  # a number depends on nothing


def pieces(graph: Pointwise, groups: Mapping[str, int], phases: Mapping[str, int], phase: int) -> Phase:
    chosen: dict[int, list[str]] = {}
    for name in phases:
        if phases[name] == phase:
            chosen.setdefault(groups[subject(name)], []).append(name)
    return tuple(Piece(group, part_of(graph, names)) for group, names in sorted(chosen.items()))


def part_of(graph: Pointwise, outputs: Sequence[str]) -> Pointwise:
    """The part of a graph that some of its outputs need."""
    values = tuple((name, operand) for name, operand in graph.outputs if name in outputs)
    needed, lines = {operand for _, operand in values}, []
    for line in reversed(graph.lines):
        if line.result in needed:
            lines.append(line)
            needed.update(line.operands)
    return Pointwise(tuple(n for n in graph.inputs if n in needed), tuple(reversed(lines)), values)


# ------------------------------------------------------------------------------------------ groups


def groups_of(traced: Traced) -> dict[str, int]:
    """The group of each input, state and weight, of y and of what inner products read, in this order."""
    sets = Sets()
    for graph in (traced.forward, traced.backward):
        known = {*graph.inputs, *(line.result for line in graph.lines)}
        # Values of the two graphs may have the same name; their operands are told apart by `subject`.
        for line in graph.lines:
            sets.join(own(graph, name) for name in (line.result, *line.operands) if name in known)
        for name, operand in graph.outputs:
            sets.join([subject(name), *([own(graph, operand)] if operand in known else [])])
    # A step may ignore a state, and what a reset adds to it, besides their products.
    for name in traced.states:
        sets.join([name, start_of(name)])
    names = (*traced.inputs, *traced.states, *traced.weights, "y")
    numbers: dict[object, int] = {}
    return {
        name: numbers.setdefault(sets.find(name), len(numbers))
        for name in (*names, *(f"inner.{i}" for i in range(len(traced.inner))))
    }


def own(graph: Pointwise, name: Operand) -> object:
    """An input by the operand it belongs to; a value within a graph together with that graph."""
    return subject(str(name)) if name in graph.inputs else (id(graph), name)


class Sets:
    """Disjoint sets."""

    def __init__(self) -> None:
        self.parents: dict[object, object] = {}

    def find(self, item: object) -> object:
        while self.parents.setdefault(item, item) != item:
            item = self.parents[item]
        return item

    def join(self, items: Iterable[object]) -> None:
        first, *rest = (self.find(item) for item in items)
        for root in rest:
            self.parents[root] = first


# What a product reads, the parts that it makes, and the heads of its matrix.
Read = tuple[str, Sequence[str], int]


def group_sizes(traced: Traced, products: Sequence[Read], shapes: Shapes) -> tuple[int, ...]:
    """How many channels each group has. A ValueError, if operands of one group are of different sizes.

    products   of the previous states
    """
    groups = phases_of(traced).groups
    found: dict[int, int] = {}
    for name, size in sizes_by_name(traced, products, shapes):
        if found.setdefault(groups[name], size) != size:
            raise ValueError(
                f"{name!r} has {size} channels, and what it is joined with {found[groups[name]]}"
            )
    missing = next((name for name, group in groups.items() if group not in found), None)
    if missing is not None:
        raise ValueError(f"it does not follow from the states and matrices how many channels {missing!r} has")
    return tuple(found[group] for group in range(len(found)))


class Shapes(NamedTuple):
    """The shapes from which those of all other operands follow: [H], [B, H], [parts * H, depth / heads]."""

    weights: Sequence[Sequence[int]]
    states: Sequence[Sequence[int]]
    matrices: Sequence[Sequence[int]]


def sizes_by_name(traced: Traced, products: Sequence[Read], shapes: Shapes) -> Iterable[tuple[str, int]]:
    yield from ((name, shape[-1]) for name, shape in zip(traced.states, shapes.states, strict=True))
    inner = ((f"inner.{i}", product.parts, product.heads) for i, product in enumerate(traced.inner))
    for (source, parts, heads), (rows, depth) in zip([*products, *inner], shapes.matrices, strict=True):
        yield source, depth * heads
        yield from ((part, rows // len(parts)) for part in parts)
    yield from ((name, shape[-1]) for name, shape in zip(traced.weights, shapes.weights, strict=True))
