"""The parts that all kernels share: the loop over time, rows, operands and products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import reduce

from llvmlite import ir

from linnet.cpu.block_products import BlockProducts, Blocks
from linnet.cpu.emit import Emitter, Format
from linnet.cpu.gemm import Gemm, loop

I64, I8, PTR = ir.IntType(64), ir.IntType(8), ir.PointerType()

HEADER = (
    *("steps", "size", "blocks", "block", "reverse"),
    *("batch", "rows", "chunk", "kept", "threads", "patience"),
    *("mask", "mask_time", "mask_row", "resets", "resets_time", "resets_row"),
    # For sequences of which only the real steps are stored; see program/padding.py.
    *("starts", "apart", "places"),
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
        self.is_packed = self.builder.icmp_signed("!=", self.header["starts"], I64(0))
        # This call's rows: from `top` to `stop`, which `enter` sets for each step, `apart` from each other.
        self.top, self.bottom, self.apart = self.begin, self.end, I64(1)
        self.stop, self.before = self.end, I64(0)
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
            yield self.enter(self.builder.select(backwards, *order))

    @contextmanager
    def parts(self) -> Iterator[None]:
        """Loop over this call's parts of the rows. Usually there is one, from begin to end.

        If sequences are sorted by length, every part has long and short ones, so threads have equal work.
        """
        build = self.builder
        beyond = build.select(self.is_packed, self.end, build.add(self.begin, I64(1)))
        with self.loop(self.begin, beyond, 1) as part:
            self.top = part
            self.bottom = build.select(self.is_packed, self.header["batch"], self.end)
            self.apart = build.select(self.is_packed, self.header["apart"], I64(1))
            yield

    def enter(self, time: ir.Value) -> ir.Value:
        """Return where the rows of a step start; set `before`, where the slot before it does, and `stop`."""
        build = self.builder
        self.before = build.select(self.is_packed, self.packed_start(time), time)
        count = build.select(self.is_packed, self.packed_rows(time), self.bottom)
        self.stop = build.select(build.icmp_signed("<", count, self.bottom), count, self.bottom)
        return self.start_of(time)

    def start_of(self, time: ir.Value) -> ir.Value:
        start = self.packed_start(self.builder.add(time, I64(1)))
        return self.builder.select(self.is_packed, self.builder.sub(start, self.header["batch"]), time)

    def packed_rows(self, time: ir.Value) -> ir.Value:
        """How many sequences have a step at this time, if only real steps are stored."""
        slot, following = (self.packed_start(self.builder.add(time, I64(i))) for i in (1, 2))
        return self.builder.sub(following, slot)

    def packed_start(self, slot: ir.Value) -> ir.Value:
        """Where a slot of the states starts, if only real steps are stored; otherwise any number."""
        build = self.builder
        place = build.add(self.header["starts"], build.mul(slot, I64(8)))
        # Otherwise, read from the argument block, which is a valid address.
        place = build.select(self.is_packed, place, build.ptrtoint(self.arguments, I64))
        return build.load(build.inttoptr(place, PTR), typ=I64)

    def finish(self) -> str:
        self.builder.ret_void()
        return str(self.module)

    def multiply(
        self,
        source: str,
        slot: ir.Value,
        packed: str,
        target: str,
        t: ir.Value,
        blocks: tuple[int, int] = (1, 1),
        back: bool = False,
    ) -> None:
        """Multiply this call's rows of `source` at `slot` with a packed matrix, into `target` at t.

        blocks   the parts and the heads of the matrix
        back     the blocks are transposed
        """
        assert self.gemm is not None
        build = self.builder
        address, depth, count = self.locations[packed]
        a_row, c_row = (build.mul(self.apart, self.locations[name][2]) for name in (source, target))
        a = build.ptrtoint(self.row(source, slot, self.top), I64)
        c = build.ptrtoint(self.row(target, t, self.top), I64)
        rows = self.row_count(self.top, self.stop)
        if blocks[1] == 1:
            is_odd = build.trunc(t, ir.IntType(1))
            self.gemm.emit(rows, a, a_row, address, depth, (I64(0), count), c, c_row, flip=is_odd)
            return
        parts, heads = blocks
        operands = Blocks(rows, a, a_row, address, depth, count, c, c_row)
        products = BlockProducts(self.gemm, operands, heads)
        products.backpropagate(parts) if back else products.multiply(parts)

    def row_count(self, top: ir.Value, stop: ir.Value) -> ir.Value:
        """The number of rows from `top` to `stop`, `apart` from each other."""
        build = self.builder
        spread = build.add(build.sub(stop, top), build.sub(self.apart, I64(1)))
        some = build.icmp_signed(">", stop, top)
        return build.select(some, build.udiv(spread, self.apart), I64(0))

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
        build = self.builder
        after = build.add(t, build.select(self.is_packed, self.header["batch"], I64(1)))
        backwards = build.icmp_signed("!=", self.header["reverse"], I64(0))
        before = build.select(self.is_packed, self.before, t)
        return build.select(backwards, after, before), build.select(backwards, before, after)

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
