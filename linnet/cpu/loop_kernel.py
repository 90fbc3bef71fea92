"""The loop over time around a step that is not elementwise: for each row the loops of program/loops.py.

As in source.py, a kernel gets a range of rows and loops over time. A step runs in stages, with an inner
product of all its rows after each but the last; in a stage it computes row by row. Sizes are part of the
code, since a new size has other loops.

The loops of a stage pass values on in the `scratch` memory of the first row of the range, which stays in the
cache; values that a later stage reads are in that of their own row.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from itertools import pairwise

from llvmlite import ir

from linnet.cpu.emit import Emitter
from linnet.cpu.gemm import broadcast
from linnet.cpu.program import I64, PTR
from linnet.cpu.recipe import Recipe
from linnet.cpu.source import Kernel, Walk
from linnet.program.loops import (
    KEPT,
    START,
    TEMPORARY,
    Access,
    Fold,
    Local,
    Loop,
    Lowered,
    Operand,
    Stage,
    Store,
)

I32 = ir.IntType(32)
Rows = Mapping[str, ir.Value]


class LoopKernel(Kernel):
    """The loop over time around the loops of a step."""

    def __init__(self, recipe: Recipe, name: str, operands: tuple[str, ...]):
        super().__init__(recipe, name, operands)
        self.lowered: Lowered = recipe.lowered(name)
        self.constants = {name: self.constant(numbers) for name, numbers in self.lowered.constants}
        self.tables: dict[tuple[int, ...], ir.Value] = {}

    def emit(self) -> str:
        if self.recipe.phase is not None:
            self.stage(I64(0), self.lowered.stages[self.recipe.phase])
        elif self.recipe.projects:
            with self.parts():
                self.run_block((I64(0), self.header["size"]))
        else:
            with self.parts(), self.times() as t:
                self.step(t)
        return self.finish()

    def forward_phases(self, t: ir.Value, walk: Walk) -> None:
        self.step(t)

    def step(self, t: ir.Value) -> None:
        """The stages of a step, with a product after each but the last."""
        last = len(self.lowered.stages) - 1
        for i, stage in enumerate(self.lowered.stages):
            if i and self.name == "forward":
                self.multiply(f"inner.{i - 1}", t, f"matrix.{i - 1}", f"product.{i - 1}", t)
            elif i:
                self.multiply(
                    f"dproduct.{last - i}", t, f"matrix.{last - i}", f"state_gradient.{last - i}", t
                )
            self.stage(t, stage)

    def stage(self, t: ir.Value, stage: Stage) -> None:
        if not stage.outputs and not stage.loops:
            return
        with self.loop(self.top, self.stop, self.apart) as b:
            rows = self.memory(t, b)
            padded = self.builder.not_(self.flag("mask", t, b, absent=True))
            with self.builder.if_else(padded) as (yes, no):
                with yes:
                    for name in stage.outputs:
                        self.pad(rows, name)
                with no:
                    for loop in stage.loops:
                        LoopEmitter(self, rows, loop).emit()

    # ------------------------------------------------------------------------------------- memory

    def memory(self, t: ir.Value, b: ir.Value) -> dict[str, ir.Value]:
        """The addresses of all that the loops of a row read and write, by its name in the graph."""
        rows = {name: self.row(name, t, b) for name in self.operands if not name.startswith("state.")}
        rows |= {name: self.output_row(name, t, b) for name in ("y", "dy") if name in rows}
        old, new = self.state_rows(t, b)
        rows |= old
        for name in self.traced.states:
            rows[f"new.{name}"] = new[name]
            if self.name == "backward":
                rows[f"dnew.{name}"] = rows[f"d.{name}"] = rows[f"carry.{name}"]
        for i in range(len(self.traced.inner)):
            rows[f"dinner.{i}"] = rows.get(f"state_gradient.{i}", rows.get(f"inner.{i}"))
        rows |= self.constants
        if self.recipe.has_scratch(self.name):
            rows[KEPT] = self.row("scratch", t, b)
            shared = self.row("scratch", t, self.top)
            rows[TEMPORARY] = self.builder.gep(
                shared, [I64(self.lowered.kept)], source_etype=self.form.scalar
            )
        self.reset = self.flag("resets", t, b)
        return rows

    def pad(self, rows: Rows, name: str) -> None:
        """The outputs of a padded step: states and their gradients stay, gradients of weights get none."""
        state = name.removeprefix("new.") if name.startswith("new.") else None
        if name.startswith("d.weight.") or (name not in rows):
            return
        carried = name.removeprefix("d.") in self.traced.states and name.startswith("d.")
        size = self.recipe.size_of(name)

        def body(emit: Emitter, at: ir.Value) -> None:
            value = emit.number(0.0)
            if state is not None:
                value = self.load_plain(emit, rows[state], at)
            elif carried:
                value = self.after_reset(emit, self.load_plain(emit, rows[name], at))
            self.store(emit, rows, name, at, value)

        self.along((I64(0), I64(size)), body)

    def after_reset(self, emit: Emitter, value: ir.Value) -> ir.Value:
        """No gradient passes the first step of a new sequence."""
        return self.builder.select(self.reset, emit.number(0.0), value)

    def constant(self, numbers: tuple[float, ...]) -> ir.Value:
        scalar = self.form.scalar
        return self.array(scalar, [ir.Constant(scalar, number) for number in numbers])

    def table(self, places: tuple[int, ...]) -> ir.Value:
        if places not in self.tables:
            self.tables[places] = self.array(I32, [I32(place) for place in places])
        return self.tables[places]

    def array(self, kind: ir.Type, values: list[ir.Constant]) -> ir.Value:
        whole = ir.ArrayType(kind, len(values))
        made = ir.GlobalVariable(self.module, whole, f"array{len(self.module.globals)}")
        made.initializer, made.global_constant, made.linkage = ir.Constant(whole, values), True, "internal"
        return made.ptrtoint(I64).inttoptr(PTR)


class LoopEmitter:
    """Emits one loop for one row."""

    def __init__(self, kernel: LoopKernel, rows: Rows, loop: Loop):
        self.kernel, self.rows, self.loop, self.builder = kernel, rows, loop, kernel.builder
        self.form = kernel.form
        # Numbers that are the same in all rounds of the innermost loop.
        self.fixed: dict[Access, ir.Value] = {}
        self.sums: dict[int, dict[int, ir.Value]] = {}

    def emit(self) -> None:
        for fold in self.loop.folds:
            if fold.level is None:
                LoopEmitter(self.kernel, self.rows, self.loop.cleared(fold)).emit()
        self.nest(0, [])

    def nest(self, level: int, indices: list[ir.Value]) -> None:
        """The loops from `level` on."""
        shape = self.loop.shape
        here = [i for i, fold in enumerate(self.loop.folds) if fold.level == level]
        for i in here:
            self.start(i)
        if level == len(shape) - 1:
            self.load_fixed(indices)
            for width, first, beyond in self.widths(shape[-1]):
                with ExitStack() as stack:
                    one = beyond - first == width
                    at = (
                        I64(first)
                        if one
                        else stack.enter_context(self.kernel.loop(I64(first), I64(beyond), width))
                    )
                    self.body(Emitter(self.builder, self.form, width), [*indices, at])
        else:
            with self.kernel.loop(I64(0), I64(shape[level]), 1) as at:
                self.nest(level + 1, [*indices, at])
        for i in here:
            self.end(i, indices)

    def widths(self, size: int) -> list[tuple[int, int, int]]:
        """Whole vectors, vectors of a quarter of the width, and single numbers: width, first, beyond."""
        sizes = [1] if self.loop.is_scattered else [self.kernel.width, self.kernel.width // 4, 1]
        found, first = [], 0
        for width in sizes:
            beyond = size - (size - first) % width
            if width and beyond > first:
                found.append((width, first, beyond))
                first = beyond
        return found

    # ------------------------------------------------------------------------------------ folds

    def start(self, i: int) -> None:
        fold = self.loop.folds[i]
        self.sums[i] = {}
        for width, _, _ in self.widths(self.loop.shape[-1]):
            emit = Emitter(self.builder, self.form, width)
            with self.builder.goto_entry_block():
                self.sums[i][width] = self.builder.alloca(emit.vector)
            self.builder.store(emit.number(START[fold.kind]), self.sums[i][width])

    def end(self, i: int, indices: list[ir.Value]) -> None:
        fold, one = self.loop.folds[i], Emitter(self.builder, self.form, 1)
        totals = []
        for width, variable in self.sums[i].items():
            emit = Emitter(self.builder, self.form, width)
            totals.append(self.folded(fold.kind, self.builder.load(variable, typ=emit.vector), width))
        total = totals[0]
        for other in totals[1:]:
            total = join(one, fold.kind, total, other)
        rounds = [*indices, *[I64(0)] * (len(self.loop.shape) - len(indices))]
        self.store(one, fold.target, rounds, total)

    def folded(self, kind: str, vector: ir.Value, width: int) -> ir.Value:
        """Reduce a vector by halves."""
        while width > 1:
            width //= 2
            emit = Emitter(self.builder, self.form, width)
            halves = [
                self.builder.shuffle_vector(
                    vector,
                    vector,
                    ir.Constant(ir.VectorType(I32, width), [I32(first + j) for j in range(width)]),
                )
                for first in (0, width)
            ]
            vector = join(emit, kind, *halves)
        return (
            self.builder.extract_element(vector, I32(0)) if isinstance(vector.type, ir.VectorType) else vector
        )

    # ------------------------------------------------------------------------------------- body

    def body(self, emit: Emitter, indices: list[ir.Value]) -> None:
        known: dict[str, ir.Value] = self.kernel.known_numbers(emit)
        loaded: dict[Access, ir.Value] = {}

        def value(operand: Operand) -> ir.Value:
            if isinstance(operand, Local):
                return known[operand.name]
            if isinstance(operand, Access):
                if operand not in loaded:
                    loaded[operand] = self.load(emit, operand, indices)
                return loaded[operand]
            return known[operand] if isinstance(operand, str) else emit.number(operand)

        for line in self.loop.lines:
            operands = [value(operand) for operand in line.operands]
            known[line.result] = operands[0] if line.op == "copy" else emit.emit(line.op, operands)
        stored = [(store, value(store.value)) for store in self.loop.stores]
        for i, fold in enumerate(self.loop.folds):
            self.fold(emit, i, fold, value(fold.value), indices)
        for store, made in stored:
            self.write(emit, store, indices, made)

    def fold(self, emit: Emitter, i: int, fold: Fold, value: ir.Value, indices: list[ir.Value]) -> None:
        if i in self.sums:
            variable = self.sums[i][emit.width]
            before = self.builder.load(variable, typ=emit.vector)
            self.builder.store(join(emit, fold.kind, before, value), variable)
            return
        target = fold.target
        if target.strides[-1] == 0:  # one number for the whole vector
            one = Emitter(self.builder, self.form, 1)
            before = self.load(one, target, indices, fixed=False)
            self.store(
                one, target, indices, join(one, fold.kind, before, self.folded(fold.kind, value, emit.width))
            )
        else:
            before = self.load(emit, target, indices, fixed=False)
            self.store(emit, target, indices, join(emit, fold.kind, before, value))

    def write(self, emit: Emitter, store: Store, indices: list[ir.Value], value: ir.Value) -> None:
        target, kernel = store.target, self.kernel
        if target.base not in self.rows:
            return
        if target.truth:
            value = self.builder.select(value, emit.number(1.0), emit.number(0.0))
        state = target.base.removeprefix("d.")
        if target.base.startswith("d.") and state in kernel.traced.states:
            value = kernel.after_reset(emit, value)
        if store.adds:
            value = emit.emit_add(self.load(emit, target, indices, fixed=False), value)
        self.store(emit, target, indices, value)

    # ----------------------------------------------------------------------------------- memory

    def load_fixed(self, indices: list[ir.Value]) -> None:
        """What is the same in all rounds of the innermost loop is read before it."""
        one = Emitter(self.builder, self.form, 1)
        self.fixed = {}
        for access in self.loop.accesses:
            if access.strides[-1] == 0 and not access.table and access not in self.fixed:
                self.fixed[access] = self.load(one, access, [*indices, I64(0)], fixed=False)

    def load(self, emit: Emitter, access: Access, indices: list[ir.Value], fixed: bool = True) -> ir.Value:
        if fixed and access in self.fixed:
            value = self.fixed[access]
            return value if emit.width == 1 else self.spread(emit, value)
        value = self.read(emit, access, indices)
        return self.builder.fcmp_unordered("!=", value, emit.number(0.0)) if access.truth else value

    def spread(self, emit: Emitter, value: ir.Value) -> ir.Value:
        if value.type == self.form.scalar:
            return broadcast(emit, value)
        kind = ir.VectorType(value.type, emit.width)
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), value, I32(0))
        everywhere = ir.Constant(ir.VectorType(I32, emit.width), [I32(0)] * emit.width)
        return self.builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), everywhere)

    def read(self, emit: Emitter, access: Access, indices: list[ir.Value]) -> ir.Value:
        """The numbers of an access in `emit.width` rounds from `indices` on."""
        if access.table:
            return self.gather(emit, access, indices)
        at, stride = self.at(access, indices), access.strides[-1]
        if emit.width == 1 or stride == 1:
            return self.kernel.load(emit, self.rows, access.base, at)
        one = Emitter(self.builder, self.form, 1)
        if stride == 0:
            return broadcast(emit, self.kernel.load(one, self.rows, access.base, at))
        places = [self.builder.add(at, I64(j * stride)) for j in range(emit.width)]
        return self.vector(emit, [self.kernel.load(one, self.rows, access.base, place) for place in places])

    def vector(self, emit: Emitter, numbers: list[ir.Value]) -> ir.Value:
        made = ir.Constant(emit.vector, ir.Undefined)
        for j, number in enumerate(numbers):
            made = self.builder.insert_element(made, number, I32(j))
        return made

    def at(self, access: Access, indices: list[ir.Value]) -> ir.Value:
        at: ir.Value = I64(access.offset)
        for index, stride in zip(indices, access.strides, strict=True):
            if stride:
                at = self.builder.add(at, self.builder.mul(index, I64(stride)))
        return at

    def store(self, emit: Emitter, access: Access, indices: list[ir.Value], value: ir.Value) -> None:
        at, stride = self.at(access, indices), access.strides[-1]
        if access.table:
            at = self.builder.add(
                self.place(access, self.at(Access("", 0, access.strides), indices)), I64(access.offset)
            )
        if emit.width == 1 or stride == 1:
            self.kernel.store(emit, self.rows, access.base, at, value)
            return
        one = Emitter(self.builder, self.form, 1)
        for j in range(emit.width):
            number = self.builder.extract_element(value, I32(j))
            self.kernel.store(one, self.rows, access.base, self.builder.add(at, I64(j * stride)), number)

    # ----------------------------------------------------------------------------------- tables

    def place(self, access: Access, at: ir.Value) -> ir.Value:
        address = self.builder.gep(self.kernel.table(access.table), [at], source_etype=I32)
        return self.builder.sext(self.builder.load(address, typ=I32), I64)

    def gather(self, emit: Emitter, access: Access, indices: list[ir.Value]) -> ir.Value:
        """The numbers at the places of a table: of whole vectors where these lie side by side."""
        rounds = Access("", 0, access.strides)
        at, one = self.at(rounds, indices), Emitter(self.builder, self.form, 1)
        offset = I64(access.offset)
        if emit.width > 1 and is_in_runs(access.table, emit.width):
            return self.kernel.load(
                emit, self.rows, access.base, self.builder.add(self.place(access, at), offset)
            )
        order = order_within(access.table, emit.width) if emit.width > 1 else None
        if order is not None:
            vector = self.kernel.load(emit, self.rows, access.base, self.builder.add(at, offset))
            mask = ir.Constant(ir.VectorType(I32, emit.width), [I32(j) for j in order])
            return self.builder.shuffle_vector(vector, vector, mask)
        numbers = []
        for j in range(emit.width):
            place = self.builder.add(self.place(access, self.builder.add(at, I64(j))), offset)
            numbers.append(self.kernel.load(one, self.rows, access.base, place))
        return numbers[0] if emit.width == 1 else self.vector(emit, numbers)


def join(emit: Emitter, kind: str, a: ir.Value, b: ir.Value) -> ir.Value:
    return emit.emit_add(a, b) if kind == "sum" else emit.emit_maximum(a, b)


def is_in_runs(table: tuple[int, ...], width: int) -> bool:
    """Whether the places of each whole vector lie side by side."""
    starts = range(0, len(table) - len(table) % width, width)
    return all(b == a + 1 for first in starts for a, b in pairwise(table[first : first + width]))


def order_within(table: tuple[int, ...], width: int) -> tuple[int, ...] | None:
    """In which order each vector reads its own places, if all have the same one."""
    orders = set()
    for first in range(0, len(table) - len(table) % width, width):
        orders.add(tuple(place - first for place in table[first : first + width]))
    (order, *others) = orders or {()}
    return order if order and not others and all(0 <= place < width for place in order) else None
