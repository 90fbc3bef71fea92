"""sb3-contrib: RecurrentPPO, whose policies build nn.LSTM; linnet.contrib.sb3 has them with `resets=`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.env_util import make_vec_env
from torch import nn

import linnet
from linnet.contrib.sb3 import MlpPolicy
from tools.compat.contestants import as_lstm_of_torch
from tools.compat.own_tests import run_own_tests

# The policy, its options, and what its nn.LSTM is.
Policy = tuple[Any, dict[str, Any], Any]
CONTESTANTS: dict[str, Policy] = {
    "nn.LSTM": ("MlpLstmPolicy", {}, nn.LSTM),
    "LSTM (as torch.nn.LSTM)": ("MlpLstmPolicy", {}, linnet.LSTM),
    "LSTM": (MlpPolicy, {"unit": "lstm"}, nn.LSTM),
    "SRU": (MlpPolicy, {"unit": "sru"}, nn.LSTM),
}


def ppo(contestant: Policy, size: int, **options: Any) -> RecurrentPPO:
    policy, own, lstm = contestant
    with as_lstm_of_torch(lstm):
        environments = make_vec_env("CartPole-v1", n_envs=8, seed=0)
        kwargs = {"lstm_hidden_size": size, **own}
        return RecurrentPPO(policy, environments, policy_kwargs=kwargs, seed=0, device="cpu", **options)


def check(contestant: Policy, folder: Path) -> None:
    model = ppo(contestant, size=32, n_steps=32, n_epochs=2)
    before = [weight.clone() for weight in model.policy.parameters()]
    model.learn(512)
    assert not any(map(torch.equal, before, model.policy.parameters()))
    model.save(folder / "ppo.zip")
    with as_lstm_of_torch(contestant[-1]):
        loaded = RecurrentPPO.load(folder / "ppo.zip", env=model.env)
    torch.testing.assert_close(loaded.policy.state_dict(), model.policy.state_dict())
    observations = model.env.reset()
    actions, others = (each.predict(observations, deterministic=True)[0] for each in (model, loaded))
    assert (actions == others).all()
    loaded.learn(256)
    if contestant[0] == "MlpLstmPolicy":
        run_own_tests("tests/test_lstm.py", contestant[-1])


def work(contestant: Policy) -> Callable[[], object]:
    model = ppo(contestant, size=256, n_steps=64, n_epochs=5)
    return lambda: model.learn(8 * 64)
