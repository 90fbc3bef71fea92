"""Products of int8 matrices with rows that are rounded to int8 when they are read, in LLVM.

    C[r, j] = (Q[r, :] . W[j, :]) * scale[j] * factor[r] + b[j]

Q[r, :] is A[r, :] / factor[r], rounded half to even, and factor[r] = max |A[r, :]| / 127: the scheme of
linnet/recurrent/int8.py. Sums are exact, in int32, so their order does not matter.

W is packed as panels[p][k / 4][j][k % 4]: an instruction for dot products takes four numbers of k at a time.
In that of AVX-512 (VNNI) one factor is unsigned, so there the rows are stored as Q + 128, and the sums
start from -128 times the sum of a row of W. On other machines LLVM chooses the instructions.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import llvmlite.binding as llvm
import torch
import torch.nn.functional as F
from llvmlite import ir
from torch import Tensor

from linnet.cpu import jit
from linnet.cpu.call import side_by_side, whole_bias
from linnet.cpu.emit import Emitter, Format
from linnet.cpu.gemm import I32, I64, PTR, broadcast, loop
from linnet.cpu.kernel_cache import once
from linnet.cpu.threads import grain
from linnet.cpu.width import vector_width

BYTE, FLOAT = ir.IntType(8), ir.FloatType()
# How many numbers along k one instruction multiplies and adds up.
GROUP = 4
# Rows of A that share the numbers of a panel, and rows that one unit of work of `Int8Panels.times` computes.
ROWS, BLOCK = 4, 32


@cache
def has_dot_instruction() -> bool:
    """Whether the machine has AVX-512 VNNI."""
    return bool(llvm.get_host_cpu_features().get("avx512vnni")) and lanes() == 16


def lanes() -> int:
    return vector_width(torch.float32) // 2


def panel_width() -> int:
    """How many rows of W a panel has: with those of A, its sums fill the registers."""
    return 4 * lanes() if lanes() == 16 else 2 * lanes()


class Int8Functions:
    """`quantise` and `multiply`, as functions of an LLVM module."""

    def __init__(self, module: ir.Module):
        self.module, self.form, self.lanes = module, Format(32), lanes()
        self.signed = not has_dot_instruction()
        self.quantise = self.function("quantise", [PTR, I64, PTR, PTR])
        self.emit_quantise()
        self.kernels = {rows: self.micro_kernel(rows) for rows in (1, ROWS)}
        self.multiply = self.function(
            "multiply", [PTR, I64, PTR, I64, PTR, I64, PTR, PTR, PTR, PTR, I64, I64]
        )
        self.emit_multiply()

    def function(self, name: str, kinds: list[ir.Type]) -> ir.Function:
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), name)
        function.linkage = "internal"
        return function

    # ------------------------------------------------------------------------------ one row of A

    def emit_quantise(self) -> None:
        """void quantise(row of A, its size, bytes of Q, factor)."""
        row, size, made, factor = self.quantise.args
        build = ir.IRBuilder(self.quantise.append_basic_block("entry"))
        largest = self.largest(build, row, size)
        scale = build.fdiv(largest, ir.Constant(FLOAT, 127.0))
        build.store(scale, factor)
        none = build.fcmp_ordered("==", scale, ir.Constant(FLOAT, 0.0))
        divisor = build.select(none, ir.Constant(FLOAT, 1.0), scale)
        for emit, start, stop in self.pieces(build, size):
            with loop(build, start, stop, I64(emit.width)) as k:
                ratio = build.fdiv(self.load(emit, row, k), broadcast(emit, divisor))
                # The sum has no fraction bits left, so the addition rounds half to even.
                rounder = emit.number(self.form.rounder)
                bits = build.bitcast(build.fadd(ratio, rounder), emit.integers)
                number = build.sub(bits, build.bitcast(rounder, emit.integers))
                number = number if self.signed else build.add(number, emit.whole(128))
                kind = BYTE if emit.width == 1 else ir.VectorType(BYTE, emit.width)
                build.store(build.trunc(number, kind), build.gep(made, [k], source_etype=BYTE), align=1)
        build.ret_void()

    def largest(self, build: ir.IRBuilder, row: ir.Value, size: ir.Value) -> ir.Value:
        """max |a| of a row; NaN if the row contains NaN."""
        one = Emitter(build, self.form, 1)
        with build.goto_entry_block():
            maximum = build.alloca(FLOAT)
        build.store(ir.Constant(FLOAT, 0.0), maximum)
        for emit, start, stop in self.pieces(build, size):
            found = self.largest_of_piece(emit, row, start, stop)
            while found.type != FLOAT:
                found = self.larger_half(build, found)
            build.store(one.emit_maximum(build.load(maximum), found), maximum)
        return build.load(maximum)

    def largest_of_piece(self, emit: Emitter, row: ir.Value, start: ir.Value, stop: ir.Value) -> ir.Value:
        build, before = emit.builder, emit.builder.block
        head, body, done = (build.append_basic_block() for _ in range(3))
        build.branch(head)
        build.position_at_end(head)
        k, most = build.phi(I64), build.phi(emit.vector)
        k.add_incoming(start, before)
        most.add_incoming(emit.number(0.0), before)
        build.cbranch(build.icmp_signed("<", k, stop), body, done)
        build.position_at_end(body)
        size = emit.intrinsic("llvm.fabs", self.load(emit, row, k))
        most.add_incoming(emit.emit_maximum(most, size), body)
        k.add_incoming(build.add(k, I64(emit.width)), body)
        build.branch(head)
        build.position_at_end(done)
        return most

    def larger_half(self, build: ir.IRBuilder, vector: ir.Value) -> ir.Value:
        half = vector.type.count // 2
        parts = [
            build.shuffle_vector(vector, vector, whole(range(start, start + half))) for start in (0, half)
        ]
        if half == 1:
            parts = [build.extract_element(part, I32(0)) for part in parts]
        return Emitter(build, self.form, half).emit_maximum(*parts)

    def pieces(self, build: ir.IRBuilder, size: ir.Value) -> list[tuple[Emitter, ir.Value, ir.Value]]:
        """The ranges of whole vectors, and of the remaining single numbers."""
        cut = build.sub(size, build.urem(size, I64(self.lanes)))
        wide, one = Emitter(build, self.form, self.lanes), Emitter(build, self.form, 1)
        return [(wide, I64(0), cut), (one, cut, size)]

    def load(self, emit: Emitter, row: ir.Value, at: ir.Value) -> ir.Value:
        return emit.builder.load(emit.builder.gep(row, [at], source_etype=FLOAT), align=4, typ=emit.vector)

    # ------------------------------------------------------------------------------- the product

    def emit_multiply(self) -> None:
        """Multiply with all panels; the arguments are Q with its bytes per row, the factors, the target."""
        q, q_row, factors, rows, panels, groups, starts, scales, bias, c, c_row, columns = self.multiply.args
        build, wide = ir.IRBuilder(self.multiply.append_basic_block("entry")), panel_width()
        panel_bytes = build.mul(groups, I64(wide * GROUP))
        many = build.sub(rows, build.urem(rows, I64(ROWS)))
        with loop(build, I64(0), columns, I64(wide)) as j:
            panel = at_byte(build, panels, build.mul(build.udiv(j, I64(wide)), panel_bytes))
            tables = [build.gep(table, [j], source_etype=FLOAT) for table in (starts, scales, bias, c)]
            left = build.sub(columns, j)
            for count, start, stop in ((ROWS, I64(0), many), (1, many, rows)):
                with loop(build, start, stop, I64(count)) as r:
                    row = at_byte(build, q, build.mul(r, q_row))
                    target = at_byte(build, tables[3], build.mul(r, c_row))
                    factor = build.gep(factors, [r], source_etype=FLOAT)
                    where = [row, q_row, factor, panel, groups, *tables[:3], target, c_row, left]
                    build.call(self.kernels[count], where)
        build.ret_void()

    def micro_kernel(self, rows: int) -> ir.Function:
        """Multiply a few rows of A with one panel, of which the first `columns` are needed."""
        function = self.function(f"int8_{rows}_rows", [PTR, I64, PTR, PTR, I64, PTR, PTR, PTR, PTR, I64, I64])
        q, q_row, factors, panel, groups, starts, scales, bias, c, c_row, columns = function.args
        entry, head, body, done = (function.append_basic_block() for _ in range(4))
        build = ir.IRBuilder(entry)
        emit, vectors = Emitter(build, self.form, self.lanes), range(panel_width() // self.lanes)
        first = [self.load_whole(emit, starts, v) for v in vectors]
        lines = [at_byte(build, q, build.mul(I64(r), q_row)) for r in range(rows)]
        build.branch(head)
        build.position_at_end(head)
        g, sums = build.phi(I64), [[build.phi(emit.integers) for _ in vectors] for _ in range(rows)]
        g.add_incoming(I64(0), entry)
        for total, start in ((sums[r][v], first[v]) for r in range(rows) for v in vectors):
            total.add_incoming(start, entry)
        build.cbranch(build.icmp_signed("<", g, groups), body, done)
        build.position_at_end(body)
        weights = [self.load_weights(emit, panel, g, v) for v in vectors]
        for line, totals in zip(lines, sums, strict=True):
            four = build.load(build.gep(line, [g], source_etype=I32), align=1, typ=I32)
            x = broadcast_whole(emit, four)
            for total, weight in zip(totals, weights, strict=True):
                total.add_incoming(self.dot(emit, total, x, weight), body)
        g.add_incoming(build.add(g, I64(1)), body)
        build.branch(head)
        build.position_at_end(done)
        for r, totals in enumerate(sums):
            factor = broadcast(emit, build.load(build.gep(factors, [I64(r)], source_etype=FLOAT), typ=FLOAT))
            target = at_byte(build, c, build.mul(I64(r), c_row))
            for v, total in enumerate(totals):
                scale, start = (self.load(emit, table, I64(v * self.lanes)) for table in (scales, bias))
                product = build.fmul(build.fmul(build.sitofp(total, emit.vector), scale), factor)
                self.store(emit, build.fadd(product, start), target, v, columns)
        build.ret_void()
        return function

    def dot(self, emit: Emitter, total: ir.Value, x: ir.Value, weights: ir.Value) -> ir.Value:
        """total[j] + the sum of x[j][i] * weights[j][i] over the four numbers i of a group."""
        build, wide = emit.builder, GROUP * self.lanes
        if not self.signed:
            return build.call(self.dot_instruction(), self.dot_operands(build, total, x, weights))
        x = build.bitcast(x, ir.VectorType(BYTE, wide))
        products = build.mul(*(build.sext(part, ir.VectorType(I32, wide)) for part in (x, weights)))
        while products.type.count > self.lanes:
            count = products.type.count
            even, odd = (
                build.shuffle_vector(products, products, whole(range(start, count, 2))) for start in (0, 1)
            )
            products = build.add(even, odd)
        return build.add(total, products)

    def dot_instruction(self) -> ir.Function:
        name = "llvm.x86.avx512.vpdpbusd.512"
        if name not in self.module.globals:
            sums = ir.VectorType(I32, 16)
            factors = ir.VectorType(BYTE, 64) if takes_bytes() else sums
            ir.Function(self.module, ir.FunctionType(sums, [sums, factors, factors]), name)
        return self.module.globals[name]

    def dot_operands(self, build: ir.IRBuilder, total: ir.Value, x: ir.Value, weights: ir.Value) -> list:
        kind = ir.VectorType(BYTE, 64) if takes_bytes() else ir.VectorType(I32, 16)
        return [total, build.bitcast(x, kind), build.bitcast(weights, kind)]

    def load_whole(self, emit: Emitter, table: ir.Value, v: int) -> ir.Value:
        address = emit.builder.gep(table, [I64(v * self.lanes)], source_etype=I32)
        return emit.builder.load(address, align=4, typ=emit.integers)

    def load_weights(self, emit: Emitter, panel: ir.Value, g: ir.Value, v: int) -> ir.Value:
        build, wide = emit.builder, GROUP * self.lanes
        start = build.add(build.mul(g, I64(panel_width() * GROUP)), I64(v * wide))
        return build.load(
            build.gep(panel, [start], source_etype=BYTE), align=1, typ=ir.VectorType(BYTE, wide)
        )

    def store(self, emit: Emitter, value: ir.Value, target: ir.Value, v: int, columns: ir.Value) -> None:
        """Store the numbers of a vector that are among the needed columns."""
        build = emit.builder
        address = build.gep(target, [I64(v * self.lanes)], source_etype=FLOAT)
        left = build.sub(columns, I64(v * self.lanes))
        with build.if_else(build.icmp_signed(">=", left, I64(self.lanes)), likely=True) as (yes, no):
            with yes:
                build.store(value, address, align=4)
            with no:
                count = build.trunc(build.select(build.icmp_signed("<", left, I64(0)), I64(0), left), I32)
                wanted = build.icmp_signed("<", whole(range(self.lanes)), broadcast_whole(emit, count))
                build.call(self.masked_store(emit), [value, address, I32(4), wanted])

    def masked_store(self, emit: Emitter) -> ir.Function:
        name = f"llvm.masked.store.v{self.lanes}f32.p0"
        if name not in self.module.globals:
            mask = ir.VectorType(ir.IntType(1), self.lanes)
            ir.Function(self.module, ir.FunctionType(ir.VoidType(), [emit.vector, PTR, I32, mask]), name)
        return self.module.globals[name]


def takes_bytes() -> bool:
    """Since LLVM 22 the operands of the instruction are vectors of bytes."""
    return llvm.llvm_version_info[0] >= 22


def at_byte(build: ir.IRBuilder, pointer: ir.Value, offset: ir.Value) -> ir.Value:
    return build.gep(pointer, [offset], source_etype=BYTE)


def whole(numbers: range) -> ir.Constant:
    return ir.Constant(ir.VectorType(I32, len(numbers)), [I32(number) for number in numbers])


def broadcast_whole(emit: Emitter, number: ir.Value) -> ir.Value:
    build = emit.builder
    undefined = ir.Constant(emit.integers, ir.Undefined)
    first = build.insert_element(undefined, number, I32(0))
    return build.shuffle_vector(
        first, undefined, whole(range(0, 1)) if emit.width == 1 else ZEROS[emit.width]
    )


ZEROS = {width: ir.Constant(ir.VectorType(I32, width), [I32(0)] * width) for width in (4, 8, 16)}


# ---------------------------------------------------------------------------------- from Python


class Piece(NamedTuple):
    """A product with a dense block of a matrix: its panels, what it reads, its bias, and what it writes."""

    panels: Int8Panels
    x: Tensor
    bias: Tensor | None
    made: Tensor


class Int8Panels:
    """A matrix [N, K] of int8 with a scale for each of its rows, packed."""

    def __init__(self, matrix: Tensor, scales: Tensor):
        self.count, self.depth = matrix.shape
        wide, self.groups = panel_width(), -(-self.depth // GROUP)
        rows = -(-self.count // wide) * wide
        padded = F.pad(matrix, (0, self.groups * GROUP - self.depth, 0, rows - self.count))
        panels = padded.view(rows // wide, wide, self.groups, GROUP).permute(0, 2, 1, 3)
        self.panels, self.wide = panels.contiguous(), rows
        self.scales = F.pad(scales, (0, rows - self.count))
        sums = padded.sum(1, dtype=torch.int32)
        self.starts = -128 * sums if has_dot_instruction() else torch.zeros_like(sums)

    @property
    def row_bytes(self) -> int:
        """The size of a row of A when it is rounded to int8."""
        return self.groups * GROUP

    def padded_bias(self, bias: Tensor | None) -> Tensor:
        """The bias, with zeros for rows without one; padded, because whole panels are read."""
        starts = whole_bias(bias, self.count, torch.float32)
        return F.pad(starts, (0, self.wide - self.count)) if self.wide > self.count else starts

    def times(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [M, K] -> [M, N]."""
        x, made = side_by_side(x), x.new_empty(len(x), self.count)
        self.run(x, bias, made)
        return made

    def pieces(self, x: Tensor, bias: Tensor | None, made: Tensor) -> Iterator[Piece]:
        yield Piece(self, x, bias, made)

    def run(self, x: Tensor, bias: Tensor | None, made: Tensor) -> None:
        numbers, alive = self.arguments(x, bias, made)
        jit.run(linear_kernel(), units_of(x), grain(BLOCK * self.depth * self.count), numbers)
        del alive  # the kernel has read it

    def arguments(self, x: Tensor, bias: Tensor | None, made: Tensor) -> tuple[array[int], object]:
        """Return the arguments of `linear_kernel`, and the objects to keep alive until it has run."""
        bytes_of_x, factors = x.new_empty(len(x), self.row_bytes, dtype=torch.int8), x.new_empty(len(x))
        starts = self.padded_bias(bias)
        numbers = [x.data_ptr(), 4 * x.stride(0), len(x), self.depth, bytes_of_x.data_ptr(), self.row_bytes]
        numbers += [factors.data_ptr(), self.panels.data_ptr(), self.groups, self.starts.data_ptr()]
        numbers += [
            self.scales.data_ptr(),
            starts.data_ptr(),
            made.data_ptr(),
            4 * made.stride(0),
            self.count,
        ]
        return array("q", numbers), (self, x, bytes_of_x, factors, starts, made)


class Int8Blocks:
    """A block-diagonal matrix [N, K / heads] of int8, see program/blocks.py: the panels of its blocks."""

    def __init__(self, matrix: Tensor, scales: Tensor, heads: int, parts: Sequence[int]):
        self.count, self.heads, self.depth = len(matrix), heads, heads * matrix.shape[1]
        sizes = [size // heads for size in parts for _ in range(heads)]
        pairs = zip(matrix.split(sizes), scales.split(sizes), strict=True)
        self.blocks = [Int8Panels(*pair) for pair in pairs]
        self.starts = [0, *accumulate(sizes)][:-1]

    @property
    def row_bytes(self) -> int:
        """The size of a row of A when each of its heads is rounded to int8."""
        return self.heads * self.blocks[0].row_bytes

    def pieces(self, x: Tensor, bias: Tensor | None, made: Tensor) -> Iterator[Piece]:
        inputs = x.chunk(self.heads, -1)
        whole = None if bias is None else whole_bias(bias, self.count, x.dtype)
        for number, (block, first) in enumerate(zip(self.blocks, self.starts, strict=True)):
            last = first + block.count
            own = None if whole is None else whole[first:last]
            yield Piece(block, inputs[number % self.heads], own, made[:, first:last])

    def times(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [M, K] -> [M, N]."""
        x, made = side_by_side(x), x.new_empty(len(x), self.count)
        for block, columns, own, target in self.pieces(x, bias, made):
            block.run(columns, own, target)
        return made


def units_of(x: Tensor) -> int:
    """How many units of work the rows of x make up."""
    return -(-len(x) // BLOCK)


@once
def linear_kernel() -> jit.Compiled:
    return jit.compile_function(linear_ir(), "int8_linear")


def linear_ir() -> str:
    """void int8_linear(first block of rows, last, arguments): see `Int8Panels.times` for these."""
    module = ir.Module("int8_linear")
    functions = Int8Functions(module)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, I64, PTR]), "int8_linear")
    begin, end, arguments = function.args
    build = ir.IRBuilder(function.append_basic_block("entry"))
    numbers = [build.load(build.gep(arguments, [I64(i)], source_etype=I64), typ=I64) for i in range(15)]
    a, a_row, rows, depth, q, q_row, factors, panels, groups, starts, scales, bias, c, c_row, columns = (
        numbers
    )
    with loop(build, begin, end, I64(1)) as block:
        first = build.mul(block, I64(BLOCK))
        left = build.sub(rows, first)
        count = build.select(build.icmp_signed("<", left, I64(BLOCK)), left, I64(BLOCK))
        with loop(build, first, build.add(first, count), I64(1)) as r:
            row, made, factor = (
                build.inttoptr(build.add(start, build.mul(r, size)), PTR)
                for start, size in ((a, a_row), (q, q_row), (factors, I64(4)))
            )
            build.call(functions.quantise, [row, depth, made, factor])
        q_at, factor_at, c_at = (
            build.inttoptr(build.add(start, build.mul(first, size)), PTR)
            for start, size in ((q, q_row), (factors, I64(4)), (c, c_row))
        )
        tables = [build.inttoptr(table, PTR) for table in (starts, scales, bias)]
        matrix = build.inttoptr(panels, PTR)
        where = [q_at, q_row, factor_at, count, matrix, groups, *tables, c_at, c_row, columns]
        build.call(functions.multiply, where)
    build.ret_void()
    return str(module)
