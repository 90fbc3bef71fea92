"""A C program that reads a labelled series step by step answers as Python does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import linnet
from linnet.cli import main
from linnet.runs.config import RunConfig, override
from linnet.tasks.series import sample_of
from linnet.train.loop import train
from tools import small_tasks
from tools.run_steps import CC, run_compiled, shared_library

STEPS = 15


def run_of(folder: Path, **more: Any) -> Any:
    small_tasks.write_files(folder)
    settings = {**small_tasks.settings_of("series", folder), "steps": 5, **more}
    train(override(RunConfig(task="series"), settings), folder / "run")
    return linnet.load(folder / "run")


def test_a_step_names_its_numbers(tmp_path: Path):
    run = run_of(tmp_path)
    step = run.task.stream_step(run.model)
    assert step.inputs == ("x", "y")
    assert [(axis.name, axis.labels) for axis in step.axes] == [("class", ("down", "up"))]
    assert sample_of(run.model).shape == step.sample.shape
    with torch.no_grad():
        answer, _ = step(*step.example)
    assert answer.shape == (1, *step.shape)


def test_a_stream_of_a_run_answers_as_predict_does(tmp_path: Path):
    run = run_of(tmp_path, pooling="mean")
    stream = run.stream()
    for step in ([0.0, 1.0], [1.0, np.nan], [2.0, 0.0]):
        scores = stream.push(step)
    probabilities = np.exp(scores) / np.exp(scores).sum()
    (answer,) = run.predict(["0,1 1,NaN 2,0"])
    np.testing.assert_allclose(probabilities, [*answer["probabilities"].values()], atol=2e-5)


@pytest.mark.parametrize("target", ["c", "js", "onnx"])
def test_a_run_is_exported_on_the_command_line(tmp_path: Path, target: str):
    run = run_of(tmp_path)
    assert main(["export", str(run.folder), "--to", target, "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / {"c": "model.c", "js": "model.js", "onnx": "step.onnx"}[target]).exists()


def test_a_model_of_whole_series_has_no_step(tmp_path: Path):
    run = run_of(tmp_path, bidirectional=True)
    with pytest.raises(ValueError, match="--no-bidirectional"):
        run.task.stream_step(run.model)


@pytest.mark.skipif(CC is None, reason="there is no C compiler")
@pytest.mark.parametrize(
    "settings",
    [
        {"unit": "sru", "pooling": "meanmax"},
        {"unit": "lrn", "pooling": "last", "differences": False},
        {"unit": "gru", "pooling": "max", "time": "x", "channels": "y", "time_format": ""},
        {"unit": "cfc", "pooling": "mean", "label": None, "value": "y", "channels": "x", "answers": "steps"},
    ],
    ids=lambda settings: settings["unit"],
)
def test_a_stream_in_c_is_classified_as_in_python(tmp_path: Path, settings: dict[str, Any]):
    if "time" in settings:
        # Times that rise in each series: the steps go up, or down.
        small = [
            line for line in small_tasks.FILES["series"]["path"][1].splitlines() if not line.endswith("down")
        ]
        small = [
            line.replace(",up", f",{'up' if number % 3 else 'down'}") for number, line in enumerate(small)
        ]
        settings = {**settings, "answers": "steps"}
        (tmp_path / "timed.csv").write_text("\n".join(small))
        settings["path"] = str(tmp_path / "timed.csv")
    run = run_of(tmp_path, **settings)
    step = run.task.stream_step(run.model)
    torch.manual_seed(3)
    x = torch.randn(STEPS, len(step.inputs))
    x[4, 0] = torch.nan
    if "time" in settings:
        x[:, -1] = x[:, -1].abs()
        x[0, -1] = torch.nan
    linnet.export_c(step, tmp_path / "c", example=step.example, name="model")
    library = shared_library([tmp_path / "c" / "model.c"], tmp_path, "-O1")
    outputs = run_compiled(library, tmp_path / "c" / "model.h", x)
    model = run.model.double()
    for length in range(1, STEPS + 1):
        with torch.no_grad():
            whole = model.in_unit(model(x[:length, None].double()))
        expected = whole[-1] if model.sizes.steps else whole
        np.testing.assert_allclose(outputs[length - 1].reshape(-1), expected.reshape(-1), atol=2e-5)
