"""One step of a model as a list of kernels over named buffers.

    Lookup    a row of a table, by the number of a token
    Product   a vector times a matrix of weights
    Loop      pointwise operations over the same channels, fused: a value that no other kernel reads is a
              local variable
    Reduce    the sum or the maximum over one dimension
    Gather    numbers in another order

Buffers are the input, the output, the parts of the state, and scratch. Constants are the weights, in the
layout in which the kernels read them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from linnet.fuse.views import View

INPUT, OUTPUT = "input", "output"


@dataclass(frozen=True)
class Load:
    """The number of a buffer or constant at `offset` plus the indices of a loop times `strides`."""

    base: str
    offset: int
    strides: tuple[int, ...]
    # Whether the number stands for a truth value: 1 or 0.
    truth: bool = False


@dataclass(frozen=True)
class Local:
    """A variable inside a loop."""

    name: str


Operand = Load | Local | float


@dataclass(frozen=True)
class Line:
    """A local variable, `result` = op(*operands)."""

    result: str
    op: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Store:
    """The value of a line, or another operand, is written to a buffer."""

    to: Load
    value: Operand


@dataclass
class Loop:
    shape: tuple[int, ...]
    lines: list[Line] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)


@dataclass(frozen=True)
class Product:
    """output = x matrix + bias, for each of `rows` vectors x that lie one after the other.

    With several heads, the matrix is block-diagonal: x has `heads` times as many numbers as a row of the
    matrix, `inputs`, and the outputs are `parts` of equal size; see fuse/blocks.py.
    """

    matrix: str
    bias: str | None
    x: str
    x_offset: int
    output: str
    rows: int
    inputs: int
    outputs: int
    heads: int = 1
    parts: int = 1

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


@dataclass(frozen=True)
class Reduce:
    """For each of `outer` rows, the "sum" or the "amax" of `inner` numbers."""

    kind: str
    x: Load
    outer: int
    inner: int
    output: str


@dataclass(frozen=True)
class Gather:
    """For each place in `places`, a constant, the number of x at this place after `x_offset`."""

    places: str
    x: str
    x_offset: int
    inputs: int
    output: str
    outputs: int


Kernel = Lookup | Product | Loop | Reduce | Gather


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
    units     the name of the unit of each layer
    values    by layer: what its step computes, by the names in the step
    """

    tokens: int
    sizes: dict[str, int]
    state: dict[str, np.ndarray]
    kernels: list[Kernel]
    matrices: dict[str, Matrix]
    vectors: dict[str, np.ndarray]
    units: list[str]
    values: list[dict[str, View]] = field(default_factory=list)

    @property
    def scratch(self) -> dict[str, int]:
        known = {INPUT, OUTPUT, *self.state}
        return {name: size for name, size in self.sizes.items() if name not in known}

    @property
    def weights(self) -> int:
        """The number of weights."""
        matrices = sum(matrix.values.size for matrix in self.matrices.values())
        return matrices + sum(vector.size for vector in self.vectors.values())

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


def unique(name: str, taken: Mapping[str, object] | Sequence[str] | set[str]) -> str:
    """`name`, or the first of name_2, name_3, ... that is not taken."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found
