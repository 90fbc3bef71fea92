"""A search whose runs a launcher makes: this process draws their settings and tells the study their results.

The next run is drawn when there is room for it, so that it follows from those that have ended. The process
that trains a run reports its validations to the study, and there a pruner stops it: see linnet.train.reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from linnet.launch.job import Job, Outcome, RunsFailed
from linnet.launch.jobs import run_jobs
from linnet.launch.launchers import IN_THIS_PROCESS
from linnet.runs.config import RunConfig
from linnet.runs.errors import log
from linnet.train.claims import Claim, Lost
from linnet.train.progress import Progress
from linnet.train.reports import report_worst
from linnet.train.search import Plan, Searching, begin, search
from linnet.train.study import DEAD_AFTER, storage_errors

PAUSE = 1.0
"""Seconds between two looks at whether a process that shares the study has left a run."""


def search_by(
    launcher: str,
    config: RunConfig,
    folder: Path,
    plan: Plan,
    *,
    storage: str | None = None,
    progress: Callable[[str], Progress] | None = None,
    dead_after: float = DEAD_AFTER,
) -> Any:
    """Continue the study in this folder until it has `plan.runs` runs; return the study."""
    if launcher == IN_THIS_PROCESS:
        return search(config, folder, plan, storage=storage, progress=progress, dead_after=dead_after)
    with storage_errors(folder):
        launched = Launched(begin(config, folder, plan, storage, dead_after))
        try:
            launched.run(launcher, progress)
        finally:
            launched.release()
    return launched.searching.study


class Launched:
    """The runs of a search under way.

    held      the trial and the claim of each by its folder; a run that has failed stays claimed until the
              end, or it would be made again
    look_at   when to look for a run again, if there was none to begin
    heard     what was heard of other processes since a run here has begun or ended
    """

    def __init__(self, searching: Searching):
        self.searching = searching
        self.held: dict[Path, tuple[Any, Claim]] = {}
        self.failed: list[Outcome] = []
        self.begun, self.look_at = 0, 0.0
        self.heard: dict[int, Any] = {}

    def run(self, launcher: str, progress: Callable[[str], Progress] | None) -> None:
        # Closed before the claims are released: no other process may begin a run that is still trained here.
        with closing(run_jobs(self.jobs(), launcher, progress)) as outcomes:
            for outcome in outcomes:
                self.tell(outcome)
        if self.failed:
            raise RunsFailed(self.failed, self.begun)

    def jobs(self) -> Iterator[Job | None]:
        """Yield the next job; None: there is none now.

        As long as runs are trained here, there may be a further one: that of a process that dies elsewhere.
        """
        while True:
            if time.monotonic() < self.look_at:
                yield None
                continue
            found = self.searching.look(self.heard)
            if found.mine:
                yield self.begin(*found.mine)
            elif found.is_over and len(self.held) == len(self.failed):
                return
            else:
                self.look_at = time.monotonic() + max(PAUSE, self.searching.claims.pause)
                yield None

    def begin(self, trial: Any, claim: Claim) -> Job:
        job = Job(*self.searching.run_of(trial), self.searching.reports_of(trial))
        self.held[job.folder] = trial, claim.__enter__()
        self.begun, self.heard = self.begun + 1, {}
        return job

    def tell(self, outcome: Outcome) -> None:
        """Tell the study how a run has ended, unless it has failed and can be resumed."""
        self.look_at, self.heard = 0.0, {}
        trial, claim = self.held[outcome.job.folder]
        try:
            if outcome.result:
                self.searching.tell(trial, claim, outcome.result)
            elif outcome.kind == "NotFinite":
                report_worst(trial)
                self.searching.tell_stopped(trial, claim, "not finite")
            elif outcome.kind == "Pruned":
                self.searching.tell_stopped(trial, claim, "pruner")
            else:
                self.failed.append(outcome)
                return
        except Lost as error:
            log.warning("%s", error)
        del self.held[outcome.job.folder]
        claim.__exit__(None, None, None)

    def release(self) -> None:
        for _, claim in self.held.values():
            claim.__exit__(None, None, None)
