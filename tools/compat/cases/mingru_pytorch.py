"""minGRU-pytorch, by lucidrains: its layers with their weights in Linnet's, and training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from minGRU_pytorch.minGRU import minGRU
from minGRU_pytorch.minLSTM import minLSTM
from torch import Tensor, nn

import linnet
from tools.compat.contestants import RNN
from tools.compat.examples import CHANNELS, CLASSES, HIDDEN, check_plainly, work_plainly


class Layers(nn.Module):
    """Several of the package's minGRU, which has one layer and reads x [batch, time, size]."""

    def __init__(self, size: int, hidden_size: int, num_layers: int, **options: Any):
        super().__init__()
        self.layers = nn.ModuleList(minGRU(size) for _ in range(num_layers))

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        for layer in self.layers:
            x = layer(x)
        return x, None


CONTESTANTS: dict[str, RNN] = {"minGRU": Layers, "MinGRU": linnet.MinGRU}
UNITS: tuple[tuple[type[nn.Module], type[linnet.Recurrent]], ...] = (
    (minGRU, linnet.MinGRU),
    (minLSTM, linnet.MinLSTM),
)


class Model(nn.Module):
    def __init__(self, rnn: RNN):
        super().__init__()
        self.input = nn.Linear(CHANNELS, HIDDEN)
        self.rnn = rnn(HIDDEN, HIDDEN, num_layers=2, bias=False, batch_first=True)
        self.out = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.rnn(self.input(x))
        return self.out(output[:, -1])


def check(rnn: RNN, folder: Path) -> None:
    check_plainly(partial(Model, rnn), folder)
    if rnn is linnet.MinGRU:
        for theirs, ours in UNITS:
            for expansion in (1.0, 1.5):
                check_layer(theirs, ours, expansion)


def check_layer(theirs: Any, ours: type[linnet.Recurrent], expansion: float) -> None:
    """Compare a layer, with the package's weights, over a sequence and in single steps that continue it."""
    size = 6
    layer = theirs(size, expansion_factor=expansion).double()
    rnn = ours(
        size,
        int(size * expansion),
        bias=False,
        batch_first=True,
        proj_size=size if expansion > 1 else 0,
        dtype=torch.double,
    )
    linnet.load_foreign(rnn, layer.state_dict(), source="mingru_pytorch")
    x = torch.randn(3, 40, size, dtype=torch.double)
    expected, hidden = layer(x, return_next_prev_hidden=True)
    output, state = rnn(x)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    for step in torch.randn(4, 3, 1, size, dtype=torch.double):
        expected, hidden = layer(step, hidden, return_next_prev_hidden=True)
        output, state = rnn(step, state)
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


def work(rnn: RNN) -> Callable[[], object]:
    return work_plainly(partial(Model, rnn))
