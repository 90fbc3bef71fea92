"""State tracking: accuracies by length, the baseline, what is typed, and a unit that learns it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet import cli
from linnet.models.sequence import SequenceModelConfig
from linnet.runs.config import RunConfig, override
from linnet.runs.load import load
from linnet.tasks import TASKS
from linnet.tasks.evaluation import collect, evaluate
from linnet.tasks.tracking import LengthMetrics, Parity, StateTracking, TrackingData
from linnet.train.loop import train

NAMES = ("memory.parity", "memory.pairs", "memory.cycle", "memory.modular")
SMALL = {"longest": 8, "test_longest": 20, "eval_batch": 10, "eval_examples": 100}


def make(name: str = "memory.parity", **given: Any) -> StateTracking:
    return TASKS[name](TrackingData(**{**SMALL, **given}), SequenceModelConfig("ran", hidden_size=4))


class Counting(nn.Module):
    """Knows the parity of sequences of up to `most` bits, and says "odd" to longer ones."""

    def __init__(self, most: int):
        super().__init__()
        self.one, self.most = nn.Parameter(torch.ones(())), most

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        said = x.sum(0) % 2 if len(x) <= self.most else torch.ones_like(x[0])
        return 50.0 * F.one_hot(said, 2)[None], None


def test_validation_is_in_distribution_and_the_test_is_longer():
    task = make()
    knows_short, knows_all = Counting(8), Counting(20)
    assert evaluate(task, knows_all, "test")["accuracy"] == 1
    assert evaluate(task, knows_short, "valid")["accuracy"] == 1
    assert evaluate(task, knows_short, "test")["accuracy"] < 0.75


def test_accuracies_are_shown_by_length():
    task = make(eval_batch=20, eval_examples=260)
    metrics = collect(task, Counting(11), "test")
    (section,) = task.details("test", metrics)
    assert section.title == "Accuracy by length"
    assert "from 1 to 8" in section.about
    assert [row[0] for row in section.rows] == [f"{n} to {n + 1}" for n in range(8, 20, 2)] + ["20"]
    assert {row[1] for row in section.rows} == {"40", "20"}
    exact = [float(row[2]) for row in section.rows]
    assert exact[:2] == [1, 1]
    assert all(each < 1 for each in exact[2:])


def test_metrics_of_processes_add_up():
    whole = collect(make(), Counting(11), "test")
    one, other = LengthMetrics(), LengthMetrics()
    for number, batch in enumerate(make().batches("test")):
        (one if number % 2 else other).update(make().step(Counting(11), batch, None))
    other.merge(one)
    assert isinstance(whole, LengthMetrics)
    assert list(other.rows()) == list(whole.rows())
    assert other.compute() == pytest.approx(whole.compute())


@pytest.mark.parametrize("name", NAMES)
def test_the_baseline_is_the_most_frequent_answer(name: str):
    task = make(name)
    said = torch.cat([batch.targets[0] for batch in task.batches("test")]).tolist()
    (guess,) = task.baselines("test", {"baseline": 0.7})
    assert guess.figures["loss"] == 0.7
    assert guess.figures["accuracy"] == pytest.approx(max(map(said.count, said)) / len(said))


@pytest.mark.parametrize(
    ("name", "typed", "wrong"),
    [
        ("memory.parity", ["1101", "1 1 0 1", [1, 1, 0, 1]], ["", "12", "1,0"]),
        ("memory.pairs", ["1101", "0"], ["a"]),
        ("memory.cycle", ["+-0", "+ - 0"], ["+1", "*"]),
        ("memory.modular", ["1+2*3", "4", "1 - 4"], ["1+", "12", "1+5", "(1+2)"]),
    ],
)
def test_sequences_are_typed(name: str, typed: list[Any], wrong: list[Any]):
    task = make(name)
    assert set(task.predict(task.build(), typed)) <= set(task.source_class.answers)
    assert [task.encode(each).shape[1] for each in typed] == [1] * len(typed)
    for each in wrong:
        with pytest.raises(ValueError, match=f"{name} takes a sequence like "):
            task.predict(task.build(), [each])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_typed_is_what_is_trained(name: str):
    task = make(name)
    batch = next(iter(task.batches("valid")))
    text = "".join(task.source_class.symbols[each] for each in batch.inputs[:, 0])
    assert task.encode(text).equal(batch.inputs[:, :1])
    assert task.encode(task.example).shape[0] == len(task.example)
    outputs = F.one_hot(batch.targets[:, 0], task.source.output_size).double()
    assert task.answer(outputs) == task.source_class.answers[int(batch.targets[0, 0])]


def test_lengths_that_cannot_be_are_answered(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["train", "memory.parity", "--shortest", "50"]) == 1
    assert "the longest length of training must be from 50 to" in capsys.readouterr().err


def test_an_lstm_learns_even_pairs_and_goes_on_beyond_the_lengths_of_its_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    quick = {"unit": "lstm", "hidden_size": 16, "steps": 400, "evaluate_every": 200, "lr": 0.01, "batch": 64}
    result = train(override(RunConfig(task="memory.pairs"), {**SMALL, **quick}), tmp_path / "run")
    assert result["valid"]["accuracy"] == 1
    assert result["test"]["accuracy"] > 0.95
    assert load(tmp_path / "run").predict(["0110", "0111"]) == ["even", "odd"]
    assert cli.main(["eval", str(tmp_path / "run"), "--splits", "test"]) == 0
    assert "Accuracy by length (test)" in capsys.readouterr().out


def test_the_title_names_the_lengths():
    assert Parity.title(TrackingData()) == "memory.parity, lengths 1 to 40"
