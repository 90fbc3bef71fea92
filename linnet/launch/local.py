"""Runs in several processes of this machine. One that is killed is started again, and its run resumed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from linnet.launch.job import Job, Outcome

SPAWN = multiprocessing.get_context("spawn")
KILLS = 3
"""How often a worker may be killed in one run before the run has failed."""
NEVER_STARTED = "\nIf the program that calls run_jobs is a file, it needs `if __name__ == '__main__':`."


class LocalWorkers:
    """Threads that each wait for one process: `concurrent.futures` gives the next run to a free one."""

    def __init__(self, count: int):
        self.slots = count
        self.threads = ThreadPoolExecutor(count)
        self.idle: SimpleQueue[Worker] = SimpleQueue()
        self.busy: set[Worker] = set()
        self.stopped = False
        for _ in range(count):
            self.idle.put(Worker())

    def submit(self, jobs: Sequence[Job]) -> list[Future[Outcome]]:
        return [self.threads.submit(self.run, job) for job in jobs]

    def run(self, job: Job) -> Outcome:
        worker = self.idle.get()
        self.busy.add(worker)
        try:
            for _ in range(KILLS):
                try:
                    return worker.run(job)
                except (EOFError, ConnectionError):
                    code = worker.exit_code()
                    if self.stopped:
                        break
                    self.busy.remove(worker)
                    worker = Worker()
                    self.busy.add(worker)
            return Outcome(
                job, None, f"its process was ended {KILLS} times, the last time with {code}", "Lost", 1
            )
        finally:
            self.busy.remove(worker)
            self.idle.put(worker)

    def interrupt(self) -> None:
        """End all runs as Ctrl-C ends one: each writes a checkpoint after its update."""
        self.stopped = True
        self.threads.shutdown(wait=False, cancel_futures=True)
        for worker in list(self.busy):
            worker.interrupt()
        self.threads.shutdown()

    def close(self) -> None:
        self.threads.shutdown()
        while not self.idle.empty():
            self.idle.get().close()


class Worker:
    """A process that makes runs, one at a time."""

    def __init__(self) -> None:
        self.ours, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(theirs,), daemon=True)
        with ctrl_c_blocked():
            self.process.start()
        theirs.close()

    def run(self, job: Job) -> Any:
        """Return the outcome; raise EOFError if the process ends before."""
        self.ours.send(job)
        return self.ours.recv()

    def exit_code(self) -> int | None:
        self.process.join()
        return self.process.exitcode

    def interrupt(self) -> None:
        if os.name != "nt" and self.process.pid and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGINT)

    def close(self) -> None:
        self.ours.close()
        self.process.join()


# ------------------------------------------------------------------------------- in the process


def serve(jobs: Connection) -> None:
    """Make the runs that arrive, until the process that sends them ends or is interrupted."""
    # Imported here, not above: the sender needs no Fabric.
    from linnet.launch.work import work

    take_ctrl_c_from_the_sender_only()
    threading.Thread(target=end_with_the_sender, daemon=True).start()
    try:
        while True:
            jobs.send(work(jobs.recv()))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return


def end_with_the_sender() -> None:
    """A run whose sender was killed ends as if it had been killed itself: the same command resumes it."""
    sender = multiprocessing.parent_process()
    assert sender is not None
    sender.join()
    os._exit(1)


@contextmanager
def ctrl_c_blocked() -> Iterator[None]:
    """A process that is started within this is not ended by the Ctrl-C of the terminal while it imports."""
    if os.name == "nt":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def take_ctrl_c_from_the_sender_only() -> None:
    """Leave the group of processes that a terminal interrupts: two signals would mean "stop at once"."""
    if os.name == "nt":
        return
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # drops one that has arrived already
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
