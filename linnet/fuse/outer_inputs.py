"""The inputs of a scan of a memory written by outer products (NRU)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from linnet.fuse.cpu.width import vector_width

# memory, heads, relu, mean, eps; see cpu/outer.py.
OuterSettings = tuple[int, int, bool, bool, float | None]


class OuterInputs(NamedTuple):
    """The inputs of a scan: T steps, B sequences, H channels, M cells of memory, N numbers for the heads.

    gain and shift are those of the layer norm, if the recipe has one.
    """

    a: Tensor  # [T, B, H]
    state_matrix: Tensor  # [H, H + M]
    head_matrix: Tensor  # [N, H + M]
    bias: Tensor | None  # [N]
    state: Tensor  # [B, H + M]
    gain: Tensor | None = None  # [H]
    shift: Tensor | None = None  # [H]


class Misfit(ValueError):  # noqa: N818, it is a reason to run by the loop
    """A tensor does not have the shape, dtype or class that the kernels need, which read it by address."""


def falls_into_vectors(dtype: torch.dtype, memory: int, heads: int) -> bool:
    """Whether the rows of p q^T divide into whole vectors, and into heads."""
    root = math.isqrt(heads * memory)
    return root % (vector_width(dtype) // 2) == 0 and memory % root == 0
