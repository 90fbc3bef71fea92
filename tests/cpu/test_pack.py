"""Matrices as panels: whatever the sizes and the strides, panel p holds W[p * panel + j, k] at [k, j]."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.cpu.pack import packed
from linnet.cpu.width import vector_width


def packed_plainly(matrix: Tensor, groups: int, panel: int) -> Tensor:
    parts = matrix.unflatten(0, (groups, -1))
    parts = F.pad(parts, (0, 0, 0, -parts.shape[1] % panel))
    return parts.flatten(0, 1).unflatten(0, (-1, panel)).transpose(1, 2)


LAYOUTS = {
    "along K": lambda rows, depth, dtype: torch.randn(rows, depth, dtype=dtype),
    "across K": lambda rows, depth, dtype: torch.randn(depth, rows, dtype=dtype).T,
    "apart": lambda rows, depth, dtype: torch.randn(rows, depth + 3, dtype=dtype)[:, 2:-1],
    "neither": lambda rows, depth, dtype: torch.randn(2 * rows, 3 * depth, dtype=dtype)[::2, ::3],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("groups", "size", "depth"), [(1, 1, 1), (1, 16, 8), (3, 5, 3), (3, 20, 17), (2, 33, 40)]
)
def test_panels_hold_the_matrix_and_zeros(
    groups: int, size: int, depth: int, layout: str, dtype: torch.dtype
):
    matrix = LAYOUTS[layout](groups * size, depth, dtype)
    panel = vector_width(dtype)
    assert torch.equal(packed(matrix, groups, panel), packed_plainly(matrix, groups, panel))


def test_many_threads_pack_as_one_does():
    matrix = torch.randn(3 * 250, 300)
    assert torch.equal(packed(matrix, 3, 16), packed_plainly(matrix, 3, 16))
