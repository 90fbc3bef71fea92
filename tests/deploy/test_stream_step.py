"""Runs that read a series one step at a time: what is exported, and streams, equal `predict`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import linnet
from linnet.cli import main
from linnet.deploy.source.stream import axis_rows, input_rows, place_text
from linnet.models.stream_step import Axis, StreamStep
from linnet.runs.config import RunConfig, override
from linnet.runs.load import TrainedRun
from linnet.runs.stream import RunStream
from linnet.train.loop import train
from tools.run_steps import CC, NODE, STRICT, checked

needs_compiler = pytest.mark.skipif(CC is None, reason="there is no C compiler")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")
needs_zig = pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is not installed")
HORIZON, LENGTH = 3, 20
SETTINGS: dict[str, Any] = {
    **{"set": "own", "horizon": HORIZON, "context": 10, "season": 4, "batch": 4, "origins": 3},
    **{"hidden_size": 6, "steps": 12, "evaluate_every": 6, "lr": 0.01, "device": "cpu", "threads": 1},
}


@dataclass(frozen=True)
class Case:
    """A run: its settings, and the columns of its file."""

    name: str
    settings: dict[str, Any]
    columns: Callable[[np.random.Generator, int], dict[str, np.ndarray]]
    targets: tuple[str, ...] = ("value",)
    read: tuple[str, ...] = field(default=())  # further columns that a step reads
    known: tuple[str, ...] = ()


def hours(draw: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Positive values, some missing, and covariates."""
    load = 1000 + 30 * draw.standard_normal(count)
    load[[3, 12, 13]] = np.nan
    return {
        "time": np.datetime64("2024-02-28T15:00") + np.arange(count) * np.timedelta64(1, "h"),
        **{"load": load, "wind": np.exp(draw.standard_normal(count))},
        **{"temp": draw.standard_normal(count), "price": 5 + draw.standard_normal(count)},
    }


def steps(draw: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    values = draw.standard_normal(count).cumsum()
    values[7] = np.nan
    return {"value": values}


def targets(draw: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """The second target begins later."""
    columns = {name: draw.standard_normal(count) for name in ("early", "late")}
    columns["late"][:4] = np.nan
    return columns


def months(draw: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    first = np.datetime64("2020-11") + np.arange(count)
    return {"time": first.astype("datetime64[D]"), "value": 1e6 + draw.standard_normal(count).round(2)}


CASES = (
    Case(
        "hours",
        {"target": "load,wind", "observed": "temp", "known": "price"},
        hours,
        targets=("load", "wind"),
        read=("temp",),
        known=("price",),
    ),
    Case("steps", {"unit": "lrn", "decoder": "steps"}, steps),
    Case("targets", {"target": "early,late", "decoder": "steps"}, targets, targets=("early", "late")),
    Case("months", {"unit": "sru", "transform": "none", "answer": "student", "decoder": "steps"}, months),
)


@dataclass(frozen=True)
class Made:
    """A trained run of a case, the lines that an exported program reads, and what `predict` answers."""

    case: Case
    run: TrainedRun
    rows: list[dict[str, Any]]  # a step each, by the names of inputs and "time"
    answer: np.ndarray  # [horizon, targets, levels]

    @property
    def text(self) -> str:
        names = list(self.rows[0])
        lines = [[("" if row[name] != row[name] else row[name]) for name in names] for row in self.rows]
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows([names, *lines])
        return written.getvalue()


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made_of(request.param, tmp_path_factory.mktemp(request.param.name))


def made_of(case: Case, folder: Path) -> Made:
    columns = case.columns(np.random.default_rng(0), 60)
    with (folder / "series.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
    train(
        override(
            RunConfig(task="forecast"),
            {**SETTINGS, "path": str(folder / "series.csv"), **case.settings},
        ),
        folder / "run",
    )
    run = linnet.load(folder / "run")
    return Made(case, run, rows_of(case, columns), answer_of(case, run, columns))


def rows_of(case: Case, columns: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    rows = []
    for step in range(LENGTH):
        row = {"time": str(columns["time"][step])} if "time" in columns else {}
        row |= {name: float(columns[name][step]) for name in (*case.targets, *case.read, *case.known)}
        for ahead in range(1, HORIZON + 1):
            row |= {f"{name}+{ahead}": float(columns[name][step + ahead]) for name in case.known}
        rows.append(row)
    return rows


def answer_of(case: Case, run: TrainedRun, columns: dict[str, np.ndarray]) -> np.ndarray:
    """What `predict` says after the first LENGTH values; of known covariates it is given the next ones."""
    count = LENGTH + HORIZON * bool(case.known)
    frame = {name: column[:count].copy() for name, column in columns.items()}
    for name in (*case.targets, *case.read):
        frame[name][LENGTH:] = np.nan
    found = run.predict(frame)
    levels = run.config.model.quantiles
    names = [[each if level == 0.5 else f"{each}_{level:g}" for level in levels] for each in case.targets]
    return np.array([[found[name] for name in row] for row in names]).transpose(2, 0, 1)


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def assert_printed(text: str, made: Made) -> None:
    header, *rows = [line.split(",") for line in text.splitlines()]
    assert header == ["step", "target", *(f"{level:g}" for level in made.run.config.model.quantiles)]
    steps = map(str, range(1, HORIZON + 1))
    assert [row[:2] for row in rows] == [[step, name] for step in steps for name in made.case.targets]
    found = np.array([[float(number) for number in row[2:]] for row in rows]).reshape(made.answer.shape)
    assert_close(found, made.answer)


# --------------------------------------------------------------------------------------------- tests


def test_a_stream_answers_as_predict_does(made: Made):
    stream = made.run.stream()
    for _ in range(2):
        for row in made.rows:
            time = row.get("time")
            answer = stream.push({name: row[name] for name in stream.inputs}, time)
        assert_close(answer, made.answer)
        stream.reset()
    answers = [stream.push([row[name] for name in stream.inputs], row.get("time")) for row in made.rows]
    assert_close(answers[-1], made.answer)
    assert answers[-1].shape == tuple(len(axis.labels) for axis in stream.axes)


@needs_compiler
@pytest.mark.parametrize("weights", ["arrays", "file"])
def test_c_answers_as_predict_does(made: Made, weights: str, tmp_path: Path):
    out = tmp_path / "c"
    given = ["export", str(made.run.folder), "--to", "c", "--out", str(out), "--weights", weights]
    assert main(given) == 0
    checked([str(CC), *STRICT, "model.c", "model_test.c", "-o", "test"], folder=out)
    assert "largest difference from Python" in checked(["./test"], folder=out)
    checked([str(CC), *STRICT, "model.c", "main.c", "-o", "main"], folder=out)
    assert_printed(checked(["./main"], given=made.text, folder=out), made)
    without_header = made.text.partition("\n")[2]
    assert checked(["./main"], given=without_header, folder=out) == checked(
        ["./main"], given=made.text.replace(",,", ",NaN,"), folder=out
    )


@needs_node
def test_javascript_answers_as_predict_does(made: Made, tmp_path: Path):
    assert main(["export", str(made.run.folder), "--to", "js", "--out", str(tmp_path / "js")]) == 0
    command = [str(NODE), str(tmp_path / "js" / "main.mjs")]
    text = checked(command, given=made.text)
    assert_printed(text, made)
    assert checked(command, given=made.text.partition("\n")[2].replace(",,", ",nan,")) == text


@needs_node
@needs_zig
def test_webassembly_answers_as_predict_does(made: Made, tmp_path: Path):
    assert main(["export", str(made.run.folder), "--to", "wasm", "--out", str(tmp_path / "wasm")]) == 0
    assert_printed(checked([str(NODE), str(tmp_path / "wasm" / "main.mjs")], given=made.text), made)


def test_an_onnx_file_answers_as_predict_does(made: Made, tmp_path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    assert main(["export", str(made.run.folder), "--to", "onnx", "--out", str(tmp_path / "onnx")]) == 0
    names = json.loads((tmp_path / "onnx" / "step.json").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "step.onnx")
    state = {name: np.array(part, np.float32) for name, part in names["start"].items()}
    assert {each.name for each in session.get_inputs()} == {"x", *state}
    outputs = [each.name for each in session.get_outputs()]
    stream = made.run.stream()
    for row in made.rows:
        numbers = [*(row[name] for name in stream.inputs), *stream.moment(row.get("time"))]
        found = session.run(None, {"x": np.array([numbers], np.float32), **state})
        after = dict(zip(outputs, found, strict=True))
        state = {name: after[name.replace("before", "after")] for name in state}
    assert_close(after["answer"][0], made.answer)


@needs_compiler
def test_int8_is_close_to_float32(made: Made, tmp_path: Path):
    """A number rounded to 127 levels is up to 1/254 of the largest one away, and a forecast adds up some."""
    step = made.run.task.stream_step(made.run.model)
    out = linnet.export_c(step, tmp_path / "c", int8=True)
    assert "int8_product(weights->" in (out / "model.c").read_text(encoding="utf-8")
    checked([str(CC), *STRICT, "model.c", "model_test.c", "-o", "test"], folder=out)
    checked(["./test"], folder=out)
    checked([str(CC), *STRICT, "model.c", "main.c", "-o", "main"], folder=out)
    found = numbers_in(checked(["./main"], given=made.text, folder=out)).reshape(made.answer.shape)
    width = (made.answer[..., -1:] - made.answer[..., :1]).clip(1e-3)
    assert 1e-6 < (abs(found - made.answer) / width).max() < 0.15


def numbers_in(text: str) -> np.ndarray:
    return np.array([[float(field) for field in line.split(",")[2:]] for line in text.splitlines()[1:]])


# ----------------------------------------------------------------------------------------- any step


class Mean(nn.Module):
    """Answers with the mean of each of two numbers so far, and says that it is a class."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def initial_state(self) -> dict[str, Tensor]:
        return {"count": torch.zeros(1, 1), "total": torch.zeros(1, 2)}

    def step(self, x: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        count, total = state["count"] + 1, state["total"] + torch.where(x == x, x, 0.0)
        return self.linear(total / count), {"count": count, "total": total}


def mean_step(labels: tuple[str, ...] = ("a", 'b,"c"')) -> StreamStep:
    axes = [Axis("class", labels, scores=True)]
    return StreamStep(Mean(), ("left", "right\x1b|"), axes, torch.randn(5, 2), ["A note."])


@needs_compiler
@needs_node
def test_any_model_with_a_step_and_a_state(tmp_path: Path):
    step = mean_step().eval()
    linnet.export_c(step, tmp_path / "c", name="mean")
    linnet.export_js(step, tmp_path / "js")
    checked([str(CC), *STRICT, "mean.c", "main.c", "-o", "main"], folder=tmp_path / "c")
    text = checked(["./main"], given="left,right\n1,2\n,6\n5 nan\n", folder=tmp_path / "c")
    with torch.no_grad():
        expected = step.model.linear(torch.tensor([2.0, 8 / 3])).numpy()
    assert_class_printed(text, ("a", 'b,"c"'), expected)
    other = checked([str(NODE), str(tmp_path / "js" / "main.mjs")], given="1,2\n,6\n5 nan\n")
    assert_class_printed(other, ("a", 'b,"c"'), expected)
    stream = RunStream(step)
    answers = [stream.push({"left": a, "right\x1b|": b}) for a, b in ((1, 2), (np.nan, 6), (5, np.nan))]
    assert_close(answers[-1], expected)


def assert_class_printed(text: str, labels: tuple[str, ...], scores: np.ndarray) -> None:
    header, (answer, *numbers) = csv.reader(text.splitlines())
    assert header == ["class", *labels]
    assert answer == labels[scores.argmax()]
    assert_close(np.array(numbers, float), scores)


def test_readme_names_every_number(tmp_path: Path):
    text = (linnet.export_js(mean_step(), tmp_path / "js") / "README.md").read_text(encoding="utf-8")
    assert "A note." in text
    assert "| 1 | `right\\x1b\\|` |" in text
    assert "node main.mjs" in text
    many = StreamStep(
        Mean(), list(map(str, range(40))), [Axis("step", tuple(map(str, range(99))))], torch.zeros(1, 40)
    )
    rows = list(input_rows(many))
    assert rows[11:14] == ["| 11 | `11` |", "| ... | ... |", "| 37 | `37` |"]
    assert "`0`, `1`, `2`, `...`, `98`" in next(axis_rows(many))


def test_where_the_number_of_a_place_is():
    axes = [Axis("step", ("1", "2")), Axis("target", ("a", "b", "c")), Axis("level", ("0.1", "0.5"))]
    step = StreamStep(Mean(), ("x", "y"), axes, torch.zeros(1, 2))
    assert place_text(step) == "(i0 * 3 + i1) * 2 + i2"
    assert step.rows()[4] == ("2", "b")
    assert step.shape == (2, 3, 2)


# ------------------------------------------------------------------------------------------- errors


def test_what_a_stream_cannot_read_is_an_error():
    stream = RunStream(mean_step())
    with pytest.raises(ValueError, match=r"a step of this stream has 2 numbers, left, right.*; got 1"):
        stream.push(3.0)
    with pytest.raises(ValueError, match="this stream has no input 'lef'"):
        stream.push({"lef": 3.0})


def test_the_time_of_a_step_is_asked_for(tmp_path: Path):
    made = made_of(CASES[-1], tmp_path)
    with pytest.raises(ValueError, match="give the time of the values, time='2024-01-31T23:45'"):
        made.run.stream().push(3.0)


def test_other_runs_have_no_stream(small_language_run: Path):
    with pytest.raises(ValueError, match="a run of 'lm', which has no stream of numbers; `predict` answers"):
        linnet.load(small_language_run).stream()


@pytest.fixture(scope="module")
def months(tmp_path_factory: pytest.TempPathFactory) -> tuple[Made, Path]:
    """A run that reads the calendar, and a folder with its example program in C."""
    folder = tmp_path_factory.mktemp("months")
    made = made_of(CASES[-1], folder)
    linnet.export_c(made.run.task.stream_step(made.run.model), folder / "c")
    checked([str(CC), *STRICT, "model.c", "main.c", "-o", "main"], folder=folder / "c")
    return made, folder / "c"


@needs_compiler
@needs_node
def test_every_form_of_a_time_and_of_a_missing_value(months: tuple[Made, Path], tmp_path: Path):
    made, folder = months
    linnet.export_js(made.run.task.stream_step(made.run.model), tmp_path / "js")
    forms = (
        ("2024-02,{}", ("5.5", "nan")),
        ("2024-02-01;{}", ("5.5",)),
        ("2024-02-01 00:00:00,{}", ("",)),
        ("2024-02-01T00:00:00Z, {}\r", ("5.5", "")),
        ("2024-02-01 {}", ("5.5", "")),
    )
    for form, values in forms:
        for value in values:
            given = f"2024-01,4\n{form.format(value)}\n"
            printed = checked(["./main"], given=given, folder=folder)
            assert_close(numbers_in(printed), expected := expected_of(made, value))
            other = checked([str(NODE), str(tmp_path / "js" / "main.mjs")], given=given)
            assert_close(numbers_in(other), expected)


def expected_of(made: Made, value: str) -> np.ndarray:
    stream = made.run.stream()
    stream.push(4, time="2024-01-01")
    return stream.push(float(value or "nan"), time="2024-02-01")[:, 0]


@needs_compiler
def test_a_line_without_its_time_is_an_error(months: tuple[Made, Path]):
    _, folder = months
    for given, message in (
        ("2024-01-31,5\n6\n", "line 2 starts with no time such as 2024-01-31"),
        ("time,value\n", "standard input has no line with numbers"),
    ):
        with pytest.raises(RuntimeError, match=message):
            checked(["./main"], given=given, folder=folder)
