"""sb3-contrib: a policy of RecurrentPPO, trained on the spot, that evaluates 16 sequences of 64 steps.

Episodes start within the sequences, and sb3-contrib then runs its LSTM in a loop over steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from torch import Tensor

from tools.compat.models.shared import Convert

SEQUENCES, STEPS = 16, 64


def work(convert: Convert) -> Callable[[], Tensor]:
    model = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=64, n_epochs=1, seed=0, device="cpu")
    model.learn(64)
    policy: Any = model.policy.eval()
    convert(policy)
    generator = torch.Generator().manual_seed(0)
    observations = torch.randn(SEQUENCES * STEPS, 4, generator=generator)
    starts = (torch.rand(SEQUENCES * STEPS, generator=generator) < 0.05).float()
    actions = torch.zeros(SEQUENCES * STEPS)
    zeros = torch.zeros(1, SEQUENCES, 256)
    states = RNNStates((zeros, zeros), (zeros, zeros))
    return lambda: torch.cat(
        [each.flatten() for each in policy.evaluate_actions(observations, actions, states, starts)]
    )
