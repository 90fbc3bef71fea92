"""From the graph of a step to loops: what is computed between its products, with which values in memory.

    stage 0    loops                 what inner product 0 reads
    product 0
    stage 1    loops                 what inner product 1 reads
    ...

A value is computed once, as late as possible. Pointwise operations over as many numbers share a loop if no
reduction lies between them: a value that only its own loop reads, in the same place, is a local variable. All
others are stored: in memory that the rows of a kernel share (`temporary`), or in memory of the row if a later
stage reads them (`kept`).

A loop over n numbers is a nest of loops only where an operand needs it: p q^T is two loops, of which one
reads a number of p, and the other one vectors of q; but a sum of two matrices is one loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from linnet.program.graph import REDUCTIONS, TRUTHS, Graph, Node, Value, needed, places
from linnet.program.phases import subject
from linnet.program.trace import Traced
from linnet.program.views import View, whole

# The sizes and the strides of the dimensions of an operand; none can be read together with the next one.
Dims = tuple[tuple[int, int], ...]
TEMPORARY, KEPT = "temporary", "kept"
# What reductions start from.
START = {"sum": 0.0, "amax": float("-inf")}


@dataclass(frozen=True)
class Access:
    """The numbers of `base` that a loop reads or writes, one for each round; or at the places of a table."""

    base: str
    offset: int
    strides: tuple[int, ...]
    table: tuple[int, ...] = ()
    truth: bool = False


@dataclass(frozen=True)
class Local:
    """The result of an earlier line of a loop."""

    name: str


Operand = Access | Local | float | str


@dataclass(frozen=True)
class Line:
    result: str
    op: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Fold:
    """The sum or the maximum of a value over those dimensions in which the strides of `target` are 0."""

    kind: str
    value: Operand
    target: Access

    @property
    def level(self) -> int | None:
        """How many outer loops it does not run over; None if it does not run over all of the inner ones."""
        strides = self.target.strides
        level = max((i + 1 for i, stride in enumerate(strides) if stride), default=0)
        return level if all(strides[:level]) else None


@dataclass(frozen=True)
class Store:
    """A value is written, or added to what is there."""

    target: Access
    value: Operand
    adds: bool = False


@dataclass(frozen=True)
class Loop:
    shape: tuple[int, ...]
    lines: tuple[Line, ...]
    folds: tuple[Fold, ...]
    stores: tuple[Store, ...]

    @property
    def accesses(self) -> list[Access]:
        """What it reads."""
        values = [operand for line in self.lines for operand in line.operands]
        values += [fold.value for fold in self.folds] + [store.value for store in self.stores]
        return [value for value in values if isinstance(value, Access)]

    def cleared(self, fold: Fold) -> Loop:
        """The loop that writes the start of a reduction whose results are not in variables."""
        kept = [(n, stride) for n, stride in zip(self.shape, fold.target.strides, strict=True) if stride]
        target = Access(fold.target.base, fold.target.offset, tuple(stride for _, stride in kept))
        return Loop(tuple(n for n, _ in kept), (), (), (Store(target, START[fold.kind]),))

    @property
    def is_scattered(self) -> bool:
        """Whether it adds at the places of a table, which may be the same for neighbours."""
        return any(store.target.table for store in self.stores)


class Stage(NamedTuple):
    """The loops of a stage, and the results that it writes."""

    loops: tuple[Loop, ...]
    outputs: tuple[str, ...]


class Lowered(NamedTuple):
    """The stages of a graph; and how many numbers of memory all rows share, and each row has."""

    stages: tuple[Stage, ...]
    temporary: int
    kept: int
    constants: tuple[tuple[str, tuple[float, ...]], ...]


def scratch_size(lowered: Lowered) -> int:
    """How many numbers of memory of its own a kernel needs for each row."""
    return lowered.kept + lowered.temporary


@lru_cache(maxsize=128)
def lowered_forward(traced: Traced) -> Lowered:
    count = len(traced.inner)
    start = {f"made.{i}": i + 1 for i in range(count)}
    deadlines = {f"inner.{i}": i for i in range(count)}
    return lower(traced.forward, dict(traced.sizes), start, deadlines, count)  # type: ignore[arg-type]


@lru_cache(maxsize=128)
def lowered_backward(traced: Traced, wanted: tuple[str, ...]) -> Lowered:
    """Of the gradients of inputs and weights only the `wanted` ones."""
    count, graph = len(traced.inner), traced.backward
    start = {f"dinner.{i}": count - i for i in range(count)}
    names = {f"d.{name}" for name in (*wanted, *traced.states)}
    outputs = tuple((name, value) for name, value in graph.outputs if name in names)
    nodes = tuple(needed(graph.nodes, [value for _, value in outputs]))  # type: ignore[attr-defined]
    part = Graph(graph.inputs, nodes, outputs, graph.constants)  # type: ignore[attr-defined]
    deadlines = {f"d.made.{i}": count - 1 - i for i in range(count)}
    return lower(part, dict(traced.sizes), start, deadlines, count)


def lower(
    graph: Graph, sizes: Mapping[str, int], start: Mapping[str, int], deadlines: Mapping[str, int], last: int
) -> Lowered:
    """`start`: from which stage on an input is known. `deadlines`: in which stage an output is needed."""
    graph = with_copies(graph)
    stages = stages_of(graph, deadlines, last)
    check_order(graph, start, stages)
    return Lowering(graph, sizes, stages, last).lower()


def with_copies(graph: Graph) -> Graph:
    """An output that is another state as it was is read before that state is written."""
    replaced = {replaced_by(name) for name, _ in graph.outputs}
    copies, outputs = [], []
    for name, value in graph.outputs:
        if isinstance(value, View) and value.base in replaced and value.base != replaced_by(name):
            copies.append(Node(f"copy of {name}", "copy", (value,), value.shape))
            value = whole(copies[-1].result, value.shape)
        outputs.append((name, value))
    return replace(graph, nodes=(*graph.nodes, *copies), outputs=tuple(outputs))


class StageOf(NamedTuple):
    nodes: dict[str, int]
    outputs: dict[str, int]


def stages_of(graph: Graph, deadlines: Mapping[str, int], last: int) -> StageOf:
    """The stage of each node and output: as late as what reads it allows."""
    outputs = {name: deadlines.get(name, last) for name, _ in graph.outputs}
    latest: dict[str, int] = {}

    def reads(value: Value, stage: int) -> None:
        if isinstance(value, View):
            latest[value.base] = min(latest.get(value.base, last), stage)

    for name, value in graph.outputs:
        reads(value, outputs[name])
    for node in reversed(graph.nodes):
        if node.result in latest:
            for view in node.views:
                reads(view, latest[node.result])
    made = {node.result for node in graph.nodes}
    for name, value in graph.outputs:
        # What is computed earlier anyway is written then, unless something still reads what it replaces.
        if (
            isinstance(value, View)
            and value.base in made
            and not is_read_later(graph, name, latest, latest[value.base])
        ):
            outputs[name] = min(outputs[name], latest[value.base])
    return StageOf({name: stage for name, stage in latest.items() if name in made}, outputs)


def replaced_by(output: str) -> str | None:
    """The input whose memory an output may overwrite: a state, or the gradient of one."""
    if output.startswith("new."):
        return output.removeprefix("new.")
    return f"dnew.{output.removeprefix('d.')}" if output.startswith("d.") else None


def is_read_later(graph: Graph, output: str, latest: Mapping[str, int], stage: int) -> bool:
    old = replaced_by(output)
    if any(isinstance(value, View) and value.base == old for _, value in graph.outputs):
        return True
    readers = (node for node in graph.nodes if any(view.base == old for view in node.views))
    return any(latest.get(node.result, -1) > stage for node in readers)


def check_order(graph: Graph, start: Mapping[str, int], stages: StageOf) -> None:
    known = dict(start)
    for node in graph.nodes:
        known[node.result] = max((known.get(view.base, 0) for view in node.views), default=0)
        if known[node.result] > stages.nodes.get(node.result, known[node.result]):
            raise ValueError("an inner product reads what depends on its own result")
    for name, value in graph.outputs:
        if isinstance(value, View) and known.get(value.base, 0) > stages.outputs[name]:
            raise ValueError(f"{name} reads what depends on its own result")


# ------------------------------------------------------------------------------------------ dimensions


def dims_of(view: View, shape: Sequence[int]) -> Dims:
    """The dimensions of a view that is broadcast to `shape`, as few as possible."""
    dims: list[tuple[int, int]] = []
    for size, stride in zip((n for n in shape if n > 1), view.strides_in(shape), strict=True):
        if dims and dims[-1][1] == size * stride:
            dims[-1] = dims[-1][0] * size, stride
        else:
            dims.append((size, stride))
    return tuple(dims)


def cuts_of(dims: Dims) -> set[int]:
    """How many numbers follow each dimension: where a loop has to be divided."""
    return {math.prod(size for size, _ in dims[i:]) for i in range(1, len(dims))}


def form_chain(cuts: Iterable[int], size: int) -> bool:
    ordered = [*sorted(cuts), size]
    return all(large % small == 0 for small, large in pairwise(ordered))


def strides_along(dims: Dims, shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of the dimensions in a finer shape."""
    strides: list[int] = []
    left = list(dims) or [(1, 0)]
    size, stride = left.pop()
    for n in reversed(shape):
        strides.append(stride)
        stride *= n
        size //= n
        if size == 1 and left:
            size, stride = left.pop()
    return tuple(reversed(strides))


class Draft:
    """A loop to which lines are added. Accesses have dimensions instead of strides until it is finished."""

    def __init__(self, size: int):
        self.size, self.cuts = size, set[int]()
        self.lines: list[tuple[str, str, list]] = []
        self.folds: list[tuple[str, object, tuple]] = []
        self.stores: list[tuple[tuple, object, bool]] = []

    def accepts(self, cuts: set[int]) -> bool:
        return form_chain(self.cuts | cuts, self.size)

    @property
    def shape(self) -> tuple[int, ...]:
        ordered = [self.size, *sorted(self.cuts, reverse=True), 1]
        shape = tuple(large // small for large, small in pairwise(ordered))
        return tuple(n for n in shape if n > 1) or (1,)

    @property
    def reads(self) -> list[Wanted]:
        values = [operand for _, _, operands in self.lines for operand in operands]
        values += [value for _, value, _ in self.folds] + [value for _, value, _ in self.stores]
        return [value for value in values if isinstance(value, Wanted)]

    def finished(self) -> Loop:
        shape = self.shape
        access = lambda a: Access(a.base, a.offset, strides_along(a.dims, shape), a.table, a.truth)  # noqa: E731
        value = lambda v: access(v) if isinstance(v, Wanted) else v  # noqa: E731
        lines = tuple(Line(result, op, tuple(map(value, operands))) for result, op, operands in self.lines)
        folds = tuple(Fold(kind, value(v), access(target)) for kind, v, target in self.folds)
        stores = tuple(Store(access(target), value(v), adds) for target, v, adds in self.stores)
        return Loop(shape, lines, folds, stores)


class Wanted(NamedTuple):
    """An access, before the shape of its loop is known."""

    base: str
    offset: int
    dims: Dims
    table: tuple[int, ...] = ()
    truth: bool = False


# ------------------------------------------------------------------------------------------ lowering


class Lowering:
    def __init__(self, graph: Graph, sizes: Mapping[str, int], stages: StageOf, last: int):
        self.graph, self.sizes, self.stages, self.last = graph, sizes, stages, last
        self.nodes = {node.result: node for node in graph.nodes}
        self.truths = truths_of(graph.nodes)
        self.homes, self.crossing = self.find_homes(), self.find_crossing()
        self.temporary = self.kept = 0
        self.drafts: list[Draft] = []
        # By value: the number of the loop that makes it, in its stage; those that are local variables there.
        self.ready: dict[str, int] = {}
        self.local: dict[str, int] = {}
        # Values that are stored, and where: the name of an operand, or memory, and the first number there.
        self.stored: dict[str, tuple[str, int]] = {}

    def lower(self) -> Lowered:
        made = [self.stage(number) for number in range(self.last + 1)]
        return Lowered(tuple(made), self.temporary, self.kept, self.graph.constants)

    def find_homes(self) -> dict[str, str]:
        """Values that are stored where an output is: an inner product reads it from there."""
        homes: dict[str, str] = {}
        for name, value in self.graph.outputs:
            if (
                name.startswith(("inner.", "d.made."))
                and isinstance(value, View)
                and value.base in self.nodes
            ):
                node = self.nodes[value.base]
                complete = value.offset == 0 and value.is_contiguous and value.size == node.size
                if complete and self.stages.outputs[name] == self.stages.nodes[node.result]:
                    homes.setdefault(node.result, name)
        return homes

    def find_crossing(self) -> set[str]:
        """Values that a later stage reads than the one that makes them."""
        crossing = set()
        for node in self.graph.nodes:
            stage = self.stages.nodes.get(node.result, -1)
            crossing |= {v.base for v in node.views if self.stages.nodes.get(v.base, stage) < stage}
        for name, value in self.graph.outputs:
            if (
                isinstance(value, View)
                and self.stages.nodes.get(value.base, self.last) < self.stages.outputs[name]
            ):
                crossing.add(value.base)
        return crossing

    def stage(self, number: int) -> Stage:
        self.drafts, self.ready, self.local = [], {}, {}
        nodes = [node for node in self.graph.nodes if self.stages.nodes.get(node.result) == number]
        for node in nodes:
            self.add(node)
        for node in nodes:
            if node.result in self.crossing:
                self.place_of(node.result)
        outputs = [(name, value) for name, value in self.graph.outputs if self.stages.outputs[name] == number]
        for name, value in outputs:
            self.write(name, value)
        return Stage(tuple(draft.finished() for draft in self.drafts), tuple(name for name, _ in outputs))

    # ---------------------------------------------------------------------------------- memory

    def place_of(self, base: str) -> tuple[str, int]:
        """Where a value is in memory; a local variable is stored from now on."""
        if base not in self.nodes:
            return base, 0
        if base not in self.stored:
            self.stored[base] = self.new_place(base)
            if base in self.local:
                node, draft = self.nodes[base], self.drafts[self.local[base]]
                where, offset = self.stored[base]
                target = Wanted(where, offset, contiguous(node.size), truth=base in self.truths)
                draft.stores.append((target, Local(base), False))
        return self.stored[base]

    def new_place(self, base: str) -> tuple[str, int]:
        if base in self.homes:
            return self.homes[base], 0
        size = self.nodes[base].size
        if base in self.crossing:
            self.kept += size
            return KEPT, self.kept - size
        self.temporary += size
        return TEMPORARY, self.temporary - size

    def access(self, view: View, shape: Sequence[int]) -> Wanted:
        base, first = self.place_of(view.base)
        return Wanted(base, first + view.offset, dims_of(view, shape), truth=view.base in self.truths)

    # ------------------------------------------------------------------------------------ nodes

    def add(self, node: Node) -> None:
        if node.op in REDUCTIONS:
            self.add_fold(node)
        elif node.op == "gather":
            self.add_gather(node)
        elif node.op == "scatter_add":
            self.add_scatter(node)
        elif node.op == "place":
            self.add_place(node)
        else:
            self.add_line(node)

    def is_local(self, value: Value, shape: Sequence[int]) -> bool:
        """Whether a loop over `shape` that computes this value can read it from the variable."""
        if not isinstance(value, View) or value.base not in self.local or value.offset:
            return False
        size = self.nodes[value.base].size
        return math.prod(shape) == size and dims_of(value, shape) == contiguous(size)

    def first_loop(self, values: Sequence[Value], shape: Sequence[int]) -> int:
        """The first loop that can read these values."""
        views = [value for value in values if isinstance(value, View) and value.base in self.ready]
        return max((self.ready[v.base] + (not self.is_local(v, shape)) for v in views), default=0)

    def loop_for(self, values: Sequence[Value], shape: Sequence[int], more: Dims = (), first: int = 0) -> int:
        """The number of a loop over `shape` that can read the values; a new one if there is none.

        more   the dimensions of what is written
        """
        size = math.prod(shape)
        for number in range(max(first, self.first_loop(values, shape)), len(self.drafts)):
            if self.drafts[number].size == size and self.drafts[number].accepts(
                self.cuts(values, shape, number, more)
            ):
                break
        else:
            number = len(self.drafts)
            self.drafts.append(Draft(size))
        self.drafts[number].cuts |= self.cuts(values, shape, number, more)
        return number

    def cuts(self, values: Sequence[Value], shape: Sequence[int], number: int, more: Dims) -> set[int]:
        """Where loop `number` has to be divided to read these values."""
        cuts = cuts_of(more)
        for value in values:
            if isinstance(value, View) and not (
                self.is_local(value, shape) and self.local[value.base] == number
            ):
                cuts |= cuts_of(dims_of(value, shape))
        return cuts

    def operand(self, value: Value, shape: Sequence[int], number: int) -> object:
        if not isinstance(value, View):
            return value
        if self.is_local(value, shape) and self.local[value.base] == number:
            return Local(value.base)
        return self.access(value, shape)

    def add_line(self, node: Node) -> None:
        number = self.loop_for(node.operands, node.shape)
        operands = [self.operand(value, node.shape, number) for value in node.operands]
        self.drafts[number].lines.append((node.result, node.op, operands))
        self.ready[node.result] = self.local[node.result] = number

    def add_fold(self, node: Node) -> None:
        (x,) = node.views
        kept = [1 if axis in node.axes else size for axis, size in enumerate(x.shape)]
        result = dims_of(whole("", kept), x.shape)
        number = self.loop_for((x,), x.shape, result)
        base, first = self.stored[node.result] = self.new_place(node.result)
        value = self.operand(x, x.shape, number)
        self.drafts[number].folds.append((node.op, value, Wanted(base, first, result)))
        self.ready[node.result] = number

    def add_gather(self, node: Node) -> None:
        (x,) = node.views
        found = places(x)
        number = self.loop_for((), node.shape, first=self.first_loop((x,), ()))
        base, first = self.place_of(x.base)
        table = tuple(found[i] for i in node.table)
        load = Wanted(base, first, contiguous(node.size), table, x.base in self.truths)
        self.drafts[number].lines.append((node.result, "copy", [load]))
        self.ready[node.result] = self.local[node.result] = number

    def add_scatter(self, node: Node) -> None:
        (x,) = node.views
        base, first = self.stored[node.result] = self.new_place(node.result)
        self.fill(base, first, node.size)
        draft = Draft(x.size)
        draft.cuts |= cuts_of(dims_of(x, x.shape))
        draft.stores.append(
            (Wanted(base, first, contiguous(x.size), node.table), self.access(x, x.shape), True)
        )
        self.drafts.append(draft)
        self.ready[node.result] = len(self.drafts) - 1

    def fill(self, base: str, first: int, size: int) -> None:
        draft = Draft(size)
        draft.stores.append((Wanted(base, first, contiguous(size)), 0.0, False))
        self.drafts.append(draft)

    def add_place(self, node: Node) -> None:
        base, first = self.stored[node.result] = self.new_place(node.result)
        covered = sum(target.size for target in node.targets)
        if covered < node.size:
            self.fill(base, first, node.size)
        ready = len(self.drafts) - 1
        for value, target in zip(node.operands, node.targets, strict=True):
            moved = View(base, first + target.offset, target.shape, target.strides)
            ready = max(ready, self.put(value, moved, after=ready if covered < node.size else -1))
        self.ready[node.result] = ready

    def put(self, value: Value, target: View, adds: bool = False, after: int = -1) -> int:
        """Write a value to memory, in the loop that computes it if possible; return the loop."""
        shape, dims = target.shape, dims_of(target, target.shape)
        if isinstance(value, View) and self.is_local(value, shape) and self.local[value.base] > after:
            number = self.local[value.base]
            if self.drafts[number].accepts(cuts_of(dims)):
                self.drafts[number].cuts |= cuts_of(dims)
                self.drafts[number].stores.append(
                    (Wanted(target.base, target.offset, dims), Local(value.base), adds)
                )
                return number
        draft = Draft(math.prod(shape))
        operand = self.access(value, shape) if isinstance(value, View) else value
        draft.cuts |= cuts_of(dims) | (cuts_of(operand.dims) if isinstance(operand, Wanted) else set())
        draft.stores.append((Wanted(target.base, target.offset, dims), operand, adds))
        self.drafts.append(draft)
        return len(self.drafts) - 1

    # ---------------------------------------------------------------------------------- outputs

    def write(self, name: str, value: Value) -> None:
        if isinstance(value, View) and self.homes.get(value.base) == name:
            self.place_of(value.base)
            return
        adds = name.startswith("d.weight.")
        size = self.size_of(name, value)
        view = value.reshaped((size,)) if isinstance(value, View) and value.is_contiguous else value
        target = (
            View(name, 0, view.shape, whole("", view.shape).strides)
            if isinstance(view, View)
            else whole(name, (size,))
        )
        self.put(view, target, adds, after=self.last_reader(replaced_by(name), target))

    def size_of(self, name: str, value: Value) -> int:
        return value.size if isinstance(value, View) else self.sizes[subject(name)]

    def last_reader(self, old: str | None, target: View) -> int:
        """The last loop before which `target` must not be written: later ones read what it replaces in `old`.

        A loop that reads only the number that it writes in the same round may do both.
        """
        last, written = -1, range(target.offset, target.offset + target.size)
        for number, draft in enumerate(self.drafts):
            for operand in draft.reads:
                if operand.base == old and overlap(operand, written):
                    same = operand.dims == contiguous(draft.size) and operand.offset == target.offset
                    last = max(last, number - (same and not operand.table))
        return last


def overlap(read: Wanted, written: range) -> bool:
    last = read.offset + sum((size - 1) * stride for size, stride in read.dims)
    return bool(read.table) or (read.offset < written.stop and last >= written.start)


def contiguous(size: int) -> Dims:
    return ((size, 1),) if size > 1 else ()


def truths_of(nodes: Sequence[Node]) -> set[str]:
    truths: set[str] = set()
    for node in nodes:
        copied = node.op in ("copy", "gather") and any(view.base in truths for view in node.views)
        if node.op in TRUTHS or copied:
            truths.add(node.result)
    return truths
