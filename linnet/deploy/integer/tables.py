"""Functions of one variable as tables over all numbers of 16 bits, with linear interpolation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from linnet.deploy.integer.formats import LARGEST, Format
from linnet.deploy.step.program import unique

# A table has 512 intervals of 128 numbers.
INTERVAL_BITS = 7
INTERVALS = 2**16 >> INTERVAL_BITS
# These are flat outside of +-16 and +-8, and between -1 and 1: one table serves a whole model.
FLAT = {"sigmoid": (Format(11), Format(15)), "tanh": (Format(12), Format(15))}


class Tables:
    """The tables of a program, each a vector among its `vectors`."""

    def __init__(self, vectors: dict[str, np.ndarray]):
        self.vectors = vectors
        self.names: dict[tuple[object, ...], str] = {}

    def name_of(self, op: str, numbers: dict[int, float], read: Format, written: Format) -> str:
        """The table of a function; `numbers` are its constant operands by position."""
        key = (op, *numbers.items(), read.fraction, written)
        if key not in self.names:
            self.names[key] = unique(f"{op}_table", self.vectors)
            self.vectors[self.names[key]] = entries(op, numbers, read, written)
        return self.names[key]


def entries(op: str, numbers: dict[int, float], read: Format, written: Format) -> np.ndarray:
    x = (torch.arange(INTERVALS + 1, dtype=torch.float64) * 2**INTERVAL_BITS - 2**15) / 2.0**read.fraction
    operands = {0 if 0 not in numbers else 1: x}
    operands |= {position: torch.full_like(x, number) for position, number in numbers.items()}
    values = getattr(torch, op)(*(operands[position] for position in sorted(operands)))
    # A function may be infinite or undefined where the model does not read it: the root of a negative number.
    largest = LARGEST / 2.0**written.fraction
    return written.numbers(values.nan_to_num(0.0, largest, -largest)).numpy().astype(np.int16)


def interpolated(table: Tensor, x: Tensor) -> Tensor:
    at = x + 2**15
    first, part = table.long()[at >> INTERVAL_BITS], at & (2**INTERVAL_BITS - 1)
    next_one = table.long()[(at >> INTERVAL_BITS) + 1]
    return first + (((next_one - first) * part + (1 << INTERVAL_BITS >> 1)) >> INTERVAL_BITS)
