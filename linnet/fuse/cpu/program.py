"""The parts that all kernels share: the loop over time, rows, operands and products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import reduce

from llvmlite import ir

from linnet.fuse.cpu.emit import Emitter, Format
from linnet.fuse.cpu.gemm import Gemm, loop

I64, I8, PTR = ir.IntType(64), ir.IntType(8), ir.PointerType()

HEADER = (
    *("steps", "size", "blocks", "block", "reverse"),
    *("batch", "rows", "chunk", "kept", "threads", "patience"),
    *("mask", "mask_time", "mask_row", "resets", "resets_time", "resets_row"),
)


class Program:
    """Emits `void name(begin, end, arguments)`; the arguments are HEADER, then three numbers per operand.

    The three are the address and the strides along time and along rows, in bytes. The call computes
    the rows, or blocks of rows, from begin to end.
    """

    def __init__(self, name: str, operands: tuple[str, ...], bits: int, width: int):
        self.name, self.operands, self.width = name, operands, width
        self.form = Format(bits)
        self.module = ir.Module(name)
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [I64, I64, PTR]), name)
        self.begin, self.end, self.arguments = function.args
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        has_products = any(name.startswith("matrix.") for name in operands)
        self.gemm = Gemm(self.module, self.builder, self.form, width // 2) if has_products else None
        self.header = {name: self.argument(i) for i, name in enumerate(HEADER)}
        self.locations = {
            name: [self.argument(len(HEADER) + 3 * i + j) for j in range(3)]
            for i, name in enumerate(operands)
        }

    def argument(self, index: int) -> ir.Value:
        address = self.builder.gep(self.arguments, [I64(index)], source_etype=I64)
        return self.builder.load(address, typ=I64)

    @contextmanager
    def times(self) -> Iterator[ir.Value]:
        """Loop over time; a backward kernel runs in the opposite order."""
        steps = self.header["steps"]
        with self.loop(I64(0), steps, 1) as i:
            flipped = self.builder.sub(self.builder.sub(steps, I64(1)), i)
            backwards = self.builder.icmp_signed("!=", self.header["reverse"], I64(0))
            order = (flipped, i) if self.name == "forward" else (i, flipped)
            yield self.builder.select(backwards, *order)

    def finish(self) -> str:
        self.builder.ret_void()
        return str(self.module)

    def multiply(self, source: str, slot: ir.Value, packed: str, target: str, t: ir.Value) -> None:
        """Multiply this call's rows of `source` at `slot` with a packed matrix, into `target` at t."""
        assert self.gemm is not None
        build = self.builder
        address, depth, panels = self.locations[packed]
        a_row, c_row = self.locations[source][2], self.locations[target][2]
        a = build.ptrtoint(self.row(source, slot, self.begin), I64)
        c = build.ptrtoint(self.row(target, t, self.begin), I64)
        rows = build.sub(self.end, self.begin)
        self.gemm.emit(rows, a, a_row, address, depth, (I64(0), panels), c, c_row)

    def along(self, channels: tuple[ir.Value, ir.Value], body: Callable[[Emitter, ir.Value], None]) -> None:
        """Run `body` for whole vectors of channels, then for each remaining channel."""
        first, beyond = channels
        width = I64(self.width)
        count = self.builder.sub(beyond, first)
        whole = self.builder.sub(beyond, self.builder.urem(count, width))
        with self.loop(first, whole, self.width) as at:
            body(Emitter(self.builder, self.form, self.width), at)
        with self.loop(whole, beyond, 1) as at:
            body(Emitter(self.builder, self.form, 1), at)

    def sum_along(
        self, channels: tuple[ir.Value, ir.Value], part: Callable[[Emitter, ir.Value], ir.Value]
    ) -> ir.Value:
        """The sum of `part` over the channels: of vectors, then of their numbers in order, then the rest."""
        build, kinds = self.builder, [Emitter(self.builder, self.form, width) for width in (self.width, 1)]
        with build.goto_entry_block():
            totals = {emit.width: build.alloca(emit.vector) for emit in kinds}
        for emit in kinds:
            build.store(emit.number(0.0), totals[emit.width])

        def add(emit: Emitter, at: ir.Value) -> None:
            total = totals[emit.width]
            build.store(emit.emit_add(build.load(total, typ=emit.vector), part(emit, at)), total)

        self.along(channels, add)
        whole, rest = (build.load(totals[emit.width], typ=emit.vector) for emit in kinds)
        return build.fadd(self.fold(build.fadd, whole), rest)

    def fold(self, join: Callable[[ir.Value, ir.Value], ir.Value], vector: ir.Value) -> ir.Value:
        """Reduce the numbers of a vector with a function of two, in order."""
        numbers = [self.builder.extract_element(vector, ir.IntType(32)(j)) for j in range(vector.type.count)]
        return reduce(join, numbers)

    def row(self, name: str, t: ir.Value, b: ir.Value) -> ir.Value:
        address, along_time, along_rows = self.locations[name]
        offset = self.builder.add(self.builder.mul(t, along_time), self.builder.mul(b, along_rows))
        return self.builder.inttoptr(self.builder.add(address, offset), PTR)

    def slots(self, t: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Which slot of a state's sequence step t reads, and which it writes."""
        after = self.builder.add(t, I64(1))
        backwards = self.builder.icmp_signed("!=", self.header["reverse"], I64(0))
        return self.builder.select(backwards, after, t), self.builder.select(backwards, t, after)

    def flag(self, name: str, t: ir.Value, b: ir.Value, absent: bool = False) -> ir.Value:
        """The mask or the resets at one step of one row; `absent` if there is no such tensor."""
        address = self.header[name]
        offset = self.builder.add(
            self.builder.mul(t, self.header[f"{name}_time"]), self.builder.mul(b, self.header[f"{name}_row"])
        )
        there = self.builder.icmp_signed("!=", address, I64(0))
        # Without a tensor, read from the argument block, which is a valid address, and ignore the value.
        nothing = self.builder.ptrtoint(self.arguments, I64)
        where = self.builder.select(there, self.builder.add(address, offset), nothing)
        byte = self.builder.load(self.builder.inttoptr(where, PTR), typ=I8)
        value = self.builder.icmp_unsigned("!=", byte, I8(0))
        return self.builder.select(there, value, ir.IntType(1)(absent))

    def load_plain(self, emit: Emitter, row: ir.Value, at: ir.Value) -> ir.Value:
        address = self.builder.gep(row, [at], source_etype=self.form.scalar)
        return emit.load(address, emit.vector, self.form.bits // 8)

    def store_plain(self, emit: Emitter, row: ir.Value, at: ir.Value, value: ir.Value) -> None:
        address = self.builder.gep(row, [at], source_etype=self.form.scalar)
        emit.store(value, address, self.form.bits // 8)

    def loop(self, start: ir.Value, stop: ir.Value, step: int | ir.Value) -> AbstractContextManager[ir.Value]:
        """for i in range(start, stop, step)."""
        return loop(self.builder, start, stop, I64(step) if isinstance(step, int) else step)
