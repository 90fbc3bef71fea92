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
from linnet.runs.records import read_metrics
from linnet.train import same_study, samplers, search
from linnet.train.claims import FolderClaims
from linnet.train.loop import train
from linnet.train.ranges import LogRange, checked
from linnet.train.samplers import Method
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


def test_a_logarithmic_range_shrinks_by_its_logarithm_and_whole_numbers_stay_whole():
    ranges = checked(
        config(), {"lr": LogRange(0.01, 1.0), "hidden_size": (2, 9), "optimiser": ["adam", "sgd"]}
    )
    plan = Plan(ranges, per_round=1)
    best = {"lr": 0.1, "hidden_size": 3, "optimiser": "sgd"}
    now = search.ranges_now(plan, [(1.0, best)])
    assert now["lr"] == pytest.approx((10**-1.5, 10**-0.5))
    assert isinstance(now["lr"], LogRange)
    assert now["hidden_size"] == (2, 6)
    assert all(isinstance(end, int) for end in now["hidden_size"])
    assert now["optimiser"] == ["adam", "sgd"]


@pytest.mark.parametrize(
    ("ranges", "answer"),
    [
        ({"lr": LogRange(0.0, 1.0)}, "ends above 0; got 0:1 for lr"),
        ({"optimiser": ["adm", "sgd"]}, "did you mean 'adam'"),
        ({"betas": [[0.9, 0.99]]}, "a list of numbers and words"),
        ({"hidden_size": (2, 9.5)}, "hidden_size is int; got 2.0"),
    ],
)
def test_values_that_no_run_takes_are_found_before_the_first_run(ranges: Any, answer: str):
    with pytest.raises(ValueError, match=answer):
        checked(config(), ranges)


# -------------------------------------------------------------------------- samplers and pruners


def test_a_sampler_of_optuna_draws_numbers_and_words(tmp_path: Path):
    ranges = {"lr": LogRange(0.01, 2.0), "hidden_size": (2, 9), "optimiser": ["adam", "sgd"]}
    sampler = Method("tpe", {"seed": 1, "n_startup_trials": 2})
    study = search.search(config(), tmp_path, Plan(ranges, runs=3, sampler=sampler))
    assert states(study) == ["COMPLETE"] * 3
    assert type(study.sampler).__name__ == "TPESampler"
    for trial in study.trials:
        written = json.loads((tmp_path / search.name_of(trial) / "config.json").read_text())
        assert written["optimiser"]["lr"] == trial.params["lr"]
        assert written["model"]["hidden_size"] == trial.params["hidden_size"]
        assert written["optimiser"]["optimiser"] == trial.params["optimiser"]
    with pytest.raises(ValueError, match=r"draws lr by FloatDistribution.* is a range of numbers"):
        search.search(config(), tmp_path, Plan({**ranges, "lr": (0.01, 2.0)}, runs=4))


def test_a_sampler_that_has_drawn_everything_ends_the_search(tmp_path: Path):
    plan = Plan({"optimiser": ["adam", "sgd"]}, runs=9, sampler=Method("brute-force"))
    study = search.search(config(), tmp_path, plan)
    assert sorted(trial.params["optimiser"] for trial in study.trials) == ["adam", "sgd"]
    assert len(search.search(config(), tmp_path, plan).trials) == 2


def test_a_pruned_run_keeps_its_files_and_is_recorded(tmp_path: Path):
    """The first run learns; the second one, which cannot, is stopped at its first validation."""
    pruner = Method("median", {"n_startup_trials": 1})
    given, plan = config({**LONG, "epochs": 3}), Plan({"lr": (1e-9, 1.0)}, pruner=pruner)
    for number, rate in enumerate([1.0, 1e-9], 1):
        sampler = Method("partial-fixed", {"fixed_params": {"lr": rate}, "base_sampler": "random"})
        study = search.search(given, tmp_path, plan._replace(runs=number, sampler=sampler))
    assert states(study) == ["COMPLETE", "PRUNED"]
    first, second = study.trials
    assert list(first.intermediate_values) == [1, 2, 3]
    rows = [row["loss"] for row in read_metrics(tmp_path / "0000", "valid")]
    assert list(first.intermediate_values.values()) == rows
    assert (list(second.intermediate_values), second.user_attrs["stopped_by"]) == ([1], "pruner")
    assert (tmp_path / "0001" / "last").exists()
    assert not (tmp_path / "0001" / "result.json").exists()


def test_a_run_that_was_killed_when_it_was_pruned_is_pruned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plan = Plan({"lr": [1.0]}, runs=1, pruner=Method("threshold", {"upper": 0.0}))

    def killed(*arguments: object, **options: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        patch.setattr(search, "report", killed)
        search.search(config(LONG), tmp_path, plan)
    assert states(search.search(config(LONG), tmp_path, plan)) == ["PRUNED"]
    assert len(read_metrics(tmp_path / "0000", "valid")) == 1


def test_what_a_storage_was_not_told_it_is_told_after_the_next_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def away(self: Any, value: float, step: int) -> None:
        monkeypatch.setattr(optuna.trial.Trial, "report", report)
        raise optuna.exceptions.StorageInternalError("away")

    report = optuna.trial.Trial.report
    monkeypatch.setattr(optuna.trial.Trial, "report", away)
    study = search.search(config({**LONG, "epochs": 3}), tmp_path, Plan(RANGES, runs=1))
    assert "run 0000 goes on, unknown to its study: away" in caplog.text
    assert list(study.trials[0].intermediate_values) == [1, 2, 3]


@pytest.mark.parametrize(
    ("changed", "answer"),
    [
        ({"sampler": Method("tpee")}, "no sampler 'tpee'; did you mean 'tpe'"),
        ({"pruner": Method("hyperbnd")}, "no pruner 'hyperbnd'; did you mean 'hyperband'"),
        ({"sampler": Method("tpe", {"sed": 1})}, "sampler tpe has no option 'sed'; did you mean 'seed'"),
        ({"pruner": Method("percentile")}, "needs --pruner-options percentile=..."),
        ({"sampler": Method("tpe"), "shrink": 0.3}, "are of the sampler shrinking; leave them out for tpe"),
    ],
)
def test_a_wrong_sampler_or_pruner_is_answered(tmp_path: Path, changed: dict[str, Any], answer: str):
    with pytest.raises(ValueError, match=answer):
        search.search(config(), tmp_path / "study", Plan(RANGES)._replace(**changed))
    assert not (tmp_path / "study").exists()


def test_a_sampler_without_its_package_is_answered_before_the_first_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(samplers, "find_spec", lambda package: None)
    with pytest.raises(ImportError, match=r"the sampler cmaes needs packages .*: pip install cmaes"):
        samplers.make(optuna, "sampler", Method("CmaEsSampler"))


def test_a_pruner_within_a_pruner_is_given_by_its_name():
    made = samplers.make(optuna, "pruner", Method("patient", {"wrapped_pruner": "median", "patience": 2}))
    assert type(made._wrapped_pruner).__name__ == "MedianPruner"


# ----------------------------------------------------------------------- broken off, and in common


def process(folder: Path, workers: int = 1, **given: Any) -> subprocess.Popen[str]:
    """Start a search in several processes, which share what was imported."""
    words = [f"{name}={json.dumps(value)}" for name, value in {**LONG, **given}.items()]
    command = [sys.executable, str(Path(__file__).parent / "toy.py"), str(folder), *words]
    return subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=ENVIRONMENT if workers == 1 else {**ENVIRONMENT, "TOY_WORKERS": str(workers)},
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
    short = {"epochs": 3, "checkpoint_steps": 0}
    with process(tmp_path / "study", workers=2, runs=5, storage=storage, **short) as both:
        _, errors = both.communicate(timeout=300)
    assert (both.returncode, "Traceback" in errors) == (0, False), errors
    study = optuna.load_study(study_name="study", storage=storage)
    assert states(study) == ["COMPLETE"] * 5
    assert len(list((tmp_path / "study").glob("0*/result.json"))) == 5


class Killed(BaseException):
    """Nobody catches it, as nobody catches kill -9."""


@pytest.mark.parametrize(
    ("place", "left"),
    [
        ("draw", ["FAIL", "COMPLETE", "COMPLETE"]),
        ("take", ["FAIL", "COMPLETE", "COMPLETE"]),
        ("train", ["COMPLETE", "COMPLETE"]),
    ],
)
def test_wherever_it_is_cut_off_there_are_as_many_runs_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, left: list[str]
):
    def killed(*arguments: object, **options: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        patch.setattr(FolderClaims if place == "take" else search, place, killed)
        search.search(config(), tmp_path, Plan(RANGES, runs=2))
    assert states(search.search(config(), tmp_path, Plan(RANGES, runs=2))) == left


def test_a_run_that_another_process_makes_is_left_to_it(tmp_path: Path):
    study = search.search(config(), tmp_path, Plan(RANGES, runs=1))
    mine = search.next_trial(optuna, study, Plan(RANGES, runs=2), FolderClaims(tmp_path), {}).mine
    assert mine is not None
    with mine[1]:
        assert states(search.search(config(), tmp_path, Plan(RANGES, runs=2))) == ["COMPLETE", "RUNNING"]
    assert states(search.search(config(), tmp_path, Plan(RANGES, runs=2))) == ["COMPLETE"] * 2


def test_a_run_without_a_finite_loss_counts_and_is_not_made_again(tmp_path: Path):
    study = search.search(config({**SHORT, "poison": 1}), tmp_path, Plan(RANGES, runs=2))
    assert states(study) == ["PRUNED"] * 2


def test_a_full_disk_leaves_the_run_to_be_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*arguments: object, **options: object) -> None:
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


def test_a_study_has_the_same_settings_data_and_versions_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    search.search(config(), tmp_path, Plan(RANGES, runs=1))
    # What is drawn, how long runs train and what is a matter of the machine may differ.
    other = config({**SHORT, "lr": 0.7, "steps": 4, "threads": 2})
    assert states(search.search(other, tmp_path, Plan(RANGES, runs=2))) == ["COMPLETE"] * 2
    with pytest.raises(Mismatch, match=r"was begun with hidden_size 6, and .* has 7: its runs could not be"):
        search.search(config({**SHORT, "hidden_size": 7}), tmp_path, Plan(RANGES, runs=3))
    monkeypatch.setattr(same_study, "installed_version", lambda package: "0.1")
    with pytest.raises(Mismatch, match=r"was begun with linnet-rnn .* has '0\.1'"):
        search.search(config(), tmp_path, Plan(RANGES, runs=3))


def test_a_file_may_be_in_another_folder_but_not_have_other_contents(tmp_path: Path):
    def known(folder: str, text: str) -> dict[str, Any]:
        path = tmp_path / folder / "texts.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return same_study.common(override(RunConfig(task="classify"), {"path": str(path)}), [])

    assert known("here", "a") == known("there", "a") != known("there", "b")


@pytest.mark.parametrize("storage", ["sqlite:/study.db", "foo://x", "sqlite:////nowhere/x.db"])
def test_a_wrong_address_is_answered(tmp_path: Path, storage: str):
    with pytest.raises(Stopped, match=r"the storage of the study in .* failed .* like sqlite:///study\.db"):
        search.search(config(), tmp_path / "study", Plan(RANGES, runs=1), storage=storage)


def test_without_optuna_a_search_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match="linnet search needs packages that are not installed: pip install"):
        search.search(config(), tmp_path, Plan(RANGES, runs=1))


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
