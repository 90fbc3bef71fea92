"""Elementary functions for Triton kernels that are accurate near 0, too, in float32 and float64.

They are written with Triton's own operations, so that its interpreter runs what a GPU runs. exp, log and
division are the GPU's fast ones, accurate to a few units in the last place where their results are not small;
near 0, where 1 - exp(x) would lose all digits, a series or a continued fraction is used instead.
"""

import triton
import triton.language as tl


@triton.jit
def near_tanh(x: tl.tensor) -> tl.tensor:
    """Lambert's continued fraction x / (1 + z / (3 + z / (5 + ...))) with z = x^2, to its eighth term.

    For |x| < 0.625 it is accurate to the precision of float64.
    """
    z = x * x
    above = 2027025.0 + z * (270270.0 + z * (6930.0 + z * 36.0))
    below = 2027025.0 + z * (945945.0 + z * (51975.0 + z * (630.0 + z)))
    return x * above / below


@triton.jit
def tanh(x: tl.tensor) -> tl.tensor:
    size = tl.abs(x)
    far = 1.0 - 2.0 / (tl.exp(2.0 * size) + 1.0)
    far = tl.where(x < 0.0, -far, far)
    return tl.where(size < 0.625, near_tanh(x), far)


@triton.jit
def expm1(x: tl.tensor) -> tl.tensor:
    """exp(x) - 1 = 2 tanh(x / 2) / (1 - tanh(x / 2))."""
    half = near_tanh(0.5 * x)
    near = 2.0 * half / (1.0 - half)
    return tl.where(tl.abs(x) < 1.25, near, tl.exp(x) - 1.0)


@triton.jit
def log1p(x: tl.tensor) -> tl.tensor:
    """log(1 + x) = 2 artanh(s) with s = x / (2 + x): 2 s (1 + s^2 / 3 + s^4 / 5 + ...)."""
    s = x / (2.0 + x)
    z = s * s
    total = z * 0.0 + 1.0 / 33.0
    for term in tl.static_range(15, -1, -1):
        total = total * z + 1.0 / (2 * term + 1)
    return tl.where(tl.abs(x) < 0.5, 2.0 * s * total, tl.log(1.0 + x))


@triton.jit
def sign(x: tl.tensor) -> tl.tensor:
    return tl.where(x > 0.0, 1.0, tl.where(x < 0.0, -1.0, 0.0)).to(x.dtype)


@triton.jit
def power(base: tl.tensor, exponent: tl.tensor) -> tl.tensor:
    """base ** exponent; NaN for a negative base and a fractional exponent, as in torch."""
    size = tl.exp(exponent * tl.log(tl.abs(base)))
    size = tl.where(exponent == 0.0, 1.0, size)
    whole = tl.floor(exponent) == exponent
    odd = tl.floor(0.5 * exponent) != 0.5 * exponent
    signed = tl.where(odd, -size, size)
    below = tl.where(whole, signed, float("nan"))
    return tl.where(base < 0.0, below, size).to(base.dtype)
