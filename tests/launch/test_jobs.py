"""Many runs: the same results in whichever processes, an error ends one of them, a killed worker none."""

from __future__ import annotations

import os
import re
import signal
import socket
from functools import partial
from pathlib import Path

import pytest
from launched import STEPS, config, jobs, kill, metrics, when_it_trains

from linnet.launch import Job, run_jobs
from linnet.runs.records import Row
from linnet.runs.status import is_alive, read_status
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
