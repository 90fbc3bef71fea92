"""Reuse of freed memory on the CPU.

The C library of Linux returns large freed blocks to the system, so each training step receives new memory
whose pages the system clears first. For long sequences that is up to a third of a training step.
"""

from __future__ import annotations

import ctypes
import platform

# Parameters of mallopt in malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
# Blocks up to 2 GB are reused: the largest number that mallopt takes.
LARGEST = (1 << 31) - 1


def reuse_memory() -> bool:
    """Let this process keep the memory of freed tensors on the CPU and use it again.

    Training on long sequences becomes faster, and memory is returned to the system only when the process
    ends. `linnet train`, `compare` and `search` do this. Returns False, and changes nothing, where the
    C library is not glibc (macOS, Windows, Alpine Linux).

        linnet.reuse_memory()  # once, before training
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(parameter, LARGEST) for parameter in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD))
