"""Policies of robots: names of tensors, and one step after the other as the policy computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import linnet

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")


class Policy(nn.Module):
    """Normalised observations, a recurrent layer and a head."""

    def __init__(self, rnn: nn.Module):
        super().__init__()
        self.register_buffer("mean", torch.randn(5))
        self.rnn = rnn
        self.head = nn.Sequential(nn.Linear(8, 8), nn.ELU(), nn.Linear(8, 3))

    def forward(self, obs: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = self.rnn((obs - self.mean)[None], state)
        return self.head(y[0]), state


def zeros(count: int) -> Any:
    states = tuple(torch.zeros(2, 1, 8) for _ in range(count))
    return states[0] if count == 1 else states


CASES = [
    (nn.LSTM(5, 8, num_layers=2), zeros(2), ["h", "c"]),
    (linnet.SRU(5, 8, num_layers=2, dropout=0.5), zeros(1), ["h"]),
    (linnet.SLSTM(5, 8, num_layers=2), linnet.SLSTM(5, 8, 2)(torch.zeros(1, 1, 5))[1], ["h", "c", "n", "m"]),
]


@pytest.mark.parametrize(("rnn", "state", "names"), CASES, ids=["nn.LSTM", "SRU", "SLSTM"])
def test_a_policy_is_stepped_by_the_names_that_robots_expect(
    rnn: nn.Module, state: Any, names: list[str], tmp_path: Path
):
    torch.manual_seed(0)
    policy, path = Policy(rnn), tmp_path / "policy.onnx"
    linnet.export_policy(policy, path, torch.randn(1, 5), state)
    assert policy.training
    policy.eval()
    session = onnxruntime.InferenceSession(path)
    inputs = {value.name: value.shape for value in session.get_inputs()}
    leaves = [state] if isinstance(state, Tensor) else list(state)
    assert inputs == {
        "obs": [1, 5],
        **{f"{name}_in": list(s.shape) for name, s in zip(names, leaves, strict=True)},
    }
    assert [value.name for value in session.get_outputs()] == ["actions", *(f"{n}_out" for n in names)]
    assert not {node.op_type for node in onnx.load(path).graph.node} & {"Scan", "Loop"}
    found = [leaf.detach().numpy() for leaf in leaves]
    for _ in range(4):
        obs = torch.randn(1, 5)
        with torch.no_grad():
            actions, state = policy(obs, state)
        given = dict(zip(inputs, [obs.numpy(), *found], strict=True))
        made, *found = session.run(None, given)
        torch.testing.assert_close(torch.from_numpy(made), actions, rtol=0, atol=1e-5)


class Broken(Policy):
    def forward(self, obs: Tensor, state: Any) -> Any:
        actions, (h, c) = super().forward(obs, state)
        return (actions, h, c) if self.training else (actions, (h, c[:1]))


def test_what_is_no_policy_says_so(tmp_path: Path):
    policy = Broken(linnet.LSTM(5, 8, num_layers=2))
    with pytest.raises(
        ValueError, match=r"Broken returns must have .*\(2, 1, 8\), \(2, 1, 8\)\]; got .*\(1, 1, 8\)"
    ):
        linnet.export_policy(policy, tmp_path / "policy.onnx", torch.randn(1, 5), zeros(2))
    head = nn.Bilinear(5, 8, 3)
    with pytest.raises(TypeError, match=r"returns the pair \(actions, state\); Bilinear returned Tensor"):
        linnet.export_policy(head, tmp_path / "policy.onnx", torch.randn(1, 5), torch.zeros(1, 8))
    both = Policy(linnet.LSTM(5, 4, bidirectional=True))
    with pytest.raises(ValueError, match="reads the end of a sequence first"):
        linnet.export_policy(both, tmp_path / "policy.onnx", torch.randn(1, 5), zeros(2))
