"""SGU and DSGU: the paper's equations, recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from golden_cases import Vectors
from golden_today import check, over_files, run

import linnet
from linnet.units.sgu import hard_sigmoid


@over_files("sgu")
def test_recorded_numbers(path: Path, backend: str | None):
    v = Vectors(path)
    parameters = {
        "input.weight": torch.cat([v["w.W_g"], v["w.W_z"]]),
        "input.bias": torch.cat([v["w.b_g"], v["w.b_z"]]),
        "recurrent.weight": v["w.U_z"],
        "gate.weight": v["w.W_a"],
    }
    if "w.W_o" in v:
        parameters["deepening.weight"] = v["w.W_o"]
    named = {f"directions.0.cell.{name}": tensor for name, tensor in parameters.items()}
    rnn = linnet.SGU(v["x"].shape[-1], v["out"].shape[-1], deep="w.W_o" in v)
    start = v["s0.h"][None] if "s0.h" in v else None
    y, h = run(rnn, named, v["x"], start, backend=backend)
    check(v, y, {"h": h[0]})


def test_the_hard_sigmoid_has_the_slope_of_its_time():
    v = torch.tensor([-2.6, -2.4, 0.0, 1.0, 2.4, 2.6])
    torch.testing.assert_close(hard_sigmoid(v), torch.tensor([0, 0.02, 0.5, 0.7, 0.98, 1]))


@pytest.mark.parametrize("deep", [False, True])
def test_parameter_counts(deep: bool):
    d, h = 4, 7
    count = sum(p.numel() for p in linnet.SGU(d, h, deep=deep).parameters())
    assert count == 2 * h * (d + h + 1) + h * h * deep


@pytest.mark.parametrize("deep", [False, True])
def test_gradients_at_a_zero_state_are_those_of_the_loop(deep: bool):
    """Softplus has the slope 1/2 at 0, where an implementation by max and abs has a kink."""
    rnn, x = linnet.SGU(3, 4, deep=deep).double(), torch.randn(3, 2, 3).double()
    start = torch.zeros(1, 2, 4).double().requires_grad_()
    found = []
    for backend in (None, "reference"):
        with linnet.backend(backend):
            y, _ = rnn(x, start)
        found.append(torch.autograd.grad(y.sum(), start)[0])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)
    assert found[0].abs().max() > 0
