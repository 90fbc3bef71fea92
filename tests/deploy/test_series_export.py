"""Exported programs that read a labelled series step by step answer as Python does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import linnet
from linnet.cli import main
from linnet.runs.config import RunConfig, override
from linnet.runs.load import TrainedRun
from linnet.tasks.series import sample_of
from linnet.train.loop import train
from tools import small_tasks
from tools.run_steps import CC, NODE, STRICT, checked, run_compiled, shared_library

STEPS = 15
needs_compiler = pytest.mark.skipif(CC is None, reason="there is no C compiler")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")
# A gesture of two channels; a value is missing.
VALUES = ((0.0, 1.0), (1.0, np.nan), (2.5, 0.25), (1.5, 2.0), (3.0, 1.0))
TYPED = " ".join(f"{x},{y}" for x, y in VALUES)
LINES = "x,y\n" + "".join(f"{x},{'' if np.isnan(y) else y}\n" for x, y in VALUES)


def run_of(folder: Path, **more: Any) -> TrainedRun:
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


def test_a_model_of_whole_series_has_no_step(tmp_path: Path):
    run = run_of(tmp_path, bidirectional=True)
    with pytest.raises(ValueError, match="--no-bidirectional"):
        run.task.stream_step(run.model)


@needs_compiler
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


# ---------------------------------------------------------------------- programs in other languages


@pytest.fixture(scope="module")
def gestures(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    return run_of(tmp_path_factory.mktemp("gestures"), num_layers=2)


def exported(run: TrainedRun, target: str, out: Path, *options: str) -> Path:
    assert main(["export", str(run.folder), "--to", target, "--out", str(out), *options]) == 0
    return out


def compiled(folder: Path) -> list[str]:
    """The command of the example program of a folder in C, after the test of the folder."""
    for name in ("model_test.c", "main.c"):
        checked([str(CC), *STRICT, "model.c", name, "-o", Path(name).stem], folder=folder)
    assert "largest difference from Python" in checked(["./model_test"], folder=folder)
    return [str(folder / "main")]


def answer_in(text: str, names: Sequence[str]) -> tuple[str, dict[str, float]]:
    """The class that a program prints, and the probabilities of its scores."""
    header, line = text.splitlines()
    assert header == ",".join(["class", *names])
    answer, *scores = line.split(",")
    exponents = np.exp(np.array(scores, float))
    return answer, dict(zip(names, exponents / exponents.sum(), strict=True))


def assert_predicted(text: str, run: TrainedRun, within: float = 2e-5) -> None:
    (predicted,) = run.predict([TYPED])
    answer, probabilities = answer_in(text, run.task.target.names)
    assert answer == predicted["label"]
    assert probabilities == pytest.approx(predicted["probabilities"], abs=within)


@needs_compiler
def test_the_program_in_c_prints_what_predict_answers(gestures: TrainedRun, tmp_path: Path):
    command = compiled(exported(gestures, "c", tmp_path / "c"))
    assert_predicted(checked(command, given=LINES), gestures)
    readme = (tmp_path / "c" / "README.md").read_text(encoding="utf-8")
    assert "prints the class with the highest score and all scores after the last one" in readme


@needs_compiler
def test_the_program_in_int8_is_close_to_predict(gestures: TrainedRun, tmp_path: Path):
    out = exported(gestures, "c", tmp_path / "c", "--int8")
    assert "int8_product(weights->" in (out / "model.c").read_text(encoding="utf-8")
    assert_predicted(checked(compiled(out), given=LINES), gestures, within=0.02)


@needs_node
@pytest.mark.parametrize("target", ["js", "wasm"])
def test_the_program_in_node_prints_what_predict_answers(gestures: TrainedRun, target: str, tmp_path: Path):
    if target == "wasm" and find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed")
    out = exported(gestures, target, tmp_path / target)
    assert_predicted(checked([str(NODE), str(out / "main.mjs")], given=LINES), gestures)


def test_an_onnx_file_answers_as_predict_does(gestures: TrainedRun, tmp_path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    out = exported(gestures, "onnx", tmp_path / "onnx")
    known = json.loads((out / "step.json").read_text(encoding="utf-8"))
    assert known["axes"] == [{"name": "class", "labels": ["down", "up"], "scores": True}]
    session = onnxruntime.InferenceSession(out / "step.onnx")
    names = [each.name.replace("after", "before") for each in session.get_outputs()]
    state = {name: np.array(part, np.float32) for name, part in known["start"].items()}
    for values in VALUES:
        answer, *after = session.run(None, {"x": np.array([values], np.float32), **state})
        state = dict(zip(names[1:], after, strict=True))
    (predicted,) = gestures.predict([TYPED])
    probabilities = np.exp(answer[0]) / np.exp(answer[0]).sum()
    np.testing.assert_allclose(probabilities, [*predicted["probabilities"].values()], atol=2e-5)


@needs_compiler
@needs_node
def test_a_program_prints_a_number(tmp_path: Path):
    run = run_of(tmp_path, label=None, value="y", channels="x", answers="steps")
    lines = "0\n1\n4\n"
    (answer,) = run.predict(["0 1 4"])
    expected = answer["steps"][-1]["value"]
    in_c = checked(compiled(exported(run, "c", tmp_path / "c")), given=lines)
    in_js = checked([str(NODE), str(exported(run, "js", tmp_path / "js") / "main.mjs")], given=lines)
    for header, line in (in_c.splitlines(), in_js.splitlines()):
        assert header == "value"
        assert float(line) == pytest.approx(expected, abs=2e-5)


@needs_compiler
@pytest.mark.skipif(find_spec("sktime") is None, reason="the series of speakers are in sktime")
def test_speakers_are_told_apart_in_c_as_in_python(tmp_path: Path):
    settings = {"hidden_size": 16, "steps": 100, "evaluate_every": 100, "device": "cpu", "threads": 1}
    train(override(RunConfig(task="series"), settings), tmp_path / "run")
    run = linnet.load(tmp_path / "run")
    series = run.task.rows("test")
    predicted = [each["label"] for each in run.predict([each.values for each in series])]
    out = exported(run, "c", tmp_path / "c")
    library = shared_library([out / "model.c"], tmp_path, "-O1")
    outputs = [run_compiled(library, out / "model.h", torch.from_numpy(each.values))[-1] for each in series]
    labels = run.task.target.names
    assert [labels[int(scores.argmax())] for scores in outputs] == predicted
    # The model has learned something: with one answer for all, a ninth would be right.
    assert np.mean([each.label == label for each, label in zip(series, predicted, strict=True)]) > 0.7
    command = compiled(out)
    for each, label in list(zip(series, predicted, strict=True))[::20]:
        lines = "\n".join(",".join(map(repr, row)) for row in each.values.tolist())
        assert answer_in(checked(command, given=lines), labels)[0] == label
