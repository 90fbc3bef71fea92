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

from linnet.launch.cores import possible, say_shared_cores
from linnet.launch.job import Answer
from linnet.launch.order import Order
from linnet.runs.errors import Stopped, log

SPAWN = multiprocessing.get_context("spawn")
KILLS = 3
"""How often a worker may be killed in one run before the run has failed."""
GUARD = "a program that calls run_jobs needs `if __name__ == '__main__':` around what it does"


class LocalWorkers:
    """Threads that each wait for one process: `concurrent.futures` gives the next run to a free one.

    count   the number of processes; 0: as many as the cores and the memory allow for the first run
    """

    def __init__(self, count: int = 0):
        self.count = count
        self.threads: ThreadPoolExecutor | None = None
        self.idle: SimpleQueue[Worker] = SimpleQueue()
        self.busy: dict[str, Worker] = {}
        self.stopped = False

    queues = True

    @property
    def slots(self) -> int:
        return self.count or 1

    def submit(self, orders: Sequence[Order]) -> list[Future[Answer]]:
        if orders and self.threads is None:
            self.count = self.count or possible(orders[0].threads)
            say_shared_cores(self.count, max(order.threads for order in orders))
            self.threads = ThreadPoolExecutor(self.count)
        return [self.threads.submit(self.make, order) for order in orders if self.threads]

    def make(self, order: Order) -> Answer:
        """Make a run, in a thread; a process that is killed is replaced, and the new one resumes the run."""
        name = str(order.job.folder)
        for number in range(KILLS):
            worker = self.busy[name] = Worker() if self.idle.empty() else self.idle.get()
            try:
                answer = worker.make(order)
            except (EOFError, ConnectionError):
                code = worker.exit_code()
                if self.stopped:
                    break
                log.warning("the process of %s has ended with %s (%d of %d)", name, code, number + 1, KILLS)
            else:
                self.idle.put(worker)
                return answer
            finally:
                del self.busy[name]
        raise Stopped(f"its process was ended {KILLS} times; the last exit code is {code}")

    def interrupt(self) -> None:
        """End all runs as Ctrl-C ends one: each writes a checkpoint after its update."""
        self.stopped = True
        if self.threads is None:
            return
        self.threads.shutdown(wait=False, cancel_futures=True)
        for worker in list(self.busy.values()):
            worker.interrupt()
        try:
            self.threads.shutdown()
        except KeyboardInterrupt:
            for worker in list(self.busy.values()):
                worker.process.kill()
            raise

    def close(self) -> None:
        if self.threads:
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

    def make(self, order: Order) -> Any:
        """Return the answer; raise EOFError if the process ends before."""
        self.ours.send(order.packed())
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
            jobs.send(work(*jobs.recv()))
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
