"""Many steps of a `StepProgram` in one native call, with denormal numbers flushed to zero.

A state that decays in silence ends in denormal numbers, whose arithmetic takes many times as long on some
processors. The control register of the calling thread is set before the steps and restored after them.
"""

from __future__ import annotations

import platform
from array import array
from functools import partial
from typing import Any

from llvmlite import ir

from linnet.cpu import jit
from linnet.cpu.kernel_cache import once
from linnet.cpu.program import I64, PTR
from linnet.cpu.row_kernels import ArgumentBlocks
from linnet.cpu.steps import StepProgram

I32 = ir.IntType(32)
# MXCSR of x86: flush results to zero (FTZ), read denormal operands as zero (DAZ). FPCR of AArch64: FZ, both.
X86, X86_FLUSHES = ("x86_64", "amd64"), 0x8040
ARM, ARM_FLUSHES = ("aarch64", "arm64"), 1 << 24


class Frames:
    """Runs a program for consecutive frames of an input, and writes consecutive outputs.

    reads, writes   the arrays of `StepProgram.copy`, for the input and for the output
    """

    def __init__(self, program: StepProgram, reads: array[int], writes: array[int]):
        self.program, self.reads, self.writes = program, reads, writes
        # The call of one step: a native function, and its three arguments.
        one_step: Any = program.run
        kernel, (_, last, table) = one_step.func.owner, one_step.args
        # A copy has six arguments: the first is its source, the second its target, the last two are the rows
        # and the bytes of each.
        self.arguments = array(
            "q",
            (
                *(kernel.address.value, last, table),
                *(reads.buffer_info()[0], reads[4] * reads[5]),
                *(writes.buffer_info()[0] + writes.itemsize, writes[4] * writes[5]),
            ),
        )
        self.run: Any = partial(run_frames().as_function(), 0)

    def __call__(self, x: int, y: int, count: int = 1) -> None:
        """Run `count` steps, from the address of the first input and to that of the first output."""
        self.reads[0], self.writes[1] = x, y
        self.run(count, self.arguments.buffer_info()[0])


@once
def run_frames() -> jit.Compiled:
    """For each frame, call the kernels of a step in order, and advance the addresses of input and output.

    Its seven arguments are those of `Frames`.
    """
    module = ir.Module("run_frames")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, I64, PTR]), "run_frames")
    begin, end, arguments = function.args
    kernel = ArgumentBlocks(ir.IRBuilder(function.append_basic_block("entry")), arguments)
    build = kernel.build
    address, kernels, table, *pointers = kernel.numbers(I64(0), 7)
    in_order = build.inttoptr(address, ir.FunctionType(ir.VoidType(), [I64, I64, PTR]).as_pointer())
    mode = FloatMode(build)
    mode.flush()
    with kernel.loop(begin, end):
        build.call(in_order, [I64(0), kernels, build.inttoptr(table, PTR)])
        for place, size in (pointers[:2], pointers[2:]):
            pointer = build.inttoptr(place, PTR)
            build.store(build.add(build.load(pointer, typ=I64), size), pointer)
    mode.restore()
    build.ret_void()
    return jit.compile_function(str(module), "run_frames")


class FloatMode:
    """The control register for numbers in floating point; on other processors it stays as it is."""

    def __init__(self, build: ir.IRBuilder):
        self.build, self.machine = build, platform.machine().lower()
        self.old: ir.Value | None = None

    def flush(self) -> None:
        if self.machine in X86:
            self.old = self.build.alloca(I32)
            self.intrinsic("llvm.x86.sse.stmxcsr", self.old)
            new = self.build.alloca(I32)
            mode = self.build.or_(self.build.load(self.old, typ=I32), I32(X86_FLUSHES))
            self.build.store(mode, new)
            self.intrinsic("llvm.x86.sse.ldmxcsr", new)
        elif self.machine in ARM:
            self.old = self.intrinsic("llvm.aarch64.get.fpcr", kind=I64)
            self.intrinsic("llvm.aarch64.set.fpcr", self.build.or_(self.old, I64(ARM_FLUSHES)))

    def restore(self) -> None:
        if self.old is not None:
            name = "llvm.x86.sse.ldmxcsr" if self.machine in X86 else "llvm.aarch64.set.fpcr"
            self.intrinsic(name, self.old)

    def intrinsic(self, name: str, *given: ir.Value, kind: ir.Type | None = None) -> ir.Value:
        module = self.build.module
        # llvmlite writes the type of an alloca as a typed pointer, and LLVM reads both as `ptr`.
        types = [PTR if isinstance(each.type, ir.PointerType) else each.type for each in given]
        function = module.globals.get(name) or ir.Function(
            module, ir.FunctionType(kind or ir.VoidType(), types), name
        )
        return self.build.call(function, given)
