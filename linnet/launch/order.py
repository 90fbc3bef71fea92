"""What a worker is sent: a job, and what must be the same there as at the sender.

A run is the same to the last digit with the same version of Linnet and of torch, the same data, and the same
number of CPU threads. The sender says what it has; a worker that has something else refuses the run.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from linnet.launch.job import Job
from linnet.runs.config import RunConfig
from linnet.runs.errors import Mismatch
from linnet.tasks import TASKS
from linnet.tasks.base import Task
from linnet.train.own_files import digests
from linnet.train.same_study import versions


class Order(NamedTuple):
    """A job, and the sender's launcher, folder, versions and data; `threads` are those of the run there."""

    job: Job
    launcher: str
    threads: int
    folder: Path
    versions: Mapping[str, str]
    data: str

    def packed(self) -> tuple[Mapping[str, str], bytes]:
        """Return the arguments of `work`: another version of Linnet can read the first of them."""
        return self.versions, pickle.dumps(self)


class Orders:
    """Makes orders; the data of a task is read once."""

    def __init__(self, launcher: str, task: Task | None = None):
        self.launcher, self.versions = launcher, versions()
        self.task, self.fingerprints = task, dict[str, str]()

    def of(self, job: Job) -> Order:
        # Imported here, not above: a command that only prints its help needs no Fabric.
        from linnet.train.fabric import threads_of

        task = self.task = self.task_of(job.config)
        threads = threads_of(job.config.loop, task.parameters())
        known = repr((task.name, task.data))
        if known not in self.fingerprints:
            self.fingerprints[known] = fingerprint(task)
        return Order(job, self.launcher, threads, Path.cwd(), self.versions, self.fingerprints[known])

    def task_of(self, config: RunConfig) -> Task:
        """Return a task with this data and model; nothing is trained with it, so the seed may be another."""
        known = self.task
        if known is not None and type(known) is TASKS[config.task] and known.data == config.data:
            return known.with_model(config.model)
        return TASKS[config.task](config.data, config.model, config.loop.seed)


def fingerprint(task: Task) -> str:
    """Return a digest of what a task knows of its data, and of the files of the user."""
    known = json.dumps([task.describe(), digests(task.data)], sort_keys=True)
    return hashlib.sha256(known.encode()).hexdigest()[:16]


def refuse_other_versions(there: Mapping[str, str]) -> None:
    """Raise if this worker has other versions than the sender."""
    for name, version in versions().items():
        if version != there[name]:
            raise Mismatch(
                f"the worker {socket.gethostname()} has {name} {version or '(none)'} and the sender "
                f"{there[name]}; their results could differ: install the same version"
            )


def refuse_other_data(task: Task, there: str) -> None:
    """Raise if this worker has read other data than the sender."""
    if fingerprint(task) != there:
        raise Mismatch(
            f"the worker {socket.gethostname()} has other data than the sender for {task.name} "
            f"({TASKS[task.name].data_name(task.data)}): copy the sender's files to it"
        )


def enter(folder: Path) -> None:
    """Make the sender's folder that of this process: relative paths are meant from there."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise Mismatch(
            f"the worker {socket.gethostname()} cannot enter {folder} ({error.strerror}), the folder of the "
            "sender; workers need a file system that they share with it"
        ) from None
