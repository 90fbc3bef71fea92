"""The one function that makes many runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from linnet.launch.follow import Followers
from linnet.launch.job import Answer, Job, Outcome, failure
from linnet.launch.launchers import IN_THIS_PROCESS, Handle, Workers, workers_of
from linnet.launch.order import Order, Orders
from linnet.runs.errors import Damaged
from linnet.runs.status import LOG, read_status
from linnet.tasks.base import Task
from linnet.train.progress import Progress


def run_jobs(
    jobs: Iterable[Job | None],
    launcher: str = IN_THIS_PROCESS,
    progress: Callable[[str], Progress] | None = None,
    task: Task | None = None,
) -> Generator[Outcome, None, None]:
    """Make runs, and yield the outcome of each when it ends; an error ends one run, and others go on.

    launcher   local:1, one after the other in this process, or another of `launchers.LAUNCHERS`
    progress   returns what shows the progress of the run of this name, in this process
    task       a task whose data was read: a first run with the same data does not read it again

    A cluster is given all jobs of a list. Of any other iterable, the next job is taken when there is room for
    it, so that it may depend on the outcomes before it; None means that there is no job yet. A run that
    exists is resumed, or its result returned. A run with the data of the one before it does not read it
    again.
    """
    workers = workers_of(launcher)
    if workers is None:
        yield from in_turn(jobs, progress, task)
    else:
        yield from at_the_same_time(jobs, workers, Orders(launcher, task), Followers(progress))


def in_turn(
    jobs: Iterable[Job | None], progress: Callable[[str], Progress] | None, task: Task | None
) -> Generator[Outcome, None, None]:
    # Imported here, not above: a command that only prints its help needs no Fabric.
    from linnet.launch.work import Reader
    from linnet.train.fabric import processes
    from linnet.train.loop import train

    read_task = Reader(task)
    for job in filter(None, jobs):
        shown = progress(job.folder.name) if progress else None
        try:
            known = read_task(job.config)
            how: dict[str, Any] = {"validated": job.validated, "launcher": IN_THIS_PROCESS}
            answer = Answer(train(job.config, job.folder, shown, known, **how))
        except Exception as error:  # of one run, and others go on
            if processes() > 1:
                raise  # the other processes of this run wait for this one
            answer = failure(error)
        yield Outcome(job, *answer)


# ------------------------------------------------------------------------------ in other processes


class Ended(NamedTuple):
    """A run that cannot even be sent, in the place of a handle."""

    answer: Answer

    def done(self) -> bool:
        return True

    def result(self) -> Answer:
        return self.answer


class Source:
    """The jobs that are still to be made; `is_empty` once there are no more."""

    def __init__(self, jobs: Iterable[Job | None]):
        self.jobs, self.is_empty = iter(jobs), False
        self.is_list = isinstance(jobs, Sequence)

    def take(self, most: int) -> list[Job]:
        """Return the next jobs, at most as many as this, and fewer if there are no more for now."""
        found: list[Job] = []
        while len(found) < most:
            try:
                job = next(self.jobs)
            except StopIteration:
                self.is_empty = True
                break
            if job is None:
                break
            found.append(job)
        return found


def at_the_same_time(
    jobs: Iterable[Job | None], workers: Workers, orders: Orders, followers: Followers
) -> Generator[Outcome, None, None]:
    source, running = Source(jobs), dict[Handle, Job]()
    try:
        while running or not source.is_empty:
            new = source.take(room(source, workers, len(running)))
            followers.begin(new)
            running |= submitted(new, orders, workers)
            ended = [handle for handle in running if handle.done()]
            for handle in ended:
                job = running.pop(handle)
                followers.end(job)
                yield outcome_of(handle, job)
            if not new and not ended:
                followers.look()
                time.sleep(workers.pause)
    except BaseException as error:
        # Ctrl-C, an error here, or the caller wants no further outcomes.
        if isinstance(error, KeyboardInterrupt):
            print(f"\nCtrl-C: {workers.at_ctrl_c}", file=sys.stderr)
        workers.interrupt()
        raise
    finally:
        workers.close()


def room(source: Source, workers: Workers, running: int) -> int:
    """Return how many more jobs to submit now: without limit of a list, if the workers have a queue.

    Before a job is submitted, its model is built to count its parameters. So where jobs need not be submitted
    together, the first one trains before the second one is looked at.
    """
    most = sys.maxsize if workers.queues and source.is_list else max(0, workers.slots - running)
    return most if workers.is_batch else min(most, 1)


def submitted(jobs: Sequence[Job], orders: Orders, workers: Workers) -> dict[Handle, Job]:
    made = [ordered(job, orders) for job in jobs]
    handles = iter(workers.submit([each for each in made if isinstance(each, Order)]))
    return {
        each if isinstance(each, Ended) else next(handles): job for each, job in zip(made, jobs, strict=True)
    }


def ordered(job: Job, orders: Orders) -> Order | Ended:
    try:
        return orders.of(job)
    except Exception as error:  # of one run, and others go on
        return Ended(failure(error))


def outcome_of(handle: Handle, job: Job) -> Outcome:
    try:
        answer = handle.result()
    except Exception as error:  # the worker is lost, and with it what it would have said
        answer = failure(error, job.folder / LOG)._replace(host=last_host(job.folder))
    return Outcome(job, *answer)


def last_host(folder: Path) -> str:
    """Return the machine that has noted the position of a run last; "" if none has."""
    with suppress(Damaged, OSError):
        status = read_status(folder)
        return status.host if status else ""
    return ""
