"""The scheme of int8: what a quantised product is. Kernels and exports compute the same, integer for integer.

    q, s = quantised(w)      s = max |w| / 127 of each row, q = w / s rounded half to even
    y = (q_x . q_w) * s_w * s_x + b

Weights are quantised once, by `linnet.quantize`; the rows of x each time a product reads them. The sums are
exact, in int32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.program import blocks
from linnet.run.choose import is_recorded_product
from linnet.run.int8_ops import int8_linear

LEVELS = 127


def quantised(rows: Tensor) -> tuple[Tensor, Tensor]:
    """float32 [..., K] -> whole numbers from -127 to 127, int8 [..., K], and a scale for each row, [...]."""
    scales = rows.abs().amax(-1) / LEVELS
    # In a row of zeros every number is 0, whatever it is divided by.
    divisors = torch.where(scales == 0, 1.0, scales)
    return torch.round(rows / divisors[..., None]).to(torch.int8), scales


def dequantised(numbers: Tensor, scales: Tensor) -> Tensor:
    return numbers * scales[..., None]


def product(
    x: Tensor, numbers: Tensor, scales: Tensor, bias: Tensor | None = None, heads: int = 1, parts: int = 1
) -> Tensor:
    """x [..., K] with an int8 matrix [N, K] -> [..., N]: the definition.

    heads, parts   of a block-diagonal matrix, [N, K / heads]; each head of x has a scale of its own
    """
    recorder = blocks.product_recorder.get()
    if recorder is not None:
        return recorder(x, numbers, scales, bias, heads, parts)
    if is_recorded_product(x):
        return int8_linear(x, numbers, scales, bias, heads, parts)
    rows, factors = quantised(blocks.by_head(x, heads))
    # Sums of products of int8 are whole numbers below 2^53, so float64 has them exactly.
    sums = blocks.sums(rows.flatten(-2).double(), numbers.double(), heads, parts)
    y = (sums.float() * scales.view(sums.shape[-3:]) * factors[..., None, :, None]).flatten(-3)
    return y if bias is None else y + bias
