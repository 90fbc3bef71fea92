"""How many numbers a kernel takes at once on this machine."""

from __future__ import annotations

from functools import cache

import torch


@cache
def vector_width(dtype: torch.dtype) -> int:
    """Two registers' worth: while one waits for a result, the other has work.

    As torch sees the machine, and not LLVM: building a module must not import a compiler.
    """
    lanes = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8
    return lanes if dtype == torch.float64 else 2 * lanes
