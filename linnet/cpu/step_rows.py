"""The traced step for one row of the batch at one time: what it reads, computes and writes.

A step is emitted piece by piece (see program/phases.py), each for some channels of a row, vector by vector.
At a padded step the states stay, and at a reset they start from zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llvmlite import ir

from linnet.cpu.emit import Emitter
from linnet.cpu.gemm import broadcast, repeated
from linnet.cpu.program import I64, PTR, Program
from linnet.cpu.recipe import Recipe
from linnet.program.pattern import number_name
from linnet.program.phases import Piece

# The first of some channels, and the one after the last.
Channels = tuple[ir.Value, ir.Value]
# The addresses of the rows of operands, by name.
Rows = Mapping[str, ir.Value]


class StepRows(Program):
    """The steps of single rows, of which a kernel makes its loops."""

    def __init__(self, recipe: Recipe, name: str, operands: tuple[str, ...]):
        super().__init__(name, operands, recipe.bits, recipe.width)
        self.recipe, self.traced = recipe, recipe.traced
        # Loaded once before the loops, since the compiler cannot know that no store changes them.
        self.numbers = [self.load_number(i) for i in range(recipe.numbers)]

    def load_number(self, i: int) -> ir.Value:
        start = self.builder.inttoptr(self.locations["numbers"][0], PTR)
        address = self.builder.gep(start, [I64(i)], source_etype=self.form.scalar)
        return self.builder.load(address, typ=self.form.scalar)

    def known_numbers(self, emit: Emitter) -> dict[str, ir.Value]:
        return {number_name(i): broadcast(emit, number) for i, number in enumerate(self.numbers)}

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
        rows, (old_slot, new_slot) = self.rows(t, b, self.operands), self.slots(t)
        old, _ = self.state_rows(t, b)
        written, products = dict(piece.graph.outputs), self.recipe.product_parts
        # If threads share the channels, each step has memory of its own for the gradients of states.
        below = {name: self.row(f"carry.{name}", old_slot, b) for name in self.traced.states}
        rows |= {name: self.row(name, new_slot, b) for name in rows if name.startswith(("carry.", "state_g"))}
        states = [name for name in self.traced.states if f"d.{name}" in written]
        wanted = [name for name in self.recipe.wanted if f"d.{name}" in written]
        reset = self.flag("resets", t, b)

        def step(emit: Emitter, at: ir.Value) -> None:
            results = emit.run(piece.graph, self.known(piece, emit, rows, old, at))
            for name in wanted:
                gradient = results[f"d.{name}"]
                if name in self.traced.weights and not self.recipe.shared:
                    gradient = emit.emit_add(self.load(emit, rows, f"d.{name}", at), gradient)
                if name in products:
                    # The product of a state of zeros is a constant.
                    gradient = emit.builder.select(reset, emit.number(0.0), gradient)
                self.store(emit, rows, f"d.{name}", at, gradient)
            for name in states:
                # No gradient passes the first step of a new sequence.
                kept = emit.builder.select(reset, emit.number(0.0), results[f"d.{name}"])
                self.store_plain(emit, below[name], at, kept)

        def pad(emit: Emitter, at: ir.Value) -> None:
            for name in wanted:
                if name in self.traced.inputs:
                    self.store(emit, rows, f"d.{name}", at, emit.number(0.0))
            for name in states:
                kept = emit.builder.select(reset, emit.number(0.0), self.above(emit, rows, name, at))
                self.store_plain(emit, below[name], at, kept)

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

    def along(self, channels: tuple[ir.Value, ir.Value], body: Callable[[Emitter, ir.Value], None]) -> None:
        """Run `body` for whole vectors of channels, then for the rest in masked vectors of half the width."""
        first, beyond = channels
        rest = self.builder.urem(self.builder.sub(beyond, first), I64(self.width))
        whole = self.builder.sub(beyond, rest)
        with self.loop(first, whole, self.width) as at:
            body(Emitter(self.builder, self.form, self.width), at)
        with self.loop(whole, beyond, self.width // 2) as at:
            mask = self.first_of(self.width // 2, self.builder.sub(beyond, at))
            body(Emitter(self.builder, self.form, self.width // 2, mask), at)

    def first_of(self, width: int, count: ir.Value) -> ir.Value:
        """A mask of `width` flags, of which the first `count` are true."""
        numbers = ir.Constant(ir.VectorType(I64, width), [I64(i) for i in range(width)])
        return self.builder.icmp_signed("<", numbers, repeated(self.builder, count, width))

    def channels(self, unit: ir.Value, group: int = 0) -> Channels:
        """The range of channels of this unit of work."""
        size, block = self.group_size(group), self.header["block"]
        if self.traced.inner:
            block = self.locations[f"group.{group}"][1]
        first = self.builder.mul(self.builder.urem(unit, self.header["blocks"]), block)
        if self.traced.inner:  # a small group may have fewer blocks
            first = self.least(first, size)
        return first, self.least(self.builder.add(first, block), size)

    def least(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)

    def all_channels(self, group: int) -> Channels:
        return I64(0), self.group_size(group)

    def group_size(self, group: int) -> ir.Value:
        return self.locations[f"group.{group}"][0] if self.traced.inner else self.header["size"]

    def rows(self, t: ir.Value, b: ir.Value, names: tuple[str, ...]) -> dict[str, ir.Value]:
        rows = {name: self.row(name, t, b) for name in names if not name.startswith("state.")}
        rows |= {name: self.output_row(name, t, b) for name in ("y", "dy") if name in rows}
        if self.recipe.products:
            zeros, reset = self.row("zeros", t, b), self.flag("resets", t, b)
            for name in self.recipe.product_parts:
                rows[name] = self.builder.select(reset, zeros, rows[name])
        return rows

    def output_row(self, name: str, t: ir.Value, b: ir.Value) -> ir.Value:
        """A row of the output, which may have padded steps although no other sequence has."""
        build, places = self.builder, self.header["places"]
        has_padding = build.icmp_signed("!=", places, I64(0))
        here = build.add(places, build.mul(build.add(t, b), I64(8)))
        # Otherwise, read from the argument block, which is a valid address.
        here = build.select(has_padding, here, build.ptrtoint(self.arguments, I64))
        place = build.load(build.inttoptr(here, PTR), typ=I64)
        t, b = build.select(has_padding, I64(0), t), build.select(has_padding, place, b)
        return self.row(name, t, b)

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
        bits = self.builder.zext(emit.load(address, short, 2), emit.integers)
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
        emit.store(build.trunc(rounded, short), address, 2)
