"""Searches whose runs a launcher makes."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import optuna
import pytest

import linnet.launch.search as launched
from linnet import cli
from linnet.launch.job import Job, Outcome, RunsFailed
from linnet.launch.jobs import Source
from linnet.launch.search import Launched, search_by
from linnet.runs.config import RunConfig, override
from linnet.runs.records import read_metrics
from linnet.runs.status import read_status
from linnet.train.claims import DatabaseClaims, FolderClaim, FolderClaims
from linnet.train.loop import train
from linnet.train.reports import Reports, name_of
from linnet.train.samplers import Method
from linnet.train.search import Found, Plan, search
from linnet.train.study import journal

SETTINGS = {"unit": "lrn", "hidden_size": 4, "span": 3, "batch": 2, "steps": 2, "threads": 1, "device": "cpu"}
RANGES = {"lr": (0.001, 0.1)}


def config() -> RunConfig:
    return override(RunConfig(task="memory.copy"), SETTINGS)


def states(study: Any) -> list[str]:
    return [trial.state.name for trial in study.trials]


class TwoAtATime:
    """Stands in for run_jobs: takes two jobs, and makes the second one first."""

    def __init__(self, errors: dict[str, str]):
        self.errors, self.most = errors, 0

    def __call__(
        self, jobs: Iterable[Job], launcher: str, progress: Any = None
    ) -> Generator[Outcome, None, None]:
        source = Source(jobs)
        while taken := source.take(2):
            self.most = max(self.most, len(taken))
            yield from map(self.made, reversed(taken))

    def made(self, job: Job) -> Outcome:
        if kind := self.errors.get(job.folder.name):
            return Outcome(job, None, f"it was {kind}", kind, 3)
        return Outcome(job, train(job.config, job.folder))


def test_runs_are_made_at_the_same_time_and_told_to_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made = TwoAtATime({"0001": "NotFinite"})
    monkeypatch.setattr(launched, "run_jobs", made)
    plan = Plan(RANGES, runs=4, sampler=Method("tpe"))
    study = search_by("local:2", config(), tmp_path, plan)
    assert made.most == 2
    assert states(study) == ["COMPLETE", "PRUNED", "COMPLETE", "COMPLETE"]
    assert study.trials[1].user_attrs["stopped_by"] == "not finite"
    assert len(list(tmp_path.glob("0*/result.json"))) == 3


def test_a_run_that_has_failed_is_reported_and_then_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launched, "run_jobs", TwoAtATime({"0000": "DiskFull"}))
    with pytest.raises(RunsFailed, match=r"1 of 3 runs failed.*\n\n.*0000.*: it was DiskFull") as error:
        search_by("local:2", config(), tmp_path, Plan(RANGES, runs=3))
    assert error.value.exit_code == 3
    study = search_by("local:1", config(), tmp_path, Plan(RANGES, runs=3))
    assert states(study) == ["COMPLETE"] * 3


def test_an_error_here_ends_the_runs_before_others_may_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    claims, held = FolderClaims(tmp_path), list[bool]()

    def run_jobs(source: Iterable[Job], launcher: str, progress: Any) -> Generator[Outcome, None, None]:
        try:
            yield Outcome(next(iter(source)), {"valid": {}})
        finally:
            held.append(claims.take(0) is None)

    monkeypatch.setattr(launched, "run_jobs", run_jobs)
    with pytest.raises(KeyError):
        search_by("local:2", config(), tmp_path, Plan(RANGES, runs=1))
    assert held == [True]
    assert claims.take(0) is not None


class Study:
    """Stands in for a search that finds these, one after the other."""

    claims = DatabaseClaims

    def __init__(self, *found: Found):
        self.found, self.heard = iter(found), list[bool]()

    def look(self, heard: dict[int, Any]) -> Found:
        self.heard.append(bool(heard))
        heard[7] = "once"
        return next(self.found)

    def run_of(self, trial: int) -> tuple[RunConfig, Path]:
        return config(), Path(str(trial))

    def reports_of(self, trial: int) -> None:
        pass

    def tell(self, *how: Any) -> None:
        pass


def test_as_long_as_runs_are_trained_here_those_of_a_dead_process_are_found(monkeypatch: pytest.MonkeyPatch):
    """And what was heard of others while runs were trained here says nothing of now."""
    monkeypatch.setattr(launched, "PAUSE", 0.0)
    monkeypatch.setattr(DatabaseClaims, "pause", 0.0, raising=False)
    mine, theirs, nothing, over = (
        *(Found((number, FolderClaim(Mock()))) for number in (0, 1)),
        *(Found(None, is_over) for is_over in (False, True)),
    )
    study: Any = Study(mine, over, theirs, over, nothing, over)
    searching = Launched(study)
    jobs = searching.jobs()
    first = next(jobs)
    assert first is not None
    assert next(jobs) is None
    second = next(jobs)
    assert second is not None
    assert second.folder.name == "1"
    assert next(jobs) is None
    for job in (first, second):
        searching.tell(Outcome(job, {"step": 2}))
    assert list(jobs) == [None]
    assert study.heard == [False, False, True, False, False, True]


def test_a_run_goes_on_while_the_study_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """It reports all validations after the next one."""
    search(config(), tmp_path, Plan(RANGES, runs=1))
    begun = optuna.load_study(study_name=tmp_path.name, storage=journal(optuna, None, tmp_path))
    trial = begun.ask()
    reports = Reports(tmp_path, None, Method("nop"), trial.number)

    def away(self: Reports, optuna: Any) -> None:
        raise optuna.exceptions.StorageInternalError("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(Reports, "open", away)
        reports([0.5])
    assert f"run {name_of(trial)} goes on, unknown to its study: the database is away" in caplog.text
    reports([0.5, 0.25])
    assert begun.trials[trial.number].intermediate_values == {1: 0.5, 2: 0.25}


def test_a_search_in_two_processes_reports_its_validations_and_prunes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Of the two runs that can be drawn, one does not learn."""
    folder = tmp_path / "study"
    settings = {**SETTINGS, "steps": 6, "evaluate_every": 2}
    given = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    drawn = ["--ranges", "lr=0.001,100.0", "--sampler", "brute-force", "--runs", "2"]
    pruner = ["--pruner", "threshold", "--pruner-options", "upper=10"]
    how = ["--launcher", "local:2", "--run-dir", str(folder)]
    assert cli.main(["search", "memory.copy", *given, *drawn, *pruner, *how]) == 0
    said = capsys.readouterr().out
    assert "1 runs were stopped early" in said
    assert f"the first curves are in {folder / 'report.html'}" in said
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "A search over lr: 2 runs of lrn on " in page
    assert "http-equiv" not in page
    study = optuna.load_study(study_name="study", storage=journal(optuna, None, folder))
    known = {trial.params["lr"]: trial for trial in study.trials}
    good, bad = known[0.001], known[100.0]
    assert (good.state.name, bad.state.name) == ("COMPLETE", "PRUNED")
    assert (list(good.intermediate_values), list(bad.intermediate_values)) == ([1, 2, 3], [1])
    assert bad.user_attrs["stopped_by"] == "pruner"
    rows = read_metrics(folder / name_of(good), "valid")
    assert list(good.intermediate_values.values()) == [row["loss"] for row in rows]
    status = read_status(folder / name_of(bad))
    assert status is not None
    assert (status.state, status.launcher) == ("stopped", "local:2")
