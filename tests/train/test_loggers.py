"""The loggers of MLflow and Weights & Biases, if their packages are installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import toy  # noqa: F401, which adds the task "toy"

from linnet.runs.config import RunConfig, override
from linnet.runs.records import read_metrics
from linnet.train.loop import train

# The packages and their dependencies warn about each other.
pytestmark = pytest.mark.filterwarnings("ignore")


def two_runs(logger: str, folder: Path) -> None:
    if any(find_spec(name) is None for name in ("pytorch_lightning", logger)):
        pytest.skip(f"pytorch-lightning or {logger} is not installed")
    for name in ("a", "b"):
        settings = {"logger": [logger], "steps": 6, "evaluate_every": 3, "log_every": 2, "device": "cpu"}
        train(override(RunConfig(task="toy"), settings), folder / name)


def test_mlflow_gets_the_rows_and_the_settings_of_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    two_runs("mlflow", tmp_path)
    from mlflow import MlflowClient

    client = MlflowClient()
    runs = client.search_runs(client.get_experiment_by_name("linnet").experiment_id)
    assert sorted(run.info.run_name for run in runs) == ["a", "b"]
    for run in runs:
        logged = client.get_metric_history(run.info.run_id, "valid/loss")
        rows = read_metrics(tmp_path / run.info.run_name, "valid")
        assert [(each.step, each.value) for each in logged] == [(row["step"], row["loss"]) for row in rows]
        assert run.data.params["loop/steps"] == "6"
        assert run.info.status == "FINISHED"


def test_wandb_gets_a_run_for_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    two_runs("wandb", tmp_path)
    import wandb

    assert wandb.run is None
    # Its own process writes the files; this waits for it.
    wandb.teardown()
    for name in ("a", "b"):
        (recorded,) = (tmp_path / name / "events" / "wandb").glob("offline-run-*/run-*.wandb")
        content = recorded.read_bytes()
        assert b"valid/loss" in content
        assert b"evaluate_every" in content
