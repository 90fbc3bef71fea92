"""A fork waits until no thread is compiling a kernel or importing a module of Linnet.

A child process has only the thread that forked. If another thread held a lock at that moment (ours, LLVM's,
or that of a module being imported), the child would wait for it forever. So the thread that forks takes
these locks first, and both processes release them afterwards.
"""

from __future__ import annotations

import importlib
import os
import sys
from threading import RLock
from typing import Any

# One compilation at a time in a process: LLVM's global state is not thread-safe. Reentrant, since one
# kernel may need another, and since a finaliser may run while its own thread compiles.
compiling = RLock()

# These are imported at a first call, perhaps by one thread while another forks.
IMPORTED_LATE = ("linnet", "llvmlite", "triton", "torch._decomp")


def finish_imports() -> None:
    """Wait for the imports of other threads."""
    for name, module in list(sys.modules.items()):
        if name.startswith(IMPORTED_LATE) and is_initialising(module):
            importlib.import_module(name)


def is_initialising(module: Any) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def llvm_lock() -> Any:
    """The lock that llvmlite takes around each call of LLVM; None if llvmlite is not imported.

    Finalisers of engines take it in any thread, so our own lock is not enough.
    """
    ffi = sys.modules.get("llvmlite.binding.ffi")
    return None if ffi is None else ffi.lib._lock


# The locks that the forking thread has taken, in order.
taken: list[Any] = []


def take_locks() -> None:
    finish_imports()
    compiling.acquire()
    lock = llvm_lock()
    if lock is not None:
        lock.__enter__()
    taken.append(lock)


def release_locks() -> None:
    lock = taken.pop()
    if lock is not None:
        lock.__exit__(None, None, None)
    compiling.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=take_locks, after_in_parent=release_locks, after_in_child=release_locks)
