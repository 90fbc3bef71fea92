"""RG-LRU against recurrentgemma's numbers, and what is its own: the first step, the root, the start."""

from __future__ import annotations

from pathlib import Path

import golden_today
import pytest
import torch
from golden_cases import Vectors
from helpers import liven, randn, same
from torch import Tensor
from torch.func import jvp

import linnet
from linnet.deploy.checkpoints import convert
from linnet.units.rglru import a_param_of, bounded_root


@golden_today.over_files_with("rglru", "w.a_param")
def test_recorded_numbers_of_the_unit(path: Path, backend: str | None):
    v = Vectors(path)
    width = v["x"].shape[-1]
    rnn = linnet.RGLRU(width, width, heads=v.meta["num_heads"])
    # A state that is given is one after some steps.
    start = (v["s0.h"][None], torch.ones_like(v["s0.h"])[None]) if "s0.h" in v else None
    parameters = convert(rnn, v.weights(), "recurrentgemma")
    resets = v["reset"].bool() if "reset" in v else None
    y, final = golden_today.run(rnn, parameters, v["x"], start, resets=resets, backend=backend)
    golden_today.check(v, y, {"h": final.h[0]})


@golden_today.over_files_with("rglru", "w.linear_x.weight")
def test_recorded_numbers_of_the_block(path: Path, backend: str | None):
    v = Vectors(path)
    sizes = v.meta["width"], v.meta["lru_width"], v.meta["num_heads"], v.meta["conv1d_temporal_width"]
    block = linnet.GriffinBlock(*sizes)
    start = block.initial_state(v["x"])
    if "s0.h" in v:
        start = start._replace(h=v["s0.h"], started=torch.ones_like(v["s0.h"]))
    parameters = convert(block, v.weights(), "recurrentgemma")
    resets = v["reset"].bool() if "reset" in v else None
    y, final = golden_today.run(block, parameters, v["x"], start, resets, backend=backend)
    golden_today.check(v, y, {"h": final.h})


@pytest.mark.parametrize("path", golden_today.paths("rglru", "init*.npz"), ids=lambda path: path.stem)
def test_recorded_start(path: Path):
    v = Vectors(path)
    same(a_param_of(v["u"]), v["a_param"])


# ------------------------------------------------------------------------------------- the start


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_start_of_a_layer(dtype: torch.dtype):
    cell = linnet.RGLRUCell(256, 256, heads=4, dtype=dtype)
    radii = torch.exp(-torch.nn.functional.softplus(cell.a_param.detach().float()))
    assert 0.899 < radii.min() < radii.max() < 0.9995
    assert radii.std() > 0.02
    assert cell.input.weight.detach().float().std() == pytest.approx((256 / 4) ** -0.5, rel=0.02)
    assert not cell.input.bias.any()


# -------------------------------------------------------------------------------- the first step


def gates(rnn: linnet.RGLRU, x: Tensor) -> dict[str, Tensor]:
    return {name: torch.sigmoid(a) for name, a in rnn.first_cell.input(x).items()}


@pytest.mark.usefixtures("_backends")
def test_the_first_step_has_no_factor_and_a_later_one_has():
    rnn = liven(linnet.RGLRU(4, 4))
    x = randn(1, 3, 4)
    made = gates(rnn, x)
    same(rnn(x)[0], made["i"] * x)
    a = torch.exp(-8 * made["r"] * torch.nn.functional.softplus(rnn.first_cell.a_param))
    started = (torch.zeros(1, 3, 4).double(), torch.ones(1, 3, 4).double())
    same(rnn(x, started)[0], torch.sqrt(1 - a**2) * made["i"] * x)


@pytest.mark.usefixtures("_backends")
def test_a_reset_is_a_fresh_start():
    """Not the same as a state of zeros, with which the factor would stay."""
    rnn = liven(linnet.RGLRU(4, 4))
    x, resets = randn(6, 2, 4), torch.zeros(6, 2, dtype=torch.bool)
    resets[3, 1] = True
    y, state = rnn(x, resets=resets)
    same(y[:, 0], rnn(x)[0][:, 0])
    same(y[3:, 1], rnn(x[3:])[0][:, 1])
    assert (state.started == 1).all()


@pytest.mark.usefixtures("_backends")
def test_padding_before_a_sequence_does_not_start_it():
    rnn = liven(linnet.RGLRU(4, 4))
    x, mask = randn(6, 5, 4), torch.ones(6, 5, dtype=torch.bool)
    mask[:2, 1] = False
    y, _ = rnn(x, mask=mask)
    same(y[2:, 1], rnn(x[2:])[0][:, 1])


# -------------------------------------------------------------------------------------- the root


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_the_derivative_of_the_root_is_bounded_in_both_modes():
    v = torch.tensor([0.0, 1e-9, 2.5e-7, 0.25, 1.0], dtype=torch.double, requires_grad=True)
    expected = torch.tensor([1000.0, 1000.0, 1000.0, 1.0, 0.5], dtype=torch.double)
    (slope,) = torch.autograd.grad(bounded_root(v).sum(), v)
    same(slope, expected)
    same(jvp(bounded_root, (v.detach(),), (torch.ones(5).double(),))[1], expected)
    same(bounded_root(v), v.sqrt())


@pytest.mark.usefixtures("_backends")
def test_channels_that_keep_everything_have_finite_gradients():
    """In float32, a is exactly 1 here, and the derivative of the root would be infinite."""
    rnn = linnet.RGLRU(4, 4)
    with torch.no_grad():
        rnn.first_cell.a_param.fill_(-25.0)
    x = torch.randn(5, 2, 4, requires_grad=True)
    y, _ = rnn(x)
    y.sum().backward()
    assert all(p.grad.isfinite().all() for p in (x, *rnn.parameters()))


# ------------------------------------------------------------------------------- sizes and errors


def test_an_input_of_another_size_enters_by_a_third_product():
    assert list(linnet.RGLRUCell(4, 4).input.parts) == ["i", "r"]
    assert list(linnet.RGLRUCell(3, 4).input.parts) == ["u", "i", "r"]


def test_heads_must_divide_both_sizes():
    with pytest.raises(ValueError, match=r"3 heads .* choose a number of heads that divides 8"):
        linnet.RGLRU(8, 8, heads=3)
    with pytest.raises(ValueError, match="heads that divides 6"):
        linnet.RGLRU(6, 8, heads=4)


def test_heads_and_input_heads_are_one_option():
    assert linnet.RGLRUCell(8, 8, input_heads=2).input.heads == 2
    assert linnet.RGLRUCell(8, 8, heads=2, input_heads=2).input.heads == 2
    with pytest.raises(ValueError, match="two names of one option of RGLRU; got 2 and 4"):
        linnet.RGLRU(8, 8, heads=2, input_heads=4)
