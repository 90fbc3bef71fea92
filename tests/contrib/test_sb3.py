"""linnet.contrib.sb3: a batch with episodes in it is one call, and equals sb3-contrib's loop over steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import linnet

pytest.importorskip("sb3_contrib", reason="needs the extra sb3")

from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy

from linnet.contrib.sb3 import MlpPolicy

UNITS = ["sru", "lrn", "ran", "lstm", "gru", "qrnn"]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("layers", [1, 2])
def test_resets_are_the_loop_over_steps(unit: str, layers: int):
    torch.manual_seed(0)
    rnn = linnet.UNITS[unit](3, 4, layers, as_lstm=True, dtype=torch.double)
    x = torch.randn(3 * 6, 3, dtype=torch.double)
    starts = torch.tensor([[0, 0, 1, 0, 0, 1], [1, 0, 0, 0, 0, 0], [0] * 6]).flatten().double()
    states = tuple(torch.randn(layers, 3, 4, dtype=torch.double) for _ in range(2))
    y, new = MlpPolicy._process_sequence(x, states, starts, rnn)
    expected, end = RecurrentActorCriticPolicy._process_sequence(x, states, starts, rnn)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(new, tuple(end))


def ppo(unit: str, **policy: Any) -> RecurrentPPO:
    settings = {"n_steps": 32, "batch_size": 32, "n_epochs": 1, "seed": 0, "device": "cpu"}
    policy = {"unit": unit, "lstm_hidden_size": 16, **policy}
    return RecurrentPPO(MlpPolicy, "CartPole-v1", policy_kwargs=policy, **settings)


@pytest.mark.parametrize("unit", ["sru", "ran"])
def test_it_trains_every_weight_saves_and_loads(unit: str, tmp_path: Path):
    model = ppo(unit, n_lstm_layers=2)
    before = {name: weight.clone() for name, weight in model.policy.named_parameters()}
    model.learn(64)
    assert all(not torch.equal(weight, before[name]) for name, weight in model.policy.named_parameters())
    assert not any(isinstance(module, nn.LSTM) for module in model.policy.modules())
    model.save(tmp_path / "model")
    model.policy.save(tmp_path / "policy.pt")
    observation = model.env.reset()
    expected, _ = model.predict(observation, deterministic=True)
    for again in (RecurrentPPO.load(tmp_path / "model"), MlpPolicy.load(tmp_path / "policy.pt")):
        action, _ = again.predict(observation, deterministic=True)
        assert (action == expected).all()


def test_a_unit_whose_state_is_no_pair_is_answered():
    with pytest.raises(ValueError, match="as_lstm=True makes the pair"):
        ppo("nru")
    with pytest.raises(ValueError, match=r"lstm_hidden_size=16 channels; statisticalru has .* \[16, 80\]"):
        ppo("statisticalru")
    with pytest.raises(ValueError, match="unit must be one of 'sru'"):
        ppo("slstm")
