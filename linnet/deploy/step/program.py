"""One step of a model as a list of kernels over named buffers.

    Lookup    a row of a table, by the number of a token
    Product   a vector times a matrix of weights
    Loop      all else: fused operations over as many numbers, sums and maxima; see program/loops.py

Buffers are the input, the output, the parts of the state, and scratch. Constants are the weights, in the
layout in which the kernels read them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from linnet.program.loops import Dims, Loop
from linnet.program.views import View

INPUT, OUTPUT = "input", "output"
# The scratch buffer for a row of a product whose numbers are apart.
WINDOW = "window"


@dataclass(frozen=True)
class Product:
    """output = x matrix + bias, for each row x of a buffer.

    across   the sizes and strides of the dimensions over the rows; the windows of a convolution overlap
    within   those of the numbers of a row

    With several heads, the matrix is block-diagonal: x has `heads` times as many numbers as a row of the
    matrix, `inputs`, and the outputs are `parts` of equal size; see program/blocks.py.
    """

    matrix: str
    bias: str | None
    x: str
    x_offset: int
    output: str
    across: Dims
    within: Dims
    inputs: int
    outputs: int
    heads: int = 1
    parts: int = 1

    @property
    def rows(self) -> int:
        return math.prod(size for size, _ in self.across)

    @property
    def is_gathered(self) -> bool:
        """Whether the numbers of a row are apart, so that they are copied to the buffer `WINDOW` first."""
        return self.within not in ((), ((self.heads * self.inputs, 1),))

    @property
    def lies_in_rows(self) -> bool:
        """Whether the rows lie one after the other."""
        size = self.heads * self.inputs
        return not self.is_gathered and self.across in ((), ((self.rows, size),))

    @property
    def blocks(self) -> int:
        return self.heads * self.parts

    @property
    def block_size(self) -> int:
        """The outputs of a block."""
        return self.outputs // self.blocks


@dataclass(frozen=True)
class Lookup:
    """The row of a table whose number is the input."""

    table: str
    output: str
    size: int


Kernel = Lookup | Product | Loop


@dataclass(frozen=True)
class Matrix:
    """A matrix of weights [outputs, inputs], or a table [rows, size]; int8 has a scale for each row."""

    values: np.ndarray
    scales: np.ndarray | None = None


@dataclass
class Program:
    """A step.

    tokens    the number of tokens if the input is one of them; 0: the input is a vector
    sizes     of all buffers: the input (1 for a token), the output, the state and scratch
    state     the initial value of each part of the state
    vectors   constants that loops read, biases, and the places (int32) of numbers that are gathered
    tables    which of the vectors has such places
    units     the name of the unit of each layer
    values    by layer: what its step computes, by the names in the step
    parameters   how many the model has; the program may store other numbers, see `counts`
    """

    tokens: int
    sizes: dict[str, int]
    state: dict[str, np.ndarray]
    kernels: list[Kernel]
    matrices: dict[str, Matrix]
    vectors: dict[str, np.ndarray]
    tables: dict[tuple[int, ...], str]
    units: list[str]
    values: list[dict[str, View]] = field(default_factory=list)
    parameters: int = 0

    @property
    def scratch(self) -> dict[str, int]:
        known = {INPUT, OUTPUT, *self.state}
        return {name: size for name, size in self.sizes.items() if name not in known}

    @property
    def weights(self) -> int:
        """The number of weights that are stored."""
        matrices = sum(matrix.values.size for matrix in self.matrices.values())
        return matrices + sum(vector.size for vector in self.vectors.values())

    @property
    def counts(self) -> str:
        """The parameters of the model in words, as its run counts them, and what is stored of them.

        The numbers differ: biases that are added to each other are stored as one, constants and the places of
        gathered numbers are stored, too.
        """
        stored = "" if self.weights == self.parameters else f" ({self.weights:,} numbers stored)"
        return f"{self.parameters:,} parameters{stored}"

    @property
    def constant_bytes(self) -> int:
        """The bytes of weights, scales, tables, and of parts of the initial state with different numbers."""
        arrays = [matrix.values for matrix in self.matrices.values()]
        arrays += [matrix.scales for matrix in self.matrices.values() if matrix.scales is not None]
        arrays += [start for start in self.state.values() if (start != start[0]).any()]
        return sum(array.nbytes for array in (*arrays, *self.vectors.values()))

    @property
    def state_bytes(self) -> int:
        return sum(start.nbytes for start in self.state.values())

    @property
    def is_int8(self) -> bool:
        """Whether some of its matrices are in int8."""
        return any(matrix.scales is not None for matrix in self.matrices.values())

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that differ if the step or a weight differs."""
        text = repr((self.tokens, self.sizes, self.kernels))
        digest = hashlib.sha256(text.encode())
        arrays = {**self.state, **self.vectors}
        for name, matrix in self.matrices.items():
            arrays |= {name: matrix.values} | (
                {} if matrix.scales is None else {f"{name} scales": matrix.scales}
            )
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def operations(self) -> set[str]:
        """The pointwise operations that a language needs to have."""
        return {line.op for kernel in self.kernels if isinstance(kernel, Loop) for line in kernel.lines}


def unique(name: str, taken: Collection[str]) -> str:
    """`name`, or the first of name_2, name_3, ... that is not taken."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found
