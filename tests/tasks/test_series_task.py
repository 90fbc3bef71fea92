"""Labelled series: classes and numbers, of series and of steps; runs, figures, predictions and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest
import torch
from helpers import make_task

import linnet
from linnet import cli
from linnet.data.errors import DataError
from linnet.data.labelled_series import LabelledSeries
from linnet.runs.config import RunConfig, override
from linnet.runs.errors import Mismatch
from linnet.runs.records import read_result
from linnet.tasks.mistakes import most_confident_mistakes
from linnet.tasks.series import MOST_STEPS, Found, SeriesTask, channel_moments
from linnet.tasks.series_baselines import class_baselines, means_before, summaries, value_baselines
from linnet.tasks.series_charts import channel_chart
from linnet.train.loop import train

SMALL: dict[str, Any] = {
    **{"hidden_size": 8, "num_layers": 1, "batch": 8, "lr": 0.02, "device": "cpu", "threads": 1},
    **{"epochs": 4},
}
SERIES = 60


def gestures(steps: bool = False) -> str:
    """A gesture goes up or down; with `steps`, it changes its direction and its label in the middle."""
    draw = np.random.default_rng(0)
    lines = ["id,t,x,y,size,kind"]
    for number in range(SERIES):
        direction, x, t, length = 1 - 2 * (number % 2), 0.0, 0.0, 3 + number % 5
        for step in range(length):
            sign = -direction if steps and step >= length // 2 else direction
            x, t = x + sign + 0.1 * draw.standard_normal(), t + draw.exponential()
            kind = "up" if sign > 0 else "down"
            lines.append(
                f"g{number},{t:.3f},{100 + x:.3f},{draw.standard_normal():.3f},{direction * length},{kind}"
            )
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("series")
    (made / "gestures.csv").write_text(gestures())
    (made / "turns.csv").write_text(gestures(steps=True))
    return made


def config_of(folder: Path, **more: Any) -> RunConfig:
    given = {"path": str(folder / "gestures.csv"), "channels": "x,y", "label": "kind", "group": "id"}
    return override(RunConfig(task="series"), {**SMALL, "set": "own", **given, **more})


def task_of(folder: Path, **more: Any) -> SeriesTask:
    task = make_task(config_of(folder, **more))
    assert isinstance(task, SeriesTask)
    return task


def run_of(folder: Path, name: str, **more: Any) -> Any:
    if not (folder / name).exists():
        train(config_of(folder, **more), folder / name)
    return linnet.load(folder / name)


def classes(folder: Path) -> Any:
    return run_of(folder, "classes")


def numbers(folder: Path) -> Any:
    return run_of(folder, "numbers", label=None, value="size")


def steps(folder: Path) -> Any:
    return run_of(folder, "steps", path=str(folder / "turns.csv"), group="id")


# ----------------------------------------------------------------------------------- runs and figures


def test_classes_are_learned_with_a_baseline_beside(folder: Path):
    run = classes(folder)
    result = read_result(run.folder)
    assert result is not None
    assert result["test"]["accuracy"] == 1
    assert [each["name"] for each in result["baselines"]] == ["majority", "summaries + logistic regression"]
    assert all({"accuracy", "f1"} == {*each["figures"]} for each in result["baselines"])
    figures, (confusion, mistakes) = run.examine("test")
    assert figures["f1"] == 1
    assert confusion.head == ("class", "down", "up", "all")
    assert "series" in confusion.about
    assert "text" not in confusion.about
    assert mistakes.head == ("probability", "answer", "class", "series", "steps")


def test_numbers_are_learned(folder: Path):
    run = numbers(folder)
    result = read_result(run.folder)
    assert result is not None
    assert result["test"]["r2"] > 0.8
    assert result["test"]["rmse"] < result["baselines"][0]["figures"]["rmse"]
    assert [each["name"] for each in result["baselines"]] == ["mean", "summaries + ridge regression"]
    (answer,) = run.predict(["100,0 101,0 102,0 103,0"])
    assert answer["value"] == pytest.approx(4, abs=2)


def test_labels_that_change_within_series_give_answers_at_every_step(folder: Path):
    task = task_of(folder, path=str(folder / "turns.csv"))
    assert task.found.sizes.steps
    assert "labels change within series: an answer at every step (--answers steps)" in task.notes()
    run = steps(folder)
    result = read_result(run.folder)
    assert result is not None
    assert result["test"]["accuracy"] > 0.9
    _, (confusion, mistakes) = run.examine("test")
    assert mistakes.head[-2:] == ("series", "step")
    assert sum(int(row[-1]) for row in confusion.rows) == sum(map(len, run.task.rows("test")))
    (answer,) = run.predict(["100,0 101,0 102,0"])
    assert [each["label"] for each in answer["steps"]][-1] == "up"
    assert run.task.show(answer).split()[-1] == "up"
    with pytest.raises(DataError, match=r"the label of series 'g0' changes from 'up' to 'down'"):
        task_of(folder, path=str(folder / "turns.csv"), answers="sequence")


def test_steps_may_have_no_label_and_numbers(folder: Path, tmp_path: Path):
    lines = gestures(steps=True).splitlines()
    lines[2] = lines[2].rpartition(",")[0] + ","
    (tmp_path / "part.csv").write_text("\n".join(lines))
    task = task_of(folder, path=str(tmp_path / "part.csv"))
    every = sum(len(each) for part in task.loaded.splits for each in part)
    batches = [batch for split in ("train", "valid", "test") for batch in task.batches(split)]
    assert sum(task.step(task.build(), batch, None).count for batch in batches) == every - 1
    # Numbers at every step: the channel itself.
    values = task_of(folder, channels="y", label=None, value="x")
    assert values.found.sizes.steps
    model = values.build().eval()
    found = values.metrics()
    for batch in values.batches("test"):
        found.update(values.step(model, batch, None))
    assert np.isfinite([*found.compute().values()]).all()
    assert values.baselines("test", {})[1].figures["r2"] <= 1


def test_the_splits_of_an_archive_and_what_its_header_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(1)
    for name, count in (("X_TRAIN.ts", 40), ("X_TEST.ts", 10)):
        lines = [
            ",".join(f"{value:.3f}" for value in number % 2 * 5 + draw.standard_normal(4))
            + f":{number % 2 * 10 + 1}"
            for number in range(count)
        ]
        Path(name).write_text("@univariate true\n@targetLabel true\n@data\n" + "\n".join(lines) + "\n")
    sizes = ["--hidden-size", "4", "--epochs", "3", "--lr", "0.02", "--device", "cpu", "--unit", "lrn"]
    files = ["--path", "X_TRAIN.ts", "--test-path", "X_TEST.ts"]
    assert cli.main(["train", "series", *files, *sizes]) == 0
    assert "36 / 4 / 10 series for training, validation and test" in capsys.readouterr().out
    result = read_result(Path("runs/X_TRAIN-lrn"))
    assert result is not None
    assert result["test"]["r2"] > 0.5
    run = linnet.load("runs/X_TRAIN-lrn")
    assert cli.main(["predict", "runs/X_TRAIN-lrn", "X_TEST.ts", "5 6 5 5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert lines[1].startswith("2  ")
    assert [*run.task.answer_table(run.model, "X_TEST.ts").columns] == ["series", "value"]
    assert run.evaluate("all", path="X_TEST.ts")["r2"] == pytest.approx(run.evaluate("test")["r2"])


def test_an_epoch_of_a_small_set_has_several_passes(folder: Path):
    task = task_of(folder, batch=20)
    batches = list(task.batches("train", 1))
    assert len(batches) == task.batches_per_epoch(1) == 51
    assert [batch.index for batch in batches] == list(range(51))
    again = next(iter(task.batches("train", 1, first=20)))
    assert torch.equal(again.rows, batches[20].rows)
    rows = torch.cat([batch.rows for batch in batches[:3]])
    assert sorted(rows.tolist()) == list(range(len(task.rows("train"))))


# ---------------------------------------------------------------------------------- gaps, times, scales


def test_missing_values_are_an_input_only_if_there_are_any(folder: Path, tmp_path: Path):
    assert not task_of(folder).found.sizes.gaps
    lines = gestures().splitlines()
    for number in range(1, 30):
        fields = lines[number].split(",")
        lines[number] = ",".join([*fields[:3], "", *fields[4:]])
    (tmp_path / "gaps.csv").write_text("\n".join(lines))
    task = task_of(folder, path=str(tmp_path / "gaps.csv"))
    assert task.found.sizes.gaps
    assert task.build().rnn.input_size == 6
    assert any("values are missing" in note for note in task.notes())


def test_units_get_times_or_their_logarithm_and_the_notes_say_which(folder: Path):
    timed = task_of(folder, time="t", unit="cfc")
    assert timed.notes()[-1].startswith("cfc is given the time between steps (typical: 0.")
    other = task_of(folder, time="t", unit="sru")
    assert other.notes()[-1].endswith("is a further input, its logarithm, as sru does not read times")
    assert other.build().rnn.input_size == timed.build().rnn.input_size + 1
    batch = next(iter(other.batches("valid")))
    assert batch.inputs.steps.shape[-1] == 3
    assert batch.inputs.steps[0, :, -1].isnan().all()
    run = run_of(folder, "timed", time="t", unit="cfc")
    frame = pandas.read_csv(folder / "gestures.csv")
    array = frame[frame.id == "g0"][["x", "y", "t"]].to_numpy()
    (one,), whole = run.predict(array), run.predict(frame)
    assert whole["kind_up"][0] == pytest.approx(one["probabilities"]["up"], abs=1e-4)


def test_the_scales_are_those_of_the_training_set(folder: Path):
    task = task_of(folder)
    model = task.build()
    values = np.concatenate([each.values for each in task.rows("train")])
    np.testing.assert_allclose(model.mean.numpy(), values.mean(0), rtol=1e-6)
    np.testing.assert_allclose(model.deviation.numpy(), values.std(0), rtol=1e-5)
    mean, deviation = channel_moments([np.array([[1.0, np.nan, 3.0], [3.0, np.nan, 3.0]])])
    assert mean.tolist() == [2, 0, 3]
    assert deviation.tolist() == [1, 1, 1]


# ---------------------------------------------------------------------------------------- predictions


@pytest.mark.parametrize("kind", ["pandas", "polars", "dict"])
def test_a_frame_gives_a_frame_of_the_same_kind(folder: Path, kind: str):
    run = classes(folder)
    frame: Any = pandas.read_csv(folder / "gestures.csv")
    given = {"polars": polars.from_pandas(frame), "dict": {n: frame[n].to_numpy() for n in frame}}.get(
        kind, frame
    )
    found = run.predict(given)
    assert type(found) is type(given)
    names = list(found) if kind == "dict" else list(found.columns)
    assert names == ["id", "kind", "kind_down", "kind_up"]
    labels = list(found["kind"])
    assert len(labels) == SERIES
    assert labels == ["up", "down"] * (SERIES // 2)
    each = steps(folder).predict(given)
    names = list(each) if kind == "dict" else list(each.columns)
    assert names[:3] == ["id", "step", "kind"]
    assert len(each["step"]) == len(frame)


def test_arrays_files_and_texts_give_the_same_answers(folder: Path):
    run = classes(folder)
    frame = pandas.read_csv(folder / "gestures.csv")
    arrays = [group[["x", "y"]].to_numpy() for _, group in frame.groupby("id", sort=False)]
    answers = run.predict(arrays)
    (file,) = run.predict([str(folder / "gestures.csv")])
    assert run.predict(folder / "gestures.csv")[0] == file
    assert [each["name"] for each in file["series"]][:2] == ["g0", "g1"]
    for one, other in zip(answers, file["series"], strict=True):
        assert one["label"] == other["label"]
    text = " ".join(f"{x},{y}" for x, y in arrays[0])
    (typed,) = run.predict([text])
    assert typed["probabilities"] == pytest.approx(answers[0]["probabilities"], abs=1e-4)
    assert run.predict(arrays[0])[0]["label"] == typed["label"]
    assert run.predict(np.stack([arrays[0], arrays[0]]))[1]["label"] == typed["label"]


def test_a_file_gives_a_table(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = classes(folder)
    out = tmp_path / "answers.csv"
    command = ["predict", str(run.folder), str(folder / "gestures.csv"), "--out", str(out)]
    assert cli.main([*command, "--plot", str(tmp_path / "answers.html")]) == 0
    frame = pandas.read_csv(out)
    assert list(frame.columns) == ["id", "kind", "kind_down", "kind_up"]
    assert list(frame.kind) == ["up", "down"] * (SERIES // 2)
    assert f"the answers to {SERIES} series: {SERIES} rows" in capsys.readouterr().out
    assert "g0: up" in (tmp_path / "answers.html").read_text()
    table = run.task.answer_table(run.model, None)
    assert table.columns["id"] == [each.name for each in run.task.rows("test")]
    steps_table = steps(folder).task.answer_table(steps(folder).model, str(folder / "turns.csv"))
    assert [*steps_table.columns][:3] == ["id", "step", "kind"]


def test_inputs_that_cannot_be_read_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]):
    run = classes(folder)
    for text in ("", "1 2 3", "1,2 3", "1,b"):
        with pytest.raises(DataError, match=r"2 numbers each \(x, y\), like \"1,1 1,1\""):
            run.predict([text])
    with pytest.raises(DataError, match="there is no file"):
        run.predict(["no.csv"])
    with pytest.raises(DataError, match=r"the frame has no column 'y'"):
        run.predict({"id": ["a"], "x": [1.0]})
    with pytest.raises(DataError, match=r"this model reads \[steps, 2\]"):
        run.predict(np.ones((4, 3)))
    (folder / "three.ts").write_text("@classLabel false\n@data\n1:2:3\n")
    with pytest.raises(DataError, match="has 3 channels; the run reads 2: x, y"):
        run.predict([str(folder / "three.ts")])
    assert cli.main(["predict", str(run.folder), "1,2", "x"]) != 0
    assert "expected a file, or the steps of a series" in capsys.readouterr().err


# --------------------------------------------------------------------------------------- other errors


def test_a_class_that_only_the_test_file_has_is_refused(folder: Path, tmp_path: Path):
    (tmp_path / "test.csv").write_text(gestures().replace(",up", ",left"))
    with pytest.raises(
        DataError, match=r"test\.csv, line 2, series 'g0' has the class 'left', which no train"
    ):
        task_of(folder, test_path=str(tmp_path / "test.csv"))
    with pytest.raises(DataError, match="which no training series has"):
        classes(folder).evaluate("all", path=str(tmp_path / "test.csv"))


def test_the_only_series_of_a_class_is_for_training(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "rare.csv").write_text(gestures() + "g99,1,1,1,1,left\n")
    task = task_of(folder, path=str(tmp_path / "rare.csv"))
    assert task.target.names == ("down", "left", "up")
    assert [each.label for each in task.rows("train")].count("left") == 1
    assert "the test set has no series of the class left" in caplog.text


def test_one_class_and_numbers_that_are_none_are_refused(folder: Path, tmp_path: Path):
    (tmp_path / "one.csv").write_text(gestures().replace("down", "up"))
    with pytest.raises(DataError, match="the training set has only 'up'"):
        task_of(folder, path=str(tmp_path / "one.csv"))
    with pytest.raises(DataError, match=r"has '(up|down)' where --value expects a number"):
        task_of(folder, label=None, value="kind")
    with pytest.raises(ValueError, match="--label is for classes and --value for numbers"):
        task_of(folder, value="size")
    with pytest.raises(ValueError, match="--label is for files of your own"):
        RunConfig(task="series", data=SeriesTask.Data(label="kind"))


def test_a_file_that_has_changed_does_not_resume_the_run(folder: Path, tmp_path: Path):
    (tmp_path / "a.csv").write_text(gestures())
    config = config_of(folder, path=str(tmp_path / "a.csv"), epochs=1)
    train(config, tmp_path / "run")
    (tmp_path / "a.csv").write_text(gestures().replace("100.", "101."))
    with pytest.raises(Mismatch, match="has other contents than when this run was trained"):
        train(config, tmp_path / "run")


def test_what_a_run_keeps_is_checked(folder: Path):
    content = task_of(folder).assets()["series.json"]
    assert Found.parse(content, "class").channels == ("x", "y")
    for old, new in ((b'"channels": 2', b'"channels": -2'), (b'"target"', b'"aim"'), (b"{", b"[")):
        with pytest.raises(DataError, match=r"series\.json"):
            Found.parse(content.replace(old, new, 1), "class")


# --------------------------------------------------------------------------------------------- charts


def test_charts_of_mistaken_series(folder: Path):
    task = task_of(folder)
    series, metrics = task.rows("test"), task.metrics()
    metrics.mistakes = [(0.6, 0, 0, 1), (0.9, 2, 1, 0)]
    first, second = task.charts(task.build(), "test", metrics)
    assert first.title == f"{series[2].name}: down (0.90) instead of up"
    assert [line.label for line in second.lines] == ["x", "y"]
    x, y = (np.array(line.y) for line in second.lines)
    values = (series[0].values - task.scales[0]) / task.scales[1]
    np.testing.assert_allclose(np.stack([x, y], 1), values, rtol=1e-5)
    assert task.charts(task.build(), "test", task.metrics()) == []


def test_without_a_mistake_the_table_says_so():
    section = most_confident_mistakes(("probability",), [], lambda row: row)
    assert (section.about, section.rows) == ("No answer is wrong.", ())


def test_charts_of_series_with_wrong_steps(folder: Path):
    task = task_of(folder, path=str(folder / "turns.csv"))
    series, metrics = task.rows("test"), task.metrics()
    right = task.target.names.index(series[1].labels[2])
    metrics.mistakes = [(0.9, MOST_STEPS + 2, right, 1 - right)]
    (chart,) = task.charts(task.build(), "test", metrics)
    truth, answer = chart.lines
    # A step is level from 0.5 before it to 0.5 after it.
    assert truth.x[:4] == [0.5, 1.5, 1.5, 2.5]
    assert [one == other for one, other in zip(truth.y, answer.y, strict=True)].count(False) == 2
    assert answer.y[4:6] == [1 - right] * 2
    assert chart.title.endswith(": 1 wrong step")
    assert chart.y_label == "class: 0 down, 1 up"


def test_long_series_and_many_channels_are_drawn_in_part():
    values = np.random.default_rng(0).standard_normal((2000, 9)) * np.arange(9)
    series = LabelledSeries("long", values, lambda step: "here")
    names = [f"c{number}" for number in range(9)]
    chart = channel_chart("long", series, names, (np.zeros(9), np.ones(9)))
    assert [line.label for line in chart.lines] == ["c4", "c5", "c6", "c7", "c8"]
    assert len(chart.lines[0].x) == 500
    assert (chart.lines[0].x[0], chart.lines[0].x[-1]) == (1, 2000)
    assert chart.about.endswith("Of 9 channels, the 5 that change most.")


# ------------------------------------------------------------------------------------------- baselines


def test_summaries_of_series():
    mean = np.array([0.0, 5.0])
    (one,) = summaries([np.array([[1.0, np.nan], [2.0, np.nan], [3.0, np.nan]])], mean)
    first = one.reshape(11, 2)[:, 0]
    np.testing.assert_allclose(first, [2, np.sqrt(2 / 3), 1, 3, 1.5, 2, 2.5, 1, 3, 2, 1])
    second = one.reshape(11, 2)[:, 1]
    np.testing.assert_allclose(second, [5, 0, 5, 5, 5, 5, 5, 5, 5, 0, 0])
    (short,) = summaries([np.array([[1.0, 2.0]])], mean)
    assert np.isfinite(short).all()


def test_the_mean_of_the_steps_before():
    x = np.arange(20.0)[:, None]
    found = means_before(x)[:, 0]
    np.testing.assert_allclose(found[:3], [0, 0.5, 1])
    np.testing.assert_allclose(found[19], np.mean(np.arange(10, 20)))


def test_baselines_of_features():
    draw = np.random.default_rng(0)
    x = draw.standard_normal((40, 3))
    labels = ["a" if value > 0 else "b" for value in x[:, 0]]
    majority, linear = class_baselines(x, labels, x, labels, "them")
    assert linear.figures["accuracy"] > 0.9 > majority.figures["accuracy"]
    assert linear.about == "Logistic regression, by scikit-learn, that reads them."
    mean, ridge = value_baselines(x, x[:, 0].tolist(), x, x[:, 0].tolist(), "them")
    assert ridge.figures["r2"] > 0.9 > mean.figures["r2"]
    assert len(class_baselines(x, ["a"] * 40, x, ["a"] * 40, "them")) == 1
