"""Matrices as panels: whatever the sizes and the strides, panel p holds W[p * panel + j, k] at [k, j]."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.cpu.pack import KeptPacking, packed
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


def swap(matrix: Tensor, *rows: int) -> None:
    matrix[list(rows)] = matrix[list(reversed(rows))]


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "nothing": lambda matrix: None,
    "the first number": lambda matrix: matrix[0, 0].add_(1),
    "the last number": lambda matrix: matrix[-1, -1].add_(1),
    "every sign": lambda matrix: matrix.neg_(),
    "two rows": lambda matrix: swap(matrix, 0, -1),
    "the smallest difference": lambda matrix: matrix.copy_(matrix.nextafter(matrix + 1)),
    "zeros": lambda matrix: matrix.zero_(),
    "signs of zeros": lambda matrix: matrix.neg_(),
    "through numpy": lambda matrix: matrix.numpy().__iadd__(1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("groups", "size", "depth"),
    # The last is so large that changes of all signs would cancel if words were not multiplied.
    [(1, 1, 1), (1, 16, 8), (3, 5, 3), (3, 20, 17), (2, 33, 40), (4, 32, 512)],
)
def test_kept_panels_follow_every_change(groups: int, size: int, depth: int, dtype: torch.dtype):
    matrix, panel = torch.randn(groups * size, depth, dtype=dtype), vector_width(dtype)
    packing = KeptPacking(matrix.shape, dtype, groups, panel)
    packing.run(matrix)
    for name, change in CHANGES.items():
        change(matrix)
        expected = packed_plainly(matrix, groups, panel)
        bits = torch.int32 if dtype == torch.float32 else torch.int64
        assert torch.equal(packing.again().view(bits), expected.contiguous().view(bits)), name


def test_kept_panels_whose_rows_are_the_same_are_not_written():
    panel = vector_width(torch.float32)
    matrix = torch.randn(4 * panel, 24)
    packing = KeptPacking(matrix.shape, torch.float32, 1, panel)
    packing.run(matrix)
    packing.panels.fill_(torch.nan)
    matrix[2 * panel + 1, 7] = 0
    packing.again()
    assert [bool(p.isnan().all()) for p in packing.panels] == [True, True, False, True]
    assert torch.equal(packing.panels[2], packed_plainly(matrix, 1, panel)[2])
