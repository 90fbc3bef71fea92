"""Runs the program of a step with NumPy: what exported code computes, for those who have no compiler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from linnet.deploy.step.program import INPUT, OUTPUT, Lookup, Product, Program
from linnet.program import blocks
from linnet.program.loops import START, Access, Fold, Local, Loop, Operand
from linnet.recurrent import int8

Buffers = dict[str, np.ndarray]


def outputs_of_program(program: Program, inputs: Tensor) -> Tensor:
    """The outputs of the steps, [T, output_size], for tokens [T] or numbers [T, input_size]."""
    buffers = {name: np.zeros(size, np.float32) for name, size in program.sizes.items()}
    buffers |= {name: start.copy() for name, start in program.state.items()} | program.vectors
    outputs = []
    for each in inputs:
        buffers[INPUT][:] = each.numpy()
        for kernel in program.kernels:
            run_kernel(program, kernel, buffers)
        outputs.append(torch.from_numpy(buffers[OUTPUT].copy()))
    return torch.stack(outputs)


def run_kernel(program: Program, kernel: Lookup | Product | Loop, buffers: Buffers) -> None:
    if isinstance(kernel, Loop):
        run_loop(kernel, buffers)
    elif isinstance(kernel, Product):
        run_product(program, kernel, buffers)
    else:
        matrix, token = program.matrices[kernel.table], int(buffers[INPUT][0])
        scale = np.float32(1) if matrix.scales is None else matrix.scales[token]
        buffers[kernel.output][: kernel.size] = matrix.values[token] * scale


def run_product(program: Program, kernel: Product, buffers: Buffers) -> None:
    sizes, strides = (
        zip(*kernel.across, *kernel.within, strict=True) if kernel.across + kernel.within else ((), ())
    )
    places = Access(kernel.x, kernel.x_offset, strides)
    x = torch.from_numpy(read(places, sizes, buffers).reshape(kernel.rows, -1))
    matrix = program.matrices[kernel.matrix]
    bias = None if kernel.bias is None else torch.from_numpy(buffers[kernel.bias])
    rows = torch.from_numpy(matrix.values)
    if matrix.scales is None:
        made = blocks.linear(x, rows, bias, kernel.heads, kernel.parts)
    else:
        made = int8.product(x, rows, torch.from_numpy(matrix.scales), bias, kernel.heads, kernel.parts)
    # A buffer that several values share may be longer.
    buffers[kernel.output][: made.numel()] = made.numpy().ravel()


def run_loop(loop: Loop, buffers: Buffers) -> None:
    """All rounds at once: what a loop stores is not read by its other rounds."""
    known: dict[str, Tensor] = {}

    def value(operand: Operand) -> Tensor:
        if isinstance(operand, Local):
            return known[operand.name]
        if isinstance(operand, Access):
            found = torch.from_numpy(read(operand, loop.shape, buffers))
            return found != 0 if operand.truth else found
        return torch.tensor(float(operand))

    for line in loop.lines:
        operands = list(map(value, line.operands))
        known[line.result] = operands[0] if line.op == "copy" else getattr(torch, line.op)(*operands)
    for fold in loop.folds:
        run_fold(fold, value(fold.value), loop.shape, buffers)
    for store in loop.stores:
        made = value(store.value).expand(loop.shape).float().numpy().ravel()
        where = places_of(store.target, loop.shape)
        (np.add.at if store.adds else put)(buffers[store.target.base], where, made)


def put(buffer: np.ndarray, where: np.ndarray, numbers: np.ndarray) -> None:
    buffer[where] = numbers


def run_fold(fold: Fold, value: Tensor, shape: Sequence[int], buffers: Buffers) -> None:
    where, numbers = places_of(fold.target, shape), value.expand(tuple(shape)).numpy().ravel()
    buffers[fold.target.base][where] = START[fold.kind]
    (np.add if fold.kind == "sum" else np.maximum).at(buffers[fold.target.base], where, numbers)


def read(access: Access, shape: Sequence[int], buffers: Buffers) -> np.ndarray:
    return buffers[access.base][places_of(access, shape)].reshape(shape)


def places_of(access: Access, shape: Sequence[int]) -> np.ndarray:
    """The place of each round of a loop over `shape`, side by side."""
    found = np.zeros(1, np.int64)
    for size, stride in zip(shape, access.strides, strict=True):
        found = np.add.outer(found, np.arange(size) * stride).ravel()
    return access.offset + (np.array(access.table)[found] if access.table else found)
