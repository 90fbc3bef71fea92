"""accelerate: a training loop of one's own, with a prepared model and a state that is saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from tools.compat.contestants import RNN
from tools.compat.examples import LEARNT, Classifier, accuracy, batches, sequences


def prepared(rnn: RNN) -> tuple[Any, ...]:
    accelerator, model = Accelerator(cpu=True), Classifier(rnn)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    return accelerator, *accelerator.prepare(model, optimiser, batches())


def epoch(accelerator: Accelerator, model: nn.Module, optimiser: Any, data: Any) -> None:
    for x, y in data:
        optimiser.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()


def check(rnn: RNN, folder: Path) -> None:
    x, y = sequences()
    accelerator, model, *others = prepared(rnn)
    for _ in range(20):
        epoch(accelerator, model, *others)
    expected = model(x)
    assert accuracy(expected, y) > LEARNT
    accelerator.save_state(str(folder))
    accelerator.save_model(model, str(folder / "model"))
    epoch(accelerator, model, *others)
    assert not torch.equal(model(x), expected)
    accelerator.load_state(str(folder))
    assert torch.equal(model(x), expected)


def work(rnn: RNN) -> Callable[[], object]:
    parts = prepared(rnn)
    return lambda: epoch(*parts)
