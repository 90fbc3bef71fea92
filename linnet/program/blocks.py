"""Products with block-diagonal matrices: each head of the input makes its own head of each part.

    y[p, h] = W[p, h] x[h]        for each part p and each head h

A matrix of N rows, the parts one after the other, is stored as [N, K / heads]: row j has the numbers for the
one head of the input that it reads. So the rows are those of a dense matrix, and the rows of a part are its
heads one after the other, as the groups of a grouped convolution. With one head it is the dense matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling

# Set by an exporter that records a product as one operation: it is called in its place, with x, the matrix,
# its scales if it is of int8, the bias, the heads and the number of parts.
product_recorder: ContextVar[Callable[..., Tensor] | None] = ContextVar("linnet_product", default=None)


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, heads: int, sizes: Sequence[int] | int = 1
) -> Tensor:
    """F.linear of x [..., K], with a block-diagonal matrix if there are several heads.

    sizes   the number of rows of each part; or the number of parts, which then are equally large
    """
    if heads == 1:
        return F.linear(x, weight, bias)
    if not isinstance(sizes, int):
        if len(set(sizes)) > 1:
            made = torch.cat([linear(x, part, None, heads) for part in weight.split(list(sizes))], -1)
            return made if bias is None else made + bias
        sizes = len(sizes)
    # A compiler cannot trace the context variable.
    recorder = None if is_compiling() else product_recorder.get()
    if recorder is not None:
        return recorder(x, weight, None, bias, heads, sizes)
    made = sums(x, weight, heads, sizes).flatten(-3)
    return made if bias is None else made + bias


@contextmanager
def separately() -> Iterator[None]:
    """Within this context, a product with a block-diagonal matrix is a product for each of its blocks."""
    token = product_recorder.set(by_blocks)
    try:
        yield
    finally:
        product_recorder.reset(token)


def by_blocks(x: Tensor, weight: Tensor, scales: None, bias: Tensor | None, heads: int, parts: int) -> Tensor:
    inputs, rows = x.chunk(heads, -1), weight.split(len(weight) // (heads * parts))
    made = torch.cat([F.linear(inputs[i % heads], block) for i, block in enumerate(rows)], -1)
    return made if bias is None else made + bias


def sums(x: Tensor, weight: Tensor, heads: int, parts: int) -> Tensor:
    """x [..., K] -> [..., parts, heads, rows]."""
    return torch.einsum("...hk,phsk->...phs", by_head(x, heads), blocks(weight, heads, parts))


def blocks(weight: Tensor, heads: int, parts: int) -> Tensor:
    """[N, K / heads] -> [parts, heads, rows, K / heads]."""
    return weight.unflatten(0, (parts, heads, -1))


def by_head(x: Tensor, heads: int) -> Tensor:
    """[..., K] -> [..., heads, K / heads]."""
    return x.unflatten(-1, (heads, -1))


def input_gradient(above: Tensor, weight: Tensor, heads: int, parts: int) -> Tensor:
    """The gradient of x [M, K], given that of the product, [M, N]."""
    if heads == 1:
        return above @ weight
    of_blocks = above.unflatten(-1, (parts, heads, -1))
    return torch.einsum("mphs,phsk->mhk", of_blocks, blocks(weight, heads, parts)).flatten(-2)


def weight_gradient(above: Tensor, x: Tensor, heads: int, parts: int) -> Tensor:
    """The gradient of the matrix, given that of the product, [M, N], and x [M, K]."""
    if heads == 1:
        return above.T @ x
    of_blocks = above.unflatten(-1, (parts, heads, -1))
    return torch.einsum("mphs,mhk->phsk", of_blocks, by_head(x, heads)).flatten(0, 2)


def transposed(weight: Tensor, heads: int, parts: int) -> Tensor:
    """Each block transposed: [parts * K, N / (parts * heads)]."""
    return blocks(weight, heads, parts).transpose(-1, -2).flatten(0, 2)


def dense(weight: Tensor, heads: int, sizes: Sequence[int]) -> Tensor:
    """The matrix [N, K] with the zeros between its blocks."""
    parts = [torch.block_diag(*part.chunk(heads)) for part in weight.split(list(sizes))]
    return torch.cat(parts)
