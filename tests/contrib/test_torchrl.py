"""TorchRL's LSTMModule takes a unit with as_lstm=True: rollouts, and batches of several episodes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import linnet

pytest.importorskip("torchrl", reason="needs the extra torchrl")

from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torchrl.envs import Compose, GymEnv, InitTracker, TransformedEnv
from torchrl.modules import MLP, LSTMModule, QValueModule, set_recurrent_mode


def module(unit: str) -> Any:
    rnn = linnet.UNITS[unit](3, 4, batch_first=True, as_lstm=True)
    return LSTMModule(lstm=rnn, in_key="observation", out_key="features"), rnn


@pytest.mark.parametrize("unit", ["sru", "lrn", "ran", "lstm"])
def test_a_batch_with_episodes_in_it_is_resets(unit: str):
    layer, rnn = module(unit)
    x, starts = torch.randn(2, 6, 3), torch.zeros(2, 6, 1, dtype=torch.bool)
    starts[:, 0] = starts[0, 3] = True
    given = TensorDict({"observation": x, "is_init": starts}, [2, 6])
    with set_recurrent_mode(True):
        found = layer(given.clone())["features"]
    torch.testing.assert_close(found, rnn(x, resets=starts[..., 0])[0], rtol=1e-5, atol=1e-6)


def test_a_policy_rolls_out_and_trains():
    rnn = linnet.SRU(4, 16, batch_first=True, as_lstm=True)
    layer = LSTMModule(lstm=rnn, in_key="observation", out_key="features")
    head = TensorDictModule(MLP(16, 2, num_cells=[16]), in_keys=["features"], out_keys=["action_value"])
    policy = TensorDictSequential(layer, head, QValueModule(action_space="one-hot"))
    env = TransformedEnv(GymEnv("CartPole-v1", categorical_action_encoding=False), Compose(InitTracker()))
    env.append_transform(layer.make_tensordict_primer())
    rolled = env.rollout(20, policy, break_when_any_done=False)
    with set_recurrent_mode(True):
        again = policy(rolled.exclude("features", "action_value", "next").unsqueeze(0))
    torch.testing.assert_close(again["features"][0], rolled["features"], rtol=1e-4, atol=1e-5)
    again["action_value"].sum().backward()
    assert all(weight.grad is not None for weight in rnn.parameters())
