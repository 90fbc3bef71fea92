"""Predicting the FitzHugh-Nagumo system, a model of a neuron."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from linnet.base.settings import Checked, option
from linnet.data.errors import DataError
from linnet.data.fitzhugh import FitzHughNagumo
from linnet.tasks.base import Comparison
from linnet.tasks.baselines import Baseline
from linnet.tasks.memory import ADAM, Memory, MemoryMetrics, numbers
from linnet.tasks.results import LOSS, Figure, Metrics

RMSE = Figure("rmse", "RMSE", "The root of the mean squared error of all predictions; lower is better.")
PERSISTENCE = Figure("baseline", "persistence", "The loss of predicting that v stays as it is.")
UNITS = ("lem", "cornn", "unicornn", "lstm", "gru", "sru", "lrn")


@dataclass(frozen=True)
class FitzHughData(Checked):
    """Solutions of the FitzHugh-Nagumo system."""

    span: int = option(1000, "T: the steps of a sequence, over 400 units of time", least=2)
    sequences: int = option(128, "sequences of the training set", least=1)
    batch: int = option(32, "sequences in a batch, over all processes", least=1)
    data_seed: int | None = option(None, "seed of the sequences and of their order (--seed)", least=0)
    eval_batch: int = option(128, "sequences in a batch of an evaluation", least=1)
    eval_examples: int = option(128, "sequences of an evaluation, the same each time", least=1)


class RegressionMetrics(MemoryMetrics):
    """The figures of a memory task, and the root of the mean squared error."""

    def compute(self) -> dict[str, float]:
        figures = super().compute()
        return {"rmse": math.sqrt(figures["loss"]), **figures}


class Predict(Memory):
    """See linnet.data.fitzhugh.

    `predict` takes the values of v so far, at distances of 400 / T, and returns the next one.
    """

    name, about = "memory.fitzhugh", "the next value of the FitzHugh-Nagumo system, a model of a neuron"
    Data = FitzHughData
    defaults = {**ADAM, "unit": "lem", "hidden_size": 16, "epochs": 50}
    comparison = Comparison(UNITS, budget=1_300)
    remedies = "a longer training (--epochs, --minutes), or a larger network (--hidden-size)"
    judged_by = (RMSE, LOSS, PERSISTENCE)

    @classmethod
    def source_of(cls, data: FitzHughData) -> FitzHughNagumo:
        return FitzHughNagumo(data.span, data.sequences)

    def metrics(self) -> Metrics:
        return RegressionMetrics()

    def baselines(self, split: str, figures: Mapping[str, float]) -> list[Baseline]:
        loss = figures["baseline"]
        return [Baseline("persistence", PERSISTENCE.about, {"rmse": math.sqrt(loss), "loss": loss})]

    def encode(self, raw: Any) -> Tensor:
        what = 'values of v, like "-0.5 -0.41 -0.3"'
        values = numbers(raw, float, what)
        if not values:
            raise DataError(f"{self.name} takes {what}; got {raw!r}")
        return torch.tensor(values)[:, None, None]

    def answer(self, outputs: Tensor) -> float:
        return float(outputs[-1, 0])
