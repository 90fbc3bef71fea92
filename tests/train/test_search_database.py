"""Searches whose processes share a database on a server, and no folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import postgres
import pytest
import sqlalchemy
import toy

import linnet
from linnet.runs.config import RunConfig, override
from linnet.runs.errors import Mismatch, Stopped
from linnet.runs.remote import without_password
from linnet.train import search
from linnet.train.claims import DatabaseClaims, Lost
from linnet.train.loop import train
from linnet.train.search import Plan
from linnet.train.study import driver

LONG = {
    "optimiser": "sgd",
    "clip": 0.0,
    "epochs": 6,
    "device": "cpu",
    "checkpoint_seconds": 0.0,
}
RANGES = {"lr": (0.1, 2.0)}


def config(**given: Any) -> RunConfig:
    return override(RunConfig(task="toy"), {**LONG, **given})


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres.server() as address:
        yield address


def states(study: Any) -> list[str]:
    return [trial.state.name for trial in study.trials]


def metrics(folder: Path) -> bytes:
    return (folder / "metrics.jsonl").read_bytes()


def workers(folder: Path, count: int, **given: Any) -> subprocess.Popen[str]:
    words = [f"{name}={json.dumps(value)}" for name, value in {**LONG, **given}.items()]
    command = [sys.executable, str(Path(toy.__file__)), str(folder), *words]
    package = str(Path(linnet.__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": package, "TOY_WORKERS": str(count)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def unfinished(folder: Path) -> list[Path]:
    """The runs with a checkpoint and no result."""
    return [path.parent for path in folder.glob("0*/last") if not (path.parent / "result.json").exists()]


def test_of_three_workers_one_is_killed_and_all_runs_are_made_none_twice(server: str, tmp_path: Path):
    folder = tmp_path / "{worker}" / "study"
    how = {"runs": 5, "storage": server, "dead_after": 3.0}
    with workers(folder, 3, **how) as process:
        assert process.stdout is not None
        first = int(process.stdout.readline().split()[0])
        while not (left := unfinished(tmp_path / "0" / "study")):
            assert process.poll() is None
            time.sleep(0.005)
        os.kill(first, signal.SIGKILL)
        _, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors
    study = search.search(config(), tmp_path / "1" / "study", Plan(RANGES, runs=5), storage=server)
    assert states(study) == ["COMPLETE"] * 5
    results = [path.parent for path in tmp_path.glob("*/study/0*/result.json")]
    assert sorted(path.name for path in results) == [search.name_of(trial) for trial in study.trials]
    (again,) = (path for path in results if path.name == left[0].name)
    assert again != left[0]
    drawn = study.trials[int(again.name)].user_attrs["settings"]
    train(override(config(), drawn), tmp_path / "whole")
    assert metrics(again) == metrics(tmp_path / "whole")


class Killed(BaseException):
    """Nobody catches it."""


def test_a_run_is_taken_over_from_its_checkpoint_in_a_store(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    given = config(store=f"file://{tmp_path}/store", store_checkpoints=True)
    how: dict[str, Any] = {"storage": server, "dead_after": 0.5}

    def killed(optuna: Any, trial: Any, costs: Any) -> None:
        if len(costs) == 2:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        patch.setattr(search, "report", killed)
        # The database still has its row, as that of a process that was killed.
        patch.setattr(DatabaseClaims, "remove", lambda *arguments: None)
        search.search(given, tmp_path / "a" / "stored", Plan(RANGES, runs=1), **how)
    study = search.search(given, tmp_path / "b" / "stored", Plan(RANGES, runs=1), **how)
    assert states(study) == ["COMPLETE"]
    speeds = (tmp_path / "b" / "stored" / "0000" / "speed.jsonl").read_text()
    before = (tmp_path / "a" / "stored" / "0000" / "speed.jsonl").read_text()
    # The seconds of the first updates are those of the first process: they were not made again.
    assert speeds.startswith(before.splitlines()[0])
    train(override(config(), study.trials[0].user_attrs["settings"]), tmp_path / "whole")
    assert metrics(tmp_path / "b" / "stored" / "0000") == metrics(tmp_path / "whole")
    assert (tmp_path / "store" / "0000" / "result.json").exists()


# -------------------------------------------------------------------------------------- claims


@pytest.fixture
def claims(server: str, request: pytest.FixtureRequest) -> DatabaseClaims:
    engine = sqlalchemy.create_engine(driver(server), poolclass=sqlalchemy.NullPool)
    return DatabaseClaims(engine, request.node.name, 0.4)


def test_a_run_is_free_once_its_process_was_not_heard_of(claims: DatabaseClaims):
    with claims.turn():
        claim = claims.take(3)
    assert claim is not None
    with claim:
        time.sleep(0.6)
        with claims.turn():
            assert claims.take(3) is None
        claim.check()
    with claims.turn():
        assert claims.take(3) is not None
        assert claims.take(3) is None
    time.sleep(0.5)
    with claims.turn():
        assert claims.take(3) is not None


def test_of_two_processes_that_find_a_run_free_one_gets_it(
    claims: DatabaseClaims, monkeypatch: pytest.MonkeyPatch
):
    for wait in (0.0, 0.5):
        time.sleep(wait)
        found = claims.read(3)
        assert claims.take(3) is not None
        with monkeypatch.context() as patch:
            patch.setattr(claims, "read", lambda number, before=found: before)
            assert claims.take(3) is None


def test_a_process_that_is_suspended_in_its_turn_loses_it(claims: DatabaseClaims):
    claims.longest_turn = 0.3
    ended = pytest.raises(sqlalchemy.exc.DBAPIError, match="idle-in-transaction")
    with ended, claims.turn(), claims.turn():
        assert claims.take(3) is not None


def test_a_process_that_was_suspended_leaves_a_run_that_another_has_taken(claims: DatabaseClaims):
    with claims.turn():
        claim = claims.take(3)
    assert claim is not None
    time.sleep(0.5)
    claim.check()  # nobody has taken it
    time.sleep(0.5)
    with claims.turn():
        other = claims.take(3)
    assert other is not None
    with pytest.raises(Lost, match=r"run 0003 was not heard of for 0\.4 seconds"):
        claim.check()
    other.check()


def test_a_process_waits_for_one_that_may_have_died(claims: DatabaseClaims):
    before: dict[int, Any] = {}
    with claims.turn():
        claim = claims.take(3)
    assert claim is not None
    assert not claims.is_heard(3, before)
    assert not claims.is_heard(3, before)
    with claim:
        time.sleep(0.2)
        assert claims.is_heard(3, before)


def test_a_database_that_is_away_for_a_while_is_waited_for(
    claims: DatabaseClaims, monkeypatch: pytest.MonkeyPatch
):
    def away(connection: Any) -> None:
        monkeypatch.setattr(claims, "lock", lock)
        connection.close()
        raise sqlalchemy.exc.OperationalError("", {}, Exception("away"))

    lock = claims.lock
    monkeypatch.setattr(claims, "lock", away)
    with claims.turn():
        assert claims.take(3) is not None


def test_a_run_that_was_lost_is_not_told(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Another process takes the run while this one trains; this one says so and ends with what is left."""

    def taken(*arguments: Any, **options: Any) -> Any:
        engine = sqlalchemy.create_engine(driver(server))
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("UPDATE linnet_claims SET worker = 'x' WHERE number = 0"))
        engine.dispose()
        time.sleep(0.5)
        return train(*arguments, **options)

    monkeypatch.setattr(search, "train", taken)
    monkeypatch.setattr(search, "next_trial", once(search.next_trial))
    study = search.search(config(), tmp_path / "lost", Plan(RANGES, runs=1), storage=server, dead_after=1.0)
    assert states(study) == ["RUNNING"]
    assert "another process has taken it over" in caplog.text


def once(function: Any) -> Any:
    answers = iter([function])
    return lambda *arguments: next(answers, lambda *_: search.Found(None, True))(*arguments)


# ------------------------------------------------------------------------------------- refusals


def test_a_database_that_does_not_answer_is_named(tmp_path: Path):
    address = f"postgresql://somebody:secret@127.0.0.1:{postgres.free_port()}/none"
    with pytest.raises(Stopped, match=r"connection to server at \"127\.0\.0\.1\".* failed") as error:
        search.search(config(), tmp_path / "study", Plan(RANGES, runs=1), storage=address)
    assert "secret" not in str(error.value)


def test_a_folder_of_another_study_is_refused(server: str, tmp_path: Path):
    search.search(config(epochs=1), tmp_path / "a" / "refused", Plan(RANGES, runs=1), storage=server)
    search.search(config(epochs=1), tmp_path / "b" / "other", Plan(RANGES, runs=1), storage=server)
    os.rename(tmp_path / "b" / "other", tmp_path / "b" / "refused")
    with pytest.raises(Mismatch, match="has its runs in another folder") as error:
        search.search(config(epochs=1), tmp_path / "b" / "refused", Plan(RANGES, runs=2), storage=server)
    assert "postgres@" in str(error.value)


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"a study in postgresql.* pip install '.*\[postgres\]'"):
        search.search(config(), tmp_path, Plan(RANGES, runs=1), storage="postgresql://a@127.0.0.1/b")


def test_a_password_is_not_shown():
    assert without_password("postgresql://me:secret@host/name") == "postgresql://me:***@host/name"
    assert without_password("postgresql://me@host/name") == "postgresql://me@host/name"
