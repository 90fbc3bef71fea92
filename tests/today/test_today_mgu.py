"""MGU: the paper's equations, recorded."""

from __future__ import annotations

from pathlib import Path

import torch
from golden_cases import Vectors
from golden_today import check, over_files, run

import linnet


@over_files("mgu")
def test_recorded_numbers(path: Path, backend: str | None):
    v = Vectors(path)
    parameters = {
        "input.weight": torch.cat([v["w.W_f"], v["w.W_h"]]),
        "input.bias": torch.cat([v["w.b_f"], v["w.b_h"]]),
        "recurrent.weight": v["w.U_f"],
        "candidate.weight": v["w.U_h"],
    }
    named = {f"directions.0.cell.{name}": tensor for name, tensor in parameters.items()}
    rnn = linnet.MGU(v["x"].shape[-1], v["out"].shape[-1])
    start = v["s0.h"][None] if "s0.h" in v else None
    y, h = run(rnn, named, v["x"], start, backend=backend)
    check(v, y, {"h": h[0]})


def test_one_step_by_hand():
    """f = sigmoid(0) = 1/2, c = tanh(U_c f h), h = (h + c) / 2."""
    cell = linnet.MGUCell(1, 1)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.zero_()
        cell.candidate.weight.fill_(3.0)
    _, h = cell(torch.zeros(1, 1), torch.full((1, 1), 2.0))
    torch.testing.assert_close(h, (2 + torch.tanh(torch.tensor([[3.0]]))) / 2)


def test_a_layer_has_two_thirds_of_the_parameters_of_gru():
    count = {
        unit: sum(p.numel() for p in unit(10, 20, bias=False).parameters())
        for unit in (linnet.MGU, linnet.GRU)
    }
    assert 3 * count[linnet.MGU] == 2 * count[linnet.GRU]
