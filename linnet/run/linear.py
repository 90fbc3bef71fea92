"""F.linear for matrices that are read many times, as by a decoder that generates one word after another.

    with kept_matrices():       # within this context, no matrix changes
        y = linear(x, weight, bias)

The first product with a matrix packs it for our kernel, and the following ones read the packed copy. With few
rows, torch's product spends most of its time on packing. Outside such a context `linear` is F.linear, because
a matrix could change unnoticed, and its packed copy would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling

from linnet.program.readable import unreadable
from linnet.run.choose import may_use_cpu_kernel

# With more rows than this, torch's products are as fast.
MOST_ROWS = 512
# Smaller products take less time than finding the packed copy of a matrix.
LEAST_SIZE = 1 << 13
DTYPES = (torch.float32, torch.float64)


class KeptMatrices:
    """Packed copies of matrices, by the address of the matrix."""

    def __init__(self) -> None:
        # With the matrix: while it is referenced, no other tensor can have its address.
        self.copies: dict[tuple[Any, ...], tuple[Tensor, Any]] = {}

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        # Imported when first needed: it needs llvmlite.
        from linnet.cpu.linear import PackedMatrix

        key = weight.data_ptr(), weight.shape, weight.stride(), weight.dtype
        kept = self.copies.get(key)
        if kept is None:
            kept = self.copies[key] = weight, PackedMatrix(weight)
        rows = x.reshape(-1, x.shape[-1])
        return kept[1].times(rows, bias).view(*x.shape[:-1], len(weight))


matrices: ContextVar[KeptMatrices | None] = ContextVar("linnet_matrices", default=None)


@contextmanager
def kept_matrices() -> Iterator[None]:
    """Within this context, `linear` keeps packed copies of the matrices, so the matrices must not change."""
    token = matrices.set(KeptMatrices())
    try:
        yield
    finally:
        matrices.reset(token)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear(x, weight, bias); within `kept_matrices`, computed by our kernel where it is faster."""
    # A compiler cannot trace the context variable.
    kept = None if is_compiling() else matrices.get()
    if kept is None or not is_worth_packing(x, weight, bias):
        return F.linear(x, weight, bias)
    return kept.linear(x, weight, bias)


def is_worth_packing(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    tensors = [x, weight] if bias is None else [x, weight, bias]
    few = weight.numel() >= LEAST_SIZE and 0 < x.numel() <= MOST_ROWS * x.shape[-1]
    alike = all(unreadable(t) is None and t.dtype is x.dtype and t.device.type == "cpu" for t in tensors)
    graph = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    return few and alike and not graph and x.dtype in DTYPES and may_use_cpu_kernel(x)
