"""tools.compat.forecasts: what is asked, how answers are measured, and that a stopped command goes on."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.tasks.forecast_measures import naive_baselines
from tools.compat import __main__ as compat
from tools.compat.forecasts import __main__ as command
from tools.compat.forecasts import inside, measure, sets
from tools.compat.forecasts.contestants import CONTESTANTS
from tools.compat.forecasts.inside import Answer, Asked
from tools.compat.forecasts.sets import ForecastSet, question
from tools.compat.forecasts.table import table

SERIES = {"a": np.array([1.0, 2, 4, 3, 5, 6]), "b": np.array([5.0, 6, np.nan, 8, 9, 12, 11])}
TOY = ForecastSet("toy", 2, 1, 3, 10, lambda: dict(SERIES))


def last_values(asked: Asked) -> Answer:
    values = np.stack([np.full(asked.horizon, history[-1]) for history in asked.histories])
    return Answer(values, asked.seconds, 0.5, 7, 100)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """One set, `toy`; contestants answer the last value, and the list has who was asked."""
    asked_for: list[str] = []

    def answered(contestant: Any, asked: Asked) -> Answer:
        asked_for.append(contestant.name)
        if contestant.name == "darts-rnn":
            raise subprocess.CalledProcessError(1, "python")
        return last_values(asked)

    monkeypatch.setattr(measure, "answered", answered)
    monkeypatch.setattr(command, "SETS", {"toy": TOY})
    return asked_for


def test_many_series_are_learned_up_to_their_last_horizon():
    asked = question(TOY)
    assert [values.tolist() for values in asked.known] == [[1, 2, 4, 3], [5, 6, 7, 8, 9]]
    assert [window.truth.tolist() for window in asked.windows] == [[5, 6], [12, 11]]


def test_a_single_series_is_learned_up_to_its_first_origin():
    asked = question(replace(TOY, origins=2, load=lambda: {"a": SERIES["a"]}))
    assert [values.tolist() for values in asked.known] == [[1, 2]]
    assert [window.history.tolist() for window in asked.windows] == [[1, 2], [1, 2, 4, 3]]
    assert [window.truth.tolist() for window in asked.windows] == [[4, 3], [5, 6]]


def test_answers_have_the_figures_of_the_same_baseline(toy: list[str]):
    asked = question(TOY)
    row = measure.measured(TOY, CONTESTANTS["darts-block"], asked, 1)
    naive = naive_baselines(asked.windows)[0].figures
    assert float(row["mase"]) == pytest.approx(naive["mase"], rel=1e-4)
    assert float(row["smape"]) == pytest.approx(naive["smape"], rel=1e-4)
    assert (row["train_seconds"], row["steps"], row["context"]) == ("10", "7", "3")
    assert row["settings"] == "BlockRNNModel model=LSTM"


def test_a_command_goes_on_where_it_was_stopped(toy: list[str], tmp_path: Path):
    arguments = ["--results", str(tmp_path / "rivals.csv"), "--sets", "toy", "--contestants"]
    assert command.main([*arguments, "darts-block"]) == 0
    assert command.main([*arguments, "darts-block", "neuralforecast-gru"]) == 0
    assert toy == ["darts-block", "neuralforecast-gru"]
    found = measure.read(tmp_path / "rivals.csv")
    assert [row["contestant"] for row in found] == ["darts-block", "neuralforecast-gru"]


def test_a_contestant_that_fails_does_not_stop_the_others(
    toy: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    results = tmp_path / "rivals.csv"
    arguments = ["--results", str(results), "--contestants", "darts-rnn", "darts-block", "--sets", "toy"]
    assert command.main(arguments) == 1
    assert [row["contestant"] for row in measure.read(results)] == ["darts-block"]
    assert "toy darts-rnn failed, see" in capsys.readouterr().err


def test_make_compat_leads_to_forecasts(capsys: pytest.CaptureFixture[str]):
    """COMPAT="forecasts ..." of make is the first argument of tools.compat."""
    assert compat.main(["forecasts", "--table", "--sets", "sunspots"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("sunspots\n")
    assert "linnet-gru" in printed


def test_questions_and_answers_pass_through_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    known = [np.arange(number + 1.0) for number in range(12)]
    asked = Asked(known, known[::-1], "LSTM", {"hidden_dim": 8}, 3, 2, 1.5, 1)
    asked.write(tmp_path)
    module = SimpleNamespace(answer=last_values)
    monkeypatch.setitem(sys.modules, "tools.compat.forecasts.with_toy", module)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "argv", ["inside", "toy", str(tmp_path)])
    inside.main()
    found = Answer.read(tmp_path)
    assert found.values.tolist() == last_values(asked).values.tolist()
    assert (found.train_seconds, found.steps) == (1.5, 7)
    again = Asked.read(tmp_path)
    assert [values.tolist() for values in again.known] == [values.tolist() for values in known]
    assert (again.settings, again.seed) == ({"hidden_dim": 8}, 1)


def test_a_process_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(measure, "FOLDER", tmp_path)
    asked = question(replace(TOY, season=2))
    row = measure.measured(replace(TOY, season=2), CONTESTANTS["seasonal-naive"], asked, 1)
    expected = naive_baselines(asked.windows)[1]
    assert expected.name == "seasonal naive"
    assert float(row["mase"]) == pytest.approx(expected.figures["mase"], rel=1e-4)
    assert (row["version"], row["settings"]) == (linnet.__version__, "seasonal naive")


def test_the_table_has_means_over_seeds_the_best_first(toy: list[str]):
    row = measure.measured(TOY, CONTESTANTS["darts-block"], question(TOY), 1)
    rows = [
        {**row, "mase": "3.0", "contestant": "worse"},
        {**row, "mase": "1.0"},
        {**row, "mase": "2.0", "seed": "2"},
        {**row, "set": "another"},
    ]
    lines = table(rows, "toy").splitlines()
    assert lines[2].startswith("| darts-block | 2 | ")
    assert "| 1.500 |" in lines[2]
    assert lines[3].startswith("| worse | 1 | ")
    assert len(lines) == 4


def test_m4_is_asked_for_by_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("LINNET_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"set LINNET_DATA to a folder that has m4/Hourly-train\.csv"):
        sets.m4("Hourly")


def test_the_record_is_as_the_program_writes_it():
    rows = measure.read(measure.RESULTS)
    assert {row["contestant"] for row in rows} <= set(CONTESTANTS)
    assert {row["set"] for row in rows} <= set(sets.SETS)
