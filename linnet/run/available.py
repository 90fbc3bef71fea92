"""Which kernels can run in this process, and on which dtypes."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

from linnet.base.project import advice
from linnet.cpu.threads import has_parallel_for
from linnet.program.trace import Traced

CPU_DTYPES = (torch.float32, torch.float64, torch.bfloat16)
TRITON_DTYPES = (*CPU_DTYPES, torch.float16)
# The packages are searched for here, but not imported; torch.compile could not trace the search later.
HAS_TRITON = find_spec("triton") is not None
HAS_LLVM = find_spec("llvmlite") is not None
NO_LLVM = "the package llvmlite is not installed"
NO_TRITON = f"the package triton is not installed; {advice('triton')}"


@cache
def no_cpu_kernels() -> str | None:
    """Why no CPU kernel can run in this process, or None."""
    if not HAS_LLVM:
        return NO_LLVM
    if not has_parallel_for():
        return f"torch {torch.__version__} does not let kernels use its threads (2.10 and later do)"
    return None


@cache
def multiplies_bfloat16() -> bool:
    """Whether the CPU has instructions for products of bfloat16, which torch uses and our kernels do not."""
    # torch before 2.11 does not report them.
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))


def no_triton_kernels() -> str | None:
    """Why no Triton kernel can run in this process, or None. Its plans need llvmlite, too."""
    if not HAS_LLVM:
        return NO_LLVM
    return None if HAS_TRITON else NO_TRITON


def not_on_gpu(traced: Traced) -> str | None:
    """What a step does that Triton kernels cannot, or None."""
    if traced.sizes:
        return "a step that sums, norms or reorders channels, or joins parts of different sizes"
    return "products within a step" if traced.inner else None
