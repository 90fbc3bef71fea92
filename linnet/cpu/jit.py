"""Compiles LLVM's text to machine code once per machine, caches it on disk, runs it on torch's threads."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
from array import array
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from linnet.base.files import cache_folder
from linnet.base.forks import compiling
from linnet.cpu.disk import read_sealed, write_sealed
from linnet.cpu.threads import parallel_for

log = logging.getLogger("linnet")
# Part of every key: code that is compiled with other settings is another file.
OPTIMISATION = {"opt": 3, "speed_level": 2}
# Kernels of recipes compute with vectors already, and their loops are in order. With these passes instead of
# all of LLVM's, they compile in less than half the time and run as fast (docs/log.md).
PASSES = ("simplify_cfg", "instruction_combine", "new_gvn")


FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class Compiled:
    """A function `void f(int64 begin, int64 end, void *arguments)` in this process.

    Whoever keeps its address also keeps this object: without it, the code is freed.
    """

    def __init__(self, engine: llvm.ExecutionEngine, name: str):
        self.engine = engine  # owns the memory the address points into
        self.address = ctypes.c_void_p(engine.get_function_address(name))

    def as_function(self) -> Any:
        """A function that Python can call, which keeps this object alive."""
        function = FUNCTION(self.address.value or 0)
        function.owner = self  # type: ignore[attr-defined]
        return function


def compile_function(source: str, name: str) -> Compiled:
    """Return the function `name` of an LLVM module, read from the cache on disk if possible."""
    return compiled(source, lambda: source, name, ())


def compile_recipe(recipe: Hashable, emit: Callable[[Any], str], name: str) -> Compiled:
    """Return the function `name` of the LLVM module `emit(recipe)`.

    Emitting the module takes about as long as everything else together, so it is emitted only if the cache on
    disk has no code for `recipe`, whose repr must therefore be complete.
    """
    identity = f"{name} of {recipe!r} by {emitters()}"
    return compiled(identity, lambda: emit(recipe), name, PASSES)


def compiled(identity: str, source: Callable[[], str], name: str, passes: Sequence[str]) -> Compiled:
    """Return the function `name` of the LLVM module `source()`, which `identity` determines.

    passes   LLVM's passes that optimise it, in this order; none: all that LLVM runs at its level
    """
    with compiling:
        machine = target_machine()
        code = object_code(identity, source, machine, passes)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        return Compiled(engine, name)


def object_code(
    identity: str, source: Callable[[], str], machine: llvm.TargetMachine, passes: Sequence[str]
) -> bytes:
    key = cache_key(f"{identity}\n{passes}", machine)
    # The name is part of the key's digest; the file holds all of it.
    folder, name = cache_folder(), f"{key.hex()[:32]}.o"
    code = read_sealed(folder, name, key)
    if code is None:
        code = optimised_object(source(), machine, passes)
        write_sealed(folder, name, key, code)
    return code


def cache_key(identity: str, machine: llvm.TargetMachine) -> bytes:
    """A digest of all that the code depends on: source, compiler, settings and machine."""
    versions = f"llvmlite {llvmlite.__version__}, LLVM {llvm.llvm_version_info}"
    parts = [identity, versions, repr(OPTIMISATION), machine.triple, host_cpu()]
    return hashlib.sha256("\n".join(parts).encode()).digest()


@cache
def emitters() -> str:
    """Return a digest of the code that emits LLVM: another version of Linnet emits other kernels."""
    package = Path(__file__).parents[1]
    sources = sorted((*package.glob("program/*.py"), *package.glob("cpu/*.py")))
    # A frozen program has no sources that identify its version, so it does not share code between processes.
    contents = [path.read_bytes() for path in sources] or [os.urandom(32)]
    return hashlib.sha256(b"".join(contents)).hexdigest()


@cache
def host_cpu() -> str:
    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def target_machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu, features=features, opt=OPTIMISATION["opt"], jit=True)


def optimised(source: str, machine: llvm.TargetMachine, passes: Sequence[str]) -> llvm.ModuleRef:
    module = llvm.parse_assembly(source)
    module.verify()
    options = llvm.create_pipeline_tuning_options(OPTIMISATION["speed_level"])
    builder = llvm.create_pass_builder(machine, options)
    manager = llvm.create_new_module_pass_manager() if passes else builder.getModulePassManager()
    for name in passes:
        getattr(manager, f"add_{name}_pass")()
    manager.run(module, builder)
    return module


def optimised_object(source: str, machine: llvm.TargetMachine, passes: Sequence[str]) -> bytes:
    return machine.emit_object(optimised(source, machine, passes))


def assembly(source: str) -> str:
    """The machine's assembly for the kernel of a recipe, to be read by people."""
    with compiling:
        machine = target_machine()
        return machine.emit_assembly(optimised(source, machine, PASSES))


def run(function: Compiled, units: int, grain: int, arguments: array[int]) -> None:
    """Call `function` over range(units), with at least `grain` units per thread."""
    failed = parallel_for()(0, units, grain, function.address, arguments.buffer_info()[0])
    if failed:
        raise RuntimeError("torch_parallel_for failed")
