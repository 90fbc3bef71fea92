"""sru, the package of the paper's authors: what its own tests check, its weights, and training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import sru
import torch
from torch import Tensor, nn

import linnet
from tools.compat.contestants import RNN
from tools.compat.examples import CHANNELS, CLASSES, HIDDEN, check_plainly, work_plainly

CONTESTANTS: dict[str, RNN] = {
    "sru.SRU": partial(sru.SRU, nn_rnn_compatible_return=True),
    "SRU": linnet.SRU,
}
# The package rescales only if it is told to, and has two layers by default.
OPTIONS: tuple[dict[str, Any], ...] = (
    {"num_layers": 1, "rescale": False},
    {"num_layers": 3, "rescale": True, "bidirectional": True},
    {"num_layers": 2, "rescale": True, "highway_bias": -2.0},
)


class Model(nn.Module):
    def __init__(self, rnn: RNN):
        super().__init__()
        self.rnn = rnn(CHANNELS, HIDDEN, num_layers=2, rescale=False)
        self.out = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.rnn(x.transpose(0, 1))
        return self.out(output[-1])


def check(rnn: RNN, folder: Path) -> None:
    check_plainly(partial(Model, rnn), folder)
    x = torch.rand(4, 3, 7)
    for options in OPTIONS:
        theirs, ours = CONTESTANTS["sru.SRU"](7, 5, **options).eval(), rnn(7, 5, **options).eval()
        if isinstance(ours, linnet.SRU):
            linnet.load_foreign(ours, theirs.state_dict(), source="sru")
            torch.testing.assert_close(ours(x), theirs(x))
            torch.testing.assert_close(linnet.convert(theirs).model(x), theirs(x))
        output, state = ours(x)
        for n in range(3):
            torch.testing.assert_close(ours(x[:, n : n + 1]), (output[:, n : n + 1], state[:, n : n + 1]))


def work(rnn: RNN) -> Callable[[], object]:
    return work_plainly(partial(Model, rnn))
