"""The page of a comparison or a search, which follows its runs while they train."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linnet.analysis.report import REFRESH, write_progress, write_report
from linnet.analysis.runs import is_run, read_run
from linnet.analysis.states import State, states
from linnet.cli.output import is_first_process, say
from linnet.launch.launchers import IN_THIS_PROCESS
from linnet.runs.records import Row
from linnet.train.progress import Progress

DRAWING = 0.1
"""The share of the time that drawing the page may take."""


class LivePage:
    """A page of runs: `report.html` in their folder, from the first validation on.

    count   how many runs there will be
    done    how many have ended
    due     when to draw the page again; None: there is no page
    """

    draws_each = True
    """Whether runs of this process are so few that the page is drawn after each of them."""

    def __init__(self, folder: Path, title: str, count: int, launcher: str):
        self.folder, self.path = folder, folder / "report.html"
        self.title, self.count, self.done = title, count, 0
        # While runs train in other processes, this one has time.
        self.has_time = launcher != IN_THIS_PROCESS
        self.due: float | None = None
        self.progress_due = 0.0

    def runs(self) -> Sequence[Path]:
        """Return the runs that are drawn, if they have begun."""
        raise NotImplementedError

    def states(self) -> list[State]:
        return states(self.runs(), self.folder)

    def validated(self) -> None:
        """Write the page after the first validation of all: there is something to look at early."""
        if self.due is None:
            self.write()
            say(f"the first curves are in {self.path}, which updates by itself")
        elif self.has_time and self.is_due:
            self.write()

    def stepped(self) -> None:
        """Write every few seconds what runs in other processes do, without drawing."""
        now = time.monotonic()
        if self.has_time and self.due is not None and now > self.progress_due:
            self.progress_due = now + REFRESH
            known = self.states()
            write_progress(self.path, self.done, self.count, known)

    def ended(self) -> None:
        """Note that a run has ended, and write the page unless it was the last one."""
        self.count_end()
        if self.done < self.count and (self.is_due or (self.draws_each and not self.has_time)):
            self.write()

    def count_end(self) -> None:
        self.done += 1

    @property
    def is_due(self) -> bool:
        """Whether the last drawing took at most a tenth of the time that has passed since it began."""
        return self.due is None or time.monotonic() > self.due

    def write(self) -> None:
        """Write the page with the runs that have begun; once all have ended, without what they do now."""
        if not is_first_process():
            return
        began = time.monotonic()
        runs = [read_run(path) for path in self.runs() if is_run(path)]
        unfinished = self.done < self.count
        now = self.states() if unfinished else []
        write_report(self.path, runs, self.title, self.count if unfinished else 0, now, self.done)
        self.due = time.monotonic() + max(REFRESH, (time.monotonic() - began) / DRAWING)


class Followed:
    """The progress of a run that is on a page."""

    def __init__(self, shown: Progress, page: LivePage):
        self.shown, self.page = shown, page

    def step(self, step: int, tokens: int, seconds: float, loss: float, rate: float) -> None:
        self.shown.step(step, tokens, seconds, loss, rate)
        self.page.stepped()

    def row(self, row: Row, speed: float) -> None:
        self.shown.row(row, speed)
        if row["split"] == "valid":
            self.page.validated()

    def end(self) -> None:
        self.shown.end()
        self.page.ended()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shown, name)
