"""TorchRL: LSTMModule and GRUModule step in an environment, and train on batches with several episodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.envs import Compose, GymEnv, InitTracker, TransformedEnv
from torchrl.modules import GRUModule, LSTMModule, QValueModule, set_recurrent_mode

import linnet
from tools.compat.contestants import RNN

STEPS, ENVIRONMENTS = 64, 8
# Where there is a GRU too, GRUModule is checked with it.
GRUS: dict[RNN, RNN] = {nn.LSTM: nn.GRU, linnet.LSTM: linnet.GRU}
KEYS = {"in_key": "observation", "out_key": "features"}


def lstm_module(rnn: RNN, size: int = 32) -> Any:
    return LSTMModule(lstm=rnn(4, size, batch_first=True), **KEYS)


def gru_module(rnn: RNN, size: int = 32) -> Any:
    return GRUModule(gru=rnn(4, size, batch_first=True), **KEYS)


def policy(layer: Any, size: int = 32) -> Any:
    head = TensorDictModule(nn.Linear(size, 2), in_keys=["features"], out_keys=["action_value"])
    return TensorDictSequential(layer, head, QValueModule(action_space="one-hot"))


def check(rnn: RNN, folder: Path) -> None:
    check_module(partial(lstm_module, rnn), folder)
    if rnn in GRUS:
        check_module(partial(gru_module, GRUS[rnn]), folder)


def check_module(build: Callable[[], Any], folder: Path) -> None:
    """Roll out, train on what was rolled out, save and load."""
    layer = build()
    acts = policy(layer)
    env = TransformedEnv(GymEnv("CartPole-v1", categorical_action_encoding=False), Compose(InitTracker()))
    env.append_transform(layer.make_tensordict_primer())
    rolled = env.rollout(STEPS, acts, break_when_any_done=False)
    assert rolled["is_init"].sum() > 1
    given = rolled.select("observation", "is_init").unsqueeze(0)
    with set_recurrent_mode(True):
        again = acts(given.clone())
    torch.testing.assert_close(again["features"][0], rolled["features"], rtol=1e-4, atol=1e-5)
    losses = [learn(acts, given) for _ in range(30)]
    assert losses[-1] < losses[0] / 2
    torch.save(acts.state_dict(), folder / "policy.pt")
    loaded = policy(build())
    loaded.load_state_dict(torch.load(folder / "policy.pt"))
    with set_recurrent_mode(True):
        torch.testing.assert_close(loaded(given.clone())["features"], acts(given.clone())["features"])


def learn(acts: Any, given: TensorDict) -> float:
    """Take a step of gradient descent towards action values of 1."""
    with set_recurrent_mode(True):
        loss = (acts(given.clone())["action_value"] - 1).square().mean()
    loss.backward()
    with torch.no_grad():
        for weight in acts.parameters():
            weight -= 0.1 * weight.grad
            weight.grad = None
    return loss.item()


def work(rnn: RNN) -> Callable[[], object]:
    acts = policy(lstm_module(rnn, size=256), size=256)
    size = (ENVIRONMENTS, STEPS)
    given = TensorDict({"observation": torch.randn(*size, 4), "is_init": torch.rand(*size, 1) < 0.05}, size)
    return lambda: learn(acts, given)
