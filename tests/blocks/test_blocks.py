"""The blocks around units: sequences cut anywhere, resets, states, starts and errors."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import liven, randn, same
from torch import Tensor, nn

import linnet
from linnet.layers.convolution import CausalConvolution

SIZE = 8
BLOCKS: dict[str, Any] = {
    "Griffin": lambda: linnet.GriffinBlock(SIZE, 12, heads=3),
    "Griffin, conv 1": lambda: linnet.GriffinBlock(SIZE, conv=1),
    "xLSTM": lambda: linnet.SLSTMBlock(SIZE, heads=2),
    "xLSTM, no conv": lambda: linnet.SLSTMBlock(SIZE, conv=0),
}
over_blocks = pytest.mark.parametrize("make", BLOCKS.values(), ids=BLOCKS)
backends = pytest.mark.usefixtures("_backends")


@backends
@over_blocks
@pytest.mark.parametrize("cut", [1, 2, 5])
def test_a_sequence_can_be_cut_anywhere(make: Any, cut: int):
    block, x, resets = liven(make()), randn(7, 3, SIZE), torch.zeros(7, 3, dtype=torch.bool)
    resets[3, 1] = resets[4, 1] = resets[0, 2] = True
    expected, end = block(x, resets=resets)
    y, state = block(x[:cut], resets=resets[:cut])
    rest, state = block(x[cut:], state, resets[cut:])
    same(torch.cat([y, rest]), expected)
    same(tuple(state), tuple(end))


@backends
@over_blocks
def test_steps_are_the_sequence(make: Any):
    block, x, state, outputs = liven(make()), randn(6, 2, SIZE), None, []
    for step in x:
        y, state = block(step[None], state)
        outputs.append(y)
    same(torch.cat(outputs), block(x)[0])


@backends
@over_blocks
def test_a_reset_is_a_new_sequence(make: Any):
    block, x, resets = liven(make()), randn(7, 2, SIZE), torch.zeros(7, 2, dtype=torch.bool)
    resets[5, 1] = True
    y, state = block(x, resets=resets)
    alone, end = block(x[5:, 1:])
    same(y[5:, 1:], alone)
    same(y[:, :1], block(x[:, :1])[0])
    for found, right in zip(state, end, strict=True):
        same(found.select(-2, 1), right.select(-2, 0))


@over_blocks
def test_a_block_has_kernels(make: Any):
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            assert linnet.explain(make(), torch.randn(5, 2, SIZE)).ways == ["scan"]


@over_blocks
def test_states_are_saved_and_loaded(make: Any):
    block, file = make(), io.BytesIO()
    _, state = block(torch.randn(3, 2, SIZE))
    torch.save(type(state)(*(s.detach() for s in state)), file)
    loaded = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    assert type(loaded) is type(state)
    block(torch.randn(3, 2, SIZE), loaded)


@over_blocks
def test_a_reset_of_parameters_draws_new_ones(make: Any):
    block = liven(make()).float()
    before = {name: p.clone() for name, p in block.named_parameters()}
    block.reset_parameters()
    assert not any(torch.equal(p, before[name]) for name, p in block.named_parameters())


# ------------------------------------------------------------------------------------- parameters


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_parameters_are_as_many_as_in_the_sources():
    d, w, heads = 8, 12, 4
    unit = 2 * (w * w // heads + w) + w
    assert count(linnet.GriffinBlock(d, w, heads)) == 2 * (d * w + w) + w * d + d + 5 * w + unit
    assert count(linnet.SLSTMBlock(d, heads, conv=0)) == 8 * d * d // heads + 5 * d
    assert count(linnet.SLSTMBlock(d, heads)) == 8 * d * d // heads + 10 * d


def test_griffin_starts_as_its_source():
    block = linnet.GriffinBlock(64, 256)
    assert block.linear_x.weight.detach().std() == pytest.approx(1 / 8, rel=0.03)
    assert block.linear_out.weight.detach().std() == pytest.approx(1 / 16, rel=0.03)
    assert block.convolution.weight.detach().std() == pytest.approx(0.05, rel=0.1)
    assert not any(p.any() for name, p in block.named_parameters() if name.endswith("bias"))


# ------------------------------------------------------------------------------------ convolution


def test_the_convolution_is_torchs():
    layer = liven(CausalConvolution(5, 4))
    x, window = randn(6, 2, 5), randn(3, 2, 5, seed=1)
    rows = torch.cat([window, x]).permute(1, 2, 0)
    expected = F.conv1d(rows, layer.weight.T[:, None], layer.bias, groups=5).permute(2, 0, 1)
    y, last = layer(x, window)
    same(y, expected)
    same(last, x[3:])


def test_a_window_may_be_longer_than_the_sequence():
    layer, window = liven(CausalConvolution(5, 4)), randn(3, 2, 5)
    _, last = layer(randn(1, 2, 5, seed=1), window)
    same(last, torch.cat([window[1:], randn(1, 2, 5, seed=1)]))


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(5, 2, 7),), r"takes x as \[time, batch, 8\]; got x of shape \(5, 2, 7\)"),
        ((torch.zeros(5, SIZE),), r"takes x as \[time, batch, 8\]"),
        (([1.0],), "takes x as a Tensor; got list"),
        ((torch.zeros(5, 2, SIZE), torch.zeros(2, SIZE)), r"is a tuple \(window, h, .*\); got \(Tensor\)"),
        ((torch.zeros(5, 2, SIZE), None, torch.zeros(5, 2)), "resets must be a bool tensor"),
        ((torch.zeros(5, 2, SIZE), None, torch.zeros(2, 5).bool()), r"resets must be \[time, batch\]"),
    ],
)
@over_blocks
def test_what_a_block_cannot_be_called_with(make: Any, arguments: tuple, message: str):
    with pytest.raises((ValueError, TypeError), match=message):
        make()(*arguments)


@over_blocks
def test_a_state_of_another_batch(make: Any):
    block = make()
    _, state = block(torch.zeros(5, 2, SIZE))
    with pytest.raises(ValueError, match=r"the state '\w+' of \w+Block must have shape .*; got"):
        block(torch.zeros(5, 3, SIZE), state)


@pytest.mark.parametrize("make", [linnet.GriffinBlock, linnet.SLSTMBlock])
def test_heads_that_do_not_divide_the_size(make: Any):
    with pytest.raises(ValueError, match="choose a number of heads that divides 8"):
        make(SIZE, heads=3)


def test_sizes_that_no_block_has():
    for wrong in ({"conv": 0}, {"lru_width": 0}):
        with pytest.raises(ValueError, match="must be at least 1; got 0"):
            linnet.GriffinBlock(SIZE, **wrong)


# -------------------------------------------------------------------------------- foreign weights


def test_a_state_dict_that_does_not_fit_is_listed():
    block = linnet.GriffinBlock(SIZE)
    theirs: dict[str, Tensor] = {"linear_x.weight": torch.zeros(3, 3), "more": torch.zeros(1)}
    with pytest.raises(
        ValueError, match=r"(?s)linear_x.weight has shape .*missing conv_1d.w.*more is not used"
    ):
        linnet.load_foreign(block, theirs, "recurrentgemma")
    with pytest.raises(TypeError, match="source 'xlstm' has weights of SLSTMBlock; got GriffinBlock"):
        linnet.load_foreign(block, theirs, "xlstm")
    with pytest.raises(ValueError, match="one layer in one direction"):
        linnet.load_foreign(linnet.RGLRU(4, 4, 2), {}, "recurrentgemma")
