"""The progress of runs in other processes, read from their folders: the same for every launcher."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from linnet.launch.job import Job
from linnet.runs.errors import Damaged
from linnet.runs.records import Row
from linnet.runs.status import Status, read_status
from linnet.runs.untrusted import LARGE, has_file, open_file, parse_json
from linnet.train.progress import Progress

EVERY = 0.5
"""Seconds between two looks into the folders."""


class Followers:
    """The runs under way, each with what shows its progress."""

    def __init__(self, progress: Callable[[str], Progress] | None):
        self.progress, self.known = progress, dict[Path, Follower]()
        self.looked = 0.0

    def begin(self, jobs: Iterable[Job]) -> None:
        if self.progress:
            self.known |= {job.folder: Follower(job.folder, self.progress(job.folder.name)) for job in jobs}

    def look(self) -> None:
        """Show what is new, twice a second."""
        if time.monotonic() - self.looked >= EVERY:
            for each in self.known.values():
                each.look()
            self.looked = time.monotonic()

    def end(self, job: Job) -> None:
        if self.progress:
            ended = self.known.pop(job.folder)
            ended.look()
            ended.progress.end()


class Follower:
    """Calls the methods of `progress` for what a run writes into its folder from now on."""

    def __init__(self, folder: Path, progress: Progress):
        self.folder, self.progress = folder, progress
        self.shown: Status | None = None
        self.metrics, self.position = folder / "metrics.jsonl", 0
        # A damaged folder is the affair of the process that resumes the run in it.
        with suppress(Damaged, OSError):
            self.shown = read_status(folder)
            self.position = self.metrics.stat().st_size

    def look(self) -> None:
        with suppress(Damaged, OSError):
            status = read_status(self.folder)
            if status is not None and status != self.shown:
                self.show(status)
            for row in self.new_rows():
                self.progress.row(row, status.speed or 0.0 if status else 0.0)

    def show(self, status: Status) -> None:
        before, self.shown = self.shown, status
        if before is None or (before.host, before.pid) != (status.host, status.pid):
            self.progress.begin(status.parameters, status.resumed_at, status.total)
        if status.loss is not None:
            self.progress.step(status.step, status.tokens, status.seconds, status.loss, 0.0)

    def new_rows(self) -> Iterator[Row]:
        """Yield the rows that have been completed since the last call."""
        if not has_file(self.metrics):
            return
        with open_file(self.metrics, "rb") as file:
            # A run that is resumed removes the rows after its checkpoint, and writes them again.
            start = file.seek(min(self.position, os.fstat(file.fileno()).st_size))
            content = file.read(LARGE)
        complete = content[: content.rfind(b"\n") + 1]
        self.position = start + len(complete)
        for line in complete.splitlines():
            yield parse_json(self.metrics, line)
