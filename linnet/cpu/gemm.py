"""A product of a few rows with a matrix that was packed beforehand, in LLVM.

    C[r, :] = b + A[r, :] W    r in a range of rows; W packed as panels[p][k][j] = W[k, p * panel + j]

A panel is two registers wide. Six rows of two registers, the two of the panel and one for a number of
A fill the registers of the machine, so the inner loop computes twelve products for each two vectors it loads.
Each number of C is summed in the order of k, whatever the number of rows and panels that are read at once.
Libraries are slow for such small products as in a recurrent step, because they pack the matrix at each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

from llvmlite import ir

from linnet.cpu.emit import Emitter, Format

I64, I32, PTR = ir.IntType(64), ir.IntType(32), ir.PointerType()
ROWS = 6
# With a few rows, a product reads several panels at once, so that there are enough independent sums.
AT_ONCE = {1: 4, 2: 2, 3: 2}


@contextmanager
def loop(build: ir.IRBuilder, start: ir.Value, stop: ir.Value, step: ir.Value) -> Iterator[ir.Value]:
    """for i in range(start, stop, step)."""
    before = build.block
    head, body, done = (build.append_basic_block() for _ in range(3))
    build.branch(head)
    build.position_at_end(head)
    i = build.phi(I64)
    i.add_incoming(start, before)
    build.cbranch(build.icmp_signed("<", i, stop), body, done)
    build.position_at_end(body)
    yield i
    i.add_incoming(build.add(i, step), build.block)
    build.branch(head)
    build.position_at_end(done)


def micro_kernel(
    module: ir.Module, form: Format, lanes: int, rows: int, panels: int = 1, adds: bool = False
) -> ir.Function:
    """void(A, bytes from row to row of A, panel, b, C, bytes from row to row of C, depth, columns).

    With several panels, all of their columns are needed, and each panel has the same b.

    adds   C += A W, without b; this reads whole panels of C
    """
    kind = ir.FunctionType(ir.VoidType(), [PTR, I64, PTR, PTR, PTR, I64, I64, I64])
    name = f"{'sum' if adds else 'product'}_of_{rows}_rows_and_{panels}_panels"
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    a, a_row, panel, bias, c, c_row, depth, columns = function.args
    entry, head, body, done = (
        function.append_basic_block(name) for name in ("entry", "head", "body", "done")
    )
    build = ir.IRBuilder(entry)
    emit = Emitter(build, form, lanes)
    starts = starts_of(emit, panels, bias, [(c, c_row, r) if adds else None for r in range(rows)])
    size = build.mul(depth, I64(2 * lanes))
    firsts = [build.gep(panel, [build.mul(size, I64(p))], source_etype=form.scalar) for p in range(panels)]
    a_rows = [build.gep(a, [build.mul(a_row, I64(r))], source_etype=ir.IntType(8)) for r in range(rows)]
    build.branch(head)
    build.position_at_end(head)
    k = build.phi(I64)
    sums = [[build.phi(emit.vector) for _ in range(2 * panels)] for _ in range(rows)]
    k.add_incoming(I64(0), entry)
    for row, own in zip(sums, starts, strict=True):
        for total, start in zip(row, own, strict=True):
            total.add_incoming(start, entry)
    build.cbranch(build.icmp_signed("<", k, depth), body, done)

    build.position_at_end(body)
    halves = [load_vector(emit, first, k, half) for first in firsts for half in range(2)]
    for row, address in zip(sums, a_rows, strict=True):
        number = build.load(build.gep(address, [k], source_etype=form.scalar), typ=form.scalar)
        spread = broadcast(emit, number)
        for total, half in zip(row, halves, strict=True):
            total.add_incoming(emit.fma(spread, half, total), body)
    k.add_incoming(build.add(k, I64(1)), body)
    build.branch(head)

    build.position_at_end(done)
    if panels > 1:
        store_rows(emit, sums, c, c_row)
        build.ret_void()
        return function
    whole = build.icmp_signed(">=", columns, I64(2 * lanes))
    with build.if_else(whole, likely=True) as (yes, no):
        with yes:
            store_rows(emit, sums, c, c_row)
        with no:
            store_part(emit, sums, c, c_row, columns)
    build.ret_void()
    return function


def starts_of(
    emit: Emitter, panels: int, bias: ir.Value, rows: Sequence[tuple[ir.Value, ir.Value, int] | None]
) -> list[list[ir.Value]]:
    """What the sums of each row start from: the bias, or a row of C, as (C, its bytes per row, number)."""
    build, made = emit.builder, []
    own = [load_vector(emit, bias, I64(0), half) for half in range(2)] * panels
    for row in rows:
        if row is None:
            made.append(own)
            continue
        c, c_row, number = row
        line = build.gep(c, [build.mul(c_row, I64(number))], source_etype=ir.IntType(8))
        made.append([load_vector(emit, line, I64(0), half) for half in range(2 * panels)])
    return made


def store_rows(emit: Emitter, sums: list[list[ir.Value]], c: ir.Value, c_row: ir.Value) -> None:
    build, form = emit.builder, emit.form
    for r, row in enumerate(sums):
        address = build.gep(c, [build.mul(c_row, I64(r))], source_etype=ir.IntType(8))
        for half, total in enumerate(row):
            at = build.gep(address, [I64(half * emit.width)], source_etype=form.scalar)
            build.store(total, at, align=form.bits // 8)


def store_part(
    emit: Emitter, sums: list[list[ir.Value]], c: ir.Value, c_row: ir.Value, columns: ir.Value
) -> None:
    """The first `columns` numbers of each row: through a tile with space for all of them."""
    build, scalar = emit.builder, emit.form.scalar
    with build.goto_entry_block():
        allocated = build.alloca(scalar, 2 * emit.width * len(sums))
    # Converted through an integer, since llvmlite's alloca returns an older kind of pointer.
    tile = build.inttoptr(build.ptrtoint(allocated, I64), PTR)
    tile_row = I64(2 * emit.width * emit.form.bits // 8)
    store_rows(emit, sums, tile, tile_row)
    with loop(build, I64(0), I64(len(sums)), I64(1)) as r, loop(build, I64(0), columns, I64(1)) as j:
        source = build.gep(tile, [build.mul(tile_row, r)], source_etype=ir.IntType(8))
        target = build.gep(c, [build.mul(c_row, r)], source_etype=ir.IntType(8))
        number = build.load(build.gep(source, [j], source_etype=scalar), typ=scalar)
        build.store(number, build.gep(target, [j], source_etype=scalar))


def load_vector(emit: Emitter, panel: ir.Value, k: ir.Value, half: int) -> ir.Value:
    build = emit.builder
    start = build.add(build.mul(k, I64(2 * emit.width)), I64(half * emit.width))
    address = build.gep(panel, [start], source_etype=emit.form.scalar)
    return build.load(address, align=emit.form.bits // 8, typ=emit.vector)


def broadcast(emit: Emitter, number: ir.Value) -> ir.Value:
    return number if emit.width == 1 else repeated(emit.builder, number, emit.width)


def repeated(build: ir.IRBuilder, number: ir.Value, width: int) -> ir.Value:
    """A vector of `width` times the same number."""
    undefined = ir.Constant(ir.VectorType(number.type, width), ir.Undefined)
    first = build.insert_element(undefined, number, I32(0))
    everywhere = ir.Constant(ir.VectorType(I32, width), [I32(0)] * width)
    return build.shuffle_vector(first, undefined, everywhere)


class Gemm:
    """The product for any number of rows and panels, as calls of micro-kernels."""

    def __init__(self, module: ir.Module, build: ir.IRBuilder, form: Format, lanes: int):
        self.build, self.panel = build, 2 * lanes
        self.kernel = cache(partial(micro_kernel, module, form, lanes))
        self.panel_bytes = self.panel * form.bits // 8
        kind = ir.ArrayType(form.scalar, self.panel)
        zeros = ir.GlobalVariable(module, kind, "no_bias")
        zeros.initializer, zeros.global_constant, zeros.linkage = ir.Constant(kind, None), True, "internal"
        self.zeros = zeros.ptrtoint(I64).inttoptr(PTR)

    def emit(
        self,
        rows: ir.Value,
        a: ir.Value,
        a_row: ir.Value,
        packed: ir.Value,
        depth: ir.Value,
        panels: tuple[ir.Value, ir.Value],
        c: ir.Value,
        c_row: ir.Value,
        few: bool = False,
        adds: bool = False,
        flip: ir.Value | None = None,
    ) -> None:
        """Multiply with the panels from the first to the last of `panels`, without a bias; addresses are
        integers.

        few    there are never more rows than AT_ONCE has
        adds   add to what C is
        flip   whether the panels are read from the last to the first. If every second step does so, the
               panels that a step reads first are those that the cache still has
        """
        build, (first, beyond) = self.build, panels
        where = a, a_row, packed, depth, c, c_row
        for count, most in AT_ONCE.items():
            with build.if_then(build.icmp_signed("==", rows, I64(count))):
                self.emit_few(count, most, panels, where, adds, flip)
        if few:
            return
        with (
            build.if_then(build.icmp_signed(">", rows, I64(max(AT_ONCE)))),
            loop(build, first, beyond, I64(1)) as p,
        ):
            panel, c_panel = self.at_panel(self.turned(p, first, beyond, 1, flip), packed, depth, c)
            self.emit_panel(rows, a, a_row, panel, self.zeros, depth, c_panel, c_row, I64(self.panel), adds)

    def turned(
        self, p: ir.Value, first: ir.Value, beyond: ir.Value, step: int, flip: ir.Value | None
    ) -> ir.Value:
        """p of range(first, beyond, step); if `flip`, the number that is as far from the end of the range."""
        build = self.build
        if flip is None:
            return p
        return build.select(flip, build.sub(build.sub(build.add(first, beyond), I64(step)), p), p)

    def at_panel(
        self, p: ir.Value, packed: ir.Value, depth: ir.Value, c: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """The address of a panel, and that of its product."""
        build, offset = self.build, self.build.mul(p, I64(self.panel_bytes))
        return build.add(packed, build.mul(offset, depth)), build.add(c, offset)

    def emit_few(
        self,
        rows: int,
        most: int,
        panels: tuple[ir.Value, ir.Value],
        where: tuple[ir.Value, ...],
        adds: bool,
        flip: ir.Value | None,
    ) -> None:
        """Multiply a few rows with `most` panels at once, and then with those that are left."""
        build, (a, a_row, packed, depth, c, c_row) = self.build, where

        def call(count: int, p: ir.Value) -> None:
            kernel = self.kernel(rows, count, adds)
            addresses = (a, *self.at_panel(p, packed, depth, c))
            a_at, panel, c_at = (build.inttoptr(address, PTR) for address in addresses)
            build.call(kernel, [a_at, a_row, panel, self.zeros, c_at, c_row, depth, I64(self.panel)])

        first, beyond = panels
        rest = build.urem(build.sub(beyond, first), I64(most))
        whole = build.sub(beyond, rest)
        with loop(build, first, whole, I64(most)) as p:
            call(most, self.turned(p, first, whole, most, flip))
        for count in range(1, most):
            with build.if_then(build.icmp_signed("==", rest, I64(count))):
                call(count, whole)

    def emit_panel(
        self,
        rows: ir.Value,
        a: ir.Value,
        a_row: ir.Value,
        panel: ir.Value,
        bias: ir.Value,
        depth: ir.Value,
        c: ir.Value,
        c_row: ir.Value,
        columns: ir.Value,
        adds: bool = False,
    ) -> None:
        """Multiply with one panel, of which the first `columns` are needed."""
        build = self.build
        groups, rest = build.udiv(rows, I64(ROWS)), build.urem(rows, I64(ROWS))
        panel = build.inttoptr(panel, PTR)

        def call(count: int, first: ir.Value) -> None:
            a_at = build.inttoptr(build.add(a, build.mul(first, a_row)), PTR)
            c_at = build.inttoptr(build.add(c, build.mul(first, c_row)), PTR)
            kernel = self.kernel(count, 1, adds)
            build.call(kernel, [a_at, a_row, panel, bias, c_at, c_row, depth, columns])

        with loop(build, I64(0), groups, I64(1)) as group:
            call(ROWS, build.mul(group, I64(ROWS)))
        done = build.mul(groups, I64(ROWS))
        for count in range(1, ROWS):
            with build.if_then(build.icmp_signed("==", rest, I64(count))):
                call(count, done)
