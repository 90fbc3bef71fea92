"""The largest values of everything that a step computes, over example sequences."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import Tensor

from linnet.deploy.integer.walk import Walk, sums
from linnet.deploy.step.program import INPUT, Lookup, Matrix, Product, Program


@dataclass
class Ranges:
    """The largest absolute values of the channels of buffers, and of the variables of loops by loop, name."""

    buffers: dict[str, Tensor] = field(default_factory=dict)
    variables: dict[tuple[int, str], float] = field(default_factory=lambda: defaultdict(float))


class FloatWalk(Walk):
    """A program in float64, which notes the largest values."""

    dtype = torch.float64

    def __init__(self, program: Program, batch: int):
        start = {name: torch.from_numpy(value) for name, value in program.state.items()}
        super().__init__(program, start, batch)
        self.matrices = {name: float_matrix(matrix) for name, matrix in program.matrices.items()}
        self.ranges = Ranges({name: torch.zeros(size) for name, size in program.sizes.items()})
        self.note_buffers()

    def step(self, x: Tensor) -> Tensor:
        y = super().step(x)
        self.note_buffers()
        return y

    def note_buffers(self) -> None:
        for name, value in self.buffers.items():
            # A token is no value.
            if name != INPUT or not self.program.tokens:
                largest = torch.maximum(self.ranges.buffers[name], value.abs().amax(0))
                self.ranges.buffers[name] = largest

    def note(self, number: int, name: str, value: Tensor) -> None:
        key = (number, name)
        self.ranges.variables[key] = max(self.ranges.variables[key], float(value.double().abs().max()))

    def apply(self, op: str, operands: list[Tensor]) -> Tensor:
        return operands[0] if op == "copy" else getattr(torch, op)(*operands)

    def product(self, kernel: Product, x: Tensor) -> Tensor:
        y = sums(kernel, self.matrices[kernel.matrix], x)
        return y if kernel.bias is None else y + self.constants[kernel.bias]

    def lookup(self, kernel: Lookup, tokens: Tensor) -> Tensor:
        return self.matrices[kernel.table][tokens]


def float_matrix(matrix: Matrix) -> Tensor:
    values = torch.from_numpy(matrix.values).double()
    return values if matrix.scales is None else values * torch.from_numpy(matrix.scales)[:, None]


def calibrated(program: Program, inputs: Tensor) -> tuple[Ranges, Tensor]:
    """The ranges over inputs [T, B, input_size] or tokens [T, B], and the outputs [T, B, output_size]."""
    walk = FloatWalk(program, inputs.shape[1])
    outputs = torch.stack([walk.step(x.reshape(len(x), -1)) for x in inputs])
    return walk.ranges, outputs
