"""Products of a few rows with a packed block-diagonal matrix, see program/blocks.py, in LLVM.

Each block has panels of its own, in the order of the rows of the matrix: the heads of the first part, those
of the second part, and so on. The last panel of a block may not be full.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from linnet.cpu.gemm import I64, Gemm, loop

Panels = tuple[ir.Value, ir.Value]


class Blocks(NamedTuple):
    """The operands: addresses, and bytes from row to row.

    depth, size   the rows and the columns of a block: how many numbers of A it reads, and of C it makes
    """

    rows: ir.Value
    a: ir.Value
    a_row: ir.Value
    packed: ir.Value
    depth: ir.Value
    size: ir.Value
    c: ir.Value
    c_row: ir.Value


class BlockProducts:
    """Products with the blocks of one matrix."""

    def __init__(self, gemm: Gemm, operands: Blocks, heads: int):
        self.gemm, self.build, self.operands, self.heads = gemm, gemm.build, operands, heads
        self.whole = self.build.udiv(operands.size, I64(gemm.panel))
        self.panels = self.panels_of(operands.size)

    def panels_of(self, columns: ir.Value) -> ir.Value:
        """How many panels have these columns."""
        return self.build.udiv(self.build.add(columns, I64(self.gemm.panel - 1)), I64(self.gemm.panel))

    def multiply(self, parts: int) -> None:
        """Each head of A makes the columns of this head of each part."""
        with loop(self.build, I64(0), I64(parts * self.heads), I64(1)) as block:
            head = self.build.urem(block, I64(self.heads))
            self.block(block, head, block, (I64(0), self.panels))

    def backpropagate(self, parts: int) -> None:
        """With transposed blocks: the products of all parts of a head are added up.

        C has room for one panel more than it has columns, since sums are read in whole panels.
        """
        for first, last in ((0, 1), (1, parts)):
            with loop(self.build, I64(first * self.heads), I64(last * self.heads), I64(1)) as block:
                head = self.build.urem(block, I64(self.heads))
                self.block(block, block, head, (I64(0), self.panels), adds=first > 0)

    def multiply_channels(self, parts: int, channels: tuple[ir.Value, ir.Value]) -> None:
        """`multiply` for some channels of each part; panels that contain one of them are computed whole."""
        build, size = self.build, self.operands.size
        with (
            loop(build, I64(0), I64(parts), I64(1)) as part,
            loop(build, I64(0), I64(self.heads), I64(1)) as head,
        ):
            start = build.mul(head, size)
            first, last = (self.between(build.sub(channel, start), size) for channel in channels)
            own = build.udiv(first, I64(self.gemm.panel)), self.panels_of(last)
            with build.if_then(build.icmp_signed("<", first, last)):
                self.block(build.add(build.mul(part, I64(self.heads)), head), head, None, own)

    def between(self, number: ir.Value, most: ir.Value) -> ir.Value:
        """The number, or 0 or `most` if that is nearer to them."""
        build = self.build
        number = build.select(build.icmp_signed("<", number, I64(0)), I64(0), number)
        return build.select(build.icmp_signed("<", number, most), number, most)

    def block(
        self, block: ir.Value, read: ir.Value, written: ir.Value | None, panels: Panels, adds: bool = False
    ) -> None:
        """Some panels of a block, which reads a head or a block of A and writes one of C (None: its own)."""
        rows, a, a_row, packed, depth, size, c, c_row = self.operands
        build, gemm = self.build, self.gemm
        each, (first, last) = I64(gemm.panel_bytes // gemm.panel), panels
        a = build.add(a, build.mul(build.mul(read, depth), each))
        c = build.add(c, build.mul(build.mul(block if written is None else written, size), each))
        before = build.mul(build.mul(block, self.panels), build.mul(depth, I64(gemm.panel_bytes)))
        packed = build.add(packed, before)
        full = build.select(build.icmp_signed("<", last, self.whole), last, self.whole)
        gemm.emit(rows, a, a_row, packed, depth, (first, full), c, c_row, adds=adds)
        with build.if_then(build.icmp_signed("<", full, last)):
            panel, target = gemm.at_panel(full, packed, depth, c)
            columns = build.sub(size, build.mul(full, I64(gemm.panel)))
            gemm.emit_panel(rows, a, a_row, panel, gemm.zeros, depth, target, c_row, columns, adds)
