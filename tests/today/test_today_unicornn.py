"""UnICORNN: the authors' numbers, its initial values, a time step for each layer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import Vectors
from golden_today import check, over_files, run

import linnet

NAMES = {
    "input.weight": "DIs.{}.fc_weight",
    "input.bias": "DIs.{}.fc_bias",
    "w": "RNNs.{}.weight_hh",
    "c": "RNNs.{}.c_",
}


@over_files("unicornn")
def test_the_authors_numbers(path: Path, backend: str | None):
    v = Vectors(path)
    layers = range(v.meta["num_layers"])
    constants = {"dt": v.meta["dt"], "alpha": v.meta["alpha"]}
    rnn = linnet.UnICORNN(v["x"].shape[-1], v["out"].shape[-1], len(layers), **constants)
    parameters = {
        f"directions.{layer}.cell.{ours}": v[f"w.{theirs.format(layer)}"]
        for layer in layers
        for ours, theirs in NAMES.items()
    }
    start = (v["s0.y"], v["s0.z"]) if "s0.y" in v else None
    y, state = run(rnn, parameters, v["x"], start, backend=backend)
    check(v, y, {"y": state.y, "z": state.z})


def test_initial_values():
    torch.manual_seed(0)
    cell = linnet.UnICORNN(6, 500).first_cell
    bound = math.sqrt(2 / 65) * math.sqrt(3 / 6)
    assert 0.99 * bound < cell.input.weight.abs().max() <= bound
    assert not cell.input.bias.any()
    assert 0 <= cell.w.min() < 0.02 < 0.98 < cell.w.max() <= 1
    assert -0.1 <= cell.c.min() < -0.098 < 0.098 < cell.c.max() <= 0.1


def test_dt_is_one_number_for_all_layers_or_one_for_each():
    def times(dt: Any, **options: Any) -> list[float]:
        return [cell.dt for cell in linnet.UnICORNN(3, 4, 2, dt=dt, **options).cells]

    assert times(0.3) == [0.3, 0.3]
    assert times((0.3, 0.1)) == times([0.3, 0.1]) == [0.3, 0.1]
    assert times((0.3, 0.1), bidirectional=True) == [0.3, 0.3, 0.1, 0.1]
    assert linnet.UnICORNNCell(3, 4, dt=[0.2]).dt == 0.2


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (
            {"dt": (0.1, 0.2, 0.3)},
            ValueError,
            r"per layer, of which there are 2; got \(0.1, 0.2, 0.3\)",
        ),
        ({"dt": (0.1, -0.2)}, ValueError, "dt must be finite and at least 0; got -0.2"),
        ({"dt": "fast"}, TypeError, "dt must be a number; got 'fast'"),
        ({"alpha": -1.0}, ValueError, "alpha must be finite and at least 0; got -1.0"),
    ],
)
def test_errors(options: dict[str, Any], error: type[Exception], says: str):
    with pytest.raises(error, match=says):
        linnet.UnICORNN(3, 4, 2, **options)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_without_input_it_oscillates_and_loses_nothing(dtype: torch.dtype):
    """With w = 0 the energy alpha y^2 + z^2 stays near its start for as long as it runs."""
    rnn = linnet.UnICORNN(1, 3, dt=0.1, alpha=4.0, dtype=dtype)
    cell = rnn.first_cell
    cell.w.zero_()
    cell.input.weight.zero_()
    start = torch.ones(1, 1, 3, dtype=dtype)
    y, state = rnn(torch.zeros(5000, 1, 1, dtype=dtype), (start, 0 * start))
    assert y.abs().max() < 1.1
    assert y[-200:].abs().amax(0).min() > 0.9
    energy = 4 * state.y**2 + state.z**2
    # The method keeps another energy, which differs by a term of the size of s.
    torch.testing.assert_close(energy, torch.full_like(energy, 4.0), rtol=0.1, atol=0)
