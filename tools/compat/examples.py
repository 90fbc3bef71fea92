"""A task and a model for the cases: which of four channels has the largest sum over time?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tools.compat.contestants import RNN

CLASSES, CHANNELS, STEPS, HIDDEN = 4, 8, 20, 64
LEARNT = 0.8  # the share of right answers after training; guessing has 0.25


def sequences(count: int = 512) -> tuple[Tensor, Tensor]:
    """Return x [count, STEPS, CHANNELS] and the classes [count]."""
    x = torch.randn(count, STEPS, CHANNELS, generator=torch.Generator().manual_seed(0))
    return x, x[..., :CLASSES].sum(1).argmax(1)


class Classifier(nn.Module):
    """x [batch, STEPS, CHANNELS] -> logits [batch, CLASSES]."""

    def __init__(self, rnn: RNN):
        super().__init__()
        self.rnn = rnn(CHANNELS, HIDDEN, num_layers=2, batch_first=True)
        self.out = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        _, (h, _) = self.rnn(x)
        return self.out(h[-1])


class BlockClassifier(nn.Module):
    """The same by a block, rnn(HIDDEN, heads=4), whose input and output are [STEPS, batch, HIDDEN]."""

    def __init__(self, rnn: RNN):
        super().__init__()
        self.embed = nn.Linear(CHANNELS, HIDDEN)
        self.rnn = rnn(HIDDEN, heads=4)
        self.out = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.rnn(self.embed(x.transpose(0, 1)))
        return self.out(output.mean(0))


@torch.no_grad()
def drawn(module: Any) -> Any:
    """The module with all parameters at work: none starts at 0."""
    for parameter in module.parameters():
        parameter.normal_(std=0.5)
    return module


def accuracy(logits: Tensor, classes: Tensor) -> float:
    return (logits.argmax(1) == classes).float().mean().item()


def batches(size: int = 64) -> DataLoader:
    """Return the sequences in batches."""
    return DataLoader(TensorDataset(*sequences()), batch_size=size)


def train(model: nn.Module, epochs: int) -> None:
    """A training loop in plain torch, for libraries that have none."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for x, y in batches():
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()


def check_plainly(build: Callable[[], nn.Module], folder: Path) -> None:
    """Train, save and load in plain torch."""
    model, (x, y) = build(), sequences()
    train(model, epochs=20)
    expected = model.eval()(x)
    assert accuracy(expected, y) > LEARNT
    torch.save(model.state_dict(), folder / "model.pt")
    loaded = build()
    loaded.load_state_dict(torch.load(folder / "model.pt"))
    torch.testing.assert_close(loaded.eval()(x), expected)


def work_plainly(build: Callable[[], nn.Module]) -> Callable[[], object]:
    """Return an epoch of training."""
    return partial(train, build(), epochs=1)
