"""Products with kept matrices are those of torch; copies are read only where no matrix changes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from helpers import randn
from torch import Tensor

import linnet
from linnet.cpu import passes
from linnet.run import linear as module
from linnet.run.linear import kept_matrices, linear

ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-13}


def copies() -> int:
    kept = module.matrices.get()
    return 0 if kept is None else len(kept.copies)


@pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)
@pytest.mark.parametrize(("count", "depth"), [(1024, 8), (83, 101), (8, 1024), (1, 8192)])
@pytest.mark.parametrize("rows", [1, 7, 400])
def test_a_product_is_that_of_torch(rows: int, count: int, depth: int, dtype: torch.dtype):
    x, weight, bias = (randn(*shape).to(dtype) for shape in ((rows, depth), (count, depth), (count,)))
    with kept_matrices():
        for given in (None, bias):
            expected = F.linear(x, weight, given)
            error = (linear(x, weight, given) - expected).abs().max() / expected.abs().max()
            assert error < ROUNDING[dtype]
        assert copies() == 1


def test_any_strides_and_dimensions():
    x, weight = randn(3, 4, 128), randn(128, 96)
    with kept_matrices():
        for rows, matrix in ((x, weight.T), (x.transpose(0, 1), weight.T), (x[..., ::2], weight[::2].T)):
            torch.testing.assert_close(linear(rows, matrix), F.linear(rows, matrix))
        torch.testing.assert_close(linear(x[..., :100], weight.T[:, :100]), x[..., :100] @ weight[:100])
        assert copies() == 2  # a small matrix is not worth it


def test_nothing_is_kept_outside_and_between_contexts():
    x, weight = randn(2, 128), randn(96, 128)
    for _ in range(2):
        with kept_matrices():
            torch.testing.assert_close(linear(x, weight), F.linear(x, weight))
        weight.mul_(2)
    torch.testing.assert_close(linear(x, weight), F.linear(x, weight))


@pytest.mark.parametrize("why", ["gradient", "reference", "bfloat16", "rows", "mode"])
def test_what_is_left_to_torch(why: str):
    x, weight = randn(600 if why == "rows" else 2, 128), randn(96, 128)
    if why == "bfloat16":
        x, weight = x.bfloat16(), weight.bfloat16()
    weight.requires_grad_(why == "gradient")
    with kept_matrices(), linnet.backend("reference" if why == "reference" else None):
        found = recorded(x, weight) if why == "mode" else linear(x, weight)
        assert copies() == 0
    assert found.requires_grad == (why == "gradient")
    torch.testing.assert_close(found, F.linear(x, weight))


def recorded(x: Tensor, weight: Tensor) -> Tensor:
    """Within a dispatch mode, which must see an operation."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Recorder():
        return linear(x, weight)


def test_the_gradient_of_the_input_of_a_large_layer():
    """Its product with the matrix is ours too, for matrices that are large enough."""
    rnn, x = linnet.SRU(200, 60, dtype=torch.float64), randn(5, 50, 200).requires_grad_()
    assert rnn.first_cell.input.weight.numel() >= passes.OWN_PRODUCT
    found, expected = (input_gradient(rnn, x, backend) for backend in ("cpu", "reference"))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def input_gradient(rnn: linnet.SRU, x: Tensor, backend: str) -> Tensor:
    with linnet.backend(backend):
        return torch.autograd.grad(rnn(x)[0].sin().sum(), x)[0]


def test_autograd_adds_to_the_gradient_of_an_input_in_place(monkeypatch: pytest.MonkeyPatch):
    """The skip of SRU reads x, too. A sum in new memory takes as long as the recurrence."""
    addresses, times = [], passes.times

    def noted(*given) -> Tensor:
        made = times(*given)
        addresses.append(made.data_ptr())
        return made

    monkeypatch.setattr(passes, "times", noted)
    x = torch.randn(9, 2, 40, requires_grad=True)
    (gradient,) = torch.autograd.grad(linnet.SRU(40, 40)(x)[0].sum(), x)
    assert addresses == [gradient.data_ptr()]
