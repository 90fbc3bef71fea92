"""Runs the program of a step in Python for a batch of sequences: in float64, or in whole numbers.

Loops, accesses and buffers are the same; a subclass has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from linnet.deploy.step.models import CannotExport
from linnet.deploy.step.program import INPUT, OUTPUT, Kernel, Lookup, Product, Program
from linnet.program.loops import Access, Local, Loop, Operand


class Walk:
    """The buffers [batch, size] of a program, and its steps."""

    dtype: torch.dtype

    def __init__(self, program: Program, start: Mapping[str, Tensor], batch: int):
        self.program = program
        self.constants = {name: torch.from_numpy(value) for name, value in program.vectors.items()}
        self.buffers = {
            name: torch.zeros(batch, size, dtype=self.dtype) for name, size in program.sizes.items()
        }
        for name, value in start.items():
            self.buffers[name][:] = value

    def step(self, x: Tensor) -> Tensor:
        """Read tokens [batch, 1] or numbers [batch, input_size]; return the output."""
        self.buffers[INPUT][:] = x
        for number, kernel in enumerate(self.program.kernels):
            self.run(number, kernel)
        return self.buffers[OUTPUT].clone()

    def run(self, number: int, kernel: Kernel) -> None:
        if isinstance(kernel, Loop):
            self.loop(number, kernel)
        elif isinstance(kernel, Product):
            x = self.buffers[kernel.x][:, rows_of(kernel)]
            self.write(kernel.output, self.product(kernel, x.reshape(-1, kernel.heads, kernel.inputs)))
        elif isinstance(kernel, Lookup):
            self.write(kernel.output, self.lookup(kernel, self.buffers[INPUT][:, 0].long()))
        else:
            raise CannotExport(f"there is no arithmetic of whole numbers for {type(kernel).__name__}")

    def write(self, name: str, value: Tensor) -> None:
        self.buffers[name][:] = value.reshape(len(self.buffers[name]), -1)

    # --------------------------------------------------------------------------------------- loops

    def loop(self, number: int, loop: Loop) -> None:
        """All rounds at once: what a loop reads is what was there before it."""
        local: dict[str, Tensor] = {}
        for line in loop.lines:
            operands = [self.operand(each, loop, local) for each in line.operands]
            local[line.result] = self.apply(line.op, operands)
            self.note(number, line.result, local[line.result])
        stored = [self.operand(store.value, loop, local) for store in loop.stores]
        for store, value in zip(loop.stores, stored, strict=True):
            places = self.places(store.target, loop)
            self.buffers[store.target.base][:, places] = value.to(self.dtype).expand(-1, *places.shape)

    def operand(self, operand: Operand, loop: Loop, local: Mapping[str, Tensor]) -> Tensor:
        if isinstance(operand, Local):
            return local[operand.name]
        if isinstance(operand, str):
            return self.constants[operand]
        if not isinstance(operand, Access):
            return torch.tensor(operand).to(self.dtype).expand(len(self.buffers[INPUT]), *loop.shape)
        places = self.places(operand, loop)
        if operand.base in self.constants:
            constant = self.constants[operand.base].to(self.dtype)
            return constant[places].expand(len(self.buffers[INPUT]), *places.shape)
        return self.buffers[operand.base][:, places]

    def places(self, access: Access, loop: Loop) -> Tensor:
        return places_of(access, loop.shape)

    # ---------------------------------------------------------------------------------- arithmetic

    def note(self, number: int, name: str, value: Tensor) -> None:
        """Look at the value of a variable of loop `number`."""

    def apply(self, op: str, operands: list[Tensor]) -> Tensor:
        raise NotImplementedError

    def product(self, kernel: Product, x: Tensor) -> Tensor:
        """x [rows, heads, inputs] -> [rows, outputs]."""
        raise NotImplementedError

    def lookup(self, kernel: Lookup, tokens: Tensor) -> Tensor:
        raise NotImplementedError


@lru_cache(maxsize=4096)
def places_of(access: Access, shape: tuple[int, ...]) -> Tensor:
    """Where in its buffer an access reads or writes, for each round of a loop."""
    found = torch.zeros(shape, dtype=torch.int64)
    for axis, (size, stride) in enumerate(zip(shape, access.strides, strict=True)):
        steps = stride * torch.arange(size)
        found = found + steps.view([size if each == axis else 1 for each in range(len(shape))])
    if access.table:
        found = torch.tensor(access.table)[found]
    return found + access.offset


def rows_of(kernel: Product) -> Tensor:
    """Where in its buffer a product reads, for each number of each row."""
    dims = (*kernel.across, *kernel.within)
    access = Access(kernel.x, kernel.x_offset, tuple(stride for _, stride in dims))
    return places_of(access, tuple(size for size, _ in dims)).flatten()


def sums(kernel: Product, matrix: Tensor, x: Tensor) -> Tensor:
    """The sums of a product [rows, outputs], in float64, which has whole numbers up to 2^53 exactly."""
    blocks = matrix.double().view(kernel.parts, kernel.heads, kernel.block_size, kernel.inputs)
    return torch.einsum("rhi,phoi->rpho", x.double(), blocks).flatten(1)
