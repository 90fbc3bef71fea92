"""Ends the training of a library on Lightning when its CPU time is used up."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import time
from typing import Any

from pytorch_lightning import Callback

STEPS = 1_000_000
"""More than any CPU time allows."""

QUIET = {"enable_progress_bar": False, "logger": False, "enable_model_summary": False, "accelerator": "cpu"}


class CPUTime(Callback):
    """Counts steps and CPU seconds of this process, from the moment it is created."""

    def __init__(self, seconds: float):
        self.seconds, self.start, self.steps = seconds, time.process_time(), 0

    def used(self) -> float:
        return time.process_time() - self.start

    def on_train_batch_end(self, trainer: Any, *others: Any) -> None:
        self.steps += 1
        if self.used() >= self.seconds:
            trainer.should_stop = True
