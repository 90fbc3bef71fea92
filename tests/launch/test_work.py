"""A worker refuses what would give other results, and says where; whatever ends a run is its answer."""

from __future__ import annotations

import errno
import pickle
import socket
from pathlib import Path

import pytest
from launched import config, jobs

from linnet.launch import Job
from linnet.launch.job import Outcome, RunsFailed
from linnet.launch.order import Order, Orders
from linnet.launch.work import work
from linnet.runs import records
from linnet.runs.config import RunConfig, override
from linnet.runs.status import LOG, Status, read_status, write_status
from linnet.train.same_study import versions
from tools import small_tasks

HOST = socket.gethostname()


def order_of(folder: Path) -> Order:
    return Orders("local:2").of(jobs(folder)[0])


def test_another_version_is_refused_before_the_order_is_read():
    answer = work({**versions(), "linnet-rnn": "0.0.1"}, b"of another version")
    assert answer.result is None
    assert f"the worker {HOST} has linnet-rnn" in answer.error
    assert "and the sender 0.0.1" in answer.error
    assert (answer.kind, answer.exit_code, answer.host) == ("Mismatch", 5, HOST)


def test_other_data_is_refused(tmp_path: Path):
    """The text of the worker has another letter."""
    small_tasks.write_files(tmp_path)
    settings = small_tasks.settings_of("lm", tmp_path)
    job = Job(override(RunConfig(task="lm"), {**settings, "steps": 2}), tmp_path / "run")
    order = Orders("ray").of(job)
    (tmp_path / "text.txt").write_text("another text, of as many letters or of more.\n" * 20)
    answer = work(*order.packed())
    assert f"the worker {HOST} has other data than the sender for lm" in answer.error
    status = read_status(job.folder)
    assert status is not None
    assert (status.state, status.launcher) == ("failed", "ray")
    assert "other data" in (job.folder / LOG).read_text()
    assert not (job.folder / "config.json").exists()


def test_a_folder_that_the_worker_does_not_have_is_named(tmp_path: Path):
    answer = work(*order_of(tmp_path)._replace(folder=tmp_path / "home").packed())
    assert f"the worker {HOST} cannot enter {tmp_path}/home" in answer.error


def test_a_full_disk_ends_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*given: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(records.files, "write_atomically", full)
        answer = work(*order_of(tmp_path).packed())
    assert (answer.kind, answer.exit_code) == ("DiskFull", 4)
    assert "no room to write" in answer.error
    assert work(*order_of(tmp_path).packed()).result


def test_an_unexpected_error_shows_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(*given: object, **more: object) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr("linnet.launch.work.train", broken)
    answer = work(*order_of(tmp_path).packed())
    assert answer.error.startswith("'no such thing'\n    Traceback")
    assert "    KeyError: 'no such thing'" in answer.error


def test_a_run_of_another_process_is_left_alone(tmp_path: Path):
    order = order_of(tmp_path)
    folder = order.job.folder
    folder.mkdir()
    write_status(folder, Status(host="elsewhere", step=7))
    with records.claim(folder):
        answer = work(*order.packed())
    assert "another process is training in" in answer.error
    status = read_status(folder)
    assert status is not None
    assert (status.state, status.step) == ("running", 7)


def test_another_run_keeps_its_state(tmp_path: Path):
    order = order_of(tmp_path)
    assert work(*order.packed()).result
    other = Job(config(seed=9, steps=5), order.job.folder)
    answer = work(*order._replace(job=other).packed())
    assert "holds another run: in config.json seed was 0 and is now 9" in answer.error
    status = read_status(order.job.folder)
    assert status is not None
    assert (status.state, status.error) == ("finished", "")
    assert work(*order.packed()).result


def test_a_worker_has_the_threads_of_the_sender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found: list[int] = []
    monkeypatch.setattr("torch.set_num_threads", found.append)
    content = pickle.dumps(order_of(tmp_path)._replace(threads=7))
    assert work(versions(), content).result
    assert found == [7]


def test_the_summary_has_each_failure_and_one_exit_code(tmp_path: Path):
    one, two = (
        Outcome(job, None, f"reason {number}\n    line", "Mismatch", 5, "cedar")
        for number, job in enumerate(jobs(tmp_path, 2))
    )
    error = RunsFailed([one, two], 9)
    assert error.exit_code == 5
    assert "2 of 9 runs failed" in str(error)
    assert f"{tmp_path}/1 on cedar: reason 1\n    line" in str(error)
    assert RunsFailed([one, Outcome(two.job, None, "no room", "DiskFull", 4, "cedar")], 9).exit_code == 1
