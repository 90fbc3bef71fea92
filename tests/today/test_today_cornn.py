"""coRNN: the authors' numbers, its initial values, its constants."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import Vectors, of_cell
from golden_today import check, over_files, run

import linnet

CONSTANTS = ("dt", "gamma", "epsilon")


def matrices(v: Vectors) -> dict[str, torch.Tensor]:
    """Those of x, y and z; the authors have them one by one, or side by side in the order x, z, y."""
    if "w.h2h1.weight" in v:
        return {
            "input.weight": v["w.i2h.weight"],
            "recurrent.weight": v["w.h2h1.weight"],
            "velocity.weight": v["w.h2h2.weight"],
        }
    hidden = v["out"].shape[-1]
    x, z, y = v["w.i2h.weight"].split([v["x"].shape[-1], hidden, hidden], 1)
    return {"input.weight": x, "recurrent.weight": y, "velocity.weight": z}


@over_files("cornn")
def test_the_authors_numbers(path: Path, backend: str | None):
    v = Vectors(path)
    constants = {name: v.meta[name] for name in CONSTANTS}
    rnn = linnet.CoRNN(v["x"].shape[-1], v["out"].shape[-1], **constants)
    parameters = of_cell({**matrices(v), "input.bias": v["w.i2h.bias"]})
    start = (v["s0.y"][None], v["s0.z"][None]) if "s0.y" in v else None
    y, state = run(rnn, parameters, v["x"], start, backend=backend)
    check(v, y, {"y": state.y[0], "z": state.z[0]})


@pytest.mark.parametrize(
    ("init", "bounds"),
    [("joint", (133**-0.5,) * 4), ("separate", (5**-0.5, 5**-0.5, 0.125, 0.125))],
)
def test_initial_values_are_those_of_a_linear_layer(init: str, bounds: tuple[float, ...]):
    torch.manual_seed(0)
    cell = linnet.CoRNN(5, 64, init=init).first_cell
    drawn = (cell.input.weight, cell.input.bias, cell.recurrent.weight, cell.velocity.weight)
    for parameter, bound in zip(drawn, bounds, strict=True):
        assert 0.95 * bound < parameter.abs().max() <= bound


@torch.no_grad()
def test_without_a_force_it_is_a_damped_oscillator():
    """y'' = -gamma y - epsilon y', of which the solution is known."""
    steps, dt, gamma, epsilon = 1000, 1e-3, 9.0, 0.8
    rnn = linnet.CoRNN(1, 1, bias=False, dt=dt, gamma=gamma, epsilon=epsilon, dtype=torch.double)
    for parameter in rnn.parameters():
        parameter.zero_()
    one = torch.ones(1, 1, 1, dtype=torch.double)
    y, _ = rnn(torch.zeros(steps, 1, 1, dtype=torch.double), (one, 0 * one))
    time = dt * torch.arange(1, steps + 1, dtype=torch.double)
    w = math.sqrt(gamma - epsilon**2 / 4)
    exact = torch.exp(-epsilon * time / 2) * (torch.cos(w * time) + epsilon / (2 * w) * torch.sin(w * time))
    # The method is of first order: its error is of the size of dt.
    assert (y[:, 0, 0] - exact).abs().max() < 5 * dt


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize(("value", "error"), [(-1.0, ValueError), ((1.0,), TypeError)])
def test_constants_must_be_numbers(name: str, value: Any, error: type[Exception]):
    with pytest.raises(error, match=f"{name} must be"):
        linnet.CoRNN(3, 4, **{name: value})
