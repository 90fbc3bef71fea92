"""Lightning: a module with a training step, checkpoints, and training that resumes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor, nn

from tools.compat.contestants import RNN
from tools.compat.examples import LEARNT, Classifier, accuracy, batches, sequences


class Learner(lightning.LightningModule):
    def __init__(self, rnn: RNN):
        super().__init__()
        self.model = Classifier(rnn)

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        x, y = batch
        return nn.functional.cross_entropy(self.model(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def trainer(epochs: int, **options: Any) -> lightning.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(max_epochs=epochs, accelerator="cpu", **quiet, **options)


def check(rnn: RNN, folder: Path) -> None:
    x, y = sequences()
    learner = Learner(rnn)
    first = trainer(20, default_root_dir=folder)
    first.fit(learner, batches())
    assert accuracy(learner.model(x), y) > LEARNT
    saved = folder / "last.ckpt"
    first.save_checkpoint(saved)
    loaded = Learner.load_from_checkpoint(saved, rnn=rnn)
    assert torch.equal(loaded.eval().model(x), learner.eval().model(x))
    resumed = trainer(21, default_root_dir=folder)
    resumed.fit(loaded, batches(), ckpt_path=saved)
    assert resumed.current_epoch == 21


def work(rnn: RNN) -> Callable[[], object]:
    learner, data = Learner(rnn), batches()
    return lambda: trainer(1, enable_checkpointing=False).fit(learner, data)
