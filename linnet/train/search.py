"""Search over settings, on Optuna: any of its samplers and pruners, or random search with shrinking ranges.

Kabdolov et al. (2018), section 5, the default: draw uniformly from wide ranges; after a round of runs, shrink
each range to the neighbourhood of the best value, and draw again. The study is in a storage that several
processes can share.

    in a folder     the study in a journal file or in SQLite; processes claim runs by locks in the folder
    in a database   on a server, such as PostgreSQL; each process may have a folder of its own. A run that
                    another process takes over without its checkpoint starts from its beginning: training
                    is deterministic, so its result is the same
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from linnet.runs.config import RunConfig, override
from linnet.runs.errors import Mismatch, NotFinite, Pruned, log, room_for
from linnet.runs.records import Row, make_folder, read_result
from linnet.runs.stored import within
from linnet.runs.untrusted import check
from linnet.tasks import TASKS
from linnet.tasks.results import Metric
from linnet.train.claims import Claim, Claims, FolderClaims, Lost, Watched
from linnet.train.loop import train
from linnet.train.progress import Progress, Silent
from linnet.train.ranges import Ranges, Space, checked, distribution, draw, kind_of, narrowed
from linnet.train.reports import Reports, name_of, report, report_worst
from linnet.train.same_study import refuse_other
from linnet.train.samplers import NO_PRUNER, SHRINKING, Method, make
from linnet.train.study import DEAD_AFTER, load_optuna, open_storage, open_study, storage_errors


class Plan(NamedTuple):
    ranges: Mapping[str, Any]  # a pair of numbers, a LogRange, or a list of values; see ranges.py
    runs: int = 100  # in all, over all machines
    per_round: int = 100  # of the sampler `shrinking`, as is `shrink`
    shrink: float = 0.5
    sampler: Method = Method(SHRINKING)
    pruner: Method = Method(NO_PRUNER)


def ranges_of(config: RunConfig) -> Mapping[str, tuple[float, float]]:
    """Return the ranges that are searched if the user gives none: those of the task, or around its --lr."""
    rate = config.optimiser.lr
    return TASKS[config.task].ranges or {"lr": (rate / 10, rate * 3)}


def search(
    config: RunConfig,
    folder: Path,
    plan: Plan,
    *,
    storage: str | None = None,
    progress: Callable[[str], Progress] | None = None,
    dead_after: float = DEAD_AFTER,
) -> Any:
    """Continue the study in this folder until it has `plan.runs` runs; return the study.

    dead_after   seconds after which a process is taken for dead, where processes share a database only
    """
    with storage_errors(folder):
        searching = begin(config, folder, plan, storage, dead_after)
        for trial, claim in searching.trials():
            with claim:
                make_run(searching, trial, claim, progress)
    return searching.study


class Searching(NamedTuple):
    """A search under way: its study, and who trains which of its runs."""

    optuna: Any
    config: RunConfig
    folder: Path
    plan: Plan
    study: Any
    claims: Claims
    storage: str | None

    def trials(self) -> Iterator[tuple[Any, Claim]]:
        """Yield the trials to be trained, each with its claim, until there is nothing left to do.

        A process that may have died is waited for until it is heard of, or its trial is free.
        """
        heard: dict[int, Any] = {}
        while not (found := self.look(heard)).is_over:
            if found.mine:
                yield found.mine
                heard = {}
            else:
                time.sleep(self.claims.pause)

    def look(self, heard: dict[int, Any]) -> Found:
        """Look for a trial to be trained; `heard` has what was heard of others since it was empty."""
        return next_trial(self.optuna, self.study, self.plan, self.claims, heard)

    def run_of(self, trial: Any) -> tuple[RunConfig, Path]:
        """Return the settings that were drawn for a trial, and its folder."""
        name = name_of(trial)
        where = self.folder / name
        trial.set_user_attr("where", f"{socket.gethostname()}:{where.resolve()}")
        return within(override(self.config, trial.user_attrs["settings"]), name), where

    def reports_of(self, trial: Any) -> Reports:
        """Return what tells the study of a trial's validations, from another process."""
        return Reports(self.folder, self.storage, self.plan.pruner, trial.number)

    def tell(self, trial: Any, claim: Claim, result: Row) -> None:
        """Tell the study the result of a run."""
        cost = TASKS[self.config.task].selected_by(self.config.data).cost(result["valid"])
        self.end(trial, claim, self.optuna.trial.TrialState.COMPLETE, cost)

    def tell_stopped(self, trial: Any, claim: Claim, reason: str) -> None:
        """Tell the study that a run has no result, and why: it is not made again."""
        trial.set_user_attr("stopped_by", reason)
        self.end(trial, claim, self.optuna.trial.TrialState.PRUNED, None)

    def end(self, trial: Any, claim: Claim, state: Any, cost: float | None) -> None:
        with self.claims.turn():
            claim.check()
            self.study.tell(trial.number, cost, state)


def begin(config: RunConfig, folder: Path, plan: Plan, storage: str | None, dead_after: float) -> Searching:
    """Open the study of this folder, or make it."""
    plan = plan._replace(ranges=checked(config, plan.ranges))
    check_plan(plan)
    optuna = load_optuna()
    methods = methods_of(optuna, plan)
    make_folder(folder)
    opened, claims = open_storage(optuna, storage, folder, dead_after)
    with claims.turn():
        study = open_study(optuna, opened, storage, folder, methods)
        check_names(optuna, study, plan.ranges, folder)
        refuse_other(study, config, plan.ranges, folder)
        if isinstance(claims, FolderClaims):
            check_costs(optuna, study, folder, TASKS[config.task].selected_by(config.data))
    return Searching(optuna, config, folder, plan, study, claims, storage)


def make_run(
    searching: Searching, trial: Any, claim: Claim, progress: Callable[[str], Progress] | None
) -> None:
    """Train, and tell the study the result, unless another process has taken over the run."""
    shown: Any = Watched(progress(name_of(trial)) if progress else Silent(), claim.check)

    def validated(costs: Sequence[float]) -> None:
        with room_for(searching.folder):
            report(searching.optuna, trial, costs)

    try:
        try:
            result = train(*searching.run_of(trial), shown, validated=validated)
        except NotFinite:
            report_worst(trial)
            searching.tell_stopped(trial, claim, "not finite")
        except Pruned:
            searching.tell_stopped(trial, claim, "pruner")
        else:
            searching.tell(trial, claim, result)
    except Lost as error:
        log.warning("%s", error)


# ----------------------------------------------------------------------------------- the next run


class Found(NamedTuple):
    """A trial to be trained and its claim, if there is one now; `is_over` if there will be none."""

    mine: tuple[Any, Claim] | None
    is_over: bool = False


def next_trial(optuna: Any, study: Any, plan: Plan, claims: Claims, heard: dict[int, Any]) -> Found:
    """Find an interrupted trial, or make a new one if there are not enough."""
    with claims.turn():
        if mine := free_trial(optuna, study, claims):
            return Found(mine)
        if len(begun(optuna, study)) < plan.runs and not study.user_attrs.get("exhausted"):
            return Found(new_trial(optuna, study, plan, claims))
        running = in_state(study, optuna.trial.TrialState.RUNNING)
        silent = [trial for trial in running if not claims.is_heard(trial.number, heard)]
        return Found(None, not silent)


def free_trial(optuna: Any, study: Any, claims: Claims) -> tuple[Any, Claim] | None:
    """Return a trial that was interrupted, and its claim."""
    for trial in in_state(study, optuna.trial.TrialState.RUNNING):
        claim = claims.take(trial.number)
        if claim and "settings" in trial.user_attrs:
            return optuna.trial.Trial(study, trial._trial_id), claim
        if claim:
            # It ended before all was drawn, so nothing was trained.
            with claim:
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return None


def new_trial(optuna: Any, study: Any, plan: Plan, claims: Claims) -> tuple[Any, Claim]:
    trial = study.ask()
    claim = claims.take(trial.number)
    if claim is None:
        raise Mismatch(
            f"run {name_of(trial)} of {study.study_name} is new, and another process is training it"
        )
    ranges = ranges_now(plan, finished(optuna, study)) if plan.sampler.name == SHRINKING else plan.ranges
    trial.set_user_attr("settings", draw(optuna, trial, ranges))
    return trial, claim


# ---------------------------------------------------------------------------------------- the study


def methods_of(optuna: Any, plan: Plan) -> dict[str, Any]:
    """Return the sampler and the pruner of a study."""
    own = plan.sampler._replace(name="random") if plan.sampler.name == SHRINKING else plan.sampler
    return {"sampler": make(optuna, "sampler", own), "pruner": make(optuna, "pruner", plan.pruner)}


def in_state(study: Any, *states: Any) -> list[Any]:
    return study.get_trials(deepcopy=False, states=states)


def begun(optuna: Any, study: Any) -> list[Any]:
    """Return the trials that are finished or running."""
    state = optuna.trial.TrialState
    return in_state(study, state.COMPLETE, state.PRUNED, state.RUNNING)


def finished(optuna: Any, study: Any) -> list[tuple[float, Mapping[str, float]]]:
    """Return the cost and the drawn settings of each finished run, by number."""
    trials = in_state(study, optuna.trial.TrialState.COMPLETE)
    return [(trial.value, trial.params) for trial in trials]


# ---------------------------------------------------------------------------------------- the draws


def ranges_now(plan: Plan, known: list[tuple[float, Mapping[str, Any]]]) -> dict[str, Space]:
    """The ranges of the next draw: narrower by `shrink` for each round, around the best of those before."""
    rounds = len(known) // plan.per_round
    if not rounds:
        return dict(plan.ranges)
    _, best = min(known[: rounds * plan.per_round], key=lambda pair: pair[0])
    return {name: narrowed(best[name], plan.ranges[name], plan.shrink**rounds) for name in plan.ranges}


def check_costs(optuna: Any, study: Any, folder: Path, selects: Metric) -> None:
    """Check that the study and the run directories, if they still exist, have the same costs."""
    for trial in in_state(study, optuna.trial.TrialState.COMPLETE):
        run = folder / name_of(trial)
        result = read_result(run)
        same = result is None or selects.cost(result["valid"]) == trial.value
        known = selects.value(trial.value)
        check(same, run / "result.json", f"its valid {selects.name} is not that of the study, {known}")


def check_plan(plan: Plan) -> None:
    """Check the plan before the first run."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise ValueError("each run of a search is one process: start several searches, not one by torchrun")
    if not 0 < plan.shrink <= 1 or plan.per_round < 1 or plan.runs < 1:
        raise ValueError(
            f"runs and per_round are at least 1 and shrink is above 0 and at most 1; got {plan.runs}, "
            f"{plan.per_round} and {plan.shrink}"
        )
    usual = Plan({})
    if plan.sampler.name != SHRINKING and plan[2:4] != usual[2:4]:
        raise ValueError(
            f"--per-round and --shrink are of the sampler {SHRINKING}; leave them out for {plan.sampler.name}"
        )


def check_names(optuna: Any, study: Any, ranges: Ranges, folder: Path) -> None:
    """Draws follow from those before: the next one must be of the same names and kinds."""
    for trial in study.get_trials(deepcopy=False):
        drawn = trial.user_attrs.get("settings", {})
        check(isinstance(drawn, dict), f"the study in {folder}", f"run {trial.number} has no settings")
        if "settings" in trial.user_attrs:
            refuse_other_ranges(optuna, trial.distributions, ranges, folder)


def refuse_other_ranges(optuna: Any, drawn: Mapping[str, Any], ranges: Ranges, folder: Path) -> None:
    if set(drawn) != set(ranges):
        there, here = (", ".join(sorted(names)) for names in (drawn, ranges))
        raise ValueError(f"the study in {folder} draws {there}, and the ranges given are of {here}")
    for name, space in ranges.items():
        try:
            optuna.distributions.check_distribution_compatibility(drawn[name], distribution(optuna, space))
        except ValueError:
            raise ValueError(
                f"the study in {folder} draws {name} by {drawn[name]}, and the range given is "
                f"{kind_of(space)}; give those with which it began, or another --run-dir"
            ) from None
