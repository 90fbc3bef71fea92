"""The small kernels of a single step: products, norms, sums and copies of a few rows.

Each is `void name(begin, end, arguments)`, with the arguments that `Program` describes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from llvmlite import ir
from torch import Tensor

from linnet.cpu import jit
from linnet.cpu.dots import Dots
from linnet.cpu.emit import Emitter
from linnet.cpu.gemm import broadcast, loop
from linnet.cpu.kernel_cache import once
from linnet.cpu.program import I64, PTR, Program

# Columns of a product that are one unit of work.
COLUMNS = 16


class RowKernel(Program):
    """A kernel that processes each row of [batch, size]."""

    def __init__(self, name: str, operands: tuple[str, ...], bits: int, width: int):
        super().__init__(name, operands, bits, width)
        self.all_channels = I64(0), self.header["size"]

    def emit(self, do: Callable[[ir.Value], None]) -> str:
        with self.loop(self.begin, self.end, 1) as b:
            do(b)
        return self.finish()

    def add(self, b: ir.Value) -> None:
        left, right, target = (self.row(name, I64(0), b) for name in ("left", "right", "target"))

        def one(emit: Emitter, at: ir.Value) -> None:
            total = emit.emit_add(self.load_plain(emit, left, at), self.load_plain(emit, right, at))
            self.store_plain(emit, target, at, total)

        self.along(self.all_channels, one)

    def norm(self, b: ir.Value, centred: bool, eps: float) -> None:
        """gain (x - mean) / sqrt(variance + eps) + shift; not centred, gain x / sqrt(mean square + eps)."""
        source, target = (self.row(name, I64(0), b) for name in ("source", "target"))
        one, zero = Emitter(self.builder, self.form, 1), I64(0)
        gain = self.row("gain", zero, zero)
        mean = self.mean(lambda emit, at: self.load_plain(emit, source, at)) if centred else None

        def moved(emit: Emitter, at: ir.Value) -> ir.Value:
            x = self.load_plain(emit, source, at)
            return x if mean is None else emit.emit_sub(x, broadcast(emit, mean))

        variance = self.mean(lambda emit, at: emit.emit_mul(*[moved(emit, at)] * 2))
        rate = one.emit_div(
            one.number(1.0), one.intrinsic("llvm.sqrt", one.emit_add(variance, one.number(eps)))
        )

        def scaled(emit: Emitter, at: ir.Value) -> None:
            value = emit.emit_mul(
                emit.emit_mul(moved(emit, at), broadcast(emit, rate)), self.load_plain(emit, gain, at)
            )
            if centred:
                value = emit.emit_add(value, self.load_plain(emit, self.row("shift", zero, zero), at))
            self.store_plain(emit, target, at, value)

        self.along(self.all_channels, scaled)

    def mean(self, part: Callable[[Emitter, ir.Value], ir.Value]) -> ir.Value:
        count = self.builder.sitofp(self.header["size"], self.form.scalar)
        return self.builder.fdiv(self.sum_along(self.all_channels, part), count)


@once  # few entries
def addition(bits: int, width: int) -> tuple[jit.Compiled, tuple[str, ...]]:
    names = ("left", "right", "target")
    kernel = RowKernel("add", names, bits, width)
    return jit.compile_function(kernel.emit(kernel.add), "add"), names


@once
def norm(bits: int, width: int, centred: bool, eps: float) -> tuple[jit.Compiled, tuple[str, ...]]:
    names = ("source", "target", "gain", *(("shift",) if centred else ()))
    kernel = RowKernel("norm", names, bits, width)
    return jit.compile_function(kernel.emit(lambda b: kernel.norm(b, centred, eps)), "norm"), names


@once
def product(bits: int, width: int) -> tuple[jit.Compiled, tuple[str, ...]]:
    """target = source matrix^T + bias, matrix [columns, depth]; a unit of work is COLUMNS columns."""
    names = ("source", "matrix", "bias", "target")
    kernel = Program("product", names, bits, width)
    build, each = kernel.builder, I64(bits // 8)
    first = build.mul(kernel.begin, I64(COLUMNS))
    last = build.mul(kernel.end, I64(COLUMNS))
    size = kernel.header["size"]
    count = build.sub(build.select(build.icmp_signed("<", last, size), last, size), first)
    matrix, depth, line = kernel.locations["matrix"]
    addresses = [build.add(matrix, build.mul(first, line))]
    addresses += [build.add(kernel.locations[name][0], build.mul(first, each)) for name in ("bias", "target")]
    w, bias, c = (build.inttoptr(address, PTR) for address in addresses)
    a = build.inttoptr(kernel.locations["source"][0], PTR)
    strides = [kernel.locations[name][2] for name in ("source", "target")]
    dots = Dots(kernel.module, kernel.form, width // 2)
    numbers = [a, strides[0], kernel.header["batch"], w, line, count, bias, c, strides[1], depth]
    build.call(dots.function, numbers)
    return jit.compile_function(kernel.finish(), "product"), names


@once
def block_product(bits: int, width: int) -> tuple[jit.Compiled, tuple[str, ...]]:
    """`product` for one part of a block-diagonal matrix, [columns, depth]; a unit of work is a head."""
    names = ("source", "matrix", "bias", "target", "blocks")
    kernel = Program("block_product", names, bits, width)
    build, each = kernel.builder, I64(bits // 8)
    matrix, depth, line = kernel.locations["matrix"]
    count = kernel.locations["blocks"][0]
    a_row, c_row = (kernel.locations[name][2] for name in ("source", "target"))
    dots = Dots(kernel.module, kernel.form, width // 2)
    with kernel.loop(kernel.begin, kernel.end, 1) as head:
        first = build.mul(head, count)
        a = build.add(kernel.locations["source"][0], build.mul(head, line))
        w = build.add(matrix, build.mul(first, line))
        b, c = (build.add(kernel.locations[name][0], build.mul(first, each)) for name in ("bias", "target"))
        a, w, b, c = (build.inttoptr(address, PTR) for address in (a, w, b, c))
        numbers = [a, a_row, kernel.header["batch"], w, line, count, b, c, c_row, depth]
        build.call(dots.function, numbers)
    return jit.compile_function(kernel.finish(), "block_product"), names


@once
def copies() -> jit.Compiled:
    """Copy rows. A unit of work has six arguments: source, target, bytes per row of each, rows, bytes."""
    module = ir.Module("copy")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, I64, PTR]), "copy")
    begin, end, arguments = function.args
    kernel = ArgumentBlocks(ir.IRBuilder(function.append_basic_block("entry")), arguments)
    build = kernel.build
    kinds = [PTR, PTR, I64, ir.IntType(1)]
    copy = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), "llvm.memcpy.p0.p0.i64")
    with kernel.loop(begin, end) as unit:
        source, target, source_row, target_row, rows, size = kernel.numbers(unit, 6)
        with kernel.loop(I64(0), rows) as row:
            addresses = [
                build.inttoptr(build.add(address, build.mul(row, stride)), PTR)
                for address, stride in ((target, target_row), (source, source_row))
            ]
            build.call(copy, [*addresses, size, ir.IntType(1)(0)])
    build.ret_void()
    return jit.compile_function(str(module), "copy")


def copy_numbers(source: Tensor, target: Tensor) -> tuple[int, ...]:
    """The arguments of `copies` for two tensors of one shape, [rows, size]."""
    each, (rows, size) = source.element_size(), source.shape
    return (
        source.data_ptr(),
        target.data_ptr(),
        source.stride(0) * each,
        target.stride(0) * each,
        rows,
        size * each,
    )


@once
def clears() -> jit.Compiled:
    """Set rows to zeros where a flag is set. A unit of work has six arguments: rows, bytes from one to the
    next, their number, bytes; flags, bytes from one to the next."""
    module = ir.Module("clear")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, I64, PTR]), "clear")
    begin, end, arguments = function.args
    kernel = ArgumentBlocks(ir.IRBuilder(function.append_basic_block("entry")), arguments)
    build, byte = kernel.build, ir.IntType(8)
    kinds = [PTR, byte, I64, ir.IntType(1)]
    fill = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), "llvm.memset.p0.i64")
    with kernel.loop(begin, end) as unit:
        target, line, rows, size, flags, apart = kernel.numbers(unit, 6)
        with kernel.loop(I64(0), rows) as row:
            start, flag = (
                build.inttoptr(build.add(address, build.mul(row, stride)), PTR)
                for address, stride in ((target, line), (flags, apart))
            )
            is_set = build.icmp_unsigned("!=", build.load(flag, typ=byte), byte(0))
            with build.if_then(is_set):
                build.call(fill, [start, byte(0), size, ir.IntType(1)(0)])
    build.ret_void()
    return jit.compile_function(str(module), "clear")


class ArgumentBlocks:
    """Units of work with a block of numbers each."""

    def __init__(self, build: ir.IRBuilder, arguments: ir.Value):
        self.build, self.arguments = build, arguments

    def loop(self, start: ir.Value, stop: ir.Value) -> AbstractContextManager[ir.Value]:
        return loop(self.build, start, stop, I64(1))

    def numbers(self, unit: ir.Value, count: int) -> list[ir.Value]:
        build, first = self.build, self.build.mul(unit, I64(count))
        addresses = [
            build.gep(self.arguments, [build.add(first, I64(i))], source_etype=I64) for i in range(count)
        ]
        return [build.load(address, typ=I64) for address in addresses]
