"""Several labels, weights of classes and numbers: losses, figures, answers, runs and errors."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import make_task

import linnet
from linnet import cli
from linnet.analysis.report import page
from linnet.analysis.runs import read_run
from linnet.data.errors import DataError
from linnet.data.padded import Example, collate
from linnet.runs.config import RunConfig, override
from linnet.runs.records import read_result
from linnet.tasks.baselines import frequent_labels, label_figures, mean_value, value_figures
from linnet.tasks.classify import Classify
from linnet.tasks.results import StepResult
from linnet.tasks.targets import LabelMetrics, OneClass, SeveralLabels, Value, ValueMetrics, chosen_weights

SMALL = {"hidden_size": 4, "embedding_size": 4, "device": "cpu", "threads": 1}
LABELS = "text,label\n" + 'a song,music\na goal,sport\n"a song of a goal","music;sport"\na cloud,\n' * 15
VALUES = "text,price\n" + "cheap bird,1.5\ndear bird,9\na bird,5\n" * 20


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    (tmp_path / "labels.csv").write_text(LABELS)
    return tmp_path / "labels.csv"


@pytest.fixture
def values(tmp_path: Path) -> Path:
    (tmp_path / "values.csv").write_text(VALUES)
    return tmp_path / "values.csv"


def task_of(path: Path, task: str = "classify", **more: Any) -> Any:
    return make_task(override(RunConfig(task=task), {**SMALL, "set": "own", "path": str(path), **more}))


def run(path: Path, out: Path, *more: str) -> dict[str, Any]:
    sizes = ["--hidden-size", "4", "--embedding-size", "4", "--lr", "0.02", "--device", "cpu"]
    files = ["--path", str(path), "--run-dir", str(out)]
    assert cli.main(["train", "classify", *files, *sizes, "--epochs", "15", "--batch", "8", *more]) == 0
    found = read_result(out)
    assert found is not None
    return found


# ------------------------------------------------------------------------------------ several labels


def test_several_labels_all_the_way(labels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    result = run(labels, tmp_path / "run", "--separator", ";")
    assert result["test"]["micro_f1"] == result["test"]["f1"] == result["test"]["exact"] == 1
    assert [each["name"] for each in result["baselines"]] == [
        "frequent labels",
        "TF-IDF + logistic regression",
    ]
    capsys.readouterr()
    assert cli.main(["predict", str(tmp_path / "run"), "a song of a goal", "a cloud"]) == 0
    both, none = capsys.readouterr().out.splitlines()
    assert both.startswith("music; sport  (")
    assert none.startswith("no label  (")
    labels.unlink()
    answer = linnet.load(tmp_path / "run").predict(["a song"])[0]
    assert answer["labels"] == ["music"]
    assert set(answer["probabilities"]) == {"music", "sport"}
    json.dumps(answer)
    assert "micro F1" in page([read_run(tmp_path / "run")], "title")


def test_eval_of_several_labels(labels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run(labels, tmp_path / "run", "--separator", ";", "--steps", "2")
    capsys.readouterr()
    assert cli.main(["eval", str(tmp_path / "run"), "--path", str(labels), "--splits", "all"]) == 0
    assert "micro_f1" in capsys.readouterr().out
    other = labels.with_name("other.csv")
    other.write_text("text,label\nrain,music;weather\n")
    assert cli.main(["eval", str(tmp_path / "run"), "--path", str(other), "--splits", "all"]) == 1
    assert "has the class 'weather', which no training text has" in capsys.readouterr().err


def test_the_figures_of_labels_worked_out_by_hand():
    """Two labels, three texts: right 2, wrong 1, missing 1."""
    metrics = LabelMetrics(2)
    logits = torch.tensor([[1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]])
    wanted = torch.tensor([[1, 0], [1, 0], [0, 1]])
    metrics.update(StepResult(torch.tensor(0.0), torch.tensor(0.0), 3, 3, outputs=(logits, wanted.T, None)))
    expected = {"micro_f1": 4 / 6, "f1": (1 + 0) / 2, "exact": 1 / 3}
    assert metrics.compute() == pytest.approx({"loss": 0, **expected})
    assert label_figures((logits > 0).long().numpy(), wanted.numpy()) == pytest.approx(expected)
    always = frequent_labels(np.array([[1, 0], [1, 0], [0, 1]]), wanted.numpy()).figures
    assert always["micro_f1"] == pytest.approx(2 * 2 / (3 + 3))


def test_the_loss_of_labels_is_the_mean_binary_cross_entropy():
    target = SeveralLabels(",", ("a", "b"), [1.0, 3.0])
    logits, labels = torch.randn(4, 2), torch.tensor([[1, 0], [0, 1], [1, 1], [0, 0]]).T
    p = logits.sigmoid()
    wanted = labels.T * torch.tensor([1.0, 3.0]) * p.log() + (1 - labels.T) * (1 - p).log()
    total, count = target.losses(logits, labels, 0.0)
    assert count == 4
    torch.testing.assert_close(total, -wanted.sum() / 2)
    labels[:, 3] = -100
    rest, count = target.losses(logits, labels, 0.0)
    assert count == 3
    torch.testing.assert_close(rest, -wanted[:3].sum() / 2)


def test_labels_of_json_are_lists(tmp_path: Path):
    path = tmp_path / "labels.jsonl"
    rows = [{"text": "a song", "label": ["music", "art"]}, {"text": "a cloud", "label": []}] * 20
    path.write_text("\n".join(map(json.dumps, rows)))
    task = task_of(path, separator=",")
    assert task.classes == ("art", "music")
    assert {tuple(each.label) for each in task.examples("train")} == {(1, 1), (0, 0)}
    path.write_text('{"text": "a", "label": [3]}')
    with pytest.raises(DataError, match=r"'label' is \[3\]; expected a string or a list of strings"):
        task_of(path, separator=",")


# ------------------------------------------------------------------------------------- class weights


def test_weights_of_classes(tmp_path: Path):
    path = tmp_path / "rare.csv"
    path.write_text("text,label\n" + "song,ham\n" * 30 + "offer,spam\n" * 10)
    files = {"valid_path": str(path), "test_path": str(path)}
    balanced = task_of(path, class_weights=("balanced",), **files)
    assert balanced.target.weights == pytest.approx([40 / 2 / 30, 40 / 2 / 10])
    given = task_of(path, class_weights=("spam=5",), **files)
    assert given.target.weights == [1.0, 5.0]
    again = Classify(given.data, given.model, 1, given.assets())
    assert again.target.weights == [1.0, 5.0]
    logits, wanted = torch.randn(3, 2), torch.tensor([0, 1, 1])
    plain, _ = OneClass(("ham", "spam")).losses(logits, wanted, 0.0)
    weighted, _ = given.target.losses(logits, wanted, 0.0)
    more = -4 * logits.log_softmax(-1)[1:, 1].sum()
    torch.testing.assert_close(weighted, plain + more)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("balance",), "there is no class ''"),
        (("spm=2",), "there is no class 'spm'; did you mean 'spam'"),
        (("spam=x",), "spam=x: expected balanced or NAME=NUMBER"),
        (("spam=-1",), "expected balanced or NAME=NUMBER"),
    ],
)
def test_weights_that_are_wrong_are_answered(given: tuple[str, ...], message: str):
    with pytest.raises(DataError, match=message):
        chosen_weights(given, ("ham", "spam"), [1.0, 1.0])


# ------------------------------------------------------------------------------------------- numbers


def test_numbers_all_the_way(values: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    result = run(values, tmp_path / "run", "--value", "price")
    first, second = result["baselines"]
    assert (first["name"], second["name"]) == ("mean", "TF-IDF + ridge regression")
    assert result["test"]["rmse"] < first["figures"]["rmse"] / 2
    assert result["test"]["r2"] > 0.7
    capsys.readouterr()
    values.unlink()
    assert cli.main(["predict", str(tmp_path / "run"), "dear bird", "cheap bird"]) == 0
    dear, cheap = map(float, capsys.readouterr().out.splitlines())
    assert dear > 7 > 3 > cheap
    assert set(linnet.load(tmp_path / "run").predict(["a bird"])[0]) == {"value"}
    assert "RMSE" in page([read_run(tmp_path / "run")], "title")


def test_numbers_that_all_differ_are_split_too(values: Path):
    """The only text of a class is never held out, but a number is no class."""
    values.write_text("text,price\n" + "".join(f"a bird,{number}\n" for number in range(100)))
    task = task_of(values, value="price")
    assert [len(part) for part in task.texts] == [81, 9, 10]


def test_the_figures_of_numbers_worked_out_by_hand():
    answers, right = np.array([1.0, 2.0, 6.0]), np.array([1.0, 4.0, 4.0])
    expected = {"rmse": math.sqrt(8 / 3), "mae": 4 / 3, "r2": 1 - 8 / 6}
    assert value_figures(answers, right) == pytest.approx(expected)
    metrics = ValueMetrics(deviation=2.0)
    outputs = (torch.tensor([[-0.5], [0.0], [2.0]]), torch.tensor([-0.5, 1.0, 1.0]), None)
    metrics.update(StepResult(torch.tensor(0.0), torch.tensor(6.0), 3, 3, outputs=outputs))
    assert metrics.compute() == pytest.approx({"loss": 2.0, **expected})
    assert mean_value([1, 3], [2, 4]).figures == pytest.approx({"rmse": math.sqrt(2), "mae": 1, "r2": -1})


def test_a_process_without_an_example_adds_nothing_to_the_loss_of_numbers():
    batch = collate([Example([1, 2], 0.5)])
    idle = batch.columns(0, 2)
    total, count = Value(0.0, 1.0).losses(torch.ones(1, 1), idle.labels, 0.0)
    assert (float(total), count) == (0, 0)
    total, count = Value(0.0, 1.0).losses(torch.ones(1, 1), batch.columns(1, 2).labels, 0.0)
    assert (float(total), count) == (0.25, 1)


def test_pairs_of_texts_may_have_numbers(tmp_path: Path):
    path = tmp_path / "similar.tsv"
    path.write_text("premise\thypothesis\tscore\n" + "a bird\tbirds\t4.5\na bird\ta fish\t1\n" * 20)
    task = task_of(path, "nli", value="score", heads=1)
    model = task.build().eval()
    answers = task.predict(model, ["a bird ||| birds"])
    assert set(answers[0]) == {"value"}


# -------------------------------------------------------------------------------------------- errors


def test_what_does_not_fit_is_answered(values: Path, labels: Path):
    with pytest.raises(ValueError, match="--separator is for labels and --value for numbers"):
        task_of(values, value="price", separator=",")
    with pytest.raises(ValueError, match="--value is for files of your own"):
        override(RunConfig(task="classify"), {"set": "kjv", "value": "price"})
    with pytest.raises(DataError, match="--class-weights is for classes"):
        task_of(values, value="price", class_weights=("balanced",))
    with pytest.raises(DataError, match=r"has no column 'prise'; did you mean 'price'.*--value"):
        task_of(values, value="prise")
    with pytest.raises(DataError, match=r"values.csv, line \d+ has 'cheap bird' where --value expects a num"):
        task_of(values, value="text", text="price")
    with pytest.raises(DataError, match=r"empty 'label'; expected a class"):
        task_of(labels)
    values.write_text("text,price\n" + "a bird,1\n" * 30)
    with pytest.raises(DataError, match="all numbers of the training set are 1"):
        task_of(values, value="price")


@pytest.mark.parametrize("content", [b"[]", b'{"mean": 1.0}', b'{"mean": NaN, "deviation": 1.0}', b"3"])
def test_a_damaged_target_is_refused(values: Path, content: bytes):
    task = task_of(values, value="price")
    with pytest.raises(DataError, match=r"classes\.json"):
        Classify(task.data, task.model, 1, {**task.assets(), "classes.json": content})
