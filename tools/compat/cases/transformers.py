"""Hugging Face's Trainer: trains any module that returns its loss, with checkpoints and resuming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments

from tools.compat.contestants import RNN
from tools.compat.examples import LEARNT, Classifier, accuracy, sequences


class Model(Classifier):
    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = super().forward(x)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


def trainer(rnn: RNN, folder: Path, epochs: int, **options: Any) -> Any:
    quiet: Any = {"report_to": [], "disable_tqdm": True, "logging_strategy": "no"}
    sizes: Any = {"per_device_train_batch_size": 64, "num_train_epochs": epochs, "learning_rate": 0.01}
    arguments = TrainingArguments(str(folder), use_cpu=True, **sizes, **quiet, **options)
    examples = [{"x": x, "labels": y} for x, y in zip(*sequences(), strict=True)]
    return Trainer(Model(rnn), arguments, train_dataset=examples)


def check(rnn: RNN, folder: Path) -> None:
    x, y = sequences()
    first = trainer(rnn, folder, 20, save_strategy="epoch", save_total_limit=1)
    first.train()
    expected = first.model.eval()(x)["logits"]
    assert accuracy(expected, y) > LEARNT
    again = trainer(rnn, folder, 21, save_strategy="no")
    again._load_from_checkpoint(str(next(folder.glob("checkpoint-*"))))
    assert torch.equal(again.model.eval()(x)["logits"], expected)
    again.train(resume_from_checkpoint=True)
    assert again.state.epoch == 21


def work(rnn: RNN) -> Callable[[], object]:
    trains = trainer(rnn, Path("unused"), 1, save_strategy="no")
    return trains.train
