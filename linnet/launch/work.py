"""What a worker does: one run after the other, each with its output in a file of the run."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from linnet.launch.job import EXPECTED, Answer, failure
from linnet.launch.order import Order, enter, refuse_other_data, refuse_other_versions
from linnet.runs.config import RunConfig
from linnet.runs.errors import Damaged, DiskFull, Mismatch, Pruned, room_for
from linnet.runs.overwrite import is_run, refuse_occupied
from linnet.runs.records import make_folder
from linnet.runs.status import FAILED, FINISHED, LOG, RUNNING, Status, read_status, write_status
from linnet.tasks import TASKS
from linnet.tasks.base import Task
from linnet.train.loop import train
from linnet.train.progress import Plain


class Reader:
    """Returns the task of a run; the data that the last one has read is used again if it is the same."""

    def __init__(self, last: Task | None = None):
        self.last = last

    def __call__(self, config: RunConfig) -> Task:
        make: Callable[..., Task] = TASKS[config.task]
        if self.last is not None and type(self.last) is make:
            make = self.last.with_settings
        self.last = make(config.data, config.model, config.loop.seed)
        return self.last


read_task = Reader()


def work(versions: Mapping[str, str], content: bytes) -> Answer:
    """Make a run; whatever ends it is the answer, so that the worker can make the next one.

    versions   those of the sender: another version of Linnet might not understand the order
    content    the order
    """
    try:
        refuse_other_versions(versions)
        order = pickle.loads(content)
    except Exception as error:  # of one run, and others go on
        return failure(error)
    return follow(order)


def follow(order: Order) -> Answer:
    folder = order.job.folder
    try:
        enter(order.folder)
        # Before a log is written there: it may be a folder of the user.
        refuse_occupied(folder)
        make_folder(folder)
    except Exception as error:  # of one run, and others go on
        return failure(error)
    try:
        with output_to(folder / LOG):
            return make_run(order)
    except Exception as error:  # of one run, and others go on
        with suppress(DiskFull):
            note_failure(order, error)
        return failure(error, folder / LOG)


def make_run(order: Order) -> Answer:
    job = order.job
    try:
        task = read_task(job.config)
        refuse_other_data(task, order.data)
        how: dict[str, Any] = {"threads": order.threads, "launcher": order.launcher}
        return Answer(train(job.config, job.folder, Plain(), task, job.validated, **how))
    except EXPECTED as error:
        print(error, file=sys.stderr)
        raise
    except Exception:
        traceback.print_exc()
        raise


def note_failure(order: Order, error: Exception) -> None:
    """Note the failure of a run that has not begun; one that has begun has noted how it has ended."""
    if not isinstance(error, Pruned) and may_note(order.job.folder, error):
        failed = Status(FAILED, launcher=order.launcher, error=str(error) or repr(error))
        write_status(order.job.folder, failed)


def may_note(folder: Path, error: Exception) -> bool:
    """Return whether the state of this folder is ours: not that of another run, or of another process."""
    try:
        status = read_status(folder)
    except Damaged:
        return False
    if status is None or isinstance(error, Mismatch):
        return status is None and not is_run(folder)
    return status.was_killed or status.state not in (RUNNING, FINISHED)


@contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Within this, what the process prints is added to a file: by Python, and by libraries in C."""
    with room_for(path), open(path, "a", buffering=1, encoding="utf-8") as file, ExitStack() as stack:
        for number in (1, 2):
            kept = os.dup(number)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, number)
            os.dup2(file.fileno(), number)
        stack.enter_context(redirect_stdout(file))
        stack.enter_context(redirect_stderr(file))
        yield
