"""Kernels for GPUs: Triton source from the traced step, and how it is launched."""

from __future__ import annotations

import os


def is_interpreted() -> bool:
    """Whether Triton's interpreter runs its kernels in NumPy: slowly, but without a GPU."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"
