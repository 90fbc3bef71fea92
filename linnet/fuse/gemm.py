"""A product of a few rows with a matrix that was packed beforehand, in LLVM.

    C[r, :] = A[r, :] W        r in a range of rows; W packed as panels[p][k][j] = W[k, p * panel + j]

A panel is two registers wide. Six rows of two registers, the two of the panel and one for a number of
A fill the registers of the machine, so the inner loop does twelve products for each two it loads.
Small products as a recurrent step has are where ready-made libraries do worst: they pack anew each time.
"""

from __future__ import annotations

from llvmlite import ir

from linnet.fuse.emit import Emitter, Format

I64, I32, PTR = ir.IntType(64), ir.IntType(32), ir.PointerType()
ROWS = 6


def micro_kernel(module: ir.Module, form: Format, lanes: int, rows: int) -> ir.Function:
    """void(A, bytes from row to row of A, panel, C, bytes from row to row of C, depth)."""
    kind = ir.FunctionType(ir.VoidType(), [PTR, I64, PTR, PTR, I64, I64])
    function = ir.Function(module, kind, f"product_of_{rows}_rows")
    function.linkage = "internal"
    a, a_row, panel, c, c_row, depth = function.args
    entry, head, body, done = (
        function.append_basic_block(name) for name in ("entry", "head", "body", "done")
    )
    build = ir.IRBuilder(entry)
    emit = Emitter(build, form, lanes)
    a_rows = [build.gep(a, [build.mul(a_row, I64(r))], source_etype=ir.IntType(8)) for r in range(rows)]
    build.branch(head)
    build.position_at_end(head)
    k = build.phi(I64)
    sums = [[build.phi(emit.vector) for _ in range(2)] for _ in range(rows)]
    k.add_incoming(I64(0), entry)
    for total in (total for row in sums for total in row):
        total.add_incoming(emit.number(0.0), entry)
    build.cbranch(build.icmp_signed("<", k, depth), body, done)

    build.position_at_end(body)
    columns = [load_vector(emit, panel, k, half) for half in range(2)]
    for row, address in zip(sums, a_rows, strict=True):
        number = build.load(build.gep(address, [k], source_etype=form.scalar), typ=form.scalar)
        spread = broadcast(emit, number)
        for total, column in zip(row, columns, strict=True):
            total.add_incoming(emit.fma(spread, column, total), body)
    k.add_incoming(build.add(k, I64(1)), body)
    build.branch(head)

    build.position_at_end(done)
    for r, row in enumerate(sums):
        address = build.gep(c, [build.mul(c_row, I64(r))], source_etype=ir.IntType(8))
        for half, total in enumerate(row):
            place = build.gep(address, [I64(half * lanes)], source_etype=form.scalar)
            build.store(total, place, align=form.bits // 8)
    build.ret_void()
    return function


def load_vector(emit: Emitter, panel: ir.Value, k: ir.Value, half: int) -> ir.Value:
    build = emit.builder
    start = build.add(build.mul(k, I64(2 * emit.width)), I64(half * emit.width))
    address = build.gep(panel, [start], source_etype=emit.form.scalar)
    return build.load(address, align=emit.form.bits // 8, typ=emit.vector)


def broadcast(emit: Emitter, number: ir.Value) -> ir.Value:
    build = emit.builder
    undefined = ir.Constant(emit.vector, ir.Undefined)
    first = build.insert_element(undefined, number, I32(0))
    everywhere = ir.Constant(ir.VectorType(I32, emit.width), [I32(0)] * emit.width)
    return build.shuffle_vector(first, undefined, everywhere)


class Gemm:
    """The product for any number of rows and panels, as calls of micro-kernels."""

    def __init__(self, module: ir.Module, form: Format, lanes: int):
        self.form, self.lanes = form, lanes
        self.kernels = {rows: micro_kernel(module, form, lanes, rows) for rows in range(1, ROWS + 1)}
        self.panel_bytes = 2 * lanes * form.bits // 8

    def emit(
        self, loop, build: ir.IRBuilder, rows: ir.Value, a, a_row, packed, depth, panels, c, c_row
    ) -> None:
        """`loop` is the maker of loops of the kernel around; addresses are whole numbers."""
        panel_size = build.mul(depth, I64(self.panel_bytes))
        groups = build.udiv(rows, I64(ROWS))
        rest = build.urem(rows, I64(ROWS))
        with loop(I64(0), panels, 1) as p:
            panel = build.inttoptr(build.add(packed, build.mul(p, panel_size)), PTR)
            c_panel = build.add(c, build.mul(p, I64(self.panel_bytes)))

            def call(count: int, first: ir.Value) -> None:
                a_at = build.inttoptr(build.add(a, build.mul(first, a_row)), PTR)
                c_at = build.inttoptr(build.add(c_panel, build.mul(first, c_row)), PTR)
                build.call(self.kernels[count], [a_at, a_row, panel, c_at, c_row, depth])

            with loop(I64(0), groups, 1) as group:
                call(ROWS, build.mul(group, I64(ROWS)))
            done = build.mul(groups, I64(ROWS))
            for count in range(1, ROWS):
                with build.if_then(build.icmp_signed("==", rest, I64(count))):
                    call(count, done)
