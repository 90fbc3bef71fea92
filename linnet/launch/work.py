"""What a worker does: one run after the other, each with its output in a file of the run."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from linnet.launch.job import EXPECTED, Job, Outcome, failed
from linnet.runs.errors import room_for
from linnet.runs.overwrite import LOG
from linnet.runs.records import make_folder
from linnet.train.loop import train


def work(job: Job) -> Outcome:
    """Make a run; whatever ends it is the outcome, so that the worker can make the next one."""
    log = job.folder / LOG
    try:
        make_folder(job.folder)
        with output_to(log), trace_shown():
            return Outcome(job, train(job.config, job.folder))
    except Exception as error:  # of one run, and others go on
        return failed(job, error, log)


@contextmanager
def trace_shown() -> Iterator[None]:
    """Print where an unexpected error was raised."""
    try:
        yield
    except EXPECTED:
        raise
    except Exception:
        traceback.print_exc()
        raise


@contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Within this, what the process prints is added to a file: that of libraries in C too."""
    with room_for(path), open(path, "ab") as file:
        before = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, kept in zip((1, 2), before, strict=True):
                os.dup2(kept, number)
                os.close(kept)
