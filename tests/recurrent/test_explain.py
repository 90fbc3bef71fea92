"""linnet.explain: which way a call takes, and why."""

from __future__ import annotations

import torch
from torch import nn

import linnet


def test_each_way_is_named():
    rnn, x = linnet.SRU(3, 4, num_layers=2, bidirectional=True), torch.randn(5, 2, 3)
    assert linnet.explain(rnn, x).ways == ["scan"] * 4
    assert linnet.explain(rnn, x, lengths=[5, 2]).ways == ["scan"] * 4
    with linnet.backend("reference"):
        assert linnet.explain(rnn, x).ways == ["loop"] * 4
    with torch.no_grad():
        assert linnet.explain(rnn, x[:1]).ways == ["step"] * 4
        assert linnet.explain(rnn.first_cell, x[0]).ways == ["step"]
    assert linnet.explain(rnn.first_cell, x[0]).ways == ["scan"]
    assert linnet.explain(rnn, x[:, :0]).ways == ["loop"] * 4


def test_a_tracer_finds_an_operation():
    rnn, x = linnet.LRN(3, 4), torch.randn(5, 2, 3)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        assert linnet.explain(rnn, x).ways == ["operation"]


def test_the_reason_of_the_loop_is_given():
    rnn, x = linnet.LRN(3, 4), torch.randn(5, 2, 3)
    rnn.first_cell.input.register_forward_hook(lambda *_: None)
    explanation = linnet.explain(rnn, x)
    assert explanation.ways == ["loop"]
    assert "input has a hook" in str(explanation)


def test_what_is_explained_is_what_the_call_does():
    """Inside of another module, and without a change of the result."""
    model = nn.ModuleDict({"rnn": linnet.GRU(3, 4)})
    x = torch.randn(5, 2, 3)
    expected, _ = model["rnn"](x)
    explanation = linnet.explain(model["rnn"], x)
    assert torch.equal(model["rnn"](x)[0], expected)
    assert str(explanation).splitlines() == [
        f"GRU, x [5, 2, 3] torch.float32 on cpu, with gradients, {torch.get_num_threads()} threads",
        "0: GRU: scan: cpu kernels over 5 steps of 2 rows",
    ]
    assert str(linnet.explain(nn.Linear(3, 3), x)).endswith("no unit of Linnet ran")
