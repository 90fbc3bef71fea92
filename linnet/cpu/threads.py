"""torch's threads, on which kernels run."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch

# Fewer numbers than this are not worth another thread.
WORTH = 1 << 15


@cache
def torch_library() -> ctypes.CDLL:
    """torch's own shared library."""
    names = {"win32": "torch_cpu.dll", "darwin": "libtorch_cpu.dylib"}
    name = names.get(sys.platform, "libtorch_cpu.so")
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / name))


def has_parallel_for() -> bool:
    return hasattr(torch_library(), "torch_parallel_for")


@cache
def parallel_for() -> Any:
    """The function that runs a kernel on torch's thread pool."""
    function = torch_library().torch_parallel_for
    function.argtypes = [ctypes.c_int64] * 3 + [ctypes.c_void_p] * 2
    return function


def grain(numbers: int) -> int:
    """Return how many units of `numbers` numbers each are worth a thread."""
    return max(1, WORTH // numbers)
