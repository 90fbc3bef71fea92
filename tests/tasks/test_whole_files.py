"""The split "all": every row of a file of the user's, however few, and of every split of a set."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linnet import cli
from linnet.cli.eval import default_splits
from linnet.runs.config import RunConfig, override
from linnet.tasks import TASKS
from linnet.tasks.evaluation import collect
from linnet.train.loop import train

SMALL = {"unit": "rnn", "num_layers": 1, "hidden_size": 4, "embedding_size": 4, "device": "cpu", "threads": 1}


def csv(count: int, columns: str, row: str) -> str:
    return f"{columns},label\n" + "".join(f"{row},{'ab'[number % 2]}\n" for number in range(count))


def squad(count: int) -> str:
    asked = {"question": "Who sang?", "id": "1", "answers": [{"text": "Anna", "answer_start": 0}]}
    paragraphs = [{"context": "Anna sang.", "qas": [asked]}] * count
    return json.dumps({"data": [{"title": "one", "paragraphs": paragraphs}]})


FILES: dict[str, tuple[str, Callable[[int], str]]] = {
    "classify": ("rows.csv", lambda count: csv(count, "text", "a bird")),
    "nli": ("rows.csv", lambda count: csv(count, "premise,hypothesis", "a bird,a song")),
    "tag": ("rows.txt", lambda count: "Anna B-PER\nsang O\n\n" * count),
    "read": ("rows.json", squad),
}


def written(folder: Path, task: str, count: int) -> str:
    name, content = FILES[task]
    (folder / f"{count}-{name}").write_text(content(count))
    return str(folder / f"{count}-{name}")


def settings(task: str, path: str) -> RunConfig:
    known = {name: value for name, value in SMALL.items() if task != "nli" or name != "unit"}
    return override(RunConfig(task=task), {**known, "unit": "rnn", "set": "own", "path": path, "steps": 1})


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("count", [1, 23])
def test_all_rows_of_a_file_are_evaluated(name: str, count: int, tmp_path: Path):
    config = settings(name, written(tmp_path, name, 30))
    task = TASKS[name](config.data, config.model, 1)
    given = task.implied({"path": written(tmp_path, name, count)})
    other = type(task)(override(config, given).data, config.model, 1, task.assets())
    metrics = collect(other, other.build(), "all")
    assert metrics.count == count
    assert other.details("all", metrics)
    assert collect(task, task.build(), "all").count == 30


@pytest.mark.parametrize("name", FILES)
def test_another_file_has_no_splits_of_the_first(name: str, tmp_path: Path):
    path = written(tmp_path, name, 30)
    config = override(settings(name, path), {"valid_path": path, "test_path": path})
    given = TASKS[name].implied({"path": written(tmp_path, name, 20)})
    assert (given["valid_path"], given["test_path"]) == (None, None)
    assert override(config, given).data.test_path is None
    assert TASKS[name].implied({"path": path, "test_path": path})["test_path"] == path


def test_every_split_of_a_set(tmp_path: Path):
    config = override(RunConfig(task="tag"), {**SMALL, "set": "kjv"})
    task: Any = TASKS["tag"](config.data, config.model, 1)
    assert len(task.every_row) == sum(map(len, task.sentences)) == 31_102


def test_eval_evaluates_the_whole_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    train(settings("classify", written(tmp_path, "classify", 30)), tmp_path / "run")
    path = written(tmp_path, "classify", 23)
    assert cli.main(["eval", str(tmp_path / "run"), "--path", path]) == 0
    whole = capsys.readouterr().out
    assert "all: loss" in whole
    assert "valid: loss" not in whole
    assert cli.main(["eval", str(tmp_path / "run"), "--path", path, "--splits", "all"]) == 0
    assert capsys.readouterr().out == whole
    assert cli.main(["eval", str(tmp_path / "run"), "--path", path, "--test-path", path]) == 0
    assert "valid: loss" in capsys.readouterr().out


def test_which_splits_are_evaluated():
    known = ("train", "valid", "test", "all")
    assert default_splits({}, known) == ["valid", "test"]
    assert default_splits({"path": "a"}, known) == ["all"]
    assert default_splits({"source": "a", "target": "b"}, known) == ["all"]
    assert default_splits({"path": "a", "test_path": "b"}, known) == ["valid", "test"]
    assert default_splits({"path": "a"}, known[:3]) == ["valid", "test"]
    with pytest.raises(SystemExit):
        cli.main(["eval", "nowhere", "--splits", "most"])
