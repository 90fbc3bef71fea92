"""Products of a few rows with a matrix that is not packed, in LLVM.

    C[r, j] = b[j] + A[r, :] . W[j, :]

Such a product costs as much as reading the matrix, and packing would read it twice. Eight rows of the matrix
are multiplied at a time with one row of A, or four with several rows of A: enough independent sums. Each
number of C is summed in the same order in any of these blocks, so it does not depend on the number of rows.
"""

from __future__ import annotations

from llvmlite import ir

from linnet.cpu.emit import Emitter, Format
from linnet.cpu.gemm import I32, I64, PTR, loop

BYTE, BIT = ir.IntType(8), ir.IntType(1)


class Dots:
    """void dots(A, its bytes per row, rows, W, its bytes per row, columns, b, C, its bytes per row, depth)"""

    def __init__(self, module: ir.Module, form: Format, lanes: int):
        numbers = [PTR, I64, I64, PTR, I64, I64, PTR, PTR, I64, I64]
        self.function = ir.Function(module, ir.FunctionType(ir.VoidType(), numbers), "dots")
        self.function.linkage = "internal"
        self.form, self.bytes_each = form, form.bits // 8
        self.build = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.wide = Emitter(self.build, form, lanes)
        # Machines with registers of 512 bits have twice as many.
        self.rows_at_once = 4 if lanes * form.bits == 512 else 2
        self.emit()

    def emit(self) -> None:
        a, a_row, rows, w, w_row, columns, bias, c, c_row, depth = self.function.args
        build = self.build
        whole = build.sub(depth, build.urem(depth, I64(self.wide.width)))
        self.depths = whole, self.tail_mask(build.sub(depth, whole)), build.icmp_signed("<", whole, depth)
        several = build.sub(rows, build.urem(rows, I64(self.rows_at_once)))
        for first, last, high, wide in ((I64(0), several, self.rows_at_once, 4), (several, rows, 1, 8)):
            with build.if_then(build.icmp_signed("<", first, last)):
                groups = build.sub(columns, build.urem(columns, I64(wide)))
                for start, stop, many in ((I64(0), groups, wide), (groups, columns, 1)):
                    with (
                        loop(build, start, stop, I64(many)) as j,
                        loop(build, first, last, I64(high)) as r,
                    ):
                        sources = [self.moved(a, self.times(r, i, a_row)) for i in range(high)]
                        matrix = [self.moved(w, self.times(j, i, w_row)) for i in range(many)]
                        targets = [self.moved(c, self.times(r, i, c_row)) for i in range(high)]
                        self.block(sources, matrix, targets, bias, j)
        build.ret_void()

    def times(self, index: ir.Value, more: int, stride: ir.Value) -> ir.Value:
        return self.build.mul(self.build.add(index, I64(more)), stride)

    def tail_mask(self, left: ir.Value) -> ir.Value:
        """True for the first `left` lanes."""
        build, lanes = self.build, self.wide.width
        kind = ir.VectorType(I64, lanes)
        first = build.insert_element(ir.Constant(kind, ir.Undefined), left, I32(0))
        counts = build.shuffle_vector(first, first, order([0] * lanes))
        return build.icmp_signed("<", ir.Constant(kind, [I64(i) for i in range(lanes)]), counts)

    def block(
        self,
        sources: list[ir.Value],
        matrix: list[ir.Value],
        targets: list[ir.Value],
        bias: ir.Value,
        j: ir.Value,
    ) -> None:
        """Multiply rows of A with rows of the matrix, and store the results."""
        narrow = Emitter(self.build, self.form, len(matrix))
        start = self.load(narrow, bias, j)
        for target, sums in zip(targets, self.sums(sources, matrix), strict=True):
            total = narrow.emit_add(self.across(sums), start)
            self.build.store(total, self.element(target, j), align=self.bytes_each)

    def sums(self, sources: list[ir.Value], matrix: list[ir.Value]) -> list[list[ir.Value]]:
        """For each row of A and each row of the matrix a vector of partial sums."""
        whole, mask, has_tail = self.depths
        build, before = self.build, self.build.block
        head, body, done, tail, after = (build.append_basic_block() for _ in range(5))
        build.branch(head)
        build.position_at_end(head)
        k = build.phi(I64)
        totals = [[build.phi(self.wide.vector) for _ in matrix] for _ in sources]
        k.add_incoming(I64(0), before)
        for total in (total for group in totals for total in group):
            total.add_incoming(self.wide.number(0.0), before)
        build.cbranch(build.icmp_signed("<", k, whole), body, done)
        build.position_at_end(body)
        for group, more in zip(totals, self.added(sources, matrix, totals, k), strict=True):
            for total, new in zip(group, more, strict=True):
                total.add_incoming(new, body)
        k.add_incoming(build.add(k, I64(self.wide.width)), body)
        build.branch(head)
        build.position_at_end(done)
        build.cbranch(has_tail, tail, after)
        build.position_at_end(tail)
        more = self.added(sources, matrix, totals, whole, mask)
        build.branch(after)
        build.position_at_end(after)
        return [
            [self.either(total, done, new, tail) for total, new in zip(group, ends, strict=True)]
            for group, ends in zip(totals, more, strict=True)
        ]

    def added(
        self,
        sources: list[ir.Value],
        matrix: list[ir.Value],
        totals: list[list[ir.Value]],
        k: ir.Value,
        mask: ir.Value | None = None,
    ) -> list[list[ir.Value]]:
        """Add the products of the next vector of each row; with a mask, of some of its lanes."""
        lines = [self.load(self.wide, line, k, mask) for line in matrix]
        made = []
        for source, group in zip(sources, totals, strict=True):
            x = self.load(self.wide, source, k, mask)
            made.append([self.wide.fma(x, line, total) for line, total in zip(lines, group, strict=True)])
        return made

    def either(self, a: ir.Value, from_a: ir.Block, b: ir.Value, from_b: ir.Block) -> ir.Value:
        value = self.build.phi(self.wide.vector)
        value.add_incoming(a, from_a)
        value.add_incoming(b, from_b)
        return value

    def across(self, vectors: list[ir.Value]) -> ir.Value:
        """The sums of all vectors, as one vector: halves are added until one number is left."""
        build, width, pieces = self.build, self.wide.width, 1
        while width > 1:
            width //= 2
            # Each vector holds `pieces` sums in turn, as pieces of 2 * width numbers.
            starts = [2 * width * piece for piece in range(pieces)]
            low = [start + i for start in starts for i in range(width)]
            high = [start + width + i for start in starts for i in range(width)]
            if len(vectors) == 1:
                emit = Emitter(build, self.form, width * pieces)
                halves = [build.shuffle_vector(vectors[0], vectors[0], order(half)) for half in (low, high)]
                if emit.width == 1:
                    halves = [build.extract_element(half, I32(0)) for half in halves]
                vectors = [emit.emit_add(*halves)]
                continue
            beyond = 2 * width * pieces
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            emit = Emitter(build, self.form, beyond)
            vectors = [
                emit.emit_add(
                    *(build.shuffle_vector(a, b, order(h + [i + beyond for i in h])) for h in (low, high))
                )
                for a, b in pairs
            ]
            pieces *= 2
        while len(vectors) > 1:  # there are more vectors than a vector has numbers
            joined = order(list(range(2 * vectors[0].type.count)))
            vectors = [
                build.shuffle_vector(a, b, joined) for a, b in zip(vectors[::2], vectors[1::2], strict=True)
            ]
        return vectors[0]

    def moved(self, pointer: ir.Value, offset: ir.Value) -> ir.Value:
        return self.build.gep(pointer, [offset], source_etype=BYTE)

    def element(self, row: ir.Value, at: ir.Value) -> ir.Value:
        return self.build.gep(row, [at], source_etype=self.form.scalar)

    def load(self, emit: Emitter, row: ir.Value, at: ir.Value, mask: ir.Value | None = None) -> ir.Value:
        address = self.element(row, at)
        if mask is None:
            return self.build.load(address, align=self.bytes_each, typ=emit.vector)
        return masked_load(emit, address, mask, self.bytes_each)


def masked_load(emit: Emitter, address: ir.Value, mask: ir.Value, alignment: int) -> ir.Value:
    """Lanes where the mask is false are 0, and their memory is not read."""
    module, name = emit.builder.module, f"llvm.masked.load.v{emit.width}f{emit.form.bits}.p0"
    if name not in module.globals:
        kinds = [PTR, I32, ir.VectorType(BIT, emit.width), emit.vector]
        ir.Function(module, ir.FunctionType(emit.vector, kinds), name)
    return emit.builder.call(module.globals[name], [address, I32(alignment), mask, emit.number(0.0)])


def order(indices: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(I32, len(indices)), [I32(i) for i in indices])
