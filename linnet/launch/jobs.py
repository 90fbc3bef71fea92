"""The one function that makes many runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

from linnet.launch.job import Job, Outcome, failed
from linnet.launch.local import LocalWorkers
from linnet.tasks.base import Task
from linnet.train.progress import Progress

PAUSE = 0.05
"""Seconds between two looks at the runs under way."""


class Handle(Protocol):
    """A run under way: a Future, or what a cluster has in its place."""

    def done(self) -> bool: ...
    def result(self) -> Outcome: ...


class Workers(Protocol):
    """What makes runs at the same time, `slots` of them."""

    slots: int

    def submit(self, jobs: Sequence[Job]) -> Sequence[Handle]: ...
    def interrupt(self) -> None: ...
    def close(self) -> None: ...


def run_jobs(
    jobs: Iterable[Job],
    launcher: str = "local:1",
    progress: Callable[[str], Progress] | None = None,
    task: Task | None = None,
) -> Iterator[Outcome]:
    """Make runs, and yield the outcome of each when it ends; an error ends one run, and others go on.

    launcher   local:1, one after the other in this process, or local:N, N processes of this machine
    progress   returns what shows the progress of the run of this name, in this process
    task       a task whose data was read: a run in this process does not read the same data again

    A list of jobs is submitted at once. Of any other iterable, the next job is taken when there is room for
    it, so that it may depend on the outcomes before it. A run that exists is resumed, or its result returned.
    """
    count = slots_of(launcher)
    if count == 1:
        yield from in_turn(jobs, progress, task)
    else:
        yield from at_the_same_time(jobs, LocalWorkers(count))


def slots_of(launcher: str) -> int:
    name, _, count = launcher.partition(":")
    if name != "local" or not count.isdigit() or not int(count):
        raise ValueError(f"a launcher is local:N, with N processes; got {launcher!r}")
    return int(count)


def in_turn(
    jobs: Iterable[Job], progress: Callable[[str], Progress] | None, task: Task | None
) -> Iterator[Outcome]:
    # Imported here, not above: a command that only prints its help needs no Fabric.
    from linnet.train.loop import train

    for job in jobs:
        try:
            shown = progress(job.folder.name) if progress else None
            outcome = Outcome(job, train(job.config, job.folder, shown, task))
        except Exception as error:  # of one run, and others go on
            outcome = failed(job, error)
        yield outcome


def at_the_same_time(jobs: Iterable[Job], workers: Workers) -> Iterator[Outcome]:
    room = len(jobs) if isinstance(jobs, Sequence) else workers.slots
    source, running = iter(jobs), dict[Any, Job]()
    try:
        while True:
            new = list(islice(source, room - len(running)))
            running.update(zip(workers.submit(new), new, strict=True))
            if not running:
                return
            for handle in wait_for_some(running):
                del running[handle]
                yield handle.result()
    except KeyboardInterrupt:
        workers.interrupt()
        raise
    finally:
        workers.close()


def wait_for_some(running: Iterable[Handle]) -> list[Handle]:
    """Return the runs that have ended, as soon as there are any."""
    while not (ended := [handle for handle in running if handle.done()]):
        time.sleep(PAUSE)
    return ended
