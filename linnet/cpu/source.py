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

A step with inner products runs in phases, with a product after each but the last; see program/phases.py.

The forward kernel can compute the projection of the input, too: it then projects a few steps at a time and
runs these steps while the projections are in the cache. If channels are independent of each other, a kernel
gets some of the channels and all rows, which allows larger products. In a single step channels are always
independent, and matrices are read without packing (`unpacked`), which would cost more than it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llvmlite import ir

from linnet.cpu.block_products import BlockProducts, Blocks
from linnet.cpu.dots import Dots
from linnet.cpu.emit import Emitter
from linnet.cpu.program import I64, PTR
from linnet.cpu.recipe import Recipe
from linnet.cpu.step_rows import Channels, StepRows
from linnet.program.phases import Piece, first_phase, phases_of, shared_phases

# Computes a piece of step t for row b: piece, t, b, channels.
Row = Callable[[Piece, ir.Value, ir.Value, Channels], None]
# The first of some rows or channels, and the one after the last.
Span = tuple[ir.Value, ir.Value]
# Where products are written: the name of a buffer, the step, and how many parts they have.
Target = tuple[str, ir.Value, int]
# Computes a piece of step t for all rows: t, piece, what computes it for one row.
Walk = Callable[[ir.Value, Piece, Row], None]


class Kernel(StepRows):
    """The loop over time around a traced step."""

    def __init__(self, recipe: Recipe, name: str, operands: tuple[str, ...]):
        super().__init__(recipe, name, operands)
        self.dot: Dots | None = None
        # The step whose projections are at the address of step 0.
        self.origin: ir.Value = I64(0)

    def emit(self) -> str:
        if self.recipe.shared:
            return self.emit_shared()
        if self.recipe.projects:
            return self.emit_projecting()
        with self.parts(), self.times() as t:
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
                self.product(number, f"inner.{i - 1}", t, t)
            for piece in pieces:
                walk(t, piece, self.forward_row)

    def backward_phases(self, t: ir.Value) -> None:
        first, phases = len(self.recipe.products), phases_of(self.traced).backward
        for i, pieces in enumerate(phases):
            if i:
                number = first + len(phases) - 1 - i
                self.backpropagate(number, t)
            for piece in pieces:
                self.own_rows(t, piece, self.backward_row)

    def own_rows(self, t: ir.Value, piece: Piece, row: Row) -> None:
        """The rows of this call, or blocks of their channels."""
        with self.loop(self.top, self.stop, self.apart) as unit:
            b = self.builder.udiv(unit, self.header["blocks"])
            row(piece, t, b, self.all_channels(piece.group) if self.traced.inner else self.channels(unit))

    def emit_shared(self) -> str:
        """Run all rows over time; at each step threads claim blocks of channels, each starting with its own.

        No thread waits for one that does not run: it claims the blocks that are left, and after `patience`
        checks also computes those that another thread has claimed and not finished. Two threads may then
        write the same numbers to the same memory, which is harmless, since each step has memory of its own.
        """
        build, blocks, threads = self.builder, self.header["blocks"], self.header["threads"]
        own = build.udiv(build.mul(self.begin, blocks), threads)
        everything = build.sub(build.shl(I64(1), blocks), I64(1))
        count = shared_phases(self.traced, self.name)
        with self.times() as t:
            for phase in range(count):
                number = build.add(build.mul(t, I64(count)), I64(phase))
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
        compute = self.forward_block if self.name == "forward" else self.backward_block
        compute(t, phase, block)
        self.builder.atomic_rmw("or", done, self.builder.shl(I64(1), block), "release")

    def forward_block(self, t: ir.Value, phase: int, block: ir.Value) -> None:
        batch, phases = self.header["batch"], phases_of(self.traced)
        for i, (source, slot, parts) in enumerate(self.matrices(t)):
            if phase == first_phase(phases, parts):
                group = phases.groups[parts[0]]
                size, channels = self.group_size(group), self.channels(block, group)
                where, row = (f"product.{i}", t, len(parts)), self.row(source, slot, I64(0))
                multiply, heads = self.dots if self.recipe.unpacked else self.panels, self.recipe.blocks[i][1]
                multiply(row, source, f"matrix.{i}", where, (I64(0), batch), channels, size, heads)
        for piece in phases.forward[phase]:
            with self.loop(I64(0), batch, 1) as b:
                self.forward_row(piece, t, b, self.channels(block, piece.group))

    def backward_block(self, t: ir.Value, phase: int, block: ir.Value) -> None:
        """First the gradients of the step itself; then, from those of all channels, of the states that the
        products read."""
        batch, channels = self.header["batch"], self.channels(block)
        if phase == 0:
            for piece in phases_of(self.traced).backward[0]:
                with self.loop(I64(0), batch, 1) as b:
                    self.backward_row(piece, t, b, channels)
            return
        old_slot, _ = self.slots(t)
        for i in range(len(self.recipe.products)):
            source, where = f"dproduct.{i}", (f"state_gradient.{i}", old_slot, 1)
            row, rows = self.row(source, t, I64(0)), (I64(0), batch)
            self.panels(row, source, f"matrix.{i}", where, rows, channels, self.header["size"])

    def matrices(self, t: ir.Value) -> Iterator[tuple[str, ir.Value, tuple[str, ...]]]:
        """For each matrix: what it reads at step t, in which slot, and the inputs that it makes."""
        old_slot, _ = self.slots(t)
        for product in self.recipe.products:
            yield f"state.{product.state}", old_slot, product.parts
        for i, (_, parts, _) in enumerate(self.traced.inner):
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

    def emit_projecting(self) -> str:
        if (self.recipe.products or self.traced.inner) and not self.recipe.unpacked:
            with self.parts():
                self.run_block((I64(0), self.header["size"]))
            return self.finish()
        build, rows = self.builder, self.header["rows"]
        with self.loop(self.begin, self.end, 1) as unit:
            self.top = build.mul(build.udiv(unit, self.header["blocks"]), rows)
            self.bottom = self.least(build.add(self.top, rows), self.header["batch"])
            self.run_block(self.channels(unit))
        return self.finish()

    def run_block(self, channels: tuple[ir.Value, ir.Value]) -> None:
        """Run some rows and channels over time: the projections of a few steps, and then those steps."""
        build, steps, chunk = self.builder, self.header["steps"], self.header["chunk"]
        backwards = build.icmp_signed("!=", self.header["reverse"], I64(0))
        with self.loop(I64(0), steps, chunk) as done:
            left = build.sub(steps, done)
            count = self.least(chunk, left)
            first = build.select(backwards, build.sub(left, count), done)
            keeps = build.icmp_signed("!=", self.header["kept"], I64(0))
            self.origin = build.select(keeps, I64(0), self.start_of(first))
            project = self.project_unpacked if self.recipe.unpacked else self.project
            project(first, count, channels)
            with self.loop(I64(0), count, 1) as i:
                last = build.sub(build.add(first, count), I64(1))
                t = self.enter(build.select(backwards, build.sub(last, i), build.add(first, i)))
                if self.recipe.unpacked:
                    self.products_unpacked(t, channels)
                else:
                    self.products(t)

                def walk(t: ir.Value, piece: Piece, row: Row) -> None:
                    with self.loop(self.top, self.stop, self.apart) as b:
                        row(piece, t, b, self.all_channels(piece.group) if self.traced.inner else channels)

                self.forward_phases(t, walk)

    def project(self, first: ir.Value, count: ir.Value, channels: Span) -> None:
        """Multiply the input of `count` steps with the packed matrix, panel by panel and gate by gate.

        With several heads, each head of a gate counts as a gate: the channels are then all of them.
        """
        assert self.gemm is not None
        build, gemm, heads = self.builder, self.gemm, I64(self.recipe.input_heads)
        size = build.udiv(self.header["size"], heads)
        channels = channels if self.recipe.input_heads == 1 else (I64(0), size)
        packed, depth, bias = self.locations["matrix.input"]
        panels = build.udiv(build.add(size, I64(self.width - 1)), I64(self.width))
        is_one_run = self.is_one_run()
        beyond = build.udiv(build.add(channels[1], I64(self.width - 1)), I64(self.width))
        target = self.recipe.projected[0]
        gates = self.loop(I64(0), I64(len(self.recipe.projected) * self.recipe.input_heads), 1)
        own_panels = self.loop(build.udiv(channels[0], I64(self.width)), beyond, 1)
        with gates as gate, own_panels as p:
            number = build.add(build.mul(gate, panels), p)
            panel = build.add(packed, build.mul(build.mul(number, depth), I64(gemm.panel_bytes)))
            start = build.inttoptr(build.add(bias, build.mul(number, I64(gemm.panel_bytes))), PTR)
            column = build.mul(p, I64(self.width))
            offset = build.mul(build.add(build.mul(gate, size), column), I64(self.form.bits // 8))
            columns = self.least(I64(self.width), build.sub(size, column))
            read = build.mul(build.mul(build.urem(gate, heads), depth), I64(self.form.bits // 8))
            with self.loop(I64(0), build.select(is_one_run, I64(1), count), 1) as i:
                t = self.enter(build.add(first, i))
                a = build.add(build.ptrtoint(self.row("x", t, self.top), I64), read)
                c = build.add(build.ptrtoint(self.row(target, t, self.top), I64), offset)
                strides = [build.mul(self.apart, self.locations[name][2]) for name in ("x", target)]
                all_rows = self.rows_of(first, count)
                rows = build.select(is_one_run, all_rows, self.row_count(self.top, self.stop))
                gemm.emit_panel(rows, a, strides[0], panel, start, depth, c, strides[1], columns)

    def project_unpacked(self, first: ir.Value, count: ir.Value, channels: Span) -> None:
        target, parts = self.recipe.projected[0], len(self.recipe.projected)
        with self.loop(I64(0), count, 1) as i:
            t = self.builder.add(first, i)
            where, rows, size = (target, t, parts), (self.top, self.bottom), self.header["size"]
            row, heads = self.row("x", t, self.top), self.recipe.input_heads
            self.dots(row, "x", "matrix.input", where, rows, channels, size, heads)

    def products_unpacked(self, t: ir.Value, channels: Span) -> None:
        """The products of the previous states, for some rows and channels; nothing writes these states."""
        for i, (source, slot, parts) in enumerate(self.matrices(t)):
            where, row = (f"product.{i}", t, len(parts)), self.row(source, slot, self.top)
            rows, size, heads = (self.top, self.bottom), self.header["size"], self.recipe.blocks[i][1]
            self.dots(row, source, f"matrix.{i}", where, rows, channels, size, heads)

    def dots(
        self,
        a: ir.Value,
        source: str,
        matrix: str,
        target: Target,
        rows: Span,
        channels: Span,
        size: ir.Value,
        heads: int = 1,
    ) -> None:
        """Rows of a source with a matrix, part by part, for some channels of `size`."""
        if heads > 1:
            self.dots_by_head(a, source, matrix, target, rows, channels, size, heads)
            return
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

    def panels(
        self,
        a: ir.Value,
        source: str,
        matrix: str,
        target: Target,
        rows: Span,
        channels: Span,
        size: ir.Value,
        heads: int = 1,
    ) -> None:
        """`dots` with a packed matrix. Where a panel has channels of two blocks, both compute all of it."""
        assert self.gemm is not None
        build, width, (top, bottom), (name, t, parts) = self.builder, I64(self.width), rows, target
        packed, depth, third = self.locations[matrix]
        strides = self.locations[source][2], self.locations[name][2]
        a, c = build.ptrtoint(a, I64), build.ptrtoint(self.row(name, t, top), I64)
        count = build.sub(bottom, top)
        if heads > 1:
            operands = Blocks(count, a, strides[0], packed, depth, third, c, strides[1])
            BlockProducts(self.gemm, operands, heads).multiply_channels(parts, channels)
            return
        is_odd = build.trunc(t, ir.IntType(1))
        with self.loop(I64(0), I64(parts), 1) as number:
            part = self.gemm.turned(number, I64(0), I64(parts), 1, is_odd)
            first, beyond = (build.add(build.mul(part, size), channel) for channel in channels)
            last = build.udiv(build.add(beyond, I64(self.width - 1)), width)
            own = build.udiv(first, width), last
            self.gemm.emit(count, a, strides[0], packed, depth, own, c, strides[1], few=True, flip=is_odd)

    def dots_by_head(
        self,
        a: ir.Value,
        source: str,
        matrix: str,
        target: Target,
        rows: Span,
        channels: Span,
        size: ir.Value,
        heads: int,
    ) -> None:
        """`dots` of a block-diagonal matrix: for each head those of its channels that are wanted."""
        build, line = self.builder, self.locations[matrix][1]
        block = build.udiv(size, I64(heads))
        with self.loop(I64(0), I64(heads), 1) as head:
            start = build.mul(head, block)
            first = self.most(start, channels[0])
            # None are wanted if the last is not after the first.
            last = self.most(first, self.least(build.add(start, block), channels[1]))
            own = build.gep(a, [build.mul(head, line)], source_etype=ir.IntType(8))
            self.dots(own, source, matrix, target, rows, (first, last), size)

    def most(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.select(self.builder.icmp_signed(">", a, b), a, b)

    def is_one_run(self) -> ir.Value:
        """Whether this call has all rows, and those of each step are followed by those of the next."""
        build, batch = self.builder, self.header["batch"]
        _, x_time, x_row = self.locations["x"]
        even = build.icmp_signed("==", x_time, build.mul(batch, x_row))
        every_row = build.icmp_signed("==", self.row_count(self.top, self.bottom), batch)
        return build.and_(build.or_(even, self.is_packed), every_row)

    def rows_of(self, first: ir.Value, count: ir.Value) -> ir.Value:
        """The number of rows of `count` steps."""
        build = self.builder
        beyond = self.start_of(build.add(first, count))
        packed = build.sub(beyond, self.start_of(first))
        return build.select(self.is_packed, packed, build.mul(count, self.header["batch"]))

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
            self.product(i, source, old_slot, t)

    def drop(self, slot: ir.Value, i: int) -> None:
        """The state as product i reads it."""
        state = self.recipe.products[i].state

        def times(emit: Emitter, at: ir.Value) -> None:
            kept = emit.emit_mul(self.load_plain(emit, old, at), self.load_plain(emit, mask, at))
            self.store_plain(emit, visible, at, kept)

        with self.loop(self.top, self.stop, self.apart) as b:
            old = self.row(f"state.{state}", slot, b)
            mask, visible = self.row(f"drop_mask.{i}", slot, b), self.row(f"visible.{i}", slot, b)
            self.along(self.all_channels(phases_of(self.traced).groups[state]), times)

    def backpropagate_products(self, t: ir.Value) -> None:
        """Multiply the gradients of the products with states with the transposed matrices."""
        for i in range(len(self.recipe.products)):
            self.backpropagate(i, t)

    def backpropagate(self, i: int, t: ir.Value) -> None:
        """The gradient of what product i has read."""
        names = f"matrix.{i}", f"state_gradient.{i}"
        self.multiply(f"dproduct.{i}", t, *names, t, self.recipe.blocks[i], back=True)

    def product(self, i: int, source: str, slot: ir.Value, t: ir.Value) -> None:
        """Product i of what `source` has at `slot`."""
        self.multiply(source, slot, f"matrix.{i}", f"product.{i}", t, self.recipe.blocks[i])
