"""The contract: what selects decides, in one process as in a search, and TASKS takes tasks of one's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import linnet
from linnet.data.batches import TimeBatch
from linnet.runs.config import RunConfig, override
from linnet.runs.records import read_metrics
from linnet.tasks import TASKS
from linnet.tasks.evaluation import evaluate, merged, shares
from linnet.tasks.results import Metric, Metrics, StepResult
from linnet.train.loop import train
from linnet.train.schedules import stuck

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
import toy

SETTINGS = {"epochs": 6, "lr": 0.05, "optimiser": "adam", "log_every": 100, "device": "cpu"}


class Score(toy.ToyMetrics):
    """A figure of which more is better."""

    def compute(self) -> dict[str, float]:
        found = super().compute()
        return {**found, "score": 1 / found["perplexity"]}


class Scored(toy.ToyTask):
    name, selects = "scored", Metric("score", higher=True)

    def metrics(self) -> Score:
        return Score()


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setitem(TASKS, "scored", Scored)
    return override(RunConfig(task="scored"), SETTINGS)


def test_the_highest_score_selects(scored: RunConfig, tmp_path: Path):
    result = train(scored, tmp_path)
    rows = read_metrics(tmp_path, "valid")
    best = max(rows, key=lambda row: row["score"])
    assert result["valid"]["score"] == best["score"] > rows[0]["score"]
    assert result["best_step"] == best["step"]


def test_a_run_stops_above_a_score(scored: RunConfig, tmp_path: Path):
    first = read_metrics_of(scored, tmp_path / "whole")[1]["score"]
    stopped = read_metrics_of(override(scored, {"stop_above": first - 1e-9}), tmp_path / "stopped")
    assert len(stopped) == 2


def read_metrics_of(config: RunConfig, folder: Path) -> list[dict]:
    train(config, folder)
    return read_metrics(folder, "valid")


def test_costs_are_lower_when_better():
    assert Metric("f1", higher=True).cost({"f1": 0.9}) < Metric("f1", higher=True).cost({"f1": 0.8})
    assert Metric("f1", higher=True).value(Metric("f1", higher=True).cost({"f1": 0.9})) == 0.9
    assert stuck([-0.9, -0.5, -0.6], 1)
    assert not stuck([-0.5, -0.6, -0.9], 1)


def test_figures_put_what_selects_first():
    assert [figure.name for figure in Scored.figures(None)] == ["score", "loss"]
    assert Scored.figures(None)[0].higher


# ------------------------------------------------------------------------------------- evaluation


def test_shares_of_an_evaluation_merge_to_the_whole():
    torch.manual_seed(0)
    task = toy.ToyTask(toy.ToyData(), toy.ToyModel())
    model = task.build()
    whole = evaluate(task, model, "valid")
    for world in (2, 3, 5):
        found = [task.metrics() for _ in range(world)]
        for rank, metrics in enumerate(found):
            for batch in shares(task.batches("valid"), rank, world):
                with torch.no_grad():
                    metrics.update(task.step(model.eval(), batch, None))
        for other in found[1:]:
            found[0].merge(other)
        assert found[0].compute() == pytest.approx(whole, rel=1e-6)
    assert merged(found[0], 1) is found[0]


def test_a_batch_of_tensors_moves_and_is_shared():
    class Lengths(TimeBatch):
        def __init__(self, steps: torch.Tensor, lengths: torch.Tensor):
            vars(self).update(steps=steps, lengths=lengths)

    batch = Lengths(torch.zeros(3, 4, 2), torch.arange(4))
    assert len(batch) == 4
    assert batch.to("cpu") is batch
    assert batch.columns(1, 2).lengths.tolist() == [2, 3]
    assert batch.columns(1, 2).steps.shape == (3, 2, 2)


# --------------------------------------------------------------------------------- tasks of one's own

OWN = """
from toy import ToyTask
from linnet.tasks import TASKS
class Mine(ToyTask):
    name, about = "mine", "a task of my own"
TASKS["mine"] = Mine
"""


def test_a_file_in_the_environment_adds_a_task_to_the_command_line(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    paths = (Path(linnet.__file__).parents[1], Path(toy.__file__).parent)
    environment = {**os.environ, "LINNET_TASKS": str(file), "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-m", "linnet", "list", "tasks"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split(maxsplit=1) == ["mine", "a task of my own"]


def test_unknown_tasks_and_files_are_answered(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ValueError, match=r"no task 'ln'; did you mean 'lm'\?"):
        RunConfig(task="ln")
    monkeypatch.setenv("LINNET_TASKS", "nowhere.py")
    monkeypatch.setattr(TASKS, "files_read", False)
    with pytest.raises(ValueError, match=r"LINNET_TASKS names nowhere\.py, which is not a Python file"):
        list(TASKS)


def test_every_task_in_the_list_has_its_name():
    assert [TASKS[name].name for name in TASKS if name != "toy"] == [name for name in TASKS if name != "toy"]


def test_a_step_result_needs_no_more_than_its_loss():
    result = StepResult(torch.tensor(1.0), torch.tensor(4.0), 4, 4)
    metrics = Metrics()
    metrics.update(result)
    assert metrics.compute() == {"loss": 1.0}
    assert (result.extra, result.carry) == ({}, None)
