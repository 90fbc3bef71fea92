"""Machine code from LLVM's text: compiled once a machine, kept on disk, run on torch's own threads."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import sys
import tempfile
from array import array
from functools import cache
from pathlib import Path
from threading import Lock

import llvmlite
import llvmlite.binding as llvm

from linnet.fuse.threads import parallel_for

log = logging.getLogger("linnet")
# One compilation at a time in a process: LLVM's global state is not made for more.
compiling = Lock()


def unlock_after_fork() -> None:
    """A child has none of the threads that may have held the lock."""
    global compiling
    compiling = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=unlock_after_fork)


def cache_folder() -> Path:
    """LINNET_CACHE, or the place where this system keeps caches."""
    if "LINNET_CACHE" in os.environ:
        return Path(os.environ["LINNET_CACHE"])
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "linnet"
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "linnet"


class Compiled:
    """A function `void f(int64 begin, int64 end, void *arguments)` in this process."""

    def __init__(self, engine: llvm.ExecutionEngine, name: str):
        self.engine = engine  # owns the memory the address points into
        self.address = ctypes.c_void_p(engine.get_function_address(name))


def compile_function(source: str, name: str) -> Compiled:
    """The function `name` of an LLVM module, from the cache on disk if it is there."""
    with compiling:
        machine = target_machine()
        key = "\n".join([source, llvmlite.__version__, machine.triple, host_cpu()])
        path = cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.o"
        code = read_cached(path)
        if code is None:
            code = optimised_object(source, machine)
            write_cached(path, code)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        return Compiled(engine, name)


@cache
def host_cpu() -> str:
    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def target_machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
    )


def optimised(source: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    module = llvm.parse_assembly(source)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    return module


def optimised_object(source: str, machine: llvm.TargetMachine) -> bytes:
    return machine.emit_object(optimised(source, machine))


def assembly(source: str) -> str:
    """What the machine will run, to read."""
    machine = target_machine()
    return machine.emit_assembly(optimised(source, machine))


def read_cached(path: Path) -> bytes | None:
    """The object code, if it is there and whole: a digest stands in front of it."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, code = data[:32], data[32:]
    return code if hashlib.sha256(code).digest() == digest else None


def write_cached(path: Path, code: bytes) -> None:
    """In one step, so that no other process sees half a file. A cache that cannot be written is no fault."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                file.write(hashlib.sha256(code).digest() + code)
                file.close()
                os.replace(file.name, path)
            except OSError:
                os.unlink(file.name)
                raise
    except OSError as error:
        log.info("kernels are not kept in %s: %s", path.parent, error)


def run(function: Compiled, units: int, grain: int, arguments: array[int]) -> None:
    """Call `function` over range(units), at least `grain` of them a thread."""
    failed = parallel_for()(0, units, grain, function.address, arguments.buffer_info()[0])
    if failed:
        raise RuntimeError("torch_parallel_for failed")
