"""Kernels that one native call runs one after another."""

from __future__ import annotations

import ctypes
from array import array
from functools import partial

from llvmlite import ir

from linnet.cpu import jit
from linnet.cpu.kernel_cache import once
from linnet.cpu.program import I64, PTR
from linnet.cpu.row_kernels import ArgumentBlocks
from linnet.cpu.threads import parallel_for

# The numbers of a kernel in the table, and which of them is the grain.
NUMBERS, GRAIN = 5, 3


class InOrder:
    """A table of kernels with their arguments, which one call runs in order.

    It keeps the kernels alive, but not what their arguments point to.
    """

    def __init__(self) -> None:
        self.table = array("q")
        self.alive: list[object] = []
        self.pool = ctypes.cast(parallel_for(), ctypes.c_void_p).value or 0

    def append(self, kernel: jit.Compiled, arguments: array[int], units: int, grain: int) -> int:
        """Call `kernel` over range(units), with at least `grain` units per thread. Returns the place of the
        grain in the table, which a later call may change."""
        place = len(self.table) + GRAIN
        address, numbers = kernel.address.value or 0, arguments.buffer_info()[0]
        self.table.extend((address, numbers, units, grain, self.pool))
        self.alive.append((kernel, arguments))
        return place

    def finish(self) -> partial[None]:
        """Return the call that runs all kernels. Nothing can be appended any more."""
        run_all = call_in_order().as_function()
        return partial(run_all, 0, len(self.alive), self.table.buffer_info()[0])


@once
def call_in_order() -> jit.Compiled:
    """Call kernels one after another.

    Each has five arguments: its address, its arguments, its units of work, how many of them are worth a
    thread, and torch's thread pool, which is used if there are more of them.
    """
    module = ir.Module("call_in_order")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, I64, PTR]), "call_in_order")
    begin, end, arguments = function.args
    kernel = ArgumentBlocks(ir.IRBuilder(function.append_basic_block("entry")), arguments)
    build = kernel.build
    part = ir.FunctionType(ir.VoidType(), [I64, I64, PTR])
    pool = ir.FunctionType(ir.IntType(32), [I64, I64, I64, PTR, PTR])
    with kernel.loop(begin, end) as unit:
        address, its_arguments, units, grain, shared = kernel.numbers(unit, NUMBERS)
        its_arguments = build.inttoptr(its_arguments, PTR)
        with build.if_else(build.icmp_signed("<=", units, grain)) as (alone, together):
            with alone:
                build.call(typed(build, address, part), [I64(0), units, its_arguments])
            with together:
                target = build.inttoptr(address, PTR)
                build.call(typed(build, shared, pool), [I64(0), units, grain, target, its_arguments])
    build.ret_void()
    return jit.compile_function(str(module), "call_in_order")


def typed(build: ir.IRBuilder, address: ir.Value, kind: ir.FunctionType) -> ir.Value:
    return build.inttoptr(address, kind.as_pointer())
