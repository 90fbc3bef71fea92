"""A program with weights of eight bits, by the scheme of linnet/recurrent/int8.py.

A model that `linnet.quantize` has rounded is exported as it is. This rounds the matrices of a program: those
of modules of users, and those of programs that multiply them by their scales again.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from linnet.deploy.step.program import Matrix, Program
from linnet.recurrent import int8


def with_int8(program: Program) -> Program:
    """The same program with all of its matrices and tables in int8; those that are stay as they are."""
    return replace(program, matrices={name: quantised(matrix) for name, matrix in program.matrices.items()})


def quantised(matrix: Matrix) -> Matrix:
    if matrix.scales is not None:
        return matrix
    numbers, scales = int8.quantised(torch.from_numpy(matrix.values))
    return Matrix(numbers.numpy(), scales.numpy())
