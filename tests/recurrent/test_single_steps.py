"""Layers that are called with one time step after another, without gradients: a short way, and when not."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from helpers import WITHOUT_NATIVE_STEPS

import linnet
from linnet.recurrent import direction
from linnet.units import UNITS
from tests.helpers import tensors

SIZE = 4


def steps(rnn: linnet.Recurrent, x: torch.Tensor, state=None, resets=None) -> list[torch.Tensor]:
    """Steps without any reset are called without the flags."""
    outputs, time = [], int(rnn.batch_first)
    flags = [None] * x.shape[time] if resets is None else resets.split(1, dim=time)
    with torch.no_grad():
        for row, flag in zip(x.split(1, dim=time), flags, strict=True):
            y, state = rnn(row, state, resets=None if flag is None or not flag.any() else flag)
            outputs.append(y)
    return [torch.cat(outputs, time), *tensors(state)]


@pytest.fixture
def short_ways():
    """How often the short way was taken."""
    taken, original = [], direction.bound_step
    with patch.object(direction, "bound_step", lambda *given: taken.append(original(*given)) or taken[-1]):
        yield lambda: sum(made is not None for made in taken)


def has_native_steps(unit: str) -> bool:
    """Whether there is a native program for a step; see docs/streaming.md."""
    return unit not in WITHOUT_NATIVE_STEPS


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("unit", UNITS)
def test_steps_equal_the_loop(unit: str, batch_first: bool, short_ways):
    torch.manual_seed(0)
    rnn = UNITS[unit](SIZE, SIZE, batch_first=batch_first, dtype=torch.float64)
    x = torch.randn(5, 5, SIZE, dtype=torch.float64)
    found, count = steps(rnn, x), short_ways()
    with linnet.backend("reference"):
        expected = steps(rnn, x)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    # The first step has no state, and the second is the first like those that follow.
    assert count in ((3, 4) if has_native_steps(unit) else (0,))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("unit", UNITS)
def test_steps_with_resets_equal_the_loop(unit: str, batch_first: bool, short_ways):
    torch.manual_seed(0)
    rnn = UNITS[unit](SIZE, SIZE, batch_first=batch_first, dtype=torch.float64)
    x = torch.randn(6, 6, SIZE, dtype=torch.float64)
    resets = torch.zeros(6, 6, dtype=torch.bool)
    resets[2:5, 2:5] = torch.eye(3, dtype=torch.bool)
    found, count = steps(rnn, x, None, resets), short_ways()
    with linnet.backend("reference"):
        expected = steps(rnn, x, None, resets)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert count in ((4, 5) if has_native_steps(unit) else (0,))


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (torch.zeros(2, 1, dtype=torch.bool), ValueError),
        (torch.zeros(1, 2), TypeError),
        (torch.zeros(1, 2, dtype=torch.bool, device="meta"), ValueError),
        ([[True, False]], TypeError),
    ],
    ids=["another shape", "floats", "another device", "a list"],
)
def test_wrong_resets_are_an_error_at_every_step(wrong, error: type[Exception]):
    rnn, x, resets = linnet.LRN(SIZE, SIZE), torch.randn(1, 2, SIZE), torch.zeros(1, 2, dtype=torch.bool)
    with torch.no_grad():
        for _ in range(3):
            _, state = rnn(x, resets=resets)
        with pytest.raises(error, match="resets"):
            rnn(x, state, resets=wrong)


def test_strided_resets_of_a_step():
    rnn, x = linnet.LRN(SIZE, SIZE), torch.randn(1, 4, SIZE)
    with torch.no_grad():
        _, state = rnn(x)
        resets = torch.tensor([[True, False], [False, True], [True, True], [False, False]])[:, 0][None]
        for _ in range(3):
            y, _ = rnn(x, state, resets=resets)
            expected, _ = rnn(x, state * ~resets[..., None])
            torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("place", ["directions.0", "directions.0.cell", "directions.0.cell.input"])
def test_a_hook_runs_at_each_step(place: str):
    rnn, called = linnet.LRN(SIZE, SIZE), []
    x = torch.randn(6, 2, SIZE)
    *_, state = steps(rnn, x)
    rnn.get_submodule(place).register_forward_hook(lambda *given: called.append(place))
    steps(rnn, x, state)
    assert len(called) == 6


def test_what_changes_between_steps_counts():
    rnn, x = linnet.SRU(SIZE, SIZE, weight_drop=0.5).eval(), torch.randn(3, 2, SIZE)
    *_, state = steps(rnn, x)
    before = steps(rnn, x, state)[0]
    rnn.train()
    assert not torch.equal(steps(rnn, x, state)[0], before)
    rnn.eval()
    torch.testing.assert_close(steps(rnn, x, state)[0], before)
    with torch.no_grad():
        rnn.first_cell.input.weight.mul_(2)
    doubled = steps(rnn, x, state)[0]
    with linnet.backend("reference"):
        torch.testing.assert_close(doubled, steps(rnn, x, state)[0])
    assert not torch.equal(doubled, before)


@pytest.mark.parametrize("wrong", [(1, 3, SIZE), (2, 2, SIZE), (2, SIZE), (1, 2, SIZE + 1)])
def test_a_wrong_state_is_an_error_at_every_step(wrong: tuple[int, ...]):
    rnn, x = linnet.LRN(SIZE, SIZE), torch.randn(4, 2, SIZE)
    steps(rnn, x)
    with torch.no_grad(), pytest.raises(ValueError, match="must have shape"):
        rnn(x[:1], torch.zeros(wrong))


def test_gradients_take_the_usual_way():
    rnn, x = linnet.LRN(SIZE, SIZE), torch.randn(4, 2, SIZE)
    *_, state = steps(rnn, x)
    y, _ = rnn(x[:1], state)
    assert y.requires_grad
