"""Search: its ranges, and that what was broken off is gone on with, by whoever comes next."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
import toy  # noqa: F401, the kind of task

import linnet
from linnet.runs.config import RunConfig, override
from linnet.runs.errors import DiskFull, Mismatch, Stopped
from linnet.train import search
from linnet.train.loop import train
from linnet.train.search import Plan

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(linnet.__file__).parents[1])}
SHORT = {"optimiser": "sgd", "clip": 0.0, "epochs": 1, "steps": 3, "device": "cpu", "checkpoint_seconds": 0.0}
LONG = {
    "optimiser": "sgd",
    "clip": 0.0,
    "epochs": 12,
    "device": "cpu",
    "checkpoint_steps": 5,
    "checkpoint_seconds": 0.0,
}
RANGES = {"lr": (0.1, 2.0)}


def config(given: dict[str, Any] = SHORT) -> RunConfig:
    return override(RunConfig(task="toy"), given)


def states(study: Any) -> list[str]:
    return [trial.state.name for trial in study.trials]


def metrics(folder: Path) -> bytes:
    return (folder / "metrics.jsonl").read_bytes()


# ---------------------------------------------------------------------------------------- ranges


def test_ranges_shrink_around_the_best_and_stay_inside():
    plan = Plan({"lr": (0.0, 1.0)}, per_round=2, shrink=0.5)
    assert search.ranges_now(plan, [(1.0, {"lr": 0.5})]) == {"lr": (0.0, 1.0)}
    known: list[tuple[float, Any]] = [(1.0, {"lr": 0.4}), (2.0, {"lr": 0.9})]
    assert search.ranges_now(plan, known)["lr"] == pytest.approx((0.15, 0.65))
    known += [(0.5, {"lr": 0.05}), (3.0, {"lr": 0.5})]
    assert search.ranges_now(plan, known)["lr"] == pytest.approx((0.0, 0.25))


def test_a_study_goes_on_for_longer(tmp_path: Path):
    plan = Plan({"lr": (0.1, 2.0), "dropout": (0.0, 0.5)}, runs=2, per_round=2)
    assert len(search.search(config(), tmp_path, plan).trials) == 2
    study = search.search(config(), tmp_path, plan._replace(runs=4))
    assert len(study.trials) == 4
    best = min(study.trials[:2], key=lambda trial: trial.value).params["lr"]
    assert all(abs(trial.params["lr"] - best) <= 0.95 for trial in study.trials[2:])
    assert {path.name for path in tmp_path.glob("0*")} == {"0000", "0001", "0002", "0003"}


def test_a_wrong_range_is_found_before_the_first_run(tmp_path: Path):
    with pytest.raises(ValueError, match="did you mean 'lr'"):
        search.search(config(), tmp_path, Plan({"lrr": (0.1, 1.0)}))
    with pytest.raises(ValueError, match="lower to the higher"):
        search.search(config(), tmp_path, Plan({"lr": (1.0, 0.1)}))
    with pytest.raises(ValueError, match="both finite; got 0:inf"):
        search.search(config(), tmp_path, Plan({"lr": (0.0, float("inf"))}))


def test_other_names_than_those_of_the_study_are_refused(tmp_path: Path):
    search.search(config(), tmp_path, Plan(RANGES, runs=1))
    with pytest.raises(ValueError, match="draws lr, and the ranges given are of dropout"):
        search.search(config(), tmp_path, Plan({"dropout": (0.0, 0.5)}, runs=2))


# ----------------------------------------------------------------------- broken off, and in common


def process(folder: Path, **given: Any) -> subprocess.Popen[str]:
    words = [f"{name}={json.dumps(value)}" for name, value in {**LONG, **given}.items()]
    command = [sys.executable, str(Path(__file__).parent / "toy.py"), str(folder), *words]
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=ENVIRONMENT
    )


def test_a_killed_search_goes_on_with_the_run_it_was_at(tmp_path: Path):
    with process(tmp_path / "study", runs=2) as killed:
        while not (tmp_path / "study" / "0000" / "last").exists():
            assert killed.poll() is None
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
    assert not (tmp_path / "study" / "0000" / "result.json").exists()
    study = search.search(config(LONG), tmp_path / "study", Plan(RANGES, runs=2))
    assert states(study) == ["COMPLETE"] * 2
    train(override(config(LONG), study.trials[0].user_attrs["settings"]), tmp_path / "whole")
    assert metrics(tmp_path / "study" / "0000") == metrics(tmp_path / "whole")


def test_two_processes_share_a_database_and_make_as_many_runs_as_asked(tmp_path: Path):
    storage = f"sqlite:///{tmp_path}/study.db"
    both = [process(tmp_path / "study", runs=5, storage=storage) for _ in range(2)]
    for each in both:
        _, errors = each.communicate(timeout=300)
        assert each.returncode == 0, errors
    study = optuna.load_study(study_name="study", storage=storage)
    assert states(study) == ["COMPLETE"] * 5
    assert len(list((tmp_path / "study").glob("0*/result.json"))) == 5


class Killed(BaseException):
    """Nobody catches it, as nobody catches kill -9."""


@pytest.mark.parametrize(
    ("place", "left"),
    [
        ("draw", ["FAIL", "COMPLETE", "COMPLETE"]),
        ("hold", ["FAIL", "COMPLETE", "COMPLETE"]),
        ("train", ["COMPLETE", "COMPLETE"]),
    ],
)
def test_wherever_it_is_cut_off_there_are_as_many_runs_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, left: list[str]
):
    def killed(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        patch.setattr(search, place, killed)
        search.search(config(), tmp_path, Plan(RANGES, runs=2))
    assert states(search.search(config(), tmp_path, Plan(RANGES, runs=2))) == left


def test_a_run_that_another_process_makes_is_left_to_it(tmp_path: Path):
    study = search.search(config(), tmp_path, Plan(RANGES, runs=1))
    mine = search.next_trial(optuna, study, Plan(RANGES, runs=2), tmp_path)
    assert mine is not None
    with mine[1]:
        assert states(search.search(config(), tmp_path, Plan(RANGES, runs=2))) == ["COMPLETE", "RUNNING"]
    assert states(search.search(config(), tmp_path, Plan(RANGES, runs=2))) == ["COMPLETE"] * 2


def test_a_run_without_a_finite_loss_counts_and_is_not_made_again(tmp_path: Path):
    study = search.search(config({**SHORT, "poison": 1}), tmp_path, Plan(RANGES, runs=2))
    assert states(study) == ["PRUNED"] * 2


def test_a_full_disk_leaves_the_run_to_be_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*arguments: object) -> None:
        raise DiskFull("no room")

    with monkeypatch.context() as patch, pytest.raises(DiskFull):  # noqa: PT012
        patch.setattr(search, "train", full)
        search.search(config(), tmp_path, Plan(RANGES, runs=1))
    with open(tmp_path / "study.log", "ab") as journal:
        journal.write(b'{"op_code":8,"worker')
    assert states(search.search(config(), tmp_path, Plan(RANGES, runs=2))) == ["COMPLETE"] * 2


# -------------------------------------------------------------------------------------- refusals


def test_a_study_has_one_folder_and_a_folder_one_study(tmp_path: Path):
    storage = f"sqlite:///{tmp_path}/study.db"
    search.search(config(), tmp_path / "a" / "study", Plan(RANGES, runs=1), storage=storage)
    with pytest.raises(Mismatch, match="has its runs in another folder"):
        search.search(config(), tmp_path / "b" / "study", Plan(RANGES, runs=2), storage=storage)
    with pytest.raises(Mismatch, match=r"are not of the study in study\.log"):
        search.search(config(), tmp_path / "a" / "study", Plan(RANGES, runs=2))


@pytest.mark.parametrize("storage", ["sqlite:/study.db", "foo://x", "sqlite:////nowhere/x.db"])
def test_a_wrong_address_is_answered(tmp_path: Path, storage: str):
    with pytest.raises(Stopped, match=r"the storage of the study in .* failed .* like sqlite:///study\.db"):
        search.search(config(), tmp_path / "study", Plan(RANGES, runs=1), storage=storage)


def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path):
    precious = tmp_path / "precious.txt"
    precious.write_text("a\nb")
    with pytest.raises(ValueError, match="is not a journal of Optuna"):
        search.search(config(), tmp_path / "study", Plan(RANGES, runs=1), storage=str(precious))
    assert precious.read_text() == "a\nb"


def test_one_search_is_not_for_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="start several searches"):
        search.search(config(), tmp_path, Plan(RANGES, runs=1))
