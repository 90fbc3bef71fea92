"""The two passes of CPU kernels over a sequence, and the products around them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from linnet.cpu.backward import Kept, run_backward
from linnet.cpu.call import side_by_side
from linnet.cpu.forward import run_forward
from linnet.cpu.linear import PackedMatrix
from linnet.cpu.memory import new_empty
from linnet.program import blocks
from linnet.program.operands import Source, as_dtype

__all__ = ["Kept", "laid_out", "projection_gradients", "run_backward", "run_forward"]

# Copies an operand whose strides kernels cannot read.
laid_out = side_by_side

# For a matrix of at least this many numbers, our own product is faster than torch's.
OWN_PRODUCT = 1 << 15


def projection_gradients(
    djoint: Tensor | None, source: Source, needed: Sequence[bool], parts: int
) -> list[Tensor | None]:
    """The gradients of the operands of a projection that makes so many `parts`."""
    if djoint is None:
        return [None, None, None]
    x, weight, bias, heads = source[:4]
    above = djoint.flatten(0, 1)
    need_x, need_weight, need_bias = needed
    rows, real, dtype = x.reshape(-1, x.shape[-1]), above.dtype, x.dtype
    unbiased = 0 if bias is None else weight.shape[0] - bias.shape[0]
    biased = above[:, unbiased:] if unbiased else above
    return [
        as_dtype(times(above, as_dtype(weight, real), x.shape, heads, parts), dtype) if need_x else None,
        as_dtype(blocks.weight_gradient(above, as_dtype(rows, real), heads, parts), dtype)
        if need_weight
        else None,
        as_dtype(biased.sum(0), dtype) if need_bias else None,
    ]


def times(rows: Tensor, matrix: Tensor, shape: Sequence[int], heads: int, parts: int) -> Tensor:
    """rows @ matrix as a tensor of this shape, computed by our own product where that is faster."""
    if heads > 1:
        return blocks.input_gradient(rows, matrix, heads, parts).view(shape)
    # Not a view: autograd adds other gradients to it in place, and would copy a view first.
    made = new_empty(shape, rows.dtype)
    target = made.view(-1, matrix.shape[1])
    if matrix.numel() >= OWN_PRODUCT:
        PackedMatrix(matrix.T).times(rows, into=target)
    else:
        torch.mm(rows, matrix, out=target)
    return made
