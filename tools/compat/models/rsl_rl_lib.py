"""rsl-rl: a recurrent policy of robots, trained on the spot, that acts in 64 environments for 24 steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from rsl_rl.models.rnn_model import RNNModel
from tensordict import TensorDict
from torch import Tensor

from tools.compat.models.shared import Convert

ENVIRONMENTS, STEPS, SIZE, ACTIONS = 64, 24, 48, 12


def observations() -> list[TensorDict]:
    generator = torch.Generator().manual_seed(0)
    return [
        TensorDict(
            {"policy": torch.randn(ENVIRONMENTS, SIZE, generator=generator)}, batch_size=[ENVIRONMENTS]
        )
        for _ in range(STEPS)
    ]


def policy(seen: list[TensorDict]) -> RNNModel:
    """A policy that has learnt to repeat the first observations."""
    torch.manual_seed(0)
    made = RNNModel(seen[0], {"actor": ["policy"]}, "actor", ACTIONS)
    optimiser = torch.optim.Adam(made.parameters(), lr=1e-3)
    for _ in range(10):
        loss = sum(
            (a - o["policy"][:, :ACTIONS]).square().mean() for a, o in zip(act(made, seen), seen, strict=True)
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return made.eval()


def act(model: RNNModel, seen: list[TensorDict]) -> list[Tensor]:
    model.reset()
    actions = []
    for step, each in enumerate(seen):
        actions.append(model(each))
        if not torch.is_grad_enabled():
            model.reset(dones=(torch.arange(ENVIRONMENTS) % STEPS == step).long())
    return actions


def work(convert: Convert) -> Callable[[], Tensor]:
    seen = observations()
    model = policy(seen)
    convert(model)
    return lambda: torch.stack(act(model, seen))
