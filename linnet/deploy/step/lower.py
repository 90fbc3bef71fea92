"""From a recorded step of a model to a `Program`: its loops and products over named buffers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from linnet.deploy.step.models import CannotExport
from linnet.deploy.step.program import (
    INPUT,
    OUTPUT,
    WINDOW,
    Kernel,
    Lookup,
    Matrix,
    Product,
    Program,
    unique,
)
from linnet.program import blocks
from linnet.program.graph import Graph, Node, needed
from linnet.program.loops import Access, Dims, Local, Loop, Lowering, Operand, StageOf, dims_of
from linnet.program.views import View, row_major, whole
from linnet.recurrent.int8 import product as int8_product

# The largest identity matrix that is written out.
MOST_ONE_HOT = 2048


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


class Update(NamedTuple):
    """A value is written to a buffer, the output or a part of the state, from the number `offset` on."""

    value: View
    buffer: str
    offset: int


def lower(step: Recorded, keep_values: bool = False) -> Program:
    """`keep_values`: values for which a step has names stay in buffers after the step."""
    return ModelLowering(Draft(step, keep_values)).program()


# ------------------------------------------------------------------------------------------ nodes


class Draft:
    """The nodes of a step, with a copy wherever a value has to be in another place than where it is made.

    nodes     in their order
    updates   what is written at the end, or as soon as nothing reads what it replaces
    kept      by layer: the values that stay, by name
    buffers   readable names of values
    """

    def __init__(self, step: Recorded, keep_values: bool):
        self.step, self.buffers = step, buffer_names(step)
        self.copies: list[Node] = []
        self.updates = [self.set_aside(update) for update in updates_of(step)]
        aside, self.copies = self.copies, []
        self.kept = [self.values_of(layer) for layer in step.named] if keep_values else []
        wanted = [update.value for update in self.updates]
        wanted += [view for layer in self.kept for view in layer.values()]
        made = needed([*aside, *step.nodes, *self.copies], wanted)
        self.nodes = [node for each in made for node in self.with_contiguous_input(each)]

    def set_aside(self, update: Update) -> Update:
        """An old state that becomes another part of the state is read before any part is written."""
        if update.value.base not in self.step.start:
            return update
        return update._replace(value=self.copy(update.value, f"old_{update.value.base}"))

    def copy(self, view: View, name: str) -> View:
        # Numbered after the recorded nodes.
        result = f"v{len(self.step.nodes) + len(self.buffers)}"
        node = Node(result, "copy", (view,), view.shape)
        self.buffers[node.result] = unique(name, self.buffers.values())
        self.copies.append(node)
        return whole(node.result, view.shape)

    def values_of(self, layer: Mapping[str, View]) -> dict[str, View]:
        """The state is that after the step: a value of the state before it is not kept."""
        made = {name: view for name, view in layer.items() if view.base not in self.step.start}
        apart = {name for name, view in made.items() if not view.is_contiguous or view.base == self.step.x}
        return {
            name: self.copy(view, f"{buffer_of(self.buffers, view.base)}_copy") if name in apart else view
            for name, view in made.items()
        }

    def with_contiguous_input(self, node: Node) -> list[Node]:
        # A convolution reads windows, of more than two dimensions: all of them would be a large copy.
        if node.op != "product" or node.views[0].is_contiguous or len(node.views[0].shape) > 2:
            return [node]
        x, *weights = node.views
        moved = self.copy(x, f"{buffer_of(self.buffers, x.base)}_copy")
        return [self.copies[-1], replace(node, operands=(moved, *weights))]


def buffer_names(step: Recorded) -> dict[str, str]:
    """Readable names of buffers: those in the step of a layer, or that of the matrix that makes them."""
    found = [(step.x, step.x)]
    for node in step.nodes:
        if node.op == "product":
            found.append((node.result, step.names[node.views[1].base].removesuffix("_weight") + "_product"))
    for layer, values in enumerate(step.named):
        found += [(view.base, f"layer{layer}_{name}") for name, view in values.items()]
    names: dict[str, str] = {}
    taken = {INPUT, OUTPUT, *step.start, *step.names.values()}
    for base, name in found:
        if base not in names and base not in step.start:
            names[base] = unique(name, taken)
            taken.add(names[base])
    return names


def buffer_of(buffers: Mapping[str, str], base: str) -> str:
    # Nodes are numbered v0, v1, ...; in a loop that is the name of the variable.
    return buffers.get(base) or re.sub(r"^v(\d+)$", r"value\1", base)


def updates_of(step: Recorded) -> Iterator[Update]:
    """The output, and the new state, in pieces: a stack returns the states of its layers as one tensor."""
    yield Update(step.output, OUTPUT, 0)
    joins = {node.result: node for node in step.nodes if node.op == "place"}
    for name, view in step.results.items():
        node = joins.get(view.base)
        if view == whole(name, view.shape):
            continue
        if node is None or view.offset or not view.is_contiguous or not is_join(node):
            yield Update(view, name, 0)
            continue
        for piece, target in zip(node.views, node.targets, strict=True):
            yield Update(piece, name, target.offset)


def is_join(node: Node) -> bool:
    """Whether its operands lie one after the other and fill it."""
    whole_pieces = all(target.is_contiguous for target in node.targets)
    return whole_pieces and sum(target.size for target in node.targets) == node.size


# ------------------------------------------------------------------------------------------ kernels


class ModelLowering(Lowering):
    """The stages of a step are what is computed between its products, in the order of the model."""

    def __init__(self, draft: Draft):
        self.step, self.draft, self.buffers = draft.step, draft, draft.buffers
        self.products = [node for node in draft.nodes if node.op == "product"]
        self.matrices: dict[str, Matrix] = {}
        self.vectors: dict[str, np.ndarray] = {}
        self.tables: dict[tuple[int, ...], str] = {}
        self.updates = dict(enumerate(draft.updates))
        self.write_product_to_output()
        nodes = tuple(node for node in draft.nodes if node.op != "product")
        outputs = tuple((str(number), update.value) for number, update in self.updates.items())
        super().__init__(Graph((), nodes, outputs), {}, self.find_stages(), len(self.products))
        self.buffer_sizes = {OUTPUT: self.step.output.size}

    def write_product_to_output(self) -> None:
        """A product that is the output and nothing else is written where it is wanted."""
        output = self.step.output
        read = [view.base for node in self.draft.nodes for view in node.views]
        read += [update.value.base for update in self.draft.updates]
        read += [view.base for layer in self.draft.kept for view in layer.values()]
        made = {node.result: node for node in self.products}.get(output.base)
        if made is not None and read.count(output.base) == 1 and output == whole(made.result, output.shape):
            self.buffers[made.result] = OUTPUT
            del self.updates[0]

    def find_stages(self) -> StageOf:
        """A node is computed after the products before it; an update when nothing reads what it replaces."""
        stages, number = {}, 0
        for node in self.draft.nodes:
            number += node.op == "product"
            stages[node.result] = number
        written = {}
        for number, update in self.updates.items():
            end = update.offset + update.value.size
            readers = [
                stages[node.result]
                for node in self.draft.nodes
                for view in node.views
                if view.base == update.buffer and view.offset < end and last_of(view) >= update.offset
            ]
            written[str(number)] = max([stages.get(update.value.base, 0), *readers])
        return StageOf(stages, written)

    def find_homes(self) -> dict[str, str]:
        return {}

    def find_crossing(self) -> set[str]:
        """Besides what later stages read: what products read, and what stays."""
        kept = {view.base for layer in self.draft.kept for view in layer.values()}
        return super().find_crossing() | {node.views[0].base for node in self.products} | kept

    def program(self) -> Program:
        step, kernels = self.step, list(self.read_input())
        for number in range(self.last + 1):
            kernels += [self.readable(loop) for loop in self.stage(number).loops]
            if number < self.last:
                kernels.append(self.product(self.products[number]))
        start = {name: tensor.detach().numpy().ravel().copy() for name, tensor in step.start.items()}
        sizes = {INPUT: 1 if step.tokens else step.x_size, **self.buffer_sizes}
        return Program(
            tokens=step.tokens,
            sizes=sizes | {name: len(value) for name, value in start.items()},
            state=start,
            kernels=kernels,
            matrices=self.matrices,
            vectors=self.vectors,
            tables=self.tables,
            units=list(step.units),
            values=[
                {name: replace(view, base=self.place_of(view.base)[0]) for name, view in layer.items()}
                for layer in self.draft.kept
            ],
        )

    # -------------------------------------------------------------------------- buffers and weights

    def place_of(self, base: str) -> tuple[str, int]:
        if base in self.nodes:
            return super().place_of(base)
        return self.vector(base) if base in self.step.constants else buffer_of(self.buffers, base), 0

    def new_place(self, base: str) -> tuple[str, int]:
        return self.new_buffer(base, self.nodes[base].size), 0

    def new_buffer(self, base: str, size: int) -> str:
        name = buffer_of(self.buffers, base)
        self.buffer_sizes[name] = size
        return name

    def matrix(self, constant: str, transposed: bool) -> str:
        """A matrix [outputs, inputs], stored once for all that read it."""
        name = self.step.names[constant]
        if name not in self.matrices:
            values, scales = self.step.constants[constant].detach(), self.step.scales.get(constant)
            rows = np.ascontiguousarray((values.T if transposed else values).numpy())
            self.matrices[name] = Matrix(rows, None if scales is None else scales.numpy())
        return name

    def vector(self, constant: str) -> str:
        name = self.step.names[constant]
        self.vectors.setdefault(name, self.step.constants[constant].detach().numpy().ravel().copy())
        return name

    # ------------------------------------------------------------------------------------ products

    def read_input(self) -> Iterator[Kernel]:
        step = self.step
        if not step.tokens:
            self.buffers[step.x] = INPUT
        elif step.table is not None:
            yield self.lookup(self.matrix(step.table, False), step.x, step.x_size)
        elif any(view.base == step.x for node in self.graph.nodes for view in node.views):
            yield self.lookup(self.one_hot(), step.x, step.x_size)
        # Otherwise no vector of zeros is multiplied: `product` looks up a row of the matrix.

    def lookup(self, table: str, result: str, size: int) -> Lookup:
        return Lookup(table, self.new_buffer(result, size), size)

    def one_hot(self) -> str:
        size = self.step.x_size
        if size > MOST_ONE_HOT:
            raise CannotExport(
                f"a layer reads the one-hot vectors of {size:,} tokens by more than a product, which would "
                "need a matrix of this size squared; use an embedding"
            )
        self.matrices["one_hot"] = Matrix(np.eye(size, dtype=np.float32))
        return "one_hot"

    def product(self, node: Node) -> Kernel:
        x, matrix, *bias = node.views
        if (
            self.step.tokens
            and x.base == self.step.x
            and buffer_of(self.buffers, x.base) not in self.buffer_sizes
        ):
            return self.lookup(self.rows(node, matrix, bias), node.result, matrix.shape[1])
        (inputs, outputs), rows = matrix.shape, node.shape[0]
        heads = x.size // (rows * inputs)
        base, first = self.place_of(x.base)
        across, within = split_after(x, rows)
        made = Product(
            matrix=self.matrix(matrix.base, transposed=True),
            bias=self.vector(bias[0].base) if bias else None,
            x=base,
            x_offset=first + x.offset,
            output=self.new_buffer(node.result, rows * outputs),
            across=across,
            within=within,
            inputs=inputs,
            outputs=outputs,
            heads=heads,
            parts=node.parts if heads > 1 else 1,
        )
        if made.is_gathered:
            self.buffer_sizes[WINDOW] = max(self.buffer_sizes.get(WINDOW, 0), heads * inputs)
        return made

    def rows(self, node: Node, matrix: View, bias: Sequence[View]) -> str:
        """The products of one-hot vectors: rows of the transposed matrix, with the bias in them."""
        rows = self.rows_of(matrix.base, self.step.x_size // matrix.shape[0], node.parts)
        rows = rows + self.step.constants[bias[0].base].detach() if bias else rows
        name = unique(f"{self.step.names[matrix.base]}_rows", self.matrices)
        self.matrices[name] = Matrix(np.ascontiguousarray(rows.numpy()))
        return name

    def rows_of(self, constant: str, heads: int, parts: int) -> Tensor:
        """The products of one-hot vectors, [inputs, outputs]."""
        matrix, scales = self.step.constants[constant].detach(), self.step.scales.get(constant)
        if scales is None and heads == 1:
            return matrix
        one_hot = torch.eye(heads * len(matrix))
        if scales is None:
            return blocks.linear(one_hot, matrix.T, None, heads, parts)
        return int8_product(one_hot, matrix.T, scales, None, heads, parts)

    # --------------------------------------------------------------------------------------- loops

    def write(self, name: str, value: View) -> None:  # type: ignore[override]
        update = self.updates[int(name)]
        view = value.reshaped((value.size,)) if value.is_contiguous else value
        target = View(update.buffer, update.offset, view.shape, row_major(view.shape))
        self.put(view, target, after=self.last_reader(update.buffer, target))

    def readable(self, loop: Loop) -> Loop:
        """The loop with the names of the step for its variables, and without a dimension of one number."""
        names: dict[str, str] = {}
        for line in loop.lines:
            names[line.result] = unique(self.name_in_step(line.result), names.values())
        alone = loop.shape == (1,)

        def operand(value: Operand) -> Operand:
            if isinstance(value, Access):
                return access(value)
            return Local(names[value.name]) if isinstance(value, Local) else value

        def access(value: Access) -> Access:
            if value.table and value.table not in self.tables:
                name = unique("places", {*self.vectors, *self.step.names.values()})
                self.tables[value.table] = name
                self.vectors[name] = np.array(value.table, dtype=np.int32)
            return replace(value, strides=()) if alone else value

        return Loop(
            () if alone else loop.shape,
            tuple(
                replace(line, result=names[line.result], operands=tuple(map(operand, line.operands)))
                for line in loop.lines
            ),
            tuple(
                replace(fold, value=operand(fold.value), target=access(fold.target)) for fold in loop.folds
            ),
            tuple(
                replace(store, value=operand(store.value), target=access(store.target))
                for store in loop.stores
            ),
        )

    def name_in_step(self, base: str) -> str:
        names = (name for values in self.step.named for name, view in values.items() if view.base == base)
        return next(names, base)


def split_after(view: View, rows: int) -> tuple[Dims, Dims]:
    """The dimensions over `rows`, the first ones of a view, and those of a row."""
    cut = next(i for i in range(len(view.shape) + 1) if math.prod(view.shape[:i]) == rows)
    parts = (slice(None, cut), slice(cut, None))
    views = [View("", 0, view.shape[part], view.strides[part]) for part in parts]
    across, within = (dims_of(part, part.shape) for part in views)
    return across, within


def last_of(view: View) -> int:
    """The last number of its base that a view reads."""
    return view.offset + sum(
        (size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True)
    )
