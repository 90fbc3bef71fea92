"""The norm of NRU's directions, where fifth powers are in range and where they are not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import linnet
from linnet.units.nru import normalised


def by_torch(u: Tensor) -> Tensor:
    """As the authors have it."""
    return F.normalize(u, p=5.0, dim=-1, eps=1e-12)


def value_and_gradient(function, u: Tensor) -> tuple[Tensor, Tensor]:
    u = u.detach().requires_grad_()
    v = function(u)
    above = torch.randn(v.shape, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    (gradient,) = torch.autograd.grad(v, u, above.to(v.dtype))
    return v.detach(), gradient


def rows(size: float, dtype: torch.dtype) -> Tensor:
    drawn = torch.randn(5, 64, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    return (drawn * size).to(dtype)


IN_RANGE = {torch.float32: (1e-6, 1.0, 1e4, 1e7), torch.float64: (1e-57, 1e-13, 1e-12, 1.0, 1e40, 1e60)}


@pytest.mark.parametrize(("dtype", "size"), [(dtype, size) for dtype in IN_RANGE for size in IN_RANGE[dtype]])
def test_in_range_it_is_the_authors_norm_to_the_last_bit(dtype: torch.dtype, size: float):
    ours, theirs = (value_and_gradient(function, rows(size, dtype)) for function in (normalised, by_torch))
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])


@pytest.mark.parametrize("size", [1e-14, 1e-12, 1e-11, 1e-10, 1e-9, 3e-9, 1e-8, 1e-7])
def test_where_fifth_powers_underflow_float32_it_is_that_of_float64(size: float):
    u = rows(size, torch.float32)
    v, gradient = value_and_gradient(normalised, u)
    right, right_gradient = value_and_gradient(by_torch, u.double())
    torch.testing.assert_close(v.double(), right, rtol=0, atol=1e-6)
    torch.testing.assert_close(
        gradient.double(), right_gradient, rtol=0, atol=1e-6 * right_gradient.abs().max().item()
    )


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(torch.float32, 1e8), (torch.float32, 1e10), (torch.float32, 1e37), (torch.float64, 1e100)],
)
def test_where_fifth_powers_overflow_nothing_is_written(dtype: torch.dtype, size: float):
    v, gradient = value_and_gradient(normalised, rows(size, dtype))
    assert torch.equal(v, torch.zeros_like(v))
    assert torch.equal(gradient, torch.zeros_like(v))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_zeros_stay_zeros_with_a_finite_gradient(dtype: torch.dtype):
    v, gradient = value_and_gradient(normalised, torch.zeros(2, 9, dtype=dtype))
    assert torch.equal(v, torch.zeros_like(v))
    assert gradient.isfinite().all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_nan_and_infinity_do_not_go_unnoticed(value: float):
    u = rows(1.0, torch.float32)
    u[1, 3] = value
    v, gradient = value_and_gradient(normalised, u)
    assert v[1].isnan().any()
    assert gradient[1].isnan().any()
    assert v[[0, 2, 3, 4]].isfinite().all()


def test_rows_of_very_different_sizes_do_not_disturb_each_other():
    sizes = torch.tensor([0.0, 1e-10, 1.0, 1e6, 1e12], dtype=torch.float32)
    v, gradient = value_and_gradient(normalised, rows(1.0, torch.float32) * sizes[:, None])
    norms = torch.linalg.vector_norm(v, 5, -1)
    torch.testing.assert_close(norms, torch.tensor([0.0, 1.0, 1.0, 1.0, 0.0]))
    assert gradient.isfinite().all()


def test_float16_keeps_norms_that_float32_can_add_up():
    """The fifth power of 20 is beyond float16, but torch adds norms up in float32."""
    v, gradient = value_and_gradient(normalised, rows(20.0, torch.float16))
    right, right_gradient = value_and_gradient(by_torch, rows(20.0, torch.float16).double())
    torch.testing.assert_close(v.double(), right, rtol=0, atol=2e-3)
    torch.testing.assert_close(gradient.double(), right_gradient, rtol=0, atol=2e-3)


@pytest.mark.parametrize("form", ["joint", "per-head", "full"])
def test_a_step_has_a_gradient_from_heads_of_any_size(form: str):
    torch.manual_seed(0)
    for size in (0.0, 1e-30, 1e-5, 1.0, 1e5, 1e18):
        cell = linnet.NRUCell(3, 8, memory_size=16, directions=form)
        with torch.no_grad():
            for parameter in cell.heads.parameters():
                parameter[2 * cell.num_heads :] *= size
        _, (h, m) = cell(torch.randn(2, 3), (torch.randn(2, 8), torch.randn(2, 16)))
        gradients = torch.autograd.grad(h.sum() + m.sum(), list(cell.parameters()))
        assert all(gradient.isfinite().all() for gradient in gradients), size
