"""The laws that every task obeys, over all of TASKS and the toy task of the tests.

A new task needs its settings in tools/small_tasks.py and a line in INPUTS (what a person types).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_task  # noqa: F401, which adds the task "largest"
from torch import Tensor

import linnet
from linnet.runs.config import RunConfig, options, override
from linnet.runs.errors import Mismatch
from linnet.runs.records import read_result
from linnet.tasks import TASKS
from linnet.tasks.base import Task
from linnet.tasks.evaluation import evaluate
from linnet.tasks.results import StepResult
from linnet.train.loop import train
from tools import small_tasks

RUN = {"steps": 3, "evaluate_every": 2, "unit": "lrn"}
LARGEST = {"batch": 7, "embedding_size": 4}  # of the toy task
INPUTS: dict[str, list[str]] = {
    "lm": ["the ", ""],
    "classify": ["a song of time", "", "unheard-of words"],
    "nli": ["a bird sings ||| it is loud", '{"premise": "a bird", "hypothesis": "unheard-of"}'],
    "memory.copy": ["1 2 3", "4 5 6"],
    "memory.variable": ["1 2 3"],
    "memory.denoise": ["3 2 1"],
    "memory.selective": ["3 2 1"],
    "memory.adding": ["0.5* 0.1 0.2* 0.3"],
    "memory.parity": ["1101", "0"],
    "memory.pairs": ["1101"],
    "memory.cycle": ["++0-"],
    "memory.modular": ["1+2*3-4"],
    "memory.fitzhugh": ["-0.5 -0.41 -0.3"],
    "memory.smnist": [" ".join(["3"] * 64)],
    "memory.psmnist": [" ".join(["3"] * 64)],
    "memory.rows": [" ".join(["3"] * 64)],
    "tag": ["Anna sang in Rome.", "", "unheard"],
    "translate": ["a bird sings", "", "unheard-of words"],
    "read": ["Who sang? ||| A bird sang.", '{"question": "What?", "text": "Unheard-of words."}'],
    "forecast": ["3 5 4 6 3 5 4 6 3", "1.5"],
    "series": ["1,2 3,4 5,6", "0.5,NaN"],
    "largest": ["1 4", "0"],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files") / "files"
    small_tasks.write_files(folder)
    return folder


@pytest.fixture(scope="module", params=list(TASKS))
def config(request: pytest.FixtureRequest, files: Path) -> RunConfig:
    name = request.param
    own = {**small_tasks.RUN, **LARGEST} if name == "largest" else small_tasks.settings_of(name, files)
    return override(RunConfig(task=name), {**RUN, **own})


@pytest.fixture(scope="module")
def task(config: RunConfig) -> Task:
    return made(config)


@pytest.fixture(scope="module")
def run(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    train(config, folder)
    return folder


def made(config: RunConfig) -> Task:
    return TASKS[config.task](config.data, config.model, config.loop.seed)


def model_of(task: Task) -> torch.nn.Module:
    torch.manual_seed(1)
    return task.build().eval().double()


def in_double(batch: Any) -> Any:
    """Real inputs in the precision of the model, in which sums of shares equal the whole to 1e-9."""
    if not dataclasses.is_dataclass(batch) or not torch.is_tensor(getattr(batch, "inputs", None)):
        return batch
    return (
        dataclasses.replace(batch, inputs=batch.inputs.double())
        if batch.inputs.is_floating_point()
        else batch
    )


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors of a batch, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from tensors(each)
    elif dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            yield from tensors(getattr(value, each.name))


def same_batches(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other) > 0
    for a, b in zip(one, other, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(tensors(a), tensors(b), strict=True))
        assert any(True for _ in tensors(a))


@torch.no_grad()
def results(task: Task, split: str = "valid") -> list[StepResult]:
    """What an evaluation computes, batch after batch."""
    model, carry, found = model_of(task), None, []
    for batch in task.batches(split):
        found.append(task.step(model, in_double(batch), carry))
        carry = found[-1].carry
    return found


# ---------------------------------------------------------------------------------------- batches


def test_the_same_settings_give_the_same_batches(config: RunConfig, task: Task):
    other = made(config)
    same_batches(list(islice(task.batches("train", 2), 3)), list(islice(other.batches("train", 2), 3)))
    for split in ("valid", "test"):
        same_batches(list(task.batches(split)), list(other.batches(split)))


def test_an_epoch_continues_at_any_batch(task: Task):
    whole = list(islice(task.batches("train", 1), 4))
    same_batches(whole[2:], list(islice(task.batches("train", 1, first=2), 2)))
    per_epoch = task.batches_per_epoch(1)
    assert per_epoch is None or per_epoch == sum(1 for _ in task.batches("train", 1))


@torch.no_grad()
def test_the_shares_of_processes_add_up_to_the_batch(task: Task):
    model, batch = model_of(task), in_double(next(iter(task.batches("train", 1))))
    whole = task.step(model, batch, None)
    shares = [task.step(model, batch.columns(rank, 3), None) for rank in range(3)]
    assert sum(share.count for share in shares) == whole.count
    torch.testing.assert_close(sum(share.total for share in shares), whole.total, rtol=1e-9, atol=1e-9)
    assert next(tensors(batch.to("meta"))).is_meta


# ----------------------------------------------------------------------------- the loss and figures


def test_the_loss_of_a_step_is_that_of_an_evaluation(task: Task):
    """The loss is in `step` only: training minimises the mean that an evaluation reports."""
    found = results(task)
    for each in found:
        torch.testing.assert_close(each.objective, each.total / each.count)
    figures = task.metrics()
    for each in found:
        figures.update(each)
    mean = float(sum(each.total for each in found)) / sum(each.count for each in found)
    assert figures.compute()["loss"] == pytest.approx(mean)


def test_metrics_of_shares_merge_to_those_of_one_process(task: Task):
    found = results(task)
    whole, first, second = task.metrics(), task.metrics(), task.metrics()
    for number, each in enumerate(found):
        whole.update(each)
        (first if number % 2 else second).update(each)
    second.merge(first)
    assert second.compute() == pytest.approx(whole.compute())


def test_figures_and_the_metric_that_selects_are_computed(task: Task, run: Path):
    known = read_result(run)["valid"]  # type: ignore[index]
    assert task.selected_by(task.data).name in known
    shown = task.figures(task.data)
    assert {figure.name for figure in shown} <= set(known)
    assert all(figure.label and figure.about.endswith(".") for figure in shown)
    assert all(figure.show(known[figure.name]) for figure in shown)


# ------------------------------------------------------------------------------------ trained runs


def test_a_baseline_stands_next_to_the_result(task: Task, run: Path):
    result = read_result(run)
    assert result is not None
    names = {figure.name for figure in task.figures(task.data)}
    # The toy task shows that a task needs none.
    assert bool(result["baselines"]) == (task.name != "largest")
    for each in result["baselines"]:
        assert names & {*each["figures"]} <= {*result["test"]}
        assert names & {*each["figures"]}


def test_a_run_loads_without_its_data(config: RunConfig, run: Path, files: Path):
    found = linnet.load(run)
    assert found.config == config
    assert found.task.assets() == made(config).assets()
    assert set(found.task.assets()) == set(found.task.asset_files)
    hidden = files.rename(files.with_suffix(".hidden"))
    try:
        alone = linnet.load(run)
        assert len(alone.predict(INPUTS[config.task])) == len(INPUTS[config.task])
    finally:
        hidden.rename(files)
    assert evaluate(found.task, found.model, "valid") == pytest.approx(read_result(run)["valid"])  # type: ignore[index]


def test_predictions_can_be_written_as_json(config: RunConfig, run: Path):
    found = linnet.load(run)
    together = found.predict(INPUTS[config.task])
    assert json.loads(json.dumps(together)) == together
    assert together[0] == found.predict(INPUTS[config.task][0])[0]


def test_predictions_keep_no_new_words(config: RunConfig, run: Path):
    """A service would need more and more memory."""
    loaded = linnet.load(run)
    loaded.predict(INPUTS[config.task])
    spellings = getattr(loaded.task, "spellings", None)
    assert spellings is None or list(spellings.index) == [""]


def test_a_checkpoint_fits_only_what_it_describes(
    config: RunConfig, run: Path, monkeypatch: pytest.MonkeyPatch
):
    described = made(config).describe()
    assert json.loads(json.dumps(described)) == described
    monkeypatch.setattr(TASKS[config.task], "describe", lambda self: {**described, "vocabulary": "another"})
    with pytest.raises(Mismatch):
        train(override(config, {"steps": 5}), run)


# ---------------------------------------------------------------------------------------- options


def test_a_task_says_what_it_is_and_its_options_have_help(config: RunConfig):
    task = TASKS[config.task]
    assert task.name == config.task
    assert task.about
    for _, field, _ in options(config.task):
        assert field.metadata.get("help"), field.name
    known = {field.name for _, field, _ in options(config.task)}
    assert set(task.defaults) | set(task.comparison.settings) <= known
    assert {name for joined in task.ranges for name in joined.split("+")} <= known


def test_a_model_is_fitted_to_a_number_of_parameters(task: Task):
    fitted = task.fitted(5000)
    assert abs(task.with_model(fitted).parameters() - 5000) < 500
