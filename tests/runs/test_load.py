"""linnet.load: a trained run from its directory alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.models.sequence import SequenceModelConfig
from linnet.runs.config import override
from linnet.runs.errors import Mismatch
from linnet.runs.load import keep_assets
from linnet.runs.records import read_config, read_metrics, read_result
from linnet.tasks import TASKS
from linnet.train.loop import train


@pytest.fixture
def finished(small_language_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a finished run, with its text in the current folder, as its settings say."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(small_language_run.parent / "birds.txt", tmp_path)
    return Path(shutil.copytree(small_language_run, tmp_path / "run"))


def test_a_run_is_read_and_used(finished: Path):
    run, result = linnet.load(finished), read_result(finished) or {}
    assert (run.config.model.unit, run.step) == ("ran", result["best_step"])
    Path("birds.txt").unlink()
    (answer,) = linnet.load(finished).predict("the wi", tokens=4)
    assert answer.startswith("the wi")


def test_a_run_has_the_figures_that_it_had(finished: Path):
    assert linnet.load(finished).evaluate("test") == pytest.approx(
        (read_result(finished) or {})["test"], rel=1e-6
    )


def test_a_finished_run_continues(finished: Path):
    config = override(read_config(finished), {"steps": 12})
    train(config, finished)
    train(config, "whole")
    rows = [[row for row in read_metrics(Path(name)) if row["step"] > 6] for name in (finished, "whole")]
    assert {row["step"] for row in rows[0]} == {8, 10, 12}
    for one, other in zip(*rows, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)


def test_a_run_without_its_corpus_predicts_and_says_what_is_missing(finished: Path):
    Path("birds.txt").unlink()
    run = linnet.load(finished)
    assert len(run.vocabulary) == 15
    with pytest.raises(FileNotFoundError, match=r"birds\.txt"):
        run.evaluate("test")


def test_assets_of_other_data_are_refused(tmp_path: Path):
    keep_assets(tmp_path, {"labels.txt": b"a b"})
    keep_assets(tmp_path, {"labels.txt": b"a b"})
    with pytest.raises(Mismatch, match=r"labels\.txt differs from what the data gives now"):
        keep_assets(tmp_path, {"labels.txt": b"a c"})


# ---------------------------------------------------------------------------------------- predictions

SMALL = SequenceModelConfig(unit="ran", hidden_size=4)


def predicted(name: str, raw: list[Any], **data: Any) -> list[Any]:
    task = TASKS[name](TASKS[name].Data(**data), SMALL)
    return task.predict(task.build(), raw)


@pytest.mark.parametrize("name", ["memory.copy", "memory.variable", "memory.denoise", "memory.selective"])
def test_symbols_are_typed_and_recalled(name: str):
    how = {"span": 6, "symbols": 3, "recalled": 2}
    for answer in predicted(name, ["3 1", [1, 2]], **how):
        assert len(answer) == 2
        assert set(answer) <= {1, 2, 3}
    for wrong in ("1", "1 4", "1 two"):
        with pytest.raises(ValueError, match="2 symbols, each from 1 to 3"):
            predicted(name, [wrong], **how)


def test_marked_numbers_are_typed_and_added():
    (answer,) = predicted("memory.adding", ["0.5* 0.1 0.9 0.25*"])
    assert isinstance(answer, float)
    with pytest.raises(ValueError, match="numbers of which two are marked"):
        predicted("memory.adding", ["0.5* 0.1"])


def test_pixels_are_typed_and_named():
    pytest.importorskip("sklearn")
    for name in ("memory.psmnist", "memory.rows"):
        (answer,) = predicted(name, [" ".join(["3"] * 64)], images="digits")
        assert answer in range(10)
    with pytest.raises(ValueError, match="64 pixels from 0 to 16; got 3 numbers"):
        predicted("memory.smnist", ["1 2 3"], images="digits")


def test_symbols_that_are_predicted_are_laid_out_as_in_training():
    """The sequence that is made of typed symbols is the one that training would show."""
    for name in ("memory.copy", "memory.denoise", "memory.selective"):
        task = TASKS[name](TASKS[name].Data(span=6, symbols=3, recalled=2), SMALL)
        batch = next(iter(task.batches("valid"))).columns(0, 10)
        shown = [int(each) for each in batch.inputs[:, 0] if 1 <= each <= 3]
        made = task.encode(shown)
        assert made.shape == batch.inputs.shape
        assert sorted(made.flatten().tolist()) == sorted(batch.inputs.flatten().tolist())
        if name == "memory.copy":
            assert made.equal(batch.inputs)
