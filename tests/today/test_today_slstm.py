"""sLSTM against xlstm's numbers, and what is its own: the stabiliser, the biases, the norm of heads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import golden_today
import pytest
import torch
import torch.nn.functional as F
from golden_cases import Vectors
from helpers import each, liven, randn, random_state, same
from torch import Tensor

import linnet
from linnet.deploy.checkpoints import convert

STATES = ("h", "c", "n", "m")


def gate_major(kernel: Tensor) -> Tensor:
    """[heads, 4 hd, hd], the gates within each head -> the rows of Linnet: the heads within each gate."""
    return kernel.unflatten(1, (4, -1)).transpose(0, 1).flatten(0, 2)


@golden_today.over_files_with("slstm", "w._bias_")
def test_recorded_numbers_of_the_cell(path: Path, backend: str | None):
    """x has the products of the input. A file without m is of the LSTM with the same matrices."""
    v = Vectors(path)
    names = [name for name in STATES if f"sT.{name}" in v]
    hidden = v["out"].shape[-1]
    unit = linnet.SLSTM if "m" in names else linnet.LSTM
    rnn = unit(4 * hidden, hidden, heads=v.meta["num_heads"])
    given = {
        "input.weight": torch.eye(4 * hidden, dtype=torch.double),
        "input.bias": v["w._bias_"],
        "recurrent.weight": gate_major(v["w._recurrent_kernel_"]),
    }
    # LSTM has torch's names, which say of what a weight is: weight_ih.
    own = {re.sub("_[ih]h$", "", name): name for name, _ in rnn.named_parameters()}
    parameters = {own[f"directions.0.cell.{name}"]: value for name, value in given.items()}
    start = tuple(v[f"s0.{name}"][None] for name in names) if "s0.h" in v else None
    resets = v["reset"].bool() if "reset" in v else None
    y, final = golden_today.run(rnn, parameters, v["x"], start, resets=resets, backend=backend)
    golden_today.check(v, y, {name: getattr(final, name)[0] for name in names})


@golden_today.over_files_with("slstm", "w.fgate.weight")
def test_recorded_numbers_of_the_block(path: Path, backend: str | None):
    v = Vectors(path)
    block = linnet.SLSTMBlock(v["x"].shape[-1], v.meta["num_heads"], v.meta["conv1d_kernel_size"])
    start = block.initial_state(v["x"])
    if "s0.h" in v:
        start = start._replace(**{name: v[f"s0.{name}"] for name in STATES})
    resets = v["reset"].bool() if "reset" in v else None
    parameters = convert(block, v.weights(), "xlstm")
    y, final = golden_today.run(block, parameters, v["x"], start, resets, backend=backend)
    golden_today.check(v, y, {name: getattr(final, name) for name in STATES})


RECORDED_BIAS = re.compile(r"(powerlaw|small)_\w+\.H(\d+)\.heads(\d+)\.block(\d+)of(\d+)")


@pytest.mark.parametrize("path", golden_today.paths("slstm", "init*.npz"), ids=lambda path: path.stem)
def test_recorded_biases(path: Path):
    for key, bias in Vectors(path).tensors.items():
        named = RECORDED_BIAS.fullmatch(key)
        assert named
        kind, (size, heads, block, blocks) = named[1], map(int, named.groups()[1:])
        rnn = linnet.SLSTM(3, size, blocks, heads=heads, forget_bias=kind, dtype=torch.double)
        if size != heads:  # else theirs is NaN
            same(rnn.cells[block].input.bias.data, bias)


# ----------------------------------------------------------------------------------- the start


@pytest.mark.parametrize(("kind", "first"), [("powerlaw", 5.0), ("small", 3.0)])
def test_a_head_of_one_channel_starts_as_the_first_channel_of_any(kind: str, first: float):
    cell = linnet.SLSTMCell(3, 4, heads=4, forget_bias=kind)
    assert cell.input.bias_of("f").tolist() == 4 * [first]


def test_the_start_of_matrices():
    torch.manual_seed(0)
    zero, drawn = (linnet.SLSTMCell(100, 64, recurrent_init=how) for how in ("zeros", "uniform"))
    assert not zero.recurrent.weight.any()
    assert 0.9 / 8 < drawn.recurrent.weight.abs().max() <= 1 / 8
    assert zero.input.weight.detach().std() == pytest.approx((2 / 500) ** 0.5, rel=0.02)


# ------------------------------------------------------------------------------ the stabiliser


def small_gate(dtype: torch.dtype) -> linnet.SLSTM:
    """A unit of one channel, whose x are the input gate, the forget gate, z and o."""
    rnn = linnet.SLSTM(4, 1, bias=False, dtype=dtype)
    with torch.no_grad():
        rnn.first_cell.input.weight.copy_(torch.eye(4))
    return rnn


@pytest.mark.usefixtures("_backends")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sequence_that_starts_next_to_another_gives_what_it_gives_alone(dtype: torch.dtype):
    """With one test n == 0 for the whole batch, n underflows here, and the output is NaN."""
    rnn = small_gate(dtype)
    x = torch.tensor([[1.0, 2.0, 0.5, 1.0], [-800.0, 2.0, 0.5, 1.0]], dtype=dtype).repeat(4, 1, 1)
    resets = torch.tensor([[False, False], [False, False], [False, True], [False, False]])
    x.requires_grad_()
    y, state = rnn(x, resets=resets)
    alone, _ = rnn(x[2:, 1:])
    same(y[2:, 1:], alone, atol=1e-6 if dtype == torch.float32 else 1e-12)
    (gradient,) = torch.autograd.grad(y.sum() + sum(s.sum() for s in state), x)
    assert y.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.usefixtures("_backends")
@pytest.mark.parametrize("gate", [1000.0, -1000.0])
def test_gates_of_any_size_overflow_nowhere(gate: float):
    rnn = small_gate(torch.float32)
    x = torch.tensor([[gate, -gate, 0.5, 1.0], [gate, gate, 0.5, 1.0]]).repeat(6, 1, 1).requires_grad_()
    y, state = rnn(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert all(made.isfinite().all() for made in (y, gradient, *state))
    # c and n have the same weights, and z does not change.
    same(y, (torch.sigmoid(x[..., 3:]) * torch.tanh(x[..., 2:3])).detach(), atol=1e-6, rtol=0)


def test_the_normaliser_is_at_least_one_after_a_step():
    _, state = liven(linnet.SLSTM(3, 5))(10 * randn(20, 4, 3))
    assert (state.n >= 1).all()


# ------------------------------------------------------------------------------ norm of the heads


@pytest.mark.usefixtures("_backends")
@pytest.mark.parametrize("heads", [1, 3])
def test_group_norm_is_of_the_output_only(heads: int):
    plain, normed = (linnet.SLSTM(4, 6, heads=heads, group_norm=on) for on in (False, True))
    liven(normed)
    plain.double().load_state_dict(normed.state_dict(), strict=False)
    x, start = randn(5, 2, 4), random_state(plain, 2)
    (h, expected), (y, state) = plain(x, start), normed(x, start)
    rows = F.group_norm(h.flatten(0, 1), heads, 1 + normed.first_cell.norm.weight)
    same(y, rows.view_as(y))
    for found, right in zip(state, expected, strict=True):
        same(found, right)


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"forget_bias": "large"}, "forget_bias must be one of 'powerlaw', 'small'; got 'large'"),
        ({"recurrent_init": "ones"}, "recurrent_init must be one of 'zeros', 'uniform'"),
        ({"depth": 2.0}, r"depth must be in \[0, 1\]; got 2.0"),
        ({"heads": 4}, "4 heads .* choose a number of heads that divides 6"),
    ],
)
def test_options_that_no_layer_can_have(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        linnet.SLSTM(3, 6, **options)


def test_states_are_named():
    _, state = linnet.SLSTM(3, 6, 2)(torch.randn(2, 1, 3))
    assert state._fields == STATES
    assert {tuple(s.shape) for s in each(lambda s: s, state)} == {(2, 1, 6)}
