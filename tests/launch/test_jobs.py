"""Many runs: the same results in whichever processes, an error ends one of them, a killed worker none."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from launched import STEPS, config, jobs, kill, metrics, when_it_trains

import linnet.launch.jobs as engine
from linnet.launch import Job, local, run_jobs
from linnet.launch.job import Answer, RunsFailed
from linnet.launch.order import Order, Orders
from linnet.runs.errors import Stopped
from linnet.runs.records import Row, read_result
from linnet.runs.status import Status, is_alive, read_status, write_status
from linnet.tasks import TASKS
from linnet.train.progress import Silent


class Shown(Silent):
    """Keeps what the progress of a run shows, by its name; not the updates, of which some are shown."""

    def __init__(self, name: str, known: dict[str, list[str]]):
        self.said = known.setdefault(name, [])

    def begin(self, parameters: int, done: int, total: int | None) -> None:
        self.said.append(f"begin {parameters} {done}/{total}")

    def row(self, row: Row, speed: float) -> None:
        self.said.append(f"{row['split']} {row['step']} {row['loss']}")

    def end(self) -> None:
        self.said.append("end")


@pytest.fixture(scope="module")
def shown_in_turn() -> dict[str, list[str]]:
    return {}


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory, shown_in_turn: dict[str, list[str]]) -> Path:
    folder = tmp_path_factory.mktemp("in_turn")
    outcomes = list(run_jobs(jobs(folder), progress=partial(Shown, known=shown_in_turn)))
    assert tuple(outcome.result["step"] for outcome in outcomes if outcome.result) == STEPS
    return folder


def test_the_results_are_those_of_one_after_the_other(
    in_turn: Path,
    shown_in_turn: dict[str, list[str]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    """Of two processes one is killed, and one run of four cannot be made."""
    shown: dict[str, list[str]] = {}
    wrong = Job(config(lr=1e30, clip=0.0, steps=9), tmp_path / "wrong")
    killing = when_it_trains(tmp_path / "1", kill)
    made = run_jobs([wrong, *jobs(tmp_path)], "local:2", partial(Shown, known=shown))
    outcomes = {each.job.folder.name: each for each in made}
    killing.join()
    assert "1 has ended with -9 (1 of 3)" in caplog.text
    assert metrics(tmp_path) == metrics(in_turn)
    assert {name: shown[name] for name in "02"} == {name: shown_in_turn[name] for name in "02"}
    assert {name for name, each in outcomes.items() if each.result} == {"0", "1", "2"}
    lost = outcomes["wrong"]
    assert (lost.kind, lost.exit_code, lost.host) == ("NotFinite", 3, socket.gethostname())
    assert re.match(r"the loss is nan .*\n    5,557 parameters, 0/9 steps done", lost.error)
    states = {name: read_status(tmp_path / name) for name in outcomes}
    assert {name: each and each.state for name, each in states.items()} == {
        **dict.fromkeys(("0", "1", "2"), "finished"),
        "wrong": "failed",
    }
    done = states["1"]
    assert done is not None
    assert (done.step, done.total, done.launcher) == (2000, 2000, "local:2")
    assert done.resumed_at > 0


def test_ctrl_c_ends_all_runs_with_a_checkpoint_and_the_same_jobs_resume_them(in_turn: Path, tmp_path: Path):
    many = jobs(tmp_path, 100)
    interrupting = when_it_trains(tmp_path / "1", lambda pid: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        list(run_jobs(many, "local:2"))
    interrupting.join()
    known = [status for job in many if (status := read_status(job.folder))]
    assert len(known) < 100
    assert "stopped" in {each.state for each in known} <= {"finished", "stopped"}
    assert not any(is_alive(each.pid) for each in known)
    assert all(outcome.result for outcome in run_jobs(many[:3]))
    assert metrics(tmp_path) == metrics(in_turn)


def test_ctrl_c_is_not_lost_while_processes_start(tmp_path: Path):
    def interrupt() -> None:
        while not multiprocessing.active_children():
            time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGINT)

    many = [Job(config(seed=seed, steps=2000), tmp_path / str(seed)) for seed in range(2)]
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        list(run_jobs(many, "local:2"))
    interrupting.join()
    assert not any(read_result(job.folder) for job in many)


class Process:
    """Stands in for a worker of this machine; its next answer is an error."""

    def __init__(self, error: Exception):
        self.error, self.waits, self.was_interrupted = error, not isinstance(error, EOFError), False

    def make(self, packed: Any) -> Any:
        raise self.error

    def interrupt(self) -> None:
        self.was_interrupted = True

    def exit_code(self) -> int:
        return 0

    def close(self) -> None:
        pass


def test_a_process_that_starts_during_ctrl_c_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    workers, process = local.LocalWorkers(1), Process(EOFError())

    def started() -> Process:
        workers.interrupt()
        workers.stopped = True
        return process

    monkeypatch.setattr(local, "Worker", started)
    with pytest.raises(Stopped):
        workers.make(Orders("local:1").of(jobs(tmp_path)[0]))
    assert process.was_interrupted
    assert workers.idle.empty()


def test_an_answer_that_cannot_be_read_costs_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    workers: Any = local.LocalWorkers(1)
    process = Process(AttributeError("no such class"))
    monkeypatch.setattr(local, "Worker", lambda: process)
    with pytest.raises(AttributeError):
        workers.make(Orders("local:1").of(jobs(tmp_path)[0]))
    assert workers.idle.get_nowait() is process


class AtOnce:
    """Stands in for workers: each run ends when it is submitted, if it is not `lost`."""

    queues, is_batch, pause, slots, at_ctrl_c = True, False, 0.0, 1, ""

    def __init__(self, lost: Sequence[str] = ()):
        self.lost, self.submitted = lost, list[str]()

    def submit(self, orders: Sequence[Order]) -> list[Future[Answer]]:
        return [self.made(order) for order in orders]

    def made(self, order: Order) -> Future[Answer]:
        name, future = order.job.folder.name, Future[Answer]()
        self.submitted.append(name)
        if name in self.lost:
            future.set_exception(RuntimeError("the worker is lost"))
        else:
            future.set_result(Answer({"step": 1}))
        return future

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_the_first_run_is_submitted_before_the_second_one_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    workers, known = AtOnce(), list[list[str]]()
    look = Orders.of

    def looked(orders: Orders, job: Job) -> Order:
        known.append(list(workers.submitted))
        return look(orders, job)

    monkeypatch.setattr(Orders, "of", looked)
    monkeypatch.setattr(engine, "workers_of", lambda launcher: workers)
    assert len(list(run_jobs(jobs(tmp_path), "local:2"))) == 3
    assert known == [[], ["0"], ["0", "1"]]


def test_a_job_that_is_not_there_yet_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, second, _ = jobs(tmp_path)
    monkeypatch.setattr(engine, "workers_of", lambda launcher: AtOnce())
    made = run_jobs(iter([first, None, None, second, None]), "local:2")
    assert [outcome.job.folder.name for outcome in made] == ["0", "1"]


def test_a_lost_run_names_the_machine_that_had_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    begun, waiting, _ = jobs(tmp_path)
    begun.folder.mkdir()
    write_status(begun.folder, Status(host="cedar"))
    monkeypatch.setattr(engine, "workers_of", lambda launcher: AtOnce(lost="01"))
    outcomes = list(run_jobs([begun, waiting], "ray"))
    assert [outcome.host for outcome in outcomes] == ["cedar", ""]
    summary = str(RunsFailed(outcomes, 2))
    assert f"{begun.folder} on cedar: the worker is lost" in summary
    assert f"{waiting.folder}: the worker is lost" in summary


def test_jobs_may_depend_on_the_outcomes_before_them(tmp_path: Path):
    known: list[int] = []

    def drawn():
        for number in range(3):
            yield Job(config(seed=number, steps=2 + len(known)), tmp_path / str(number))

    for outcome in run_jobs(drawn()):
        assert outcome.result is not None
        known.append(outcome.result["step"])
    assert known == [2, 3, 4]


def test_runs_with_the_same_data_read_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    read: list[int] = []
    monkeypatch.setattr(TASKS["memory.adding"], "prepare", lambda self: read.append(self.seed))
    settings = [{"seed": 1}, {"seed": 1, "hidden_size": 3}, {"seed": 2}]
    given = [Job(config(steps=1, **each), tmp_path / str(i)) for i, each in enumerate(settings)]
    assert all(outcome.result for outcome in run_jobs(given))
    assert read == [1, 2]


@pytest.mark.parametrize("name", ["local:0", "local:x", "cloud"])
def test_an_unknown_launcher_is_refused(name: str, tmp_path: Path):
    with pytest.raises(ValueError, match="the launchers are local:N"):
        next(run_jobs(jobs(tmp_path), name))
