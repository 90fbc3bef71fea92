"""Products of a few rows with a matrix that is not packed, in LLVM.

    C[r, j] = b[j] + A[r, :] . W[j, :]

Reading the matrix is all that such a product costs, and packing would read it twice. Four rows of it
are taken at a time, with two registers of partial sums each: eight sums that do not wait for each other.
"""

from __future__ import annotations

from llvmlite import ir

from linnet.fuse.cpu.emit import Emitter, Format
from linnet.fuse.cpu.gemm import I32, I64, PTR, loop

AT_ONCE = 4
BYTE = ir.IntType(8)


class Dots:
    """void dots(A, its bytes a row, rows, W, its bytes a row, columns, b, C, its bytes a row, depth)."""

    def __init__(self, module: ir.Module, form: Format, lanes: int):
        numbers = [PTR, I64, I64, PTR, I64, I64, PTR, PTR, I64, I64]
        self.function = ir.Function(module, ir.FunctionType(ir.VoidType(), numbers), "dots")
        self.function.linkage = "internal"
        self.form, self.bytes_each = form, form.bits // 8
        self.build = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.wide, self.one = Emitter(self.build, form, lanes), Emitter(self.build, form, 1)
        self.emit()

    def emit(self) -> None:
        a, a_row, rows, w, w_row, columns, bias, c, c_row, depth = self.function.args
        build = self.build
        groups = build.sub(columns, build.urem(columns, I64(AT_ONCE)))
        for start, stop, many in ((I64(0), groups, AT_ONCE), (groups, columns, 1)):
            with loop(build, start, stop, I64(many)) as j, loop(build, I64(0), rows, I64(1)) as r:
                row = self.moved(a, build.mul(r, a_row))
                matrix = [self.moved(w, build.mul(build.add(j, I64(i)), w_row)) for i in range(many)]
                target = self.moved(c, build.mul(r, c_row))
                for i, total in enumerate(self.sums(row, matrix, depth)):
                    at = build.add(j, I64(i))
                    started = self.one.emit_add(total, self.load(self.one, bias, at))
                    build.store(started, self.place(target, at), align=self.bytes_each)
        build.ret_void()

    def sums(self, row: ir.Value, matrix: list[ir.Value], depth: ir.Value) -> list[ir.Value]:
        """The row times each row of the matrix: pairs of vectors, and what is left one by one."""
        build, lanes = self.build, self.wide.width
        whole = build.sub(depth, build.urem(depth, I64(2 * lanes)))
        halves = [I64(0), I64(lanes)]
        pairs = self.along(self.wide, row, matrix, (I64(0), whole, halves))
        added = [self.wide.emit_add(*pair) for pair in pairs]
        rest = self.along(self.one, row, matrix, (whole, depth, [I64(0)]))
        return [self.one.emit_add(self.across(v), r) for v, (r,) in zip(added, rest, strict=True)]

    def along(self, emit: Emitter, row, matrix: list[ir.Value], where) -> list[list[ir.Value]]:
        """Sums over k in range(start, stop), for each row of the matrix and each of the `parts` of a step."""
        start, stop, parts = where
        build, before = self.build, self.build.block
        head, body, done = (build.append_basic_block() for _ in range(3))
        build.branch(head)
        build.position_at_end(head)
        k = build.phi(I64)
        totals = [[build.phi(emit.vector) for _ in parts] for _ in matrix]
        k.add_incoming(start, before)
        for total in (total for group in totals for total in group):
            total.add_incoming(emit.number(0.0), before)
        build.cbranch(build.icmp_signed("<", k, stop), body, done)
        build.position_at_end(body)
        for p, part in enumerate(parts):
            at = build.add(k, part)
            x = self.load(emit, row, at)
            for group, line in zip(totals, matrix, strict=True):
                group[p].add_incoming(emit.fma(x, self.load(emit, line, at), group[p]), body)
        k.add_incoming(build.add(k, I64(len(parts) * emit.width)), body)
        build.branch(head)
        build.position_at_end(done)
        return totals

    def across(self, vector: ir.Value) -> ir.Value:
        """The sum of a vector's numbers: its halves are added until one is left."""
        build, width = self.build, self.wide.width
        while width > 1:
            width //= 2
            emit = Emitter(build, self.form, width)
            low, high = (
                build.shuffle_vector(vector, vector, order(range(start, start + width)))
                for start in (0, width)
            )
            if width == 1:
                low, high = (build.extract_element(part, I32(0)) for part in (low, high))
            vector = emit.emit_add(low, high)
        return vector

    def moved(self, pointer: ir.Value, offset: ir.Value) -> ir.Value:
        return self.build.gep(pointer, [offset], source_etype=BYTE)

    def place(self, row: ir.Value, at: ir.Value) -> ir.Value:
        return self.build.gep(row, [at], source_etype=self.form.scalar)

    def load(self, emit: Emitter, row: ir.Value, at: ir.Value) -> ir.Value:
        return self.build.load(self.place(row, at), align=self.bytes_each, typ=emit.vector)


def order(indices: range) -> ir.Constant:
    return ir.Constant(ir.VectorType(I32, len(indices)), [I32(i) for i in indices])
