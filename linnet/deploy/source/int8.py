"""A program with weights of eight bits.

The scheme is that of `linnet.quantize`, described in docs/deploy.md: each row of a matrix has one scale,
max |w| / 127, and its weights are whole numbers from -127 to 127, rounded half to even.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from linnet.deploy.step.program import Matrix, Program

LEVELS = np.float32(127)


def with_int8(program: Program) -> Program:
    """The same program with all of its matrices and tables in int8."""
    return replace(program, matrices={name: quantised(matrix) for name, matrix in program.matrices.items()})


def quantised(matrix: Matrix) -> Matrix:
    values = matrix.values.astype(np.float32)
    scales = np.abs(values).max(1) / LEVELS
    # A row of zeros: any scale will do.
    divisors = np.where(scales == 0, np.float32(1), scales)
    return Matrix(np.rint(values / divisors[:, None]).astype(np.int8), scales)
