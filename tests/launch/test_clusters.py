"""Runs by submitit and by Ray: the same metrics, a killed worker's run resumed, errors that help."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import ModuleType

import pytest
from launched import jobs, kill, metrics, when_it_trains

from linnet.launch import run_jobs
from linnet.launch.launchers import parameters_of
from linnet.launch.order import Orders
from linnet.launch.ray_workers import RayWorkers
from linnet.runs.errors import Stopped
from linnet.runs.status import read_status

LAUNCHERS = {"submitit:local": "submitit", "ray": "ray"}


@pytest.mark.parametrize("launcher", list(LAUNCHERS))
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of processes that the packages leave to the system
def test_the_metrics_are_those_of_one_after_the_other(launcher: str, tmp_path: Path):
    """The worker of the run is killed."""
    pytest.importorskip(LAUNCHERS[launcher])
    (job,), (alone,) = (jobs(tmp_path / name, 2)[1:] for name in ("own", "alone"))
    killing = when_it_trains(job.folder, kill)
    (outcome,) = run_jobs([job], launcher)
    killing.join()
    assert outcome.error == ""
    killed = read_status(job.folder)
    assert killed is not None
    assert killed.launcher == launcher
    assert killed.resumed_at > 0
    list(run_jobs([alone]))
    assert metrics(tmp_path / "own") == metrics(tmp_path / "alone")


@pytest.mark.parametrize("package", ["ray", "submitit"])
def test_a_package_that_is_not_installed_is_named(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"--launcher {package} needs .*\[{package}\]'"):
        list(run_jobs(jobs(tmp_path), package))


def test_a_cluster_of_ray_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
        with pytest.raises(Stopped, match=f"there is no Ray cluster at {address}"):
            RayWorkers(address)
        monkeypatch.setenv("RAY_ADDRESS", f"ray://{address}")
        with pytest.raises(Stopped, match=f"there is no Ray cluster at ray://{address}"):
            RayWorkers("")


class OneMachine(ModuleType):
    """Stands in for Ray with a cluster of one machine of two cores."""

    def init(self, **how: object) -> None: ...

    def nodes(self) -> list[dict[str, object]]:
        return [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": False, "Resources": {"CPU": 64.0}}]


def test_a_run_that_no_machine_of_ray_can_make_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setitem(sys.modules, "ray", OneMachine("ray"))
    workers = RayWorkers("")
    order = Orders("ray").of(jobs(tmp_path)[0])
    (future,) = workers.submit([order._replace(threads=4)])
    with pytest.raises(Stopped, match=r"needs 4 CPU, and no machine of .* \(at most 2 CPU\): give fewer"):
        future.result()
    workers.refuse_too_large({"CPU": 2})
    workers.address = "auto"  # it may start machines when they are needed
    for _ in range(2):
        workers.refuse_too_large({"CPU": 1, "GPU": 1})
    assert caplog.text.count("a run needs 1 CPU and 1 GPU, and no machine of the Ray cluster at auto") == 1


def test_a_machine_without_slurm_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Stopped, match=r"submitit:slurm does not work here: .*srun"):
        list(run_jobs(jobs(tmp_path), "submitit"))


def test_parameters_of_submitit_are_checked(tmp_path: Path):
    assert parameters_of("slurm_partition=long,timeout_min=240") == {
        "slurm_partition": "long",
        "timeout_min": 240,
    }
    with pytest.raises(ValueError, match=r"parameters of submitit are NAME=VALUE,...; got 'long'"):
        list(run_jobs(jobs(tmp_path), "submitit:long"))
    with pytest.raises(Stopped, match=r"submitit:local does not work here: .*partitoin"):
        list(run_jobs(jobs(tmp_path), "submitit:local,partitoin=long"))
