"""From the operations of a step to kernels: pointwise operations are fused, and values get their buffers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from linnet.deploy.step.models import CannotExport
from linnet.deploy.step.program import (
    INPUT,
    OUTPUT,
    Gather,
    Kernel,
    Line,
    Load,
    Local,
    Lookup,
    Loop,
    Matrix,
    Operand,
    Product,
    Program,
    Reduce,
    Store,
    unique,
)
from linnet.deploy.step.record import COMPARISONS, Node, Value
from linnet.deploy.step.recorded import (
    Recorded,
    Update,
    buffer_names,
    needed,
    pieces_of,
    reads_value,
    state_updates,
)
from linnet.deploy.step.spans import reads, without
from linnet.fuse import blocks
from linnet.fuse.views import View, row_major, whole
from linnet.layers.int8 import product as int8_product

# The largest identity matrix that is written out.
MOST_ONE_HOT = 2048


def lower(step: Recorded, keep_values: bool = False) -> Program:
    """`keep_values`: values for which a step has names stay in buffers after the step."""
    lowering = Lowering(step)
    updates = list(state_updates(step))
    wanted = [step.output, *(update.value for update in updates)]
    wanted += [view for values in step.named for view in values.values()] if keep_values else []
    nodes = needed(step.nodes, wanted)
    lowering.read_input(nodes)
    for node in nodes:
        lowering.add(node)
    lowering.write_output()
    lowering.write_state(updates)
    values = [lowering.kept(named) for named in step.named] if keep_values else []
    return lowering.program(values)


def squeezed(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for size in shape if size > 1)


class Lowering:
    """Adds nodes to kernels in their order."""

    def __init__(self, step: Recorded):
        self.step = step
        self.kernels: list[Kernel] = []
        self.sizes: dict[str, int] = {}
        self.matrices: dict[str, Matrix] = {}
        self.vectors: dict[str, np.ndarray] = {}
        # By the result of a node: the kernel after which it is complete; the loop and the variable in it.
        self.ready: dict[str, int] = {}
        self.variables: dict[str, tuple[int, str]] = {}
        # Those variables that other kernels read.
        self.stored: set[str] = set()
        self.truths: set[str] = set()
        self.shapes = {node.result: node.shape for node in step.nodes}
        self.buffers = buffer_names(step)

    def program(self, values: list[dict[str, View]]) -> Program:
        for base in sorted(self.stored, key=lambda base: self.variables[base]):
            self.store(base, self.buffer(base), 0)
            self.sizes[self.buffer(base)] = math.prod(self.shapes[base])
        start = {name: tensor.detach().numpy().ravel().copy() for name, tensor in self.step.start.items()}
        self.sizes |= {name: len(value) for name, value in start.items()}
        return Program(
            tokens=self.step.tokens,
            sizes=self.sizes,
            state=start,
            kernels=self.kernels,
            matrices=self.matrices,
            vectors=self.vectors,
            units=list(self.step.units),
            values=values,
        )

    # -------------------------------------------------------------------------- buffers and weights

    def buffer(self, base: str) -> str:
        # Nodes are numbered v0, v1, ...; in a loop that is the name of the variable.
        return self.buffers.get(base) or re.sub(r"^v(\d+)$", r"value\1", base)

    def read(self, base: str) -> str:
        """The buffer or constant with this name; a variable of a loop is stored from now on."""
        if base in self.step.constants:
            return self.vector(base)
        if base in self.variables:
            self.stored.add(base)
        return self.buffer(base)

    def load(self, view: View, shape: Sequence[int]) -> Load:
        return Load(self.read(view.base), view.offset, view.strides_in(shape), view.base in self.truths)

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

    # ------------------------------------------------------------------------------------- kernels

    def read_input(self, nodes: Sequence[Node]) -> None:
        step = self.step
        self.sizes[INPUT] = 1 if step.tokens else step.x_size
        if not step.tokens:
            self.buffers[step.x] = INPUT
        elif step.table is not None:
            self.append(Lookup(self.matrix(step.table, False), step.x, step.x_size), step.x, step.x_size)
        elif any(node.op != "product" for node in nodes if reads_value(node, step.x)):
            self.read_one_hot()
        # Otherwise no vector of zeros is multiplied: `add_row` looks up a row of the matrix.

    def read_one_hot(self) -> None:
        size = self.step.x_size
        if size > MOST_ONE_HOT:
            raise CannotExport(
                f"a layer reads the one-hot vectors of {size:,} tokens by more than a product, which would "
                "need a matrix of this size squared; use an embedding"
            )
        self.matrices["one_hot"] = Matrix(np.eye(size, dtype=np.float32))
        self.append(Lookup("one_hot", self.step.x, size), self.step.x, size)

    def add(self, node: Node) -> None:
        if node.op == "product":
            self.add_product(node)
        elif node.op in ("sum", "amax"):
            self.add_reduction(node)
        elif node.op == "gather":
            self.add_gather(node)
        elif node.op == "join":
            self.add_join(node)
        else:
            self.add_line(node)

    def append(self, kernel: Kernel, result: str, size: int) -> None:
        self.kernels.append(kernel)
        self.ready[result] = len(self.kernels) - 1
        self.sizes[self.buffer(result)] = size

    def add_product(self, node: Node) -> None:
        x, matrix, *bias = (value for value in node.operands if isinstance(value, View))
        if x.base == self.step.x and x.base not in self.ready and self.step.tokens:
            self.add_row(node, matrix, bias)
            return
        x, (inputs, outputs) = self.side_by_side(x), matrix.shape
        heads = x.shape[-1] // inputs
        rows = x.size // (heads * inputs)
        made = Product(
            matrix=self.matrix(matrix.base, transposed=True),
            bias=self.vector(bias[0].base) if bias else None,
            x=self.read(x.base),
            x_offset=x.offset,
            output=self.buffer(node.result),
            rows=rows,
            inputs=inputs,
            outputs=outputs,
            heads=heads,
            parts=node.parts if heads > 1 else 1,
        )
        self.append(made, node.result, rows * outputs)

    def add_row(self, node: Node, matrix: View, bias: Sequence[View]) -> None:
        """The product of a one-hot vector: a row of the transposed matrix, with the bias in it."""
        rows = self.rows_of(matrix.base, self.step.x_size // matrix.shape[0], node.parts)
        rows = rows + self.step.constants[bias[0].base].detach() if bias else rows
        name = unique(f"{self.step.names[matrix.base]}_rows", self.matrices)
        self.matrices[name] = Matrix(np.ascontiguousarray(rows.numpy()))
        outputs = matrix.shape[1]
        self.append(Lookup(name, self.buffer(node.result), outputs), node.result, outputs)

    def rows_of(self, constant: str, heads: int, parts: int) -> Tensor:
        """The products of one-hot vectors, [inputs, outputs]."""
        matrix, scales = self.step.constants[constant].detach(), self.step.scales.get(constant)
        if scales is None and heads == 1:
            return matrix
        one_hot = torch.eye(heads * len(matrix))
        if scales is None:
            return blocks.linear(one_hot, matrix.T, None, heads, parts)
        return int8_product(one_hot, matrix.T, scales, None, heads, parts)

    def side_by_side(self, view: View, apart: bool = False) -> View:
        """The same numbers in one piece: copied to another buffer if they are not, or if `apart`."""
        if view.is_contiguous and not apart:
            return view
        name = unique(f"{self.buffer(view.base)}_copy", self.sizes)
        self.sizes[name] = view.size
        self.ready[name] = self.copy(view, name, 0)
        return whole(name, view.shape)

    def add_reduction(self, node: Node) -> None:
        (x,) = (value for value in node.operands if isinstance(value, View))
        load = Load(self.read(x.base), x.offset, x.strides)
        made = Reduce(node.op, load, x.shape[0], x.shape[1], self.buffer(node.result))
        self.append(made, node.result, x.shape[0])

    def add_gather(self, node: Node) -> None:
        x, places = (value for value in node.operands if isinstance(value, View))
        x, buffer = self.side_by_side(x), self.buffer(node.result)
        index = self.vector(places.base)
        made = Gather(index, self.read(x.base), x.offset, x.size, buffer, places.size)
        self.append(made, node.result, places.size)

    def add_join(self, node: Node) -> None:
        buffer = self.buffer(node.result)
        self.sizes[buffer] = math.prod(node.shape)
        self.ready[node.result] = max(
            self.write(piece, buffer, offset)
            for piece, offset in pieces_of(node, whole(node.result, node.shape))
        )

    def add_line(self, node: Node) -> None:
        shape = squeezed(node.shape)
        number = self.loop_for(node, shape)
        loop = self.loop(number)
        operands = tuple(self.line_operand(value, node.shape, number) for value in node.operands)
        name = unique(self.name_in_step(node.result), {line.result for line in loop.lines})
        loop.lines.append(Line(name, node.op, operands))
        self.ready[node.result], self.variables[node.result] = number, (number, name)
        copies_truth = node.op == "copy" and isinstance(operands[0], Load) and operands[0].truth
        if node.op in COMPARISONS or copies_truth:
            self.truths.add(node.result)

    def loop_for(self, node: Node, shape: tuple[int, ...]) -> int:
        """The first loop over this shape that comes after all that the node reads; or a new one.

        Not one before the last product: what a layer does would move into the loop of the layer before.
        """
        first = max((n for n, each in enumerate(self.kernels) if isinstance(each, Product)), default=0)
        for value in node.operands:
            if isinstance(value, View):
                apart = 0 if self.is_variable(value, node.shape) else 1
                first = max(first, self.ready.get(value.base, -1) + apart)
        for number in range(first, len(self.kernels)):
            kernel = self.kernels[number]
            if isinstance(kernel, Loop) and kernel.shape == shape:
                return number
        self.kernels.append(Loop(shape))
        return len(self.kernels) - 1

    def is_variable(self, view: View, shape: Sequence[int]) -> bool:
        """Whether a loop over `shape` that computes the base of this view has the value in a variable."""
        own = self.shapes.get(view.base)
        if view.base not in self.variables or own is None or view.offset:
            return False
        return view.strides_in(shape) == row_major(squeezed(own)) and squeezed(own) == squeezed(shape)

    def line_operand(self, value: Value, shape: Sequence[int], number: int) -> Operand:
        if not isinstance(value, View):
            return value
        if self.is_variable(value, shape) and self.variables[value.base][0] == number:
            return Local(self.variables[value.base][1])
        return self.load(value, shape)

    def loop(self, number: int) -> Loop:
        loop = self.kernels[number]
        assert isinstance(loop, Loop)
        return loop

    def name_in_step(self, base: str) -> str:
        names = (name for values in self.step.named for name, view in values.items() if view.base == base)
        return next(names, base)

    # ------------------------------------------------------------------------------------- writing

    def write(self, piece: View, buffer: str, offset: int) -> int:
        """Write a value to a buffer, in the loop that computes it if one does; return the kernel."""
        if self.is_variable(piece, piece.shape):
            self.store(piece.base, buffer, offset)
            return self.variables[piece.base][0]
        return self.copy(piece, buffer, offset)

    def store(self, base: str, buffer: str, offset: int) -> None:
        number, name = self.variables[base]
        loop = self.loop(number)
        to = Load(buffer, offset, row_major(loop.shape), base in self.truths)
        loop.stores.append(Store(to, Local(name)))

    def copy(self, piece: View, buffer: str, offset: int) -> int:
        shape = squeezed(piece.shape)
        value = self.load(piece, piece.shape)
        loop = Loop(
            shape, stores=[Store(Load(buffer, offset, row_major(shape)), replace(value, truth=False))]
        )
        self.kernels.append(loop)
        return len(self.kernels) - 1

    def write_output(self) -> None:
        output, makers = self.step.output, (Product, Reduce, Gather)
        self.sizes[OUTPUT] = output.size
        number = self.ready.get(output.base, -1)
        kernel = self.kernels[number] if number >= 0 else None
        buffer = self.buffer(output.base)
        alone = not any(reads(each, buffer) for each in self.kernels)
        complete = output == whole(output.base, output.shape) and self.sizes.get(buffer) == output.size
        if isinstance(kernel, makers) and alone and complete:
            # The kernel that makes it writes it where it is wanted.
            self.kernels[number] = replace(kernel, output=OUTPUT)
            del self.sizes[buffer]
            self.buffers[output.base] = OUTPUT
        else:
            self.write(output, OUTPUT, 0)

    def write_state(self, updates: Sequence[Update]) -> None:
        """Write the new state where nothing reads the old one any more."""
        # Old values that other parts need are read before any part is written.
        updates = [self.set_aside(update) for update in updates]
        for update in updates:
            if self.is_variable(update.value, update.value.shape) and self.may_store(update):
                self.store(update.value.base, update.state, update.offset)
            else:
                self.copy(update.value, update.state, update.offset)

    def set_aside(self, update: Update) -> Update:
        value = update.value
        if value.base not in self.step.start:
            return update
        name = unique(f"old_{value.base}", self.sizes)
        self.sizes[name] = value.size
        self.ready[name] = self.copy(value, name, 0)
        return update._replace(value=whole(name, value.shape))

    def may_store(self, update: Update) -> bool:
        """Whether no later kernel reads this part of the state, and this loop only the same channel."""
        number = self.variables[update.value.base][0]
        part = range(update.offset, update.offset + update.value.size)
        own = Load(update.state, update.offset, row_major(self.loop(number).shape))
        if any(reads(kernel, update.state, part) for kernel in self.kernels[number + 1 :]):
            return False
        others = replace(self.loop(number), lines=without(self.loop(number).lines, own))
        return not reads(others, update.state, part)

    def kept(self, named: Mapping[str, View]) -> dict[str, View]:
        """Return the buffers of the named values of a layer after a step."""
        known: dict[str, View] = {}
        for name, view in named.items():
            if view.base in self.step.start:
                # The state is that after the step: a value of the state before it is not kept.
                continue
            view = self.side_by_side(view, apart=view.base == self.step.x)
            known[name] = replace(view, base=self.read(view.base))
        return known
