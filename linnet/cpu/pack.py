"""Packs a matrix [N, K] as panels[p][k][j] = W[p * panel + j, k], the layout that products read.

The rows come in groups (the gates of a unit), each of which starts a new panel; the last panel of a group is
padded with zeros. Square blocks as wide as a register are transposed by interleaving their halves,
log2(width) times.

Panels that are kept from call to call have a fingerprint of the rows that they were made from, and only those
whose rows have changed since are written again. torch does not count every way to change a tensor (`.data`,
NumPy, another process), so we read the numbers, which takes a fraction of the time of packing them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch
from llvmlite import ir
from torch import Tensor

from linnet.cpu import jit
from linnet.cpu.emit import Emitter, Format
from linnet.cpu.fingerprint import Fingerprint
from linnet.cpu.gemm import I32, I64, PTR, loop
from linnet.cpu.kernel_cache import once
from linnet.cpu.memory import new_empty
from linnet.cpu.threads import grain


def packed(matrix: Tensor, groups: int, panel: int) -> Tensor:
    """Pack [groups * size, K] as [groups * panels, K, panel]."""
    return Packing(matrix.shape, matrix.dtype, groups, panel).run(matrix)


class Packing:
    """Packs matrices of one shape, one after the other, into the same panels."""

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, groups: int, panel: int):
        rows, depth = shape
        size = rows // groups
        panels = -(-size // panel)
        with torch.inference_mode(False):  # a later call outside of that mode writes it, too
            self.panels = new_empty((groups * panels, depth, panel), dtype)
            self.zeros = torch.zeros(depth, dtype=dtype, device="cpu")
        addresses = [0, self.panels.data_ptr(), self.zeros.data_ptr()]
        self.numbers = array("q", [*addresses, 0, depth, size, panels, 0])
        self.bits, self.panel, self.nbytes = 8 * dtype.itemsize, panel, self.panels.nbytes
        self.work = groups * panels, grain(depth * panel)

    def run(self, matrix: Tensor) -> Tensor:
        """Return the panels, written from the present values of the matrix."""
        matrix = matrix if 1 in matrix.stride() else matrix.contiguous()
        self.bind(matrix)
        return self.again()

    def bind(self, matrix: Tensor) -> None:
        """Read this matrix from now on: contiguous along K, or a transposed one, laid out as the panels.

        Only its address is kept, since bindings outlive the modules that use them.
        """
        along, across = (1, 0) if matrix.stride(1) == 1 else (0, 1)
        self.kernel = kernel(self.bits, self.panel, along, False)
        self.numbers[0] = matrix.data_ptr()
        self.numbers[3] = matrix.stride(across) * matrix.element_size()

    def again(self) -> Tensor:
        """The panels, written from the present values of the matrix that it is bound to."""
        jit.run(self.kernel, *self.work, self.numbers)
        return self.panels


class KeptPacking(Packing):
    """Writes only those panels again whose rows have changed. The matrix is contiguous.

    Threads that call at once write the same numbers; the fingerprint of a panel is written after the panel.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, groups: int, panel: int):
        super().__init__(shape, dtype, groups, panel)
        with torch.inference_mode(False):
            words = panel * dtype.itemsize // 8
            self.prints = torch.zeros(len(self.panels), words, dtype=torch.int32, device="cpu")
        self.numbers[7] = self.prints.data_ptr()

    def bind(self, matrix: Tensor) -> None:
        super().bind(matrix)
        self.kernel = kernel(self.bits, self.panel, 1, True)


@once  # few entries: the widths of two dtypes, along two axes, and whether panels are kept
def kernel(bits: int, panel: int, along: int, keeps: bool) -> jit.Compiled:
    return jit.compile_function(Packer(bits, panel).emit(transposing=along == 1, keeps=keeps), "pack")


class Packer:
    """void pack(first panel, last, arguments).

    The arguments: source, target, zeros, bytes per row, K, rows per group, panels per group, fingerprints.
    """

    def __init__(self, bits: int, panel: int):
        self.module = ir.Module("pack")
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [I64, I64, PTR]), "pack")
        self.begin, self.end, arguments = function.args
        self.build = build = ir.IRBuilder(function.append_basic_block("entry"))
        numbers = [build.load(build.gep(arguments, [I64(i)], source_etype=I64), typ=I64) for i in range(8)]
        self.source, self.target, self.zeros, self.row_bytes, self.depth, self.size, self.panels = numbers[:7]
        self.prints = numbers[7]
        self.panel, self.lanes, self.bytes_each = panel, panel // 2, bits // 8
        self.form = Format(bits)
        self.emitter = Emitter(build, self.form, self.lanes)

    def emit(self, transposing: bool, keeps: bool) -> str:
        """transposing   the rows of the matrix are contiguous along K
        keeps         panels whose rows have not changed are left as they are
        """
        build = self.build
        with loop(build, self.begin, self.end, I64(1)) as unit:
            group = build.udiv(unit, self.panels)
            first = build.mul(build.urem(unit, self.panels), I64(self.panel))
            size = build.mul(self.depth, I64(self.panel * self.bytes_each))
            made = build.add(self.target, build.mul(unit, size))
            if keeps:
                self.transpose_if_changed(unit, group, first, made)
            elif transposing:
                self.transpose(group, first, made)
            else:
                self.copy(build.add(build.mul(group, self.size), first), first, made)
        build.ret_void()
        return str(self.module)

    def transpose(self, group: ir.Value, first: ir.Value, made: ir.Value) -> None:
        """The rows of the panel are contiguous along K: transpose square blocks of them."""
        build, lanes = self.build, self.lanes
        rows = [self.row_address(group, build.add(first, I64(j))) for j in range(self.panel)]
        whole = build.sub(self.depth, build.urem(self.depth, I64(lanes)))
        with loop(build, I64(0), whole, I64(lanes)) as k:
            for half in (0, lanes):
                block = [self.read(row, k, self.emitter.vector) for row in rows[half : half + lanes]]
                for i, column in enumerate(transposed(self.emitter, block)):
                    self.write(column, made, build.add(k, I64(i)), I64(half))
        with loop(build, whole, self.depth, I64(1)) as k:
            for j, row in enumerate(rows):
                self.write(self.read(row, k, self.form.scalar), made, k, I64(j))

    def transpose_if_changed(self, unit: ir.Value, group: ir.Value, first: ir.Value, made: ir.Value) -> None:
        build, words = self.build, self.bytes_each // 4
        left = build.sub(self.size, first)
        rows = build.select(build.icmp_signed("<", left, I64(self.panel)), left, I64(self.panel))
        count = build.mul(build.mul(rows, self.depth), I64(words))
        new = Fingerprint(build, self.lanes * words).emit(self.row_address(group, first), count)
        place = build.add(self.prints, build.mul(unit, I64(self.lanes * self.bytes_each)))
        place = build.inttoptr(place, PTR)
        differs = build.icmp_unsigned("!=", new, build.load(place, align=4, typ=new.type))
        as_bits = build.bitcast(differs, ir.IntType(self.lanes * words))
        with build.if_else(
            build.icmp_unsigned("!=", as_bits, ir.Constant(as_bits.type, 0)), likely=False
        ) as (
            changed,
            same,
        ):
            with changed:
                self.transpose(group, first, made)
                build.fence("release")
                build.store(new, place, align=4)
            with same:
                build.fence("acquire")

    def copy(self, column: ir.Value, first: ir.Value, made: ir.Value) -> None:
        """The panel is a strip of columns: copy it, number by number where it is not full."""
        build, left = self.build, self.build.sub(self.size, first)
        full = build.icmp_signed(">=", left, I64(self.panel))
        zero = ir.Constant(self.form.scalar, 0.0)
        with loop(build, I64(0), self.depth, I64(1)) as k:
            row = build.inttoptr(build.add(self.source, build.mul(k, self.row_bytes)), PTR)
            with build.if_else(full) as (yes, no):
                with yes:
                    for half in (0, self.lanes):
                        strip = self.read(row, build.add(column, I64(half)), self.emitter.vector)
                        self.write(strip, made, k, I64(half))
                with no:
                    with loop(build, I64(0), left, I64(1)) as j:
                        self.write(self.read(row, build.add(column, j), self.form.scalar), made, k, j)
                    with loop(build, left, I64(self.panel), I64(1)) as j:
                        self.write(zero, made, k, j)

    def row_address(self, group: ir.Value, row: ir.Value) -> ir.Value:
        """The address of a row of a group; that of zeros beyond its last row."""
        build = self.build
        offset = build.mul(build.add(build.mul(group, self.size), row), self.row_bytes)
        there = build.icmp_signed("<", row, self.size)
        return build.inttoptr(build.select(there, build.add(self.source, offset), self.zeros), PTR)

    def read(self, row: ir.Value, at: ir.Value, kind: ir.Type) -> ir.Value:
        address = self.build.gep(row, [at], source_etype=self.form.scalar)
        return self.build.load(address, align=self.bytes_each, typ=kind)

    def write(self, value: ir.Value, made: ir.Value, k: ir.Value, j: ir.Value) -> None:
        at = self.build.add(self.build.mul(k, I64(self.panel)), j)
        address = self.build.gep(self.build.inttoptr(made, PTR), [at], source_etype=self.form.scalar)
        self.build.store(value, address, align=self.bytes_each)


def transposed(emit: Emitter, rows: list[ir.Value]) -> list[ir.Value]:
    """The columns of a square block."""
    half, width = len(rows) // 2, emit.width
    for _ in range(width.bit_length() - 1):
        pairs = [(rows[i], rows[i + half]) for i in range(half)]
        rows = [interleaved(emit, *pair, start) for pair in pairs for start in (0, width // 2)]
    return rows


def interleaved(emit: Emitter, a: ir.Value, b: ir.Value, start: int) -> ir.Value:
    """a[start], b[start], a[start + 1], b[start + 1], ..."""
    picks = [index for i in range(start, start + emit.width // 2) for index in (i, i + emit.width)]
    order = ir.Constant(ir.VectorType(I32, emit.width), [I32(index) for index in picks])
    return emit.builder.shuffle_vector(a, b, order)
