"""Runs in several processes of this machine. One that is killed is started again, and its run resumed."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any

from linnet.launch.cores import possible, say_shared_cores
from linnet.launch.job import AT_CTRL_C, Answer
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
        self.most_threads = 0
        # An interrupt must find each worker that makes a run, even one that is just being started.
        self.lock, self.stopped = threading.Lock(), False

    queues, is_batch, pause, at_ctrl_c = True, False, 0.02, AT_CTRL_C

    @property
    def slots(self) -> int:
        return self.count or 1

    def submit(self, orders: Sequence[Order]) -> list[Future[Answer]]:
        if orders and self.threads is None:
            self.count = self.count or possible(orders[0].threads)
            self.threads = ThreadPoolExecutor(self.count)
        for order in orders:
            if order.threads > self.most_threads:
                self.most_threads = order.threads
                say_shared_cores(self.count, order.threads)
        return [self.threads.submit(self.make, order) for order in orders if self.threads]

    def make(self, order: Order) -> Answer:
        """Make a run, in a thread; a process that is killed is replaced, and the new one resumes the run."""
        name, packed = str(order.job.folder), order.packed()
        for number in range(KILLS):
            try:
                with self.worker_for(name) as worker:
                    return worker.make(packed)
            except (EOFError, ConnectionError):
                code = worker.exit_code()
                if self.stopped:
                    break
                log.warning("the process of %s has ended with %s (%d of %d)", name, code, number + 1, KILLS)
        raise Stopped(f"its process was ended {KILLS} times; the last exit code is {code}")

    @contextmanager
    def worker_for(self, name: str) -> Iterator[Worker]:
        """Yield a worker that is interrupted with this run, and afterwards idle unless it has ended."""
        try:
            worker = self.idle.get_nowait()
        except Empty:
            worker = Worker()
        with self.lock:
            self.busy[name] = worker
            if self.stopped:
                worker.interrupt()
        try:
            yield worker
        finally:
            with self.lock:
                del self.busy[name]
            if worker.waits:
                self.idle.put(worker)

    def interrupt(self) -> None:
        """End all runs as Ctrl-C ends one: each writes a checkpoint after its update."""
        if self.threads is None:
            return
        self.threads.shutdown(wait=False, cancel_futures=True)
        with self.lock:
            self.stopped = True
            for worker in self.busy.values():
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
        with suppress(Empty):
            while True:
                self.idle.get_nowait().close()


class Worker:
    """A process that makes runs, one at a time; it `waits` for the next one if it has sent its answer."""

    def __init__(self) -> None:
        self.waits = True
        self.ours, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(theirs,), daemon=True)
        with ctrl_c_blocked():
            self.process.start()
        theirs.close()

    def make(self, packed: Any) -> Any:
        """Return the answer to a packed order; raise EOFError if the process ends before."""
        self.waits = False
        self.ours.send(packed)
        answer = self.ours.recv_bytes()
        self.waits = True
        return pickle.loads(answer)

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
    leave_the_group_of_the_sender()
    # Imported here, not above: the sender needs no Fabric.
    from linnet.launch.work import work

    threading.Thread(target=end_with_the_sender, daemon=True).start()
    try:
        take_ctrl_c()
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
    """A process that is started within this takes a Ctrl-C once it has imported what it needs."""
    if os.name == "nt":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_the_group_of_the_sender() -> None:
    """Take signals from the sender, not from the terminal too: two would mean "stop at once"."""
    if os.name != "nt":
        os.setpgid(0, 0)


def take_ctrl_c() -> None:
    """Raise KeyboardInterrupt for a Ctrl-C, at once if one has arrived: signals that wait are one."""
    if os.name != "nt":
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
