"""Predicting the FitzHugh-Nagumo system: its figures, its baseline, and what it takes and answers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from linnet.data.errors import DataError
from linnet.models.sequence import SequenceModelConfig
from linnet.runs.config import RunConfig, override
from linnet.tasks.evaluation import evaluate
from linnet.tasks.fitzhugh import FitzHughData, Predict
from linnet.train.recipes import recipe


def small() -> Predict:
    return Predict(FitzHughData(span=50, sequences=8, eval_examples=6), SequenceModelConfig("lem", {}, 4))


class Repeats(nn.Module):
    """Answers with the input, and something added."""

    def __init__(self, added: float = 0.0):
        super().__init__()
        self.added = nn.Parameter(torch.tensor(added))

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        return x + self.added, None


def test_the_root_of_the_loss_and_the_baseline():
    task = small()
    figures = evaluate(task, Repeats(), "test")
    assert figures["rmse"] == pytest.approx(math.sqrt(figures["loss"]))
    (batch,) = task.batches("test")
    errors = batch.targets - batch.inputs[..., 0]
    assert figures["loss"] == pytest.approx(errors.square().mean().item())
    # The first step is not in the baseline.
    assert figures["baseline"] == pytest.approx(errors[1:].square().mean().item(), rel=1e-5)
    (baseline,) = task.baselines("test", figures)
    assert baseline.name == "persistence"
    assert baseline.figures["rmse"] == pytest.approx(math.sqrt(figures["baseline"]))


def test_a_prediction_is_the_answer_to_the_last_value():
    assert small().predict(Repeats(0.25), ["0.5 -1", [2.0]]) == pytest.approx([-0.75, 2.25])
    for wrong in ("", "v = 1"):
        with pytest.raises(DataError, match="values of v, like"):
            small().predict(Repeats(), [wrong])


def test_the_recipe_is_the_authors():
    config = override(RunConfig(task="memory.fitzhugh"), recipe("lem-fitzhugh").settings)
    model, data, loop = config.model, config.data, config.loop
    assert (model.unit, model.hidden_size, model.unit_options) == ("lem", 16, {"dt": 1.0})
    assert (data.span, data.sequences, data.batch) == (1000, 128, 32)
    assert (loop.epochs, loop.seed) == (400, 1234)
    optimiser = config.optimiser
    assert (optimiser.optimiser, optimiser.lr, optimiser.clip) == ("adam", 0.00904, 0.0)
