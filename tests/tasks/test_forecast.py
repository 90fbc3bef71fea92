"""The task of forecasts as its user sees it: no leak, quantiles in order, predict, eval, bad input."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import liven, make_task
from torch import Tensor

import linnet
from linnet.cli import main
from linnet.models.answers import ANSWERS
from linnet.models.forecaster import DECODERS
from linnet.runs.config import RunConfig, override
from linnet.runs.records import read_details, read_result
from linnet.tasks.forecast import Forecast
from linnet.train.loop import train

SMALL = {"hidden_size": 6, "num_layers": 1, "batch": 8, "origins": 4, "device": "cpu", "threads": 1}
SHORT = {"steps": 3, "evaluate_every": 3}
HORIZON, SEASON, CONTEXT = 3, 7, 16
SIZES = {"horizon": HORIZON, "season": SEASON, "context": CONTEXT, "folds": 1}
START = np.datetime64("2024-01-01")


def values_of(name: str, count: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng([seed, *name.encode()])
    steps = np.arange(count)
    return 50 + 10 * np.sin(2 * np.pi * steps / 7) + np.cumsum(generator.normal(size=count))


def rows(
    names: Sequence[str] = ("north", "south"),
    count: int = 80,
    future: int = 0,
    change: Callable[[str, int, float], object] = lambda name, step, value: value,
) -> list[str]:
    """The lines of a file with two covariates; `change` gives another value, None leaves a row out."""
    made = ["date,shop,sales,holiday,rain"]
    for name in names:
        for step in range(count + future):
            value = change(name, step, values_of(name, count + future)[step]) if step < count else ""
            if value is not None:
                made.append(f"{START + step},{name},{value},{int(step % 5 == 0)},{step % 3}")
    return made


def write(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


COLUMNS = {"time": "date", "target": "sales", "group": "shop"}
COVARIATES = {**COLUMNS, "known": "holiday", "observed": "rain"}


def config(path: Path, **more: Any) -> RunConfig:
    settings = {"set": "own", "path": str(path), **SMALL, **SIZES, **SHORT, **more}
    return override(RunConfig(task="forecast"), settings)


def task_of(folder: Path, lines: Sequence[str], **more: Any) -> Forecast:
    return make_task(config(write(folder / "series.csv", lines), **{**COLUMNS, **more}))


def lively(task: Forecast) -> Any:
    """A model whose forecasts depend on everything that it reads."""
    torch.manual_seed(0)
    return liven(task.build())


def forecasts(task: Forecast, model: Any, split: str) -> np.ndarray:
    return task.quantiles_at(model, task.arrays, task.split_origins(split), batch=4)


def learned(task: Forecast, model: Any, batch: Any) -> tuple[Tensor, ...]:
    """The loss of a batch and its gradients."""
    loss = task.step(model, batch, None).objective
    return loss, *torch.autograd.grad(loss, [*model.parameters()])


def test_training_starts_at_least_squares(tmp_path: Path):
    """A wave and a line follow from the values before them: no training is needed, and naive is far off."""
    steps = np.arange(200)
    wave = 100 + 0.5 * steps + 20 * np.sin(2 * np.pi * steps / 9.5)
    lines = ["date,sales", *(f"{START + step},{value}" for step, value in zip(steps, wave, strict=True))]
    task = task_of(tmp_path, lines, group="", transform="none", batch=32, origins=32)
    made = forecasts(task, task.build(), "test")[0, :, 0, 2]
    assert made == pytest.approx(wave[-HORIZON:], abs=2)
    assert abs(made - wave[-HORIZON - SEASON :][:HORIZON]).min() > 4


def test_the_first_sale_after_zeros_does_not_drown_all_others(tmp_path: Path):
    """The scale of a series of zeros is tiny: divided by it, the first value would be all of the loss."""
    lines = [
        "date,sales",
        *(f"{START + step},{5 * (step > 40) + step % 2 * (step > 45)}" for step in range(80)),
    ]
    task = task_of(tmp_path, lines, group="", origins=16)
    model = lively(task)
    losses = [
        task.step(model, batch, None).objective.item() for batch in islice(task.batches("train", 1), 20)
    ]
    assert 0 < max(losses) < 100


# ---------------------------------------------------------------------------------------- no leak


@pytest.mark.parametrize("transform", ["none", "log"])
def test_no_forecast_reads_what_follows(transform: str, tmp_path: Path):
    """Rolling origins: each forecast of several folds is the same if everything after it is another."""
    more = {**COVARIATES, "folds": 3, "transform": transform}
    task = task_of(tmp_path, rows(), **more)
    model, origins = lively(task), task.split_origins("test")
    assert len(origins) == 6
    made = forecasts(task, model, "test")
    for place, (row, last) in enumerate(origins):
        name, after = ("north", "south")[row], last

        def changed(which: str, step: int, value: float, name: str = name, after: int = after) -> float:
            return 7 * value + step if which == name and step > after else value

        other = task_of(tmp_path, rows(change=changed), **more)
        assert other.split_origins("test") == origins
        found = forecasts(other, model, "test")[place]
        np.testing.assert_array_equal(found, made[place])


def test_forecasts_read_the_value_at_their_origin(tmp_path: Path):
    task = task_of(tmp_path, rows())
    model, ((_, last), _) = lively(task), task.split_origins("test")
    other = task_of(tmp_path, rows(change=lambda name, step, value: value + 5 * (step == last)))
    assert not np.allclose(forecasts(task, model, "test"), forecasts(other, model, "test"))


def test_training_reads_no_value_of_validation_and_test(tmp_path: Path):
    more = {**COVARIATES, "folds": 2, "dropout": 0.0}
    task = task_of(tmp_path, rows(), **more)
    ends = [task.train_end(each) for each in task.table.series]
    assert ends == [80 - 4 * HORIZON] * 2

    def changed(name: str, step: int, value: float) -> float:
        return 3 * value + step if step >= ends[0] else value

    other = task_of(tmp_path, rows(change=changed), **more)
    model = lively(task)
    batches = zip(task.batches("train", epoch=1), other.batches("train", epoch=1), strict=True)
    for one, two in islice(batches, 5):
        for ours, theirs in zip(learned(task, model, one), learned(other, model, two), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
        assert int((one.starts + one.lengths).max()) <= ends[0]
        # What is asked ends with the training part.
        truth, asked = task.asked(one)
        steps = one.starts + one.origins
        assert int((steps[..., None] + 1 + torch.arange(HORIZON))[asked[..., 0] > 0].max()) < ends[0]
        assert truth.shape == asked.shape


def test_the_scales_of_covariates_are_those_of_the_training_part(tmp_path: Path):
    lines = rows()
    task = task_of(tmp_path, lines, **COVARIATES)
    held_out = {str(START + step) for step in range(task.train_end(task.table.series[0]), 80)}
    changed = [
        ",".join([*line.split(",")[:3], "9", "9"]) if line.split(",")[0] in held_out else line
        for line in lines
    ]
    other = task_of(tmp_path, changed, **COVARIATES)
    for one, two in zip(task.covariate_scales, other.covariate_scales, strict=True):
        np.testing.assert_array_equal(one[0], two[0])
        np.testing.assert_array_equal(one[1], two[1])


def test_splits_follow_each_other(tmp_path: Path):
    """Validation begins after the training part, the test after validation, and the last fold at the end."""
    task = task_of(tmp_path, rows(), folds=2)
    valid, test = (
        [last for row, last in task.split_origins(split) if not row] for split in ("valid", "test")
    )
    assert valid == [80 - 4 * HORIZON - 1, 80 - 3 * HORIZON - 1]
    assert test == [80 - 2 * HORIZON - 1, 80 - HORIZON - 1]
    assert task_of(tmp_path, rows(), test_steps=10, stride=1).split_origins("test")[0] == (0, 69)
    assert len(task_of(tmp_path, rows(), test_steps=10, stride=1).split_origins("test")) == 2 * 8


# ----------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("transform", ["none", "log"])
def test_a_series_times_1000_has_a_forecast_times_1000(transform: str, tmp_path: Path):
    task = task_of(tmp_path, rows(), transform=transform)
    larger = task_of(tmp_path, rows(change=lambda name, step, value: 1000 * value), transform=transform)
    model = lively(task)
    made, found = forecasts(task, model, "test"), forecasts(larger, model, "test")
    np.testing.assert_allclose(found, 1000 * made, rtol=1e-4)


@pytest.mark.parametrize("size", [1e12, 1e-12])
def test_huge_and_tiny_values_are_forecast(size: float, tmp_path: Path):
    for sign in (1, -1):
        task = task_of(tmp_path, rows(change=lambda name, step, value, by=sign * size: by * value))
        made = forecasts(task, task.build(), "test") / size
        assert bool(np.isfinite(made).all())
        # Before training, a forecast is the value one season before.
        assert 20 < abs(made[..., 2]).min() <= abs(made[..., 2]).max() < 90


def test_covariates_known_ahead_are_read(tmp_path: Path):
    """The forecast changes with a holiday to come; with rain to come, nothing does."""
    lines = rows(names=["north"], future=HORIZON)
    model = lively(task_of(tmp_path, lines, **COVARIATES))

    def answer(holiday: str, rain: str) -> np.ndarray:
        changed = [
            f"{line.rsplit(',', 2)[0]},{holiday},{rain}" if line.split(",")[2] == "" else line
            for line in lines
        ]
        task = task_of(tmp_path, changed, **COVARIATES)
        return task.next_quantiles(model, task.table, batch=2)

    base = answer("0", "0")
    np.testing.assert_array_equal(base, answer("0", "2"))
    assert not np.allclose(base, answer("1", "0"))


def test_the_calendar_is_read(tmp_path: Path):
    """The same values on other days of the week have another forecast."""
    lines = rows(names=["north"])
    with_calendar = task_of(tmp_path, lines)
    assert with_calendar.found.sizes.known
    model = lively(with_calendar)
    later = [
        lines[0],
        *(f"{START + 1 + number},{line.split(',', 1)[1]}" for number, line in enumerate(lines[1:])),
    ]
    shifted = task_of(tmp_path, later)
    assert not np.allclose(forecasts(with_calendar, model, "test"), forecasts(shifted, model, "test"))
    without = [task_of(tmp_path, each, calendar=False) for each in (lines, later)]
    assert without[0].found.sizes.known == 0
    model = lively(without[0])
    np.testing.assert_array_equal(*(forecasts(each, model, "test") for each in without))


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_every_decoder_and_answer_trains_and_predicts(decoder: str, answer: str, tmp_path: Path):
    """With several targets, gaps, covariates and the calendar at once."""
    lines = rows(future=HORIZON, change=lambda name, step, value: None if step in (30, 31, 50) else value)
    lines = [
        lines[0] + ",stock",
        *(f"{line},{'' if ',,' in line else number % 9}" for number, line in enumerate(lines[1:])),
    ]
    filled = [line for line in lines if not re.match(r"2024-01-3|2024-02-20", line)] + [
        f"{START + step},{name},,0,,{step}" for name in ("north", "south") for step in (29, 30, 31, 50)
    ]
    settings = {**COVARIATES, "target": "sales,stock", "decoder": decoder, "answer": answer}
    train(config(write(tmp_path / "a.csv", filled), **settings), tmp_path / "run")
    run = linnet.load(tmp_path / "run")
    assert run.task.found.sizes.gaps
    table = run.task.answer_table(run.model, None)
    assert table.parts == 2
    assert [*table.columns][:4] == ["shop", "date", "sales", "sales_0.025"]
    assert table.columns["shop"] == ["north"] * HORIZON + ["south"] * HORIZON
    for target in ("sales", "stock"):
        levels = [table.columns[f"{target}_{level:g}"] for level in (0.025, 0.1, 0.9, 0.975)]
        levels.insert(2, table.columns[target])
        assert bool((np.diff(levels, axis=0) >= 0).all())
        assert bool(np.isfinite(levels).all())


# --------------------------------------------------------------------------------------- a user's run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forecast")
    write(folder / "sales.csv", rows())
    train(config(folder / "sales.csv", **COLUMNS), folder / "run")
    return folder


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("known")
    write(folder / "sales.csv", rows(future=HORIZON))
    train(config(folder / "sales.csv", **COVARIATES), folder / "run")
    return folder


def predict(folder: Path, *more: object) -> int:
    return main(["predict", str(folder / "run"), *map(str, more)])


def test_predict_without_inputs_forecasts_the_data_of_the_run(trained: Path, capsys: Any):
    assert predict(trained) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["shop", "date", "sales", "sales_0.025", "sales_0.1", "sales_0.9", "sales_0.975"]
    assert [line.split()[:2] for line in lines[:4]] == [
        ["north", "2024-03-21"],
        ["north", "2024-03-22"],
        ["north", "2024-03-23"],
        ["south", "2024-03-21"],
    ]
    assert len(lines) == 2 * HORIZON


def test_predict_writes_a_csv_and_a_json_file(trained: Path, tmp_path: Path, capsys: Any):
    assert predict(trained, "--out", tmp_path / "next.csv") == 0
    assert f"6 rows are in {tmp_path / 'next.csv'}" in capsys.readouterr().out
    assert predict(trained, "--out", tmp_path / "next.json") == 0
    found = json.loads((tmp_path / "next.json").read_text())
    with (tmp_path / "next.csv").open() as file:
        lines = [*csv.DictReader(file)]
    assert [{name: str(value) for name, value in row.items()} for row in found] == lines
    assert [row["date"] for row in lines[:3]] == ["2024-03-21", "2024-03-22", "2024-03-23"]
    assert {path.name for path in tmp_path.iterdir()} == {"next.csv", "next.json"}
    capsys.readouterr()
    assert predict(trained, "--json") == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == found


def test_predict_replaces_no_file_and_knows_what_it_can_write(trained: Path, tmp_path: Path, capsys: Any):
    assert predict(trained, "--out", write(tmp_path / "mine.csv", ["my,data"])) == 1
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "mine.csv").read_text() == "my,data\n"
    assert predict(trained, "--out", tmp_path / "next.xlsx") == 1
    assert "ends with '.xlsx'; expected .csv or .json" in capsys.readouterr().err
    assert predict(trained, "--plot", tmp_path / "next.pdf") == 1
    assert "ends with '.pdf'; expected .html, .svg or .png" in capsys.readouterr().err
    assert predict(trained, "5 6 7", "--plot", tmp_path / "next.svg") == 1
    assert "--plot draws the answers to a file" in capsys.readouterr().err


def test_predict_draws_each_series(trained: Path, tmp_path: Path, capsys: Any):
    pytest.importorskip("matplotlib")
    for suffix in ("html", "svg", "png"):
        assert predict(trained, "--plot", tmp_path / f"next.{suffix}") == 0
    assert f"the plot is in {tmp_path / 'next.png'}" in capsys.readouterr().out
    page = (tmp_path / "next.html").read_text()
    assert page.count("<figure>") == 2
    assert "north" in page
    assert "95 % interval" in page
    assert "prefers-color-scheme: dark" in page
    assert "<script" not in page
    assert (tmp_path / "next.png").read_bytes().startswith(b"\x89PNG")


def test_a_long_table_is_written_to_a_file(tmp_path: Path, capsys: Any):
    lines = ["date," + ",".join(f"s{number}" for number in range(30))]
    lines += [f"{START + step}," + ",".join(str((step + n) % 7 + 1) for n in range(30)) for step in range(40)]
    train(config(write(tmp_path / "wide.csv", lines)), tmp_path / "run")
    assert predict(tmp_path) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split()[:3] == ["series", "date", "value"]
    assert said[-1] == f"the next 3 values of 30 series: all 90 rows are in {tmp_path / 'run' / 'next.csv'}"
    assert len((tmp_path / "run" / "next.csv").read_text().splitlines()) == 91
    # The file is of the run: it is written again, and deleted with the run.
    assert predict(tmp_path) == 0
    assert predict(tmp_path, "--plot", tmp_path / "next.svg") == 0
    assert "the plot, with the first 12 of 30 charts, is in" in capsys.readouterr().out


def test_predict_continues_another_file(trained: Path, tmp_path: Path, capsys: Any):
    """Later rows, other series, and a series that is shorter than the context."""
    lines = rows(names=["east"], count=100) + rows(names=["west"], count=2)[1:]
    assert predict(trained, write(tmp_path / "new.csv", lines)) == 0
    said = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[1:]]
    assert [line[:2] for line in said][2:4] == [["east", "2024-04-12"], ["west", "2024-01-03"]]
    assert all(math.isfinite(float(line[2])) for line in said)


def test_a_forecast_of_a_file_is_that_of_its_frame(trained: Path):
    run = linnet.load(trained / "run")
    table = run.task.answer_table(run.model, str(trained / "sales.csv"))
    with (trained / "sales.csv").open() as file:
        read = [*csv.DictReader(file)]
    frame: dict[str, Any] = {name: np.array([row[name] for row in read]) for name in ("date", "shop")}
    frame["sales"] = np.array([float(row["sales"]) for row in read])
    made = run.predict(frame)
    assert [*made] == [*table.columns]
    np.testing.assert_allclose(made["sales"], table.columns["sales"], rtol=1e-6)
    assert [*made["shop"]] == table.columns["shop"]


def test_numbers_that_are_typed_have_steps_instead_of_times(trained: Path, capsys: Any):
    assert predict(trained, "3 5 4 6") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["4", "5", "6"]
    assert predict(trained, "3 -5 4") == 1
    assert "the value at step 1 is -5, and logarithms need" in capsys.readouterr().err


def test_the_targets_of_a_typed_step_have_commas(tmp_path: Path, capsys: Any):
    lines = ["date,load,heat", *(f"{START + step},{step % 7},{-step % 5}" for step in range(60))]
    train(config(write(tmp_path / "two.csv", lines), target="load,heat"), tmp_path / "run")
    assert predict(tmp_path, "1,2 3,4 2,1") == 0
    assert capsys.readouterr().out.startswith("3  load ")
    assert predict(tmp_path, "1 2 3") == 1
    assert (
        "expected steps with 2 values each (load, heat), like '1,1 1,1', or a file" in capsys.readouterr().err
    )


def test_help_begins_with_the_columns_and_the_horizon(capsys: Any):
    with pytest.raises(SystemExit):
        main(["train", "forecast", "--help"])
    assert {"--time", "--target", "--group", "--known", "--horizon"} <= {*capsys.readouterr().out.split()}


def test_future_values_of_known_covariates_are_needed(known: Path, tmp_path: Path, capsys: Any):
    assert predict(known) == 0
    capsys.readouterr()
    path = write(tmp_path / "new.csv", rows(names=["east"], future=HORIZON - 1))
    assert predict(known, path) == 1
    error = capsys.readouterr().err
    needed = (
        "a forecast needs the known covariates holiday from 2024-03-21 to 2024-03-23; they end at 2024-03-22"
    )
    assert f"{path}, line 2, series 'east': {needed}. Add rows with an empty sales" in error
    run = task_of(tmp_path, rows(future=HORIZON - 1), **COVARIATES)
    assert f"before you predict: {needed}. Add rows with an empty sales" in run.notes()


def test_a_run_says_what_it_found_in_the_time_column(tmp_path: Path):
    """The sizes are those of the options, or those that follow from the days of the file."""
    given = "2 series with 160 times at a distance of D; horizon 3, season 7, context 16"
    assert given in task_of(tmp_path, rows()).notes()
    found = "2 series with 160 times at a distance of D; horizon 10, season 7, context 40"
    assert found in task_of(tmp_path, rows(), horizon=0, season=0, context=0).notes()


WRONG_FILES = [
    (["date,shop,price", "2024-01-01,north,5", "2024-01-02,north,6"], "has no column 'sales'"),
    (["date,shop,sales", "2024-01-01 00:00,north,5", "2024-01-01 01:00,north,5"], "not on the grid"),
    (
        ["date,shop,sales", *(f"{START + 7 * step},north,5" for step in range(9))],
        "has values at 16% of its times",
    ),
    (rows(change=lambda name, step, value: 0), "line 2, series 'north': the value at 2024-01-01 is 0, and"),
    (
        rows(change=lambda name, step, value: "many" if step == 5 else value),
        "line 7: the column 'sales' is 'many'",
    ),
    (["date,shop,sales"], "has no rows"),
]


@pytest.mark.parametrize(("lines", "message"), WRONG_FILES)
def test_a_file_that_does_not_fit_the_run(
    lines: list[str], message: str, trained: Path, tmp_path: Path, capsys: Any
):
    assert predict(trained, write(tmp_path / "new.csv", lines)) == 1
    assert message in capsys.readouterr().err


def test_a_file_that_is_not_there(trained: Path, capsys: Any):
    assert predict(trained, "nothing.csv") == 1
    assert "there is no file nothing.csv" in capsys.readouterr().err


def test_eval_shows_forecasts_without_a_network(trained: Path, capsys: Any):
    assert main(["eval", str(trained / "run"), "--splits", "test"]) == 0
    said = capsys.readouterr().out
    for name in ("this run", "naive", "seasonal naive", "Naive2"):
        assert re.search(rf"^{name}  ", said, re.MULTILINE)
    assert "OWA" in said
    assert "coverage" in said
    assert "Careful" not in said


def test_eval_takes_more_folds_and_says_what_was_trained_on(trained: Path, capsys: Any):
    assert main(["eval", str(trained / "run"), "--folds", "4", "--splits", "test"]) == 0
    said = capsys.readouterr().out
    assert "Careful: 4 of 8 forecasts are of values that the run was trained on" in said
    assert "north after 2024-03-17" in said


def test_eval_of_another_file(trained: Path, tmp_path: Path, capsys: Any):
    path = write(tmp_path / "other.csv", rows(names=["east"], count=50))
    assert main(["eval", str(trained / "run"), "--path", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("all: ")
    assert "seasonal naive" in said


def test_units_are_compared_and_searched(trained: Path, tmp_path: Path, capsys: Any):
    """`--folds` of a comparison is that of the task, not a cross-validation."""
    small = [f"--{name.replace('_', '-')}={value}" for name, value in {**SMALL, **SIZES, "steps": 2}.items()]
    small = [each for each in small if "hidden" not in each]
    data = [f"--path={trained / 'sales.csv'}", "--target=sales", "--group=shop", "--folds=2", "--budget=3000"]
    command = ["compare", "forecast", *small, *data, "--run-dir", str(tmp_path), "--units", "gru", "lrn"]
    assert main(command) == 0
    assert linnet.load(tmp_path / "gru").config.data.folds == 2
    page = (tmp_path / "report.html").read_text()
    assert "seasonal naive" in page
    assert "Of gru: " in page or "Of lrn: " in page


def test_a_run_keeps_charts_of_its_test(trained: Path):
    pytest.importorskip("matplotlib")
    from linnet.analysis.report import page
    from linnet.analysis.runs import read_run

    run = read_run(trained / "run")
    assert [chart.title.split(",")[0] for chart in run.charts] == ["best", "worst"]
    (values, forecast, naive), (wide, narrow) = run.charts[0].lines, run.charts[0].bands
    assert (values.label, forecast.label, naive.label) == ("values", "forecast", "seasonal naive")
    assert (wide.label, narrow.label) == ("95 % interval", "80 % interval")
    assert values.x[-HORIZON:] == forecast.x[1:] == ("2024-03-18", "2024-03-19", "2024-03-20")
    assert forecast.y[0] == values.y[-HORIZON - 1]
    content = page([run], "sales")
    assert "seasonal naive" in content
    assert content.count("MASE") > 3


def test_a_single_series_has_one_chart_and_no_ranking(tmp_path: Path):
    train(config(write(tmp_path / "one.csv", rows(names=["north"])), **COLUMNS), tmp_path / "run")
    from linnet.runs.charts import read_charts

    (chart,) = read_charts(tmp_path / "run")
    assert chart.title.startswith("north: MASE ")
    assert read_details(tmp_path / "run") == []


# ----------------------------------------------------------------------------------------- bad input


def line(step: int, value: object) -> str:
    return f"{START + step},{value}"


GOOD = ["date,sales", *(line(step, 5 + step % 7) for step in range(60))]
REFUSED: list[tuple[list[str], dict[str, Any], str]] = [
    ([*GOOD[:9], "2024-13-45,5", *GOOD[10:]], {}, r"line 10: the time is '2024-13-45'"),
    ([*GOOD, GOOD[9]], {}, r"line 62: the time 2024-01-09 was already at .*line 10"),
    ([*GOOD[:9], line(8, "many"), *GOOD[10:]], {}, r"line 10: the column 'sales' is 'many'"),
    ([*GOOD[:9], line(8, "inf"), *GOOD[10:]], {}, r"line 10: the column 'sales' is infinite"),
    ([*GOOD[:9], line(8, "1e200"), *GOOD[10:]], {}, r"has a value of 1e\+200 at 2024-01-09; expected"),
    (
        [*GOOD[:9], line(8, 0), *GOOD[10:]],
        {"transform": "log"},
        r"series 'sales': the value at 2024-01-09 is 0",
    ),
    (GOOD, {"horizon": 40}, r"'sales', has 60 values; a horizon of 40 needs at least 84"),
    (GOOD, {"folds": 20}, r"needs at least 124.*Give a smaller --horizon or --folds or longer series"),
    (GOOD, {"context": 7}, r"--context 7 does not reach back over a season of 7; give at least 8"),
    (GOOD[:5], {}, r"a horizon of 3 needs at least 10"),
    (GOOD[:2], {}, r"no series has two times"),
    (GOOD, {"target": "sale"}, r"has no column 'sale'; did you mean 'sales'"),
    (
        [*rows(), *(f"{START + step},east,,0,0" for step in range(9))],
        COLUMNS,
        r"line 162, series 'east' has no value",
    ),
]


@pytest.mark.parametrize(("lines", "more", "message"), REFUSED)
def test_bad_input_is_refused_before_training(
    lines: list[str], more: dict[str, Any], message: str, tmp_path: Path, capsys: Any
):
    path, run = write(tmp_path / "bad.csv", lines), tmp_path / "run"
    with pytest.raises(ValueError, match=message):
        train(config(path, **more), run)
    assert not (run / "metrics.jsonl").exists()


@pytest.mark.parametrize("levels", [(0.9, 0.5, 0.1), (0.1, 0.9), (0.1, 0.5, 1.5)])
def test_quantiles_are_levels_in_order(levels: tuple[float, ...], tmp_path: Path):
    with pytest.raises(ValueError, match=r"levels between 0 and 1 in ascending order, 0\.5 among them"):
        config(tmp_path / "any.csv", quantiles=levels)


TREATED: dict[str, tuple[list[str], dict[str, Any]]] = {
    "unsorted": ([GOOD[0], *GOOD[:0:-1]], {}),
    "gaps": (GOOD[:20] + GOOD[28:], {}),
    "missing": ([*GOOD[:9], line(8, "NaN"), *GOOD[10:]], {}),
    "constant": (["date,sales", *(line(step, 5) for step in range(60))], {}),
    "zeros": (["date,sales", *(line(step, 0) for step in range(60))], {}),
    "negative": (["date,sales", *(line(step, -5 - step % 7) for step in range(60))], {}),
    "ten values": (GOOD[:11], {"horizon": 0, "season": 0, "context": 0}),
    "a long context": (GOOD, {"context": 500}),
    "a short series": (rows() + rows(names=["east"], count=8)[1:], COLUMNS),
    "no value in the training part": (
        rows() + [f"{START + step},east,{'' if 0 < step < 78 else 3 + step % 2},0,0" for step in range(80)],
        COLUMNS,
    ),
}


@pytest.mark.parametrize("case", TREATED)
def test_unusual_series_are_trained_and_forecast(case: str, tmp_path: Path, capsys: Any):
    lines, more = TREATED[case]
    train(config(write(tmp_path / "series.csv", lines), **more), tmp_path / "run")
    result = read_result(tmp_path / "run")
    assert result is not None
    assert math.isfinite(result["test"]["loss"])
    run = linnet.load(tmp_path / "run")
    table = run.task.answer_table(run.model, None)
    assert all(np.isfinite(column).all() for name, column in table.columns.items() if "sales" in name)


def test_many_short_series(tmp_path: Path, capsys: Any):
    lines = ["id," + ",".join(f"v{step}" for step in range(20))]
    lines += [
        f"s{number}," + ",".join(str(number % 9 + step % 4) for step in range(20)) for number in range(300)
    ]
    train(config(write(tmp_path / "many.csv", lines), horizon=2, season=4, context=8), tmp_path / "run")
    assert predict(tmp_path) == 0
    assert "the next 2 values of 300 series: all 600 rows are in" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------ Python


def test_frames_of_pandas_and_polars(known: Path):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    run = linnet.load(known / "run")
    expected = run.task.answer_table(run.model, None).columns
    frame = pandas.read_csv(known / "sales.csv", parse_dates=["date"])
    made = run.predict(frame)
    assert [*made.columns] == [*expected]
    assert str(made["date"].dtype).startswith("datetime64")
    assert [str(time.date()) for time in made["date"]] == expected["date"]
    np.testing.assert_allclose(made["sales_0.9"], expected["sales_0.9"], rtol=1e-6)
    other = run.predict(polars.read_csv(known / "sales.csv", try_parse_dates=True))
    assert other["date"].dtype == polars.Date
    np.testing.assert_allclose(other["sales_0.9"].to_numpy(), expected["sales_0.9"], rtol=1e-6)


def test_frames_with_a_time_zone_and_a_named_index(tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    times = pandas.date_range("2024-01-01", periods=72, freq="h", tz="UTC", name="date")
    values = 50 + np.arange(72) % 24
    lines = [
        "date,sales",
        *(f"{time.isoformat()},{value}" for time, value in zip(times, values, strict=True)),
    ]
    path = write(tmp_path / "hours.csv", lines)
    train(config(path, target="sales", time="date", season=24, context=30), tmp_path / "run")
    run = linnet.load(tmp_path / "run")
    expected = run.task.answer_table(run.model, None).columns
    assert expected["date"] == ["2024-01-04", "2024-01-04T01:00:00", "2024-01-04T02:00:00"]
    for given in (
        pandas.DataFrame({"sales": values}, index=times),
        pandas.Series(values, times, name="sales"),
    ):
        made = run.predict(given)
        assert [*made.columns] == [*expected]
        np.testing.assert_allclose(made["sales"], expected["sales"], rtol=1e-6)


def test_arrays(trained: Path):
    run = linnet.load(trained / "run")
    assert run.task.found.targets == ("sales",)
    made = run.predict(values_of("east", 40))
    assert [*made] == ["time", "sales", "sales_0.025", "sales_0.1", "sales_0.9", "sales_0.975"]
    assert [*made["time"]] == [40, 41, 42]
    several = run.predict([values_of("east", 40), values_of("west", 9)])
    assert [*several["series"]] == ["0"] * 3 + ["1"] * 3
    np.testing.assert_allclose(several["sales"][:3], made["sales"], rtol=1e-5)


def test_predict_reads_the_rows_that_a_file_has_got_since(tmp_path: Path, capsys: Any):
    path = write(tmp_path / "sales.csv", rows(names=["north"]))
    train(config(path, **COLUMNS), tmp_path / "run")
    write(path, rows(names=["north"], count=90))
    assert predict(tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["north", str(START + 90)]
