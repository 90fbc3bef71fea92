"""Runs as jobs of SLURM, by submitit: an array of jobs, each requeued when its time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from linnet.base.project import advice
from linnet.launch.cores import possible
from linnet.launch.job import AT_CTRL_C, Answer
from linnet.launch.order import Order
from linnet.runs.errors import Stopped, log

KILLS = 3
"""How often the job of a run may end without an answer before the run has failed."""
GRACE = 5.0
"""Seconds after the end of a job until its answer must be visible: clusters' file systems take time."""
DEFAULTS = {"timeout_min": 60}
"""A run that takes longer is requeued and resumes, so short jobs, which wait less, are as good."""
TIMEOUTS = 1000
LOCAL_PAUSE, PAUSE = 0.1, 1.0
"""Seconds between two looks at all jobs: on a cluster, each look asks a file system that is shared."""
SEARCHED = 16
"""Runs at the same time where later runs depend on earlier ones."""


class SlurmWorkers:
    """Jobs of SLURM, or processes of this machine by submitit's own executor (cluster=local)."""

    is_batch = True

    def __init__(self, parameters: Mapping[str, Any]):
        self.submitit = load_submitit()
        given = {**DEFAULTS, **parameters}
        self.cluster = given.pop("cluster", "slurm")
        self.parameters = given
        self.executor: Any = None
        self.handles: list[SubmittedRun] = []
        self.slots = 1 if self.cluster == "local" else SEARCHED
        self.pause = LOCAL_PAUSE if self.cluster == "local" else PAUSE
        # SLURM asks a process to end by SIGTERM, which submitit ignores, and then kills it.
        cancelled = "the jobs are cancelled; the same command resumes them from their last checkpoints"
        self.at_ctrl_c = AT_CTRL_C if self.cluster == "local" else cancelled

    @property
    def queues(self) -> bool:
        """The local executor has no queue: it starts everything at once."""
        return self.cluster != "local"

    def submit(self, orders: Sequence[Order]) -> list[SubmittedRun]:
        if not orders:
            return []
        if self.executor is None:
            self.executor = self.make_executor(orders[0])
        with self.executor.batch():
            jobs = [self.begin(order) for order in orders]
        # The processes of this machine see each other's files at once.
        grace = 0.0 if self.cluster == "local" else GRACE
        new = [
            SubmittedRun(job, partial(self.begin, order), order.job.folder, grace)
            for job, order in zip(jobs, orders, strict=True)
        ]
        self.handles += new
        return new

    def make_executor(self, order: Order) -> Any:
        folder = order.folder / order.job.folder.parent / ".submitit"
        try:
            executor = self.submitit.AutoExecutor(
                folder, cluster=self.cluster, slurm_max_num_timeout=TIMEOUTS
            )
            executor.update_parameters(cpus_per_task=order.threads, **self.parameters)
        except (RuntimeError, ValueError, NameError, AssertionError) as error:
            raise Stopped(f"--launcher submitit:{self.cluster} does not work here: {error}") from None
        if self.cluster == "local":
            self.slots = possible(order.threads)
        return executor

    def begin(self, order: Order) -> Any:
        return self.executor.submit(Requeued(), *order.packed())

    def interrupt(self) -> None:
        for each in self.handles:
            each.job.cancel(check=False)

    def close(self) -> None:
        """Nothing is left: jobs end by themselves."""


class Requeued:
    """`work`, with what submitit calls when the time of a job is over: the same again resumes the run."""

    def __call__(self, *arguments: Any) -> Answer:
        # Imported here, not above: the sender needs no Fabric.
        from linnet.launch.work import work

        return work(*arguments)

    def checkpoint(self, *arguments: Any) -> Any:
        return load_submitit().helpers.DelayedSubmission(self, *arguments)


class SubmittedRun:
    """A job, and the one that replaces it if it ends without an answer."""

    def __init__(self, job: Any, again: Callable[[], Any], folder: Path, grace: float):
        self.job, self.again, self.folder, self.grace = job, again, folder, grace
        self.lost, self.ended_at = 0, 0.0

    def done(self) -> bool:
        if not self.job.done():
            return False
        if self.job.paths.result_pickle.exists():
            return True
        self.ended_at = self.ended_at or time.monotonic()
        return time.monotonic() - self.ended_at >= self.grace and not self.begun_again()

    def begun_again(self) -> bool:
        self.lost, self.ended_at = self.lost + 1, 0.0
        log.warning(
            "job %s of %s has ended without an answer (%d of %d)",
            *(self.job.job_id, self.folder, self.lost, KILLS),
        )
        if self.lost < KILLS:
            self.job = self.again()
        return self.lost < KILLS

    def result(self) -> Answer:
        if self.lost >= KILLS:
            raise Stopped(f"its job was ended {KILLS} times; the last is {self.job.job_id}")
        return self.job.result()


def load_submitit() -> Any:
    try:
        import submitit
    except ImportError:
        raise ImportError(
            f"--launcher submitit needs packages that are not installed: {advice('submitit')}"
        ) from None
    return submitit
