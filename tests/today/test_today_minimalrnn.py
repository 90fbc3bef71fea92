"""MinimalRNN: the paper's equations, recorded."""

from __future__ import annotations

from pathlib import Path

import torch
from golden_cases import Vectors
from golden_today import check, over_files, run

import linnet


@over_files("minimalrnn")
def test_recorded_numbers(path: Path, backend: str | None):
    v = Vectors(path)
    parameters = {
        "input.weight": v["w.W_x"],
        "input.bias": v["w.b_z"],
        "recurrent.weight": v["w.U_h"],
        "embedded.weight": v["w.U_z"],
        "embedded.bias": v["w.b_u"],
    }
    named = {f"directions.0.cell.{name}": tensor for name, tensor in parameters.items()}
    rnn = linnet.MinimalRNN(v["x"].shape[-1], v["out"].shape[-1])
    start = v["s0.h"][None] if "s0.h" in v else None
    y, h = run(rnn, named, v["x"], start, backend=backend)
    check(v, y, {"h": h[0]})


def test_the_state_stays_within_the_range_of_the_embedded_inputs():
    rnn = linnet.MinimalRNN(3, 5)
    x = 100 * torch.randn(20, 4, 3)
    y, _ = rnn(x)
    z = torch.tanh(rnn.cells[0].input(x)["z"])
    assert (y <= z.amax(0).clamp(min=0)).all()
    assert (y >= z.amin(0).clamp(max=0)).all()


def test_the_gate_reads_the_input_of_the_same_step():
    """With U_h = 0 and h = 0, h_1 = (1 - sigmoid(U_z z_1)) z_1."""
    cell = linnet.MinimalRNNCell(1, 1, bias=False)
    with torch.no_grad():
        cell.input.weight.fill_(1.0)
        cell.recurrent.weight.fill_(0.0)
        cell.embedded.weight.fill_(2.0)
    z = torch.tanh(torch.tensor([[0.7]]))
    _, h = cell(torch.tensor([[0.7]]))
    torch.testing.assert_close(h, (1 - torch.sigmoid(2 * z)) * z)
