"""The FitzHugh-Nagumo system: its solutions, and the sequences made of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from linnet.data import fitzhugh
from linnet.data.errors import DataError
from linnet.data.fitzhugh import FitzHughNagumo, runge_kutta, slope, solve

SMALL = FitzHughNagumo(span=20, sequences=9)


def test_the_slopes_by_hand():
    """At v = 1, w = 0.5: 1 - 1/3 - 0.5 + 0.5 and (1 + 0.7 - 0.4) / 50."""
    np.testing.assert_allclose(slope(np.array([[1.0], [0.5]])), [[2 / 3], [0.026]], rtol=1e-15)


def test_a_step_is_of_order_four(monkeypatch: pytest.MonkeyPatch):
    """y' = y, of which the method has the first four terms of the exponential series."""
    monkeypatch.setattr(fitzhugh, "slope", lambda state: state)
    series = sum(0.5**n / math.factorial(n) for n in range(5))
    np.testing.assert_allclose(runge_kutta(np.array([[1.0]]), 0.5), [[series]], rtol=1e-15)


def test_smaller_steps_change_less_than_float32_shows(monkeypatch: pytest.MonkeyPatch):
    v = np.array([-1.0, -0.3, 0.9])
    ours = solve(v, 1000)
    monkeypatch.setattr(fitzhugh, "LONGEST_STEP", 0.0125)
    np.testing.assert_allclose(ours, solve(v, 1000), rtol=0, atol=1e-7)


def test_it_is_the_solution_of_another_solver():
    solve_ivp = pytest.importorskip("scipy.integrate").solve_ivp
    times = np.linspace(0, 400, 101)
    with_time = {"t_eval": times, "rtol": 1e-10, "atol": 1e-12}
    theirs = solve_ivp(lambda _, state: slope(state), (0, 400), [0.3, 0.0], **with_time).y[0]
    np.testing.assert_allclose(solve(np.array([0.3]), 100)[:, 0], theirs, rtol=0, atol=2e-7)


def test_the_time_between_steps_depends_on_the_span():
    """Half as many steps are every second of them."""
    v = np.array([0.3])
    np.testing.assert_allclose(solve(v, 500), solve(v, 1000)[::2], rtol=0, atol=1e-7)


def test_a_target_is_the_next_input():
    for batch in (next(SMALL.training(4, seed=3)), next(SMALL.evaluation("valid", 4, 3, 4))):
        assert batch.inputs.shape == (20, 4, 1)
        assert torch.equal(batch.inputs[1:, :, 0], batch.targets[:-1])
        assert batch.inputs.dtype == batch.targets.dtype == torch.float32


def test_the_starts_are_those_of_the_authors():
    """np.random.seed(1234), and for each sequence np.random.rand(1) * 2 - 1: training, validation, test."""
    random = np.random.RandomState(1234)
    starts = np.array([random.rand(1).item() * 2 - 1 for _ in range(19)], dtype=np.float32)
    shown = [v for batch in SMALL.training(3, seed=1234) for v in batch.inputs[0, :, 0].tolist()]
    assert sorted(shown) == sorted(starts[:9].tolist())
    for split, expected in (("valid", starts[9:14]), ("test", starts[14:])):
        found = [v for batch in SMALL.evaluation(split, 3, 1234, 5) for v in batch.inputs[0, :, 0].tolist()]
        assert found == expected.tolist()


def test_an_epoch_has_every_sequence_in_an_order_of_its_own():
    orders = [
        [v for batch in SMALL.training(3, seed=1, epoch=epoch) for v in batch.inputs[0, :, 0].tolist()]
        for epoch in (1, 2, 1)
    ]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]
    assert orders[0] == orders[2]
    rest = [batch.index for batch in SMALL.training(3, seed=1, epoch=1, first=1)]
    assert rest == [1, 2]


def test_the_baseline_is_what_repeating_costs_after_the_first_step():
    source = FitzHughNagumo(200, 64)
    (batch,) = source.training(64, seed=1)
    repeating = (batch.targets - batch.inputs[..., 0])[1:].square().mean().item()
    assert source.guessed(batch.targets) / batch.targets.numel() == pytest.approx(repeating, rel=1e-6)
    # Over other values at the start.
    assert source.baseline == pytest.approx(repeating, rel=0.05)


def test_errors():
    with pytest.raises(DataError, match="the span T must be from 2 to 1,000,000; got 1"):
        FitzHughNagumo(1)
    with pytest.raises(DataError, match="a batch of 10 is larger than the training set of 9 sequences"):
        SMALL.batches_per_epoch(10)
