"""Numbers of 16 bits with a binary point: n stands for n / 2^fraction.

A format is chosen from the largest value that calibration has seen, with a margin; larger values saturate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from linnet.deploy.step.models import CannotExport

LARGEST = 2**15 - 1
# Values may be twice as large as in calibration before they saturate.
MARGIN = 2.0
# More digits than this would be noise of the weights, and aligned numbers would need more than 32 bits.
MOST_DIGITS = 22
# For what was always 0 in calibration.
DIGITS_OF_ZERO = 14


@dataclass(frozen=True)
class Format:
    """Whole numbers from -limit - 1 to limit, in units of 2^-fraction."""

    fraction: int
    limit: int = LARGEST

    def numbers(self, values: Tensor) -> Tensor:
        """The nearest whole numbers, int64."""
        return torch.round(values.double() * 2.0**self.fraction).clamp(-self.limit - 1, self.limit).long()

    def values(self, numbers: Tensor) -> Tensor:
        """What the numbers stand for, exactly: float32 has 24 bits."""
        return numbers.float() / 2.0**self.fraction


def format_for(name: str, largest: float, margin: float = MARGIN) -> Format:
    """The format for values up to `largest`."""
    if largest == 0:
        return Format(DIGITS_OF_ZERO)
    fraction = math.floor(math.log2(LARGEST / (margin * largest)))
    if fraction < 0:
        raise CannotExport(
            f"{name} reaches {largest:.3g} in calibration, which 16 bits do not hold with a margin of "
            f"{margin:g}; scale the inputs, or export in int8 with float32 gates (int8=True)"
        )
    return Format(min(fraction, MOST_DIGITS))


def rescaled(numbers: Tensor, places: int, limit: int) -> Tensor:
    """numbers / 2^places, rounded half up, from -limit - 1 to limit."""
    half = 1 << places >> 1
    return ((numbers + half) >> places).clamp(-limit - 1, limit)
