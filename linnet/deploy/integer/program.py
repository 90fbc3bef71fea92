"""The program of a step in whole numbers: weights of 8 bits, values of 16, sums of 32.

    product     sums of int8 * int16; for each row a multiplier and a shift round them to the format of the
                output, and the bias is added in that format
    loops       added numbers are aligned first, products are rounded by shifts; what does not fit saturates
    functions   of one variable, such as sigmoid: tables with linear interpolation

The result is a `Program` again, with operations on whole numbers in its loops: Python runs it
(deploy/integer/model.py) and C is written from it (deploy/source/integer_c.py), with equal numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from linnet.deploy.integer.calibrate import Ranges
from linnet.deploy.integer.formats import LARGEST, MOST_DIGITS, Format, format_for
from linnet.deploy.integer.loops import LoopLowering
from linnet.deploy.integer.segments import Segments, Span, segments, spans_of
from linnet.deploy.integer.tables import Tables
from linnet.deploy.step.models import CannotExport
from linnet.deploy.step.program import INPUT, Kernel, Lookup, Matrix, Product, Program, unique
from linnet.program.loops import Access, Loop
from linnet.recurrent import int8

# Sums of a product stay below this.
MOST_SUM = 2**31 - 1
# Multipliers have this many bits, so that one times a sum has fewer than 63.
MULTIPLIER_BITS = 30
MOST_SHIFT = 62
# The factors of products are below this, so that their shifts are above 32: processors of 32 bits have the
# upper half of a product in a register of its own.
MOST_FACTOR = 2.0**-3
HALF_SHIFT = 32


class Scaling(NamedTuple):
    """The names of the vectors with which a product or a lookup is rounded to its output."""

    multipliers: str
    shifts: str
    bias: str | None


@dataclass(frozen=True)
class IntegerProgram:
    """A step in whole numbers.

    program    its loops have operations on whole numbers; vectors are those of loops, products and functions
    formats    of the input, the output, the state and scratch
    scalings   of products and lookups, by the buffers to which they write
    """

    program: Program
    formats: dict[str, Segments]
    scalings: dict[str, Scaling]


def in_integers(program: Program, ranges: Ranges) -> IntegerProgram:
    return IntegerLowering(program, ranges).result()


class IntegerLowering:
    def __init__(self, program: Program, ranges: Ranges):
        self.program, self.ranges = program, ranges
        self.matrices = {name: int8_matrix(matrix) for name, matrix in program.matrices.items()}
        # Places of numbers that are gathered are whole numbers already.
        self.vectors = {name: program.vectors[name] for name in program.tables.values()}
        self.constants: dict[str, Format] = {}
        self.tables = Tables(self.vectors)
        self.scalings: dict[str, Scaling] = {}
        # The input of a product is needed before its output: buffers that no product writes come first.
        written = [each.output for each in program.kernels if isinstance(each, Product)]
        spans = spans_of(program)
        self.formats: dict[str, Segments] = {}
        for name in [*(each for each in spans if each not in written), *written]:
            self.formats[name] = segments(spans[name], partial(self.buffer_format, name))

    def buffer_format(self, name: str, span: Span) -> Format:
        products = [each for each in self.program.kernels if isinstance(each, Product) and each.x == name]
        limit = min([LARGEST, *(self.input_limit(each) for each in products)])
        if name == INPUT and limit < LARGEST:
            raise CannotExport(
                "the sums of a product of the input do not fit 32 bits: a row has too many large weights. "
                "Put a smaller layer before it"
            )
        found = format_for(f"the buffer {name}", self.largest(name, span))
        makers = [each for each in self.program.kernels if isinstance(each, Product) and each.output == name]
        return Format(min([found.fraction, *map(self.finest, makers)]), limit)

    def finest(self, kernel: Product) -> int:
        """The largest fraction of a product's output with which its factors are below `MOST_FACTOR`."""
        largest = float(scales_of(self.matrices[kernel.matrix]).max())
        unit = largest * 2.0 ** -self.input_fraction(kernel)
        return math.floor(math.log2(MOST_FACTOR / unit)) if unit else MOST_DIGITS

    def input_fraction(self, kernel: Product) -> int:
        return self.formats[kernel.x].at(kernel.x_offset).fraction

    def largest(self, name: str, span: Span) -> float:
        """The largest value of these channels, or bias of the product that makes them."""
        seen = [float(self.ranges.buffers[name][slice(*span)].max())]
        for kernel in self.program.kernels:
            if isinstance(kernel, Product) and kernel.output == name and kernel.bias is not None:
                biases = np.tile(self.program.vectors[kernel.bias], kernel.rows)
                seen.append(float(np.abs(biases[slice(*span)]).max()))
        if not all(map(math.isfinite, seen)):
            raise CannotExport(f"{name} has infinite numbers in calibration, which whole numbers do not have")
        return max(seen)

    def input_limit(self, kernel: Product) -> int:
        """The largest input with which no sum overflows, whatever the signs."""
        rows = np.abs(self.matrices[kernel.matrix].values.astype(np.int64)).sum(1)
        # Inputs may be as low as -limit - 1.
        return MOST_SUM // max(1, int(rows.max())) - 1

    def result(self) -> IntegerProgram:
        kernels = [self.kernel(number, kernel) for number, kernel in enumerate(self.program.kernels)]
        state = {
            name: self.formats[name].numbers(torch.from_numpy(start)).numpy().astype(np.int16)
            for name, start in self.program.state.items()
        }
        made = replace(
            self.program,
            kernels=kernels,
            state=state,
            matrices=self.matrices,
            vectors=self.vectors,
            values=[],
        )
        return IntegerProgram(made, self.formats, self.scalings)

    def kernel(self, number: int, kernel: Kernel) -> Kernel:
        if isinstance(kernel, Loop):
            ranges = {name: size for (loop, name), size in self.ranges.variables.items() if loop == number}
            return LoopLowering(kernel, ranges, self.format_of, self.tables).result()
        if isinstance(kernel, Product):
            self.add_product(kernel)
        elif isinstance(kernel, Lookup):
            self.add_lookup(kernel)
        else:
            raise CannotExport(f"{type(kernel).__name__} has no form in whole numbers")
        return kernel

    def format_of(self, access: Access) -> Format:
        """The format of channels of a buffer, or of a vector of constants, that a loop reads or writes."""
        name = access.base
        if name in self.formats:
            return self.formats[name].at(access.offset + min(access.table, default=0))
        if name not in self.constants:
            values = torch.from_numpy(self.program.vectors[name])
            self.constants[name] = format_for(name, float(values.abs().max()), margin=1.0)
            self.vectors[name] = self.constants[name].numbers(values).numpy().astype(np.int16)
        return self.constants[name]

    def add_product(self, kernel: Product) -> None:
        """A multiplier and a shift for each row of the matrix, and the bias in the format of the output."""
        unit = 2.0 ** -self.input_fraction(kernel)
        fractions = self.formats[kernel.output].fractions
        if kernel.rows > 1 and (fractions != fractions[0]).any():
            raise CannotExport("a product of several vectors needs one format for all of its outputs")
        factors = scales_of(self.matrices[kernel.matrix]) * unit * 2.0 ** fractions[: kernel.outputs]
        bias = None
        if kernel.bias is not None:
            values = np.rint(self.program.vectors[kernel.bias] * 2.0 ** fractions[: kernel.outputs])
            bias = self.add(f"{kernel.matrix}_bias", values.astype(np.int16))
        self.scalings[kernel.output] = Scaling(*self.add_factors(kernel.matrix, factors), bias)

    def add_lookup(self, kernel: Lookup) -> None:
        """A multiplier and a shift for each row of the table."""
        factors = scales_of(self.matrices[kernel.table]) * 2.0 ** self.formats[kernel.output].at(0).fraction
        self.scalings[kernel.output] = Scaling(*self.add_factors(kernel.table, factors), None)

    def add_factors(self, matrix: str, factors: np.ndarray) -> tuple[str, str]:
        multipliers, shifts = multipliers_of(factors)
        return self.add(f"{matrix}_multipliers", multipliers), self.add(f"{matrix}_shifts", shifts)

    def add(self, name: str, values: np.ndarray) -> str:
        own = unique(name, {*self.vectors, *self.program.vectors, *self.matrices})
        self.vectors[own] = values
        return own


def int8_matrix(matrix: Matrix) -> Matrix:
    if matrix.scales is not None:
        return matrix
    numbers, scales = int8.quantised(torch.from_numpy(matrix.values))
    return Matrix(numbers.numpy(), scales.numpy())


def scales_of(matrix: Matrix) -> np.ndarray:
    assert matrix.scales is not None
    return matrix.scales.astype(np.float64)


def multipliers_of(factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers m and shifts s with factor = m / 2^s, to 30 bits; 0 for factors below 2^-32."""
    mantissas, exponents = np.frexp(factors)
    shifts = MULTIPLIER_BITS - exponents
    if shifts.min() < 1:
        raise CannotExport("the weights of a product are too large for whole numbers; is the model trained?")
    multipliers = np.rint(mantissas * 2.0**MULTIPLIER_BITS).astype(np.int64)
    multipliers[shifts > MOST_SHIFT] = 0
    return multipliers.astype(np.int32), np.minimum(shifts, MOST_SHIFT).astype(np.int8)


def scaled(numbers: Tensor, multipliers: Tensor, shifts: Tensor) -> Tensor:
    """numbers * multipliers / 2^shifts, rounded half up."""
    shifts = shifts.long()
    return (numbers * multipliers.long() + (1 << (shifts - 1))) >> shifts


def scaled_sums(sums: Tensor, multipliers: Tensor, shifts: Tensor) -> Tensor:
    """The same for sums, from the upper halves of the products."""
    return scaled((sums * multipliers.long()) >> HALF_SHIFT, torch.ones_like(sums), shifts - HALF_SHIFT)
