"""A search whose runs a launcher makes: this process draws their settings and tells the study their results.

The next run is drawn when there is room for it, so that it follows from those that have ended. A pruner stops
runs from the process that trains them, so it needs the search in that process: see linnet.train.search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from linnet.launch.job import Job, Outcome, RunsFailed
from linnet.launch.jobs import run_jobs
from linnet.launch.launchers import IN_THIS_PROCESS
from linnet.runs.config import RunConfig
from linnet.runs.errors import log
from linnet.train.claims import Claim, Lost
from linnet.train.progress import Progress
from linnet.train.samplers import NO_PRUNER
from linnet.train.search import DEAD_AFTER, Plan, Searching, begin, report_worst, search, storage_errors


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
    if plan.pruner.name != NO_PRUNER:
        raise ValueError(
            f"--pruner {plan.pruner.name} stops runs of the process that searches, and --launcher {launcher} "
            "makes them in others: leave out one, or start the same command several times without --launcher"
        )
    with storage_errors(folder):
        launched = Launched(begin(config, folder, plan, storage, dead_after))
        try:
            launched.run(launcher, progress)
        finally:
            launched.release()
    return launched.searching.study


class Launched:
    """The runs of a search under way; `held` has the trial and the claim of each by its folder."""

    def __init__(self, searching: Searching):
        self.searching = searching
        self.held: dict[Path, tuple[Any, Claim]] = {}
        self.begun = 0

    def run(self, launcher: str, progress: Callable[[str], Progress] | None) -> None:
        """Make the runs. One that has failed stays claimed until the end, or it would be made again."""
        outcomes = run_jobs(self.jobs(), launcher, progress)
        failed = [each for each in outcomes if not self.told(each)]
        if failed:
            raise RunsFailed(failed, self.begun)

    def jobs(self) -> Iterator[Job]:
        while (mine := self.searching.next()) is not None:
            trial, claim = mine
            job = Job(*self.searching.run_of(trial))
            self.held[job.folder] = trial, claim.__enter__()
            self.begun += 1
            yield job

    def told(self, outcome: Outcome) -> bool:
        """Tell the study how a run has ended; return False if it has failed and can be resumed."""
        trial, claim = self.held[outcome.job.folder]
        try:
            if outcome.result:
                self.searching.tell(trial, claim, outcome.result)
            elif outcome.kind == "NotFinite":
                report_worst(trial)
                self.searching.tell_stopped(trial, claim, "not finite")
            else:
                return False
        except Lost as error:
            log.warning("%s", error)
        del self.held[outcome.job.folder]
        claim.__exit__(None, None, None)
        return True

    def release(self) -> None:
        for _, claim in self.held.values():
            claim.__exit__(None, None, None)
