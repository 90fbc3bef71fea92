"""Small runs for the tests of launchers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from linnet.launch import Job
from linnet.runs.config import RunConfig, override
from linnet.runs.status import read_status
from tools import small_tasks

TINY = {
    **small_tasks.settings_of("memory.adding", Path()),
    **{"evaluate_every": 100, "log_every": 5, "checkpoint_steps": 50},
}
STEPS = (100, 2000, 100)
"""The second run is the one that is killed, so it takes longer."""


def config(**given: object) -> RunConfig:
    return override(RunConfig(task="memory.adding"), {**TINY, **given})


def jobs(folder: Path, count: int = 3) -> list[Job]:
    return [Job(config(seed=seed, steps=STEPS[seed % 3]), folder / str(seed)) for seed in range(count)]


def metrics(folder: Path) -> dict[str, bytes]:
    """Return metrics.jsonl of the runs of STEPS, by their names."""
    names = [str(seed) for seed in range(len(STEPS))]
    paths = {name: folder / name / "metrics.jsonl" for name in names}
    return {name: path.read_bytes() for name, path in paths.items() if path.exists()}


def when_it_trains(run: Path, act: Callable[[int], None]) -> threading.Thread:
    """Call `act` with the process of a run, after its first checkpoint."""

    def watch() -> None:
        while not (run / "last" / "manifest.json").exists():
            time.sleep(0.002)
        status = read_status(run)
        assert status is not None
        act(status.pid)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
