"""A program with weights of eight bits, by the scheme of linnet/recurrent/int8.py.

A model that `linnet.quantize` has rounded is exported as it is. This rounds the matrices of a program: those
of modules of users, and those of programs that multiply them by their scales again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from linnet.deploy.step.names import identifier
from linnet.deploy.step.program import Matrix, Program
from linnet.recurrent import int8


def with_int8(program: Program, skip: Sequence[str] = ()) -> Program:
    """The same program with its matrices and tables in int8, except those of the modules in `skip`."""
    skipped = {name for module in skip for name in matrices_of(program, module)}
    matrices = program.matrices.items()
    rounded = {name: matrix if name in skipped else quantised(matrix) for name, matrix in matrices}
    return replace(program, matrices=rounded)


def matrices_of(program: Program, module: str) -> list[str]:
    """The names of the matrices of a module."""
    start = identifier(module)
    found = [name for name in program.matrices if name == start or name.startswith(f"{start}_")]
    if not found:
        raise ValueError(
            f"skip: no matrix of this model has a name that starts with {module!r}; there are "
            f"{', '.join(program.matrices)}"
        )
    return found


def quantised(matrix: Matrix) -> Matrix:
    if matrix.scales is not None:
        return matrix
    numbers, scales = int8.quantised(torch.from_numpy(matrix.values))
    return Matrix(numbers.numpy(), scales.numpy())
