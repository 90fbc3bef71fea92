"""A model in whole numbers, which Python runs with the numbers that exported C computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from linnet.base.calls import like
from linnet.deploy.integer.calibrate import calibrated
from linnet.deploy.integer.formats import rescaled
from linnet.deploy.integer.loops import check_loop
from linnet.deploy.integer.program import IntegerProgram, in_integers, scaled, scaled_sums
from linnet.deploy.integer.tables import interpolated
from linnet.deploy.integer.walk import Walk, sums
from linnet.deploy.step.build import program_of
from linnet.deploy.step.program import INPUT, OUTPUT, Lookup, Product, Program
from linnet.program.loops import Loop

State = dict[str, Tensor]


class IntegerWalk(Walk):
    """The steps of a program in whole numbers, in int64: what fits 32 bits is the same there."""

    dtype = torch.int64

    def __init__(self, integers: IntegerProgram, state: Mapping[str, Tensor], batch: int):
        super().__init__(integers.program, state, batch)
        self.integers = integers
        self.matrices = {
            name: torch.from_numpy(each.values) for name, each in integers.program.matrices.items()
        }

    def apply(self, op: str, operands: list[Tensor]) -> Tensor:
        if op == "rescaled":
            value, places, limit = operands
            return rescaled(value, int(places.flatten()[0]), int(limit.flatten()[0]))
        if op == "interpolated":
            return interpolated(*operands)
        return operands[0] if op == "copy" else getattr(torch, op)(*operands)

    def product(self, kernel: Product, x: Tensor) -> Tensor:
        scaling, found = self.integers.scalings[kernel.output], sums(kernel, self.matrices[kernel.matrix], x)
        made = scaled_sums(found.long(), *(self.constants[name] for name in scaling[:2]))
        made = made if scaling.bias is None else made + self.constants[scaling.bias]
        return rescaled(made, 0, self.integers.formats[kernel.output].limit)

    def lookup(self, kernel: Lookup, tokens: Tensor) -> Tensor:
        scaling, found = self.integers.scalings[kernel.output], self.matrices[kernel.table][tokens]
        made = scaled(found.long(), *(self.constants[name][tokens, None] for name in scaling[:2]))
        return rescaled(made, 0, self.integers.formats[kernel.output].limit)


class IntegerModel(nn.Module):
    """A model that computes with whole numbers only; see `linnet.quantize_integer`.

    error   how far its outputs are from those in float32, over the sequences of the calibration: the root of
            the mean square of the differences, relative to that of the outputs
    """

    def __init__(self, integers: IntegerProgram):
        super().__init__()
        self.integers = integers
        self.error = float("nan")

    def extra_repr(self) -> str:
        units = ", ".join(self.integers.program.units)
        return f"{units}, weights={self.integers.program.weights:,}, error={self.error:.2g}"

    @torch.no_grad()
    def forward(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Run inputs [T, B, input_size] or tokens [T, B]; return outputs [T, B, output_size] and the state.

        Inputs are rounded to the format of the input, and outputs are what the whole numbers stand for. The
        state has a tensor of whole numbers [B, size] for each part.
        """
        outputs, state = self.run(self.input_numbers(inputs), state)
        return self.integers.formats[OUTPUT].at(0).values(outputs), state

    if TYPE_CHECKING:

        @like(forward)
        def __call__(self, *inputs: Any, **named: Any) -> Any: ...

    def input_numbers(self, inputs: Tensor) -> Tensor:
        """Inputs as C takes them: whole numbers in the format of the input; tokens stay what they are."""
        check_inputs(self.integers.program, inputs)
        return inputs if self.integers.program.tokens else self.integers.formats[INPUT].numbers(inputs)

    def run(self, numbers: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """`forward`, from whole numbers to whole numbers."""
        batch, start = numbers.shape[1], self.integers.program.state
        given = {name: torch.from_numpy(value) for name, value in start.items()} if state is None else state
        walk = IntegerWalk(self.integers, given, batch)
        outputs = torch.stack([walk.step(x.reshape(batch, -1)) for x in numbers])
        return outputs, {name: walk.buffers[name] for name in start}


def check_inputs(program: Program, inputs: Tensor) -> None:
    tokens, size = program.tokens, program.sizes[INPUT]
    expected = "tokens of shape (T, B)" if tokens else f"inputs of shape (T, B, {size})"
    fits = inputs.dim() == (2 if tokens else 3) and (tokens or inputs.shape[-1] == size)
    if not fits or not inputs.numel():
        raise ValueError(f"this model takes {expected}; got {tuple(inputs.shape)}")
    if inputs.is_floating_point() is bool(tokens):
        raise TypeError(f"this model takes {expected}; got {inputs.dtype}")


@torch.no_grad()
def integer_model(model: nn.Module, calibration: Tensor, example: Any = None) -> IntegerModel:
    """See `linnet.quantize_integer`."""
    program = program_of(model, example=example)
    check_inputs(program, calibration)
    for kernel in program.kernels:
        if isinstance(kernel, Loop):
            check_loop(kernel)
    ranges, expected = calibrated(program, calibration)
    made = IntegerModel(in_integers(program, ranges))
    apart = made(calibration)[0] - expected
    made.error = float(apart.square().mean().sqrt() / expected.square().mean().sqrt())
    return made
