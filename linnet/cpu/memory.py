"""Memory for large sequences.

A large tensor is allocated anew by the system each time, and the first access to each of its pages costs more
than a recurrence: 48 ms compared with 6 ms for 120 MB. Pages of 2 MB instead of 4 kB make that cost small;
Linux provides them on request.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

LARGE = 1 << 22
PAGE = 4096
MADV_HUGEPAGE = 14


def new_empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """torch.empty on the CPU; requests large pages for a large tensor."""
    tensor = torch.empty(shape, dtype=dtype, device="cpu")
    if tensor.nbytes >= LARGE:
        ask_for_large_pages(tensor)
    return tensor


def ask_for_large_pages(tensor: Tensor) -> None:
    advise = madvise()
    if advise is not None:
        start = -(-tensor.data_ptr() // PAGE) * PAGE
        length = (tensor.data_ptr() + tensor.nbytes - start) // PAGE * PAGE
        # Only a request: the memory is the same whether the system grants it or not.
        advise(start, length, MADV_HUGEPAGE)


@cache
def madvise() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function
