"""How many numbers a kernel computes at once on this machine."""

from __future__ import annotations

from functools import cache

import torch


@cache
def vector_width(dtype: torch.dtype) -> int:
    """The numbers in two registers: while one waits for a result, the other computes.

    torch reports the machine's capability, not LLVM, since building a module must not import a compiler.
    """
    lanes = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8
    return lanes if dtype == torch.float64 else 2 * lanes
