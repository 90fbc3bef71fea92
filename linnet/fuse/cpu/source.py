"""The loop over time around a traced step: one kernel forward and one backward, for any unit.

A kernel gets a range of rows (a row is a sequence of the batch, or a block of its channels) and
loops over time. At each step it loops over its rows, and in each row over the channels, vector by vector:
so memory is read in order, and rows are independent of each other, which makes results the same for
any number of threads.

States are stored as [T + 1, B, H]: step t reads slot t and writes slot t + 1 (vice versa in the
backward direction). A sequence that is not to be kept has a stride of 0 along time.

Units with a recurrent matrix have a product before each step: the kernel multiplies its own rows of the
state with the packed matrix, which gives inputs of the step. The backward kernel stores the gradients of
those inputs for all steps, since the gradient of the matrix is one large product after the loop, and
multiplies them with the transposed matrix at each step for the gradient of the state.

A step with inner products runs in phases, with a product after each but the last; see fuse/phases.py.

The forward kernel can compute the projection of the input, too: it then projects a few steps at a time and
runs these steps while the projections are in the cache. If channels are independent of each other, a kernel
gets some of the channels and all rows, which allows larger products. In a single step channels are always
independent, and matrices are read without packing (`unpacked`), which would cost more than it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from llvmlite import ir

from linnet.fuse.cpu.dots import Dots
from linnet.fuse.cpu.emit import Emitter
from linnet.fuse.cpu.gemm import broadcast
from linnet.fuse.cpu.program import I64, PTR, Program
from linnet.fuse.pattern import number_name
from linnet.fuse.phases import Piece, first_phase, phases_of
from linnet.fuse.plan import Product
from linnet.fuse.trace import Traced

# The first of some channels, and the one after the last.
Channels = tuple[ir.Value, ir.Value]
# The addresses of the rows of operands, by name.
Rows = Mapping[str, ir.Value]
# Computes a piece of step t for row b: piece, t, b, channels.
Row = Callable[[Piece, ir.Value, ir.Value, Channels], None]
# Computes a piece of step t for all rows: t, piece, what computes it for one row.
Walk = Callable[[ir.Value, Piece, Row], None]


@dataclass(frozen=True)
class Recipe:
    """Everything a kernel depends on; two equal recipes are the same code."""

    traced: Traced
    products: tuple[Product, ...]
    storage: str  # the dtype of inputs and outputs: float32, float64 or bfloat16
    width: int  # of a vector, in numbers
    wanted: tuple[str, ...] = ()  # the inputs and weights whose gradients are needed
    keeps_output: bool = True  # False: the output is a state, whose sequence is kept anyway
    projected: tuple[str, ...] = ()  # the inputs that the kernel computes itself, in the dtype of arithmetic
    projects: bool = False  # the forward kernel computes those inputs, step by step
    drops: bool = False  # products read the state times a mask, the same at all steps
    unpacked: bool = False  # matrices are not packed; with products, there is only one step
    shared: bool = False  # threads share the channels of each step; see Kernel.emit_shared
    numbers: int = 0  # how many numbers of the step are arguments; see fuse/pattern.py
    phase: int | None = None  # the only phase that a forward kernel computes, without any product

    @property
    def bits(self) -> int:
        return 64 if self.storage == "float64" else 32

    @property
    def product_parts(self) -> tuple[str, ...]:
        return tuple(name for product in self.products for name in product.parts)

    @property
    def inner_parts(self) -> tuple[str, ...]:
        return tuple(name for product in self.traced.inner for name in product.parts)

    @property
    def inner_names(self) -> tuple[str, ...]:
        """What inner products read."""
        return tuple(f"inner.{i}" for i in range(len(self.traced.inner)))

    @property
    def group_names(self) -> tuple[str, ...]:
        """The sizes of the groups, if there can be different ones."""
        groups = set(phases_of(self.traced).groups.values()) if self.traced.inner else ()
        return tuple(f"group.{i}" for i in groups)

    def matrix_operands(self, kinds: Sequence[str], of_products: Sequence[str]) -> list[str]:
        """For each matrix its operands: of `kinds`, and for products with states also `of_products`."""
        count = len(self.products)
        names = [f"{kind}.{i}" for i in range(count) for kind in (*kinds, *of_products)]
        return names + [f"{kind}.{count + i}" for i in range(len(self.traced.inner)) for kind in kinds]

    def forward_operands(self) -> tuple[str, ...]:
        states = [f"state.{name}" for name in self.traced.states]
        output = ("y",) if self.keeps_output else ()
        drops = ("drop_mask", "visible") if self.drops else ()
        matrices = self.matrix_operands(("matrix", "product"), drops) if self.phase is None else []
        source = ("x", "matrix.input") if self.projects else ()
        claims = ("claims",) if self.shared else ()
        known = (*self.traced.inputs, *self.traced.weights, *states, "zeros", *self.number_operands)
        return (*known, *output, *matrices, *self.inner_names, *self.group_names, *source, *claims)

    def backward_operands(self) -> tuple[str, ...]:
        states = [f"state.{name}" for name in self.traced.states]
        carries = [f"carry.{name}" for name in self.traced.states]
        gradients = [f"d.{name}" for name in self.wanted]
        drops = ("drop_mask",) if self.drops else ()
        matrices = self.matrix_operands(("matrix", "dproduct", "state_gradient"), drops)
        known = (*self.traced.inputs, *self.traced.weights, *states, "zeros", *self.number_operands, "dy")
        return (*known, *carries, *gradients, *matrices, *self.group_names)

    @property
    def number_operands(self) -> tuple[str, ...]:
        return ("numbers",) if self.numbers else ()

    def is_stored(self, operand: str) -> bool:
        """In the dtype of storage; all else is in the dtype of arithmetic."""
        made = {*self.product_parts, *self.inner_parts}
        flows = set(self.traced.inputs) - made - set(self.projected)
        return operand in flows or operand.removeprefix("d.") in flows or operand in ("y", "dy")


def forward_ir(recipe: Recipe) -> str:
    return Kernel(recipe, "forward", recipe.forward_operands()).emit()


def backward_ir(recipe: Recipe) -> str:
    return Kernel(recipe, "backward", recipe.backward_operands()).emit()


class Kernel(Program):
    """The loop over time around a traced step."""

    def __init__(self, recipe: Recipe, name: str, operands: tuple[str, ...]):
        super().__init__(name, operands, recipe.bits, recipe.width)
        self.recipe, self.traced = recipe, recipe.traced
        self.dot: Dots | None = None
        # The step whose projections are at the address of step 0.
        self.origin: ir.Value = I64(0)
        # Loaded once before the loops, since the compiler cannot know that no store changes them.
        self.numbers = [self.load_number(i) for i in range(recipe.numbers)]

    def load_number(self, i: int) -> ir.Value:
        start = self.builder.inttoptr(self.locations["numbers"][0], PTR)
        address = self.builder.gep(start, [I64(i)], source_etype=self.form.scalar)
        return self.builder.load(address, typ=self.form.scalar)

    def known_numbers(self, emit: Emitter) -> dict[str, ir.Value]:
        return {number_name(i): broadcast(emit, number) for i, number in enumerate(self.numbers)}

    def emit(self) -> str:
        if self.recipe.shared:
            return self.emit_shared()
        if self.recipe.projects:
            return self.emit_projecting()
        with self.times() as t:
            if self.name == "forward":
                self.products(t)
                self.forward_phases(t, self.own_rows)
            else:
                self.backward_phases(t)
                self.backpropagate_products(t)
        return self.finish()

    def forward_phases(self, t: ir.Value, walk: Walk) -> None:
        """The phases of a step, with the inner products between them; `walk` computes a piece."""
        first, phases = len(self.recipe.products), phases_of(self.traced).forward
        if self.recipe.phase is not None:
            phases = phases[self.recipe.phase :][:1]
        for i, pieces in enumerate(phases):
            if i:
                number = first + i - 1
                self.multiply(f"inner.{i - 1}", t, f"matrix.{number}", f"product.{number}", t)
            for piece in pieces:
                walk(t, piece, self.forward_row)

    def backward_phases(self, t: ir.Value) -> None:
        first, phases = len(self.recipe.products), phases_of(self.traced).backward
        for i, pieces in enumerate(phases):
            if i:
                number = first + len(phases) - 1 - i
                self.multiply(f"dproduct.{number}", t, f"matrix.{number}", f"state_gradient.{number}", t)
            for piece in pieces:
                self.own_rows(t, piece, self.backward_row)

    def own_rows(self, t: ir.Value, piece: Piece, row: Row) -> None:
        """The rows of this call, or blocks of their channels."""
        with self.loop(self.begin, self.end, 1) as unit:
            b = self.builder.udiv(unit, self.header["blocks"])
            row(piece, t, b, self.all_channels(piece.group) if self.traced.inner else self.channels(unit))

    def all_channels(self, group: int) -> Channels:
        return I64(0), self.group_size(group)

    def along(self, channels: tuple[ir.Value, ir.Value], body: Callable[[Emitter, ir.Value], None]) -> None:
        """Run `body` for whole vectors of channels, then quarters of a vector, then single channels."""
        first, beyond = channels
        for width in (self.width, self.width // 4, 1):
            rest = self.builder.urem(self.builder.sub(beyond, first), I64(width))
            whole = self.builder.sub(beyond, rest)
            with self.loop(first, whole, width) as at:
                body(Emitter(self.builder, self.form, width), at)
            first = whole

    def emit_shared(self) -> str:
        """Run all rows over time; at each step threads claim blocks of channels, each starting with its own.

        No thread waits for one that does not run: it claims the blocks that are left, and after `patience`
        checks also computes those that another thread has claimed and not finished. Two threads may then
        write the same numbers to the same memory, which is harmless, since each step has memory of its own.
        """
        build, blocks, threads = self.builder, self.header["blocks"], self.header["threads"]
        own = build.udiv(build.mul(self.begin, blocks), threads)
        everything = build.sub(build.shl(I64(1), blocks), I64(1))
        phases = phases_of(self.traced).forward
        with self.times() as t:
            for phase in range(len(phases)):
                number = build.add(build.mul(t, I64(len(phases))), I64(phase))
                claims, done = (self.row("claims", number, I64(i)) for i in range(2))
                with self.loop(I64(0), blocks, 1) as i:
                    block = build.urem(build.add(own, i), blocks)
                    bit = build.shl(I64(1), block)
                    before = build.atomic_rmw("or", claims, bit, "monotonic")
                    with build.if_then(build.icmp_signed("==", build.and_(before, bit), I64(0))):
                        self.finish_block(t, phase, block, done)
                self.wait_for(t, phase, done, everything)
        return self.finish()

    def finish_block(self, t: ir.Value, phase: int, block: ir.Value, done: ir.Value) -> None:
        batch, phases = self.header["batch"], phases_of(self.traced)
        for i, (source, slot, parts) in enumerate(self.matrices(t)):
            if phase == first_phase(phases, parts):
                group = phases.groups[parts[0]]
                size, channels = self.group_size(group), self.channels(block, group)
                where, row = (f"product.{i}", t, len(parts)), self.row(source, slot, I64(0))
                self.dots(row, source, f"matrix.{i}", where, (I64(0), batch), channels, size)
        for piece in phases.forward[phase]:
            with self.loop(I64(0), batch, 1) as b:
                self.forward_row(piece, t, b, self.channels(block, piece.group))
        self.builder.atomic_rmw("or", done, self.builder.shl(I64(1), block), "release")

    def matrices(self, t: ir.Value) -> Iterator[tuple[str, ir.Value, tuple[str, ...]]]:
        """For each matrix: what it reads at step t, in which slot, and the inputs that it makes."""
        old_slot, _ = self.slots(t)
        for product in self.recipe.products:
            yield f"state.{product.state}", old_slot, product.parts
        for i, (_, parts) in enumerate(self.traced.inner):
            yield f"inner.{i}", t, parts

    def wait_for(self, t: ir.Value, phase: int, done: ir.Value, everything: ir.Value) -> None:
        """Until all blocks of a phase of step t are finished, by this thread if necessary."""
        build, before = self.builder, self.builder.block
        head, late, again, after = (build.append_basic_block() for _ in range(4))
        build.branch(head)
        build.position_at_end(head)
        looks = build.phi(I64)
        looks.add_incoming(I64(0), before)
        finished = build.load_atomic(done, "acquire", 8, typ=I64)
        build.cbranch(build.icmp_signed("==", finished, everything), after, again)
        build.position_at_end(again)
        more = build.add(looks, I64(1))
        looks.add_incoming(more, again)
        build.cbranch(build.icmp_signed("<", looks, self.header["patience"]), head, late)
        build.position_at_end(late)
        left = build.and_(everything, build.not_(finished))
        self.finish_block(t, phase, build.cttz(left, ir.IntType(1)(1)), done)
        looks.add_incoming(I64(0), build.block)
        build.branch(head)
        build.position_at_end(after)

    def channels(self, unit: ir.Value, group: int = 0) -> Channels:
        """The range of channels of this unit of work."""
        size, block = self.group_size(group), self.header["block"]
        if self.traced.inner:
            block = self.locations[f"group.{group}"][1]
        first = self.builder.mul(self.builder.urem(unit, self.header["blocks"]), block)
        if self.traced.inner:  # a small group may have fewer blocks
            first = self.least(first, size)
        return first, self.least(self.builder.add(first, block), size)

    def group_size(self, group: int) -> ir.Value:
        return self.locations[f"group.{group}"][0] if self.traced.inner else self.header["size"]

    def emit_projecting(self) -> str:
        if (self.recipe.products or self.traced.inner) and not self.recipe.unpacked:
            self.run_block(self.begin, self.end, (I64(0), self.header["size"]))
            return self.finish()
        build, rows = self.builder, self.header["rows"]
        with self.loop(self.begin, self.end, 1) as unit:
            top = build.mul(build.udiv(unit, self.header["blocks"]), rows)
            self.run_block(top, self.least(build.add(top, rows), self.header["batch"]), self.channels(unit))
        return self.finish()

    def run_block(self, top: ir.Value, bottom: ir.Value, channels: tuple[ir.Value, ir.Value]) -> None:
        """Run some rows and channels over time: the projections of a few steps, and then those steps."""
        build, steps, chunk = self.builder, self.header["steps"], self.header["chunk"]
        backwards = build.icmp_signed("!=", self.header["reverse"], I64(0))
        with self.loop(I64(0), steps, chunk) as done:
            left = build.sub(steps, done)
            count = self.least(chunk, left)
            first = build.select(backwards, build.sub(left, count), done)
            self.origin = build.select(build.icmp_signed("!=", self.header["kept"], I64(0)), I64(0), first)
            project = self.project_unpacked if self.recipe.unpacked else self.project
            project(first, count, top, bottom, channels)
            with self.loop(I64(0), count, 1) as i:
                last = build.sub(build.add(first, count), I64(1))
                t = build.select(backwards, build.sub(last, i), build.add(first, i))
                if self.recipe.unpacked:
                    self.products_unpacked(t, top, bottom, channels)
                else:
                    self.products(t)

                def walk(t: ir.Value, piece: Piece, row: Row) -> None:
                    with self.loop(top, bottom, 1) as b:
                        row(piece, t, b, self.all_channels(piece.group) if self.traced.inner else channels)

                self.forward_phases(t, walk)

    def project(self, first: ir.Value, count: ir.Value, top: ir.Value, bottom: ir.Value, channels) -> None:
        """Multiply the input of `count` steps with the packed matrix, panel by panel and gate by gate."""
        assert self.gemm is not None
        build, size, gemm = self.builder, self.header["size"], self.gemm
        packed, depth, bias = self.locations["matrix.input"]
        panels = build.udiv(build.add(size, I64(self.width - 1)), I64(self.width))
        outer, inner = self.row_runs(count, top, bottom)
        beyond = build.udiv(build.add(channels[1], I64(self.width - 1)), I64(self.width))
        target = self.recipe.projected[0]
        gates = self.loop(I64(0), I64(len(self.recipe.projected)), 1)
        own_panels = self.loop(build.udiv(channels[0], I64(self.width)), beyond, 1)
        with gates as gate, own_panels as p:
            number = build.add(build.mul(gate, panels), p)
            panel = build.add(packed, build.mul(build.mul(number, depth), I64(gemm.panel_bytes)))
            start = build.inttoptr(build.add(bias, build.mul(number, I64(gemm.panel_bytes))), PTR)
            column = build.mul(p, I64(self.width))
            offset = build.mul(build.add(build.mul(gate, size), column), I64(self.form.bits // 8))
            columns = self.least(I64(self.width), build.sub(size, column))
            with self.loop(I64(0), outer, 1) as i:
                t = build.add(first, i)
                a = build.ptrtoint(self.row("x", t, top), I64)
                c = build.add(build.ptrtoint(self.row(target, t, top), I64), offset)
                strides = self.locations["x"][2], self.locations[target][2]
                gemm.emit_panel(inner, a, strides[0], panel, start, depth, c, strides[1], columns)

    def project_unpacked(
        self, first: ir.Value, count: ir.Value, top: ir.Value, bottom: ir.Value, channels
    ) -> None:
        target, parts = self.recipe.projected[0], len(self.recipe.projected)
        with self.loop(I64(0), count, 1) as i:
            t = self.builder.add(first, i)
            where, rows, size = (target, t, parts), (top, bottom), self.header["size"]
            self.dots(self.row("x", t, top), "x", "matrix.input", where, rows, channels, size)

    def products_unpacked(self, t: ir.Value, top: ir.Value, bottom: ir.Value, channels) -> None:
        """The products of the previous states, for some rows and channels; nothing writes these states."""
        for i, (source, slot, parts) in enumerate(self.matrices(t)):
            where, row = (f"product.{i}", t, len(parts)), self.row(source, slot, top)
            self.dots(row, source, f"matrix.{i}", where, (top, bottom), channels, self.header["size"])

    def dots(self, a: ir.Value, source: str, matrix: str, target, rows, channels, size: ir.Value) -> None:
        """Rows of a source with a matrix, part by part, for some channels of `size`."""
        if self.dot is None:
            self.dot = Dots(self.module, self.form, self.width // 2)
        build, (top, bottom), (name, t, parts) = self.builder, rows, target
        address, line, bias = self.locations[matrix]
        depth = build.udiv(line, I64(self.form.bits // 8))
        each = I64(self.form.bits // 8)
        with self.loop(I64(0), I64(parts), 1) as part:
            first = build.add(build.mul(part, size), channels[0])
            w = build.inttoptr(build.add(address, build.mul(first, line)), PTR)
            b = build.inttoptr(build.add(bias, build.mul(first, each)), PTR)
            c = build.ptrtoint(self.row(name, t, top), I64)
            c = build.inttoptr(build.add(c, build.mul(first, each)), PTR)
            counts = build.sub(bottom, top), build.sub(channels[1], channels[0])
            strides = self.locations[source][2], self.locations[name][2]
            build.call(
                self.dot.function,
                [a, strides[0], counts[0], w, line, counts[1], b, c, strides[1], depth],
            )

    def row_runs(self, count: ir.Value, top: ir.Value, bottom: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return how many groups of how many equally spaced rows there are: one group if all rows of a step
        are followed by those of the next."""
        build, batch = self.builder, self.header["batch"]
        rows = build.sub(bottom, top)
        _, x_time, x_row = self.locations["x"]
        even = build.icmp_signed("==", x_time, build.mul(batch, x_row))
        one = build.and_(even, build.icmp_signed("==", rows, batch))
        return build.select(one, I64(1), count), build.select(one, build.mul(count, rows), rows)

    def least(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)

    def row(self, name: str, t: ir.Value, b: ir.Value) -> ir.Value:
        moved = self.recipe.projects and name in self.recipe.projected
        return super().row(name, self.builder.sub(t, self.origin) if moved else t, b)

    def products(self, t: ir.Value) -> None:
        """Multiply the previous states of this kernel's rows with the recurrent matrices."""
        old_slot, _ = self.slots(t)
        for i, product in enumerate(self.recipe.products):
            source = f"state.{product.state}"
            if self.recipe.drops:
                self.drop(old_slot, i)
                source = f"visible.{i}"
            self.multiply(source, old_slot, f"matrix.{i}", f"product.{i}", t)

    def drop(self, slot: ir.Value, i: int) -> None:
        """The state as product i reads it."""
        state = self.recipe.products[i].state

        def times(emit: Emitter, at: ir.Value) -> None:
            kept = emit.emit_mul(self.load_plain(emit, old, at), self.load_plain(emit, mask, at))
            self.store_plain(emit, visible, at, kept)

        with self.loop(self.begin, self.end, 1) as b:
            old = self.row(f"state.{state}", slot, b)
            mask, visible = self.row(f"drop_mask.{i}", slot, b), self.row(f"visible.{i}", slot, b)
            self.along(self.all_channels(phases_of(self.traced).groups[state]), times)

    def backpropagate_products(self, t: ir.Value) -> None:
        """Multiply the gradients of the products with states with the transposed matrices."""
        for i in range(len(self.recipe.products)):
            self.multiply(f"dproduct.{i}", t, f"matrix.{i}", f"state_gradient.{i}", t)

    def forward_row(self, piece: Piece, t: ir.Value, b: ir.Value, channels: Channels) -> None:
        rows = self.rows(t, b, self.operands)
        old, new = self.state_rows(t, b)
        written = dict(piece.graph.outputs)
        states = [name for name in self.traced.states if f"new.{name}" in written]
        others = [name for name in ("y", *self.recipe.inner_names) if name in written and name in rows]

        def step(emit: Emitter, at: ir.Value) -> None:
            results = emit.run(piece.graph, self.known(piece, emit, rows, old, at))
            for name in states:
                self.store_plain(emit, new[name], at, results[f"new.{name}"])
            for name in others:
                self.store(emit, rows, name, at, results[name])

        def pad(emit: Emitter, at: ir.Value) -> None:
            for name in states:
                self.store_plain(emit, new[name], at, self.load_plain(emit, old[name], at))
            for name in others:
                self.store(emit, rows, name, at, emit.number(0.0))

        self.where_real(t, b, channels, step, pad)

    def known(self, piece: Piece, emit: Emitter, rows: Rows, old: Rows, at: ir.Value) -> dict[str, ir.Value]:
        """What a piece reads."""
        known = self.known_numbers(emit)
        for name in piece.graph.inputs:
            if name in old:
                known[name] = self.load_plain(emit, old[name], at)
            elif name.startswith("dnew."):
                known[name] = self.above(emit, rows, name.removeprefix("dnew."), at)
            elif name.startswith("dinner."):
                number = len(self.recipe.products) + int(name.removeprefix("dinner."))
                known[name] = self.load_plain(emit, rows[f"state_gradient.{number}"], at)
            else:
                known[name] = self.load(emit, rows, name, at)
        return known

    def backward_row(self, piece: Piece, t: ir.Value, b: ir.Value, channels: Channels) -> None:
        rows = self.rows(t, b, self.operands)
        old, _ = self.state_rows(t, b)
        written, products = dict(piece.graph.outputs), self.recipe.product_parts
        states = [name for name in self.traced.states if f"d.{name}" in written]
        wanted = [name for name in self.recipe.wanted if f"d.{name}" in written]
        reset = self.flag("resets", t, b)

        def step(emit: Emitter, at: ir.Value) -> None:
            results = emit.run(piece.graph, self.known(piece, emit, rows, old, at))
            for name in wanted:
                gradient = results[f"d.{name}"]
                if name in self.traced.weights:
                    gradient = emit.emit_add(self.load(emit, rows, f"d.{name}", at), gradient)
                if name in products:
                    # The product of a state of zeros is a constant.
                    gradient = emit.builder.select(reset, emit.number(0.0), gradient)
                self.store(emit, rows, f"d.{name}", at, gradient)
            for name in states:
                # No gradient passes the first step of a new sequence.
                kept = emit.builder.select(reset, emit.number(0.0), results[f"d.{name}"])
                self.store(emit, rows, f"carry.{name}", at, kept)

        def pad(emit: Emitter, at: ir.Value) -> None:
            for name in wanted:
                if name in self.traced.inputs:
                    self.store(emit, rows, f"d.{name}", at, emit.number(0.0))
            for name in states:
                kept = emit.builder.select(reset, emit.number(0.0), self.above(emit, rows, name, at))
                self.store(emit, rows, f"carry.{name}", at, kept)

        self.where_real(t, b, channels, step, pad)

    def above(self, emit: Emitter, rows: Mapping[str, ir.Value], state: str, at: ir.Value) -> ir.Value:
        """The gradient of a state after the step: the carried one, and those of the products that read it."""
        total = self.load(emit, rows, f"carry.{state}", at)
        for i, product in enumerate(self.recipe.products):
            if product.state == state:
                more = self.load(emit, rows, f"state_gradient.{i}", at)
                if self.recipe.drops:
                    more = emit.emit_mul(more, self.load(emit, rows, f"drop_mask.{i}", at))
                total = emit.emit_add(total, more)
        return total

    def where_real(
        self,
        t: ir.Value,
        b: ir.Value,
        channels: tuple[ir.Value, ir.Value],
        step: Callable[[Emitter, ir.Value], None],
        pad: Callable[[Emitter, ir.Value], None],
    ) -> None:
        """Run `step` for the channels of a real row, `pad` for those of a padded one."""
        padded = self.builder.not_(self.flag("mask", t, b, absent=True))
        with self.builder.if_else(padded) as (yes, no):
            with yes:
                self.along(channels, pad)
            with no:
                self.along(channels, step)

    def rows(self, t: ir.Value, b: ir.Value, names: tuple[str, ...]) -> dict[str, ir.Value]:
        rows = {name: self.row(name, t, b) for name in names if not name.startswith("state.")}
        if self.recipe.products:
            zeros, reset = self.row("zeros", t, b), self.flag("resets", t, b)
            for name in self.recipe.product_parts:
                rows[name] = self.builder.select(reset, zeros, rows[name])
        return rows

    def state_rows(self, t: ir.Value, b: ir.Value) -> tuple[dict[str, ir.Value], dict[str, ir.Value]]:
        """The rows of the states before and after step t; at a reset, zeros before."""
        old_slot, new_slot = self.slots(t)
        zeros, reset = self.row("zeros", t, b), self.flag("resets", t, b)
        old, new = {}, {}
        for name in self.traced.states:
            old[name] = self.builder.select(reset, zeros, self.row(f"state.{name}", old_slot, b))
            new[name] = self.row(f"state.{name}", new_slot, b)
        return old, new

    def load(self, emit: Emitter, rows: Mapping[str, ir.Value], name: str, at: ir.Value) -> ir.Value:
        if self.recipe.storage == "bfloat16" and self.recipe.is_stored(name):
            return self.load_bfloat16(emit, rows[name], at)
        return self.load_plain(emit, rows[name], at)

    def store(
        self, emit: Emitter, rows: Mapping[str, ir.Value], name: str, at: ir.Value, value: ir.Value
    ) -> None:
        if self.recipe.storage == "bfloat16" and self.recipe.is_stored(name):
            self.store_bfloat16(emit, rows[name], at, value)
        else:
            self.store_plain(emit, rows[name], at, value)

    def load_bfloat16(self, emit: Emitter, row: ir.Value, at: ir.Value) -> ir.Value:
        """Load bfloat16 numbers, which are the upper halves of float32."""
        short = ir.IntType(16) if emit.width == 1 else ir.VectorType(ir.IntType(16), emit.width)
        address = self.builder.gep(row, [at], source_etype=ir.IntType(16))
        bits = self.builder.zext(self.builder.load(address, align=2, typ=short), emit.integers)
        return self.builder.bitcast(self.builder.shl(bits, emit.whole(16)), emit.vector)

    def store_bfloat16(self, emit: Emitter, row: ir.Value, at: ir.Value, value: ir.Value) -> None:
        """Round to the nearest bfloat16, ties to even; NaN stays NaN."""
        build = self.builder
        short = ir.IntType(16) if emit.width == 1 else ir.VectorType(ir.IntType(16), emit.width)
        bits = build.bitcast(value, emit.integers)
        upper = build.lshr(bits, emit.whole(16))
        odd = build.and_(upper, emit.whole(1))
        rounded = build.lshr(build.add(bits, build.add(odd, emit.whole(0x7FFF))), emit.whole(16))
        nan = build.fcmp_unordered("uno", value, value)
        rounded = build.select(nan, emit.whole(0x7FC0), rounded)
        address = build.gep(row, [at], source_etype=ir.IntType(16))
        build.store(build.trunc(rounded, short), address, align=2)
