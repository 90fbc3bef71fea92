"""LTC: the authors' numbers, its start, its wiring, and what keeps its parameters positive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import Vectors, of_cell
from golden_today import check, over_files, run
from helpers import randn
from torch import Tensor

import linnet


def build(v: Vectors) -> linnet.LTC:
    meta = v.meta
    matrices = v["sensory_sparsity_mask"], v["sparsity_mask"]
    return linnet.LTC(
        meta["input_size"],
        meta["units"],
        bias="w.input_b" in v,
        motors=meta["output_size"],
        unfolds=meta["ode_unfolds"],
        implicit=meta["implicit_param_constraints"],
        wiring=None if all(matrix.all() for matrix in matrices) else matrices,
    )


def parameters_of(v: Vectors) -> dict[str, Tensor]:
    theirs = v.weights()
    mapping = {"input.weight": theirs.pop("input_w")[:, None]}
    if "input_b" in theirs:
        mapping["input.bias"] = theirs.pop("input_b")
    return {**mapping, **theirs}


@over_files("ltc")
def test_ltc_computes_what_ncps_does(path: Path, backend: str | None):
    v = Vectors(path)
    rnn = build(v)
    start = v["s0.h"][None] if "s0.h" in v else None
    times = {"timespans": v["timespans"]} if "timespans" in v else {}
    y, state = run(rnn, of_cell(parameters_of(v)), v["x"], start, backend=backend, **times)
    check(v, y, {"h": state[0]})


def test_ltc_has_the_parameters_of_its_source():
    d, h, out = 5, 7, 3
    count = sum(p.numel() for p in linnet.LTC(d, h, motors=out).parameters())
    assert count == 4 * h**2 + 4 * d * h + 3 * h + 2 * d + 2 * out
    bare = sum(p.numel() for p in linnet.LTC(d, h, bias=False, motors=out).parameters())
    assert bare == count - d - out


def test_it_starts_as_in_ncps():
    torch.manual_seed(0)
    cell = linnet.LTCCell(30, 40)
    bounds = {"gleak": (0.001, 1), "vleak": (-0.2, 0.2), "cm": (0.4, 0.6)}
    synapses = {"w": (0.001, 1), "sigma": (3, 8), "mu": (0.3, 0.8)}
    bounds |= {kind + name: each for kind in ("", "sensory_") for name, each in synapses.items()}
    for name, (low, high) in bounds.items():
        parameter = getattr(cell, name)
        assert low <= parameter.min() < parameter.max() <= high
        assert abs(parameter.mean() - (low + high) / 2) < 0.15 * (high - low), name
    for erev in (cell.erev, cell.sensory_erev):
        assert (erev.abs() == 1).all()
        # Two of three synapses excite; the deviation of the mean of 1200 draws is 0.027.
        assert abs(erev.mean() - 1 / 3) < 0.1
    x = torch.randn(2, 30)
    assert torch.equal(cell.input(torch.cat([x, x[:, :1]], -1))["x"], x)
    y, h = cell(x)
    assert torch.equal(y, h)


@pytest.mark.parametrize("heads", [2, 4])
def test_a_mapping_of_several_channels_starts_as_the_identity(heads: int):
    torch.manual_seed(0)
    cell = linnet.LTCCell(4, 3, input_heads=heads)
    assert cell.input.weight.shape == (4, 4 // heads)
    x = torch.randn(2, 4)
    torch.testing.assert_close(cell.input(torch.cat([x, x[:, :1]], -1))["x"], x)


# ----------------------------------------------------------------------------------------- the time


def test_the_state_stays_over_a_time_of_zero():
    torch.manual_seed(0)
    rnn = linnet.LTC(3, 4, dtype=torch.double)
    x, h = randn(1, 2, 3), randn(1, 2, 4, seed=1)
    times = torch.zeros(1, 2, dtype=torch.double, requires_grad=True)
    y, state = rnn(x, h, timespans=times)
    torch.testing.assert_close(state, h)
    y.sum().backward()
    assert times.grad is not None
    assert times.grad.isfinite().all()


def test_a_long_time_leads_to_the_equilibrium():
    """There, the currents of all synapses and of the leak add up to 0."""
    torch.manual_seed(0)
    cell = linnet.LTCCell(3, 4, unfolds=200, dtype=torch.double)
    x = randn(2, 3)
    _, h = cell(x, timespans=torch.full((2,), 1e4, dtype=torch.double))
    s = cell.sensory_w * torch.sigmoid(cell.sensory_sigma * (x[..., None] - cell.sensory_mu))
    a = cell.w * torch.sigmoid(cell.sigma * (h[..., None] - cell.mu))
    flow = cell.gleak * (cell.vleak - h)
    flow = flow + (s * (cell.sensory_erev - h[:, None])).sum(1) + (a * (cell.erev - h[:, None])).sum(1)
    torch.testing.assert_close(flow, torch.zeros_like(flow), rtol=0, atol=1e-6)


# --------------------------------------------------------------------------------------- the wiring


def wired(**options: Any) -> linnet.LTC:
    torch.manual_seed(0)
    sensory = torch.tensor([[1, 0, 0], [0, 0, 0]])
    between = torch.tensor([[0, -1, 0], [0, 0, 1], [0, 0, 0]])
    return linnet.LTC(2, 3, wiring=(sensory, between), dtype=torch.double, **options)


def test_only_the_synapses_of_the_wiring_act():
    """The first input drives neuron 0, this neuron 1, and that neuron 2; the second input drives none."""
    rnn = wired(unfolds=1)
    x = randn(3, 1, 2).requires_grad_()
    y, _ = rnn(x)
    for neuron in range(3):
        (gradient,) = torch.autograd.grad(y[2, 0, neuron], x, retain_graph=True)
        assert not gradient[..., 1].any()
        assert (gradient[: 3 - neuron, 0, 0] != 0).all()
        assert not gradient[3 - neuron :, 0, 0].any()


def test_signs_of_the_wiring_are_the_start_of_erev():
    cell = wired().first_cell
    assert cell.erev[0, 1] == -1
    assert cell.erev[1, 2] == 1
    assert (cell.erev.abs() == 1).all()
    torch.manual_seed(0)
    ones = linnet.LTCCell(20, 20, wiring=(torch.ones(20, 20), torch.ones(20, 20)))
    assert (ones.erev == -1).any()


def test_the_wiring_is_in_the_state_dict_and_not_among_the_parameters():
    rnn = wired()
    assert not any("mask" in name for name, _ in rnn.named_parameters())
    other = linnet.LTC(2, 3, wiring=([[1] * 3] * 2, [[1] * 3] * 3), dtype=torch.double)
    x = randn(4, 2, 2)
    other(x)
    other.load_state_dict(rnn.state_dict())
    torch.testing.assert_close(other(x), rnn(x), rtol=0, atol=0)


def test_a_wired_unit_runs_by_kernels_that_read_the_wiring_of_now():
    rnn = wired()
    x = randn(5, 2, 2)
    rnn(x)
    assert "cpu kernels" in str(linnet.explain(rnn, x))
    for change in (lambda mask: mask.fill_(1), lambda mask: mask.zero_()):
        change(rnn.first_cell.mask)
        y, _ = rnn(x)
        with linnet.backend("reference"):
            torch.testing.assert_close(rnn(x)[0], y)


@pytest.mark.parametrize(
    ("wiring", "message"),
    [
        (torch.ones(3, 3), "two matrices of 0, 1 and -1.*got Tensor"),
        ((torch.ones(3, 3), torch.ones(3, 3)), r"\(2, 3\).*got \(3, 3\) and \(3, 3\)"),
        ((torch.ones(2, 3), 0.5 * torch.ones(3, 3)), "got a matrix with 0.5"),
    ],
    ids=["one", "shape", "number"],
)
def test_another_wiring_is_refused(wiring: Any, message: str):
    with pytest.raises((ValueError, TypeError), match=message):
        linnet.LTC(2, 3, wiring=wiring)


# ------------------------------------------------------------------------------- positive parameters


def test_clipping_sets_what_is_negative_to_zero():
    rnn = linnet.LTC(3, 4, 2)
    before = {name: p.detach().sub_(0.45).clone() for name, p in rnn.named_parameters()}
    rnn.clip_parameters()
    clipped = ("w", "sensory_w", "cm", "gleak")
    for name, parameter in rnn.named_parameters():
        positive = name.rpartition(".")[2] in clipped
        expected = before[name].clamp(min=0) if positive else before[name]
        assert torch.equal(parameter, expected), name


def test_with_implicit_nothing_is_clipped_and_nothing_needs_it():
    torch.manual_seed(0)
    rnn = linnet.LTC(3, 4, implicit=True)
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.sub_(1)
    before = [p.clone() for p in rnn.parameters()]
    rnn.clip_parameters()
    assert all(map(torch.equal, before, rnn.parameters()))
    _, h = rnn(torch.randn(50, 2, 3))
    # A convex combination of the reversal potentials, which are at most 2 in size here, and vleak.
    assert h.abs().max() <= 2


def test_motors_are_the_first_neurons():
    torch.manual_seed(0)
    rnn = linnet.LTC(3, 4, motors=2)
    y, h = rnn(torch.randn(5, 2, 3))
    assert y.shape == (5, 2, 2)
    torch.testing.assert_close(y[-1], h[0, :, :2])
    with pytest.raises(ValueError, match="motors must be at most 4; got 5"):
        linnet.LTC(3, 4, motors=5)


@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_it_runs_by_kernels(training: bool):
    rnn = linnet.LTC(3, 4).train(training)
    with torch.set_grad_enabled(training):
        assert "cpu kernels" in str(linnet.explain(rnn, torch.randn(6, 2, 3)))
