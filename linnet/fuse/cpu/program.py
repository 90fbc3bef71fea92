"""What all kernels are made of: a loop over time, rows to walk, operands to find, products to take."""

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
    """Emits `void name(begin, end, arguments)`; the arguments are HEADER, then three numbers an operand.

    The three: address, stride in bytes along time, stride in bytes from row to row. begin and end
    are the rows, or blocks of rows, that this call is to do.
    """

    def __init__(self, name: str, operands: tuple[str, ...], bits: int, width: int):
        self.name, self.operands, self.width = name, operands, width
        self.form = Format(bits)
        self.module = ir.Module(name)
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [I64, I64, PTR]), name)
        self.begin, self.end, self.arguments = function.args
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        has_products = any(name.startswith("packed") for name in operands)
        self.gemm = Gemm(self.module, self.builder, self.form, width // 2) if has_products else None
        self.header = {name: self.argument(i) for i, name in enumerate(HEADER)}
        self.places = {
            name: [self.argument(len(HEADER) + 3 * i + j) for j in range(3)]
            for i, name in enumerate(operands)
        }

    def argument(self, index: int) -> ir.Value:
        address = self.builder.gep(self.arguments, [I64(index)], source_etype=I64)
        return self.builder.load(address, typ=I64)

    @contextmanager
    def times(self) -> Iterator[ir.Value]:
        """Along time; a backward kernel goes the other way round."""
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
        """The rows of this call of `source` at `slot` times a packed matrix, into `target` at t."""
        assert self.gemm is not None
        build = self.builder
        address, depth, panels = self.places[packed]
        a_row, c_row = self.places[source][2], self.places[target][2]
        a = build.ptrtoint(self.row(source, slot, self.begin), I64)
        c = build.ptrtoint(self.row(target, t, self.begin), I64)
        rows = build.sub(self.end, self.begin)
        self.gemm.emit(rows, a, a_row, address, depth, panels, c, c_row)

    def along(self, channels: tuple[ir.Value, ir.Value], body: Callable[[Emitter, ir.Value], None]) -> None:
        """Whole vectors, then what is left one by one."""
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
        """The sum of `part` along the channels: vectors, then their numbers in order, then what is left."""
        build, kinds = self.builder, [Emitter(self.builder, self.form, width) for width in (self.width, 1)]
        with build.goto_entry_block():
            places = {emit.width: build.alloca(emit.vector) for emit in kinds}
        for emit in kinds:
            build.store(emit.number(0.0), places[emit.width])

        def add(emit: Emitter, at: ir.Value) -> None:
            place = places[emit.width]
            build.store(emit.emit_add(build.load(place, typ=emit.vector), part(emit, at)), place)

        self.along(channels, add)
        whole, rest = (build.load(places[emit.width], typ=emit.vector) for emit in kinds)
        return build.fadd(self.fold(build.fadd, whole), rest)

    def fold(self, join: Callable[[ir.Value, ir.Value], ir.Value], vector: ir.Value) -> ir.Value:
        """The numbers of a vector joined by a function of two, in order."""
        numbers = [self.builder.extract_element(vector, ir.IntType(32)(j)) for j in range(vector.type.count)]
        return reduce(join, numbers)

    def row(self, name: str, t: ir.Value, b: ir.Value) -> ir.Value:
        address, along_time, along_rows = self.places[name]
        offset = self.builder.add(self.builder.mul(t, along_time), self.builder.mul(b, along_rows))
        return self.builder.inttoptr(self.builder.add(address, offset), PTR)

    def slots(self, t: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Which slot of a state's sequence step t reads, and which it writes."""
        after = self.builder.add(t, I64(1))
        backwards = self.builder.icmp_signed("!=", self.header["reverse"], I64(0))
        return self.builder.select(backwards, after, t), self.builder.select(backwards, t, after)

    def flag(self, name: str, t: ir.Value, b: ir.Value, absent: bool = False) -> ir.Value:
        """A mask or resets at one step of one row; `absent` where there is none."""
        address = self.header[name]
        offset = self.builder.add(
            self.builder.mul(t, self.header[f"{name}_time"]), self.builder.mul(b, self.header[f"{name}_row"])
        )
        there = self.builder.icmp_signed("!=", address, I64(0))
        # Without a tensor the address is that of the argument block: something to read, and ignored.
        nothing = self.builder.ptrtoint(self.arguments, I64)
        where = self.builder.select(there, self.builder.add(address, offset), nothing)
        byte = self.builder.load(self.builder.inttoptr(where, PTR), typ=I8)
        value = self.builder.icmp_unsigned("!=", byte, I8(0))
        return self.builder.select(there, value, ir.IntType(1)(absent))

    def load_plain(self, emit: Emitter, row: ir.Value, at: ir.Value) -> ir.Value:
        address = self.builder.gep(row, [at], source_etype=self.form.scalar)
        return self.builder.load(address, align=self.form.bits // 8, typ=emit.vector)

    def store_plain(self, emit: Emitter, row: ir.Value, at: ir.Value, value: ir.Value) -> None:
        address = self.builder.gep(row, [at], source_etype=self.form.scalar)
        self.builder.store(value, address, align=self.form.bits // 8)

    def loop(self, start: ir.Value, stop: ir.Value, step: int | ir.Value) -> AbstractContextManager[ir.Value]:
        """for i in range(start, stop, step)."""
        return loop(self.builder, start, stop, I64(step) if isinstance(step, int) else step)
