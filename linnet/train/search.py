"""Search over settings, on Optuna: any of its samplers and pruners, or random search with shrinking ranges.

Kabdolov et al. (2018), section 5, the default: draw uniformly from wide ranges; after a round of runs, shrink
each range to the neighbourhood of the best value, and draw again. The study is in a storage that several
processes can share, and their runs are in one folder that all of them see.

The process that trains a run holds a lock, which ends with the process. So a run that the study calls running
and whose lock is free was interrupted, and the next process resumes it, at once and with any storage of
Optuna. (Optuna's own solution, a heartbeat, works with databases only, and waits for a timeout.)
"""

from __future__ import annotations

import math
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from filelock import AcquireReturnProxy as Held
from filelock import Timeout

from linnet.runs.config import RunConfig, override
from linnet.runs.errors import Damaged, Mismatch, NotFinite, Stopped, missing, room_for
from linnet.runs.records import file_lock, make_folder, read_result, write_atomically
from linnet.runs.untrusted import LARGE, check, open_file, parse_json, read_bytes
from linnet.tasks import TASKS
from linnet.tasks.results import Metric
from linnet.train.loop import train
from linnet.train.progress import Progress
from linnet.train.ranges import Ranges, Space, checked, distribution, draw, kind_of, narrowed
from linnet.train.samplers import SHRINKING, Method, make

ADDRESS = re.compile(r"[a-z][a-z0-9+]+:")  # with one letter it is a drive of Windows


class Plan(NamedTuple):
    ranges: Mapping[str, Any]  # a pair of numbers, a LogRange, or a list of values; see ranges.py
    runs: int = 100  # in all, over all machines
    per_round: int = 100  # of the sampler `shrinking`, as is `shrink`
    shrink: float = 0.5
    sampler: Method = Method(SHRINKING)
    pruner: Method = Method("nop")


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
) -> Any:
    """Continue the study in this folder until it has `plan.runs` runs; return the study."""
    plan = plan._replace(ranges=checked(config, plan.ranges))
    check_plan(plan)
    optuna = load_optuna()
    methods = methods_of(optuna, plan)
    make_folder(folder)
    with turn(folder):
        study = open_study(optuna, storage, folder, methods)
        check_names(optuna, study, plan.ranges, folder)
        check_costs(optuna, study, folder, TASKS[config.task].selected_by(config.data))
    while (mine := next_trial(optuna, study, plan, folder)) is not None:
        trial, ours = mine
        with ours:
            state, loss = run_trial(optuna, trial, config, folder, progress)
            with turn(folder):
                study.tell(trial.number, loss, state)
    return study


def run_trial(
    optuna: Any, trial: Any, config: RunConfig, folder: Path, progress: Callable[[str], Progress] | None
) -> tuple[Any, float | None]:
    """Train with the settings that were drawn; return the final state of the trial and its cost."""
    name, state = name_of(trial), optuna.trial.TrialState
    drawn = trial.user_attrs["settings"]

    def validated(costs: Sequence[float]) -> None:
        report(optuna, trial, costs)

    shown = progress(name) if progress else None
    try:
        result = train(override(config, drawn), folder / name, shown, validated=validated)
    except NotFinite:
        trial.set_user_attr("stopped_by", "not finite")
        report_worst(trial)
        return state.PRUNED, None
    except optuna.TrialPruned:
        trial.set_user_attr("stopped_by", "pruner")
        return state.PRUNED, None
    selects = TASKS[config.task].selected_by(config.data)
    return state.COMPLETE, selects.cost(result["valid"])


def report(optuna: Any, trial: Any, costs: Sequence[float]) -> None:
    """Report the cost of each validation to the study; raise TrialPruned if its pruner stops the run.

    A step of the pruner is a validation. A run that was resumed has reported some of them before.
    """
    known = trial.study.trials[trial.number].intermediate_values
    for number, cost in enumerate(costs, 1):
        if number not in known:
            trial.report(cost, number)
    if trial.should_prune():
        raise optuna.TrialPruned


def report_worst(trial: Any) -> None:
    """A sampler compares runs that were stopped by their last report."""
    known = trial.study.trials[trial.number].intermediate_values
    trial.report(math.inf, max(known, default=0) + 1)


def name_of(trial: Any) -> str:
    return f"{trial.number:04}"


# -------------------------------------------------------------------------------------- whose turn


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Within this, no other process reads the study or writes to it."""
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with room_for(folder), file_lock(folder / ".turn"):
            yield
    except (OptunaError, SQLAlchemyError) as error:
        reason = str(error).splitlines()[0]
        raise Stopped(
            f"the storage of the study in {folder} failed ({reason}). It is a journal file or the address "
            "of a database, like sqlite:///study.db. The runs are kept: repeat the command once it works"
        ) from None


def next_trial(optuna: Any, study: Any, plan: Plan, folder: Path) -> tuple[Any, Held] | None:
    """Return an interrupted trial, or a new one if there are not enough, and its lock."""
    with turn(folder):
        for trial in in_state(study, optuna.trial.TrialState.RUNNING):
            ours = hold(folder, trial)
            if ours and "settings" in trial.user_attrs:
                return optuna.trial.Trial(study, trial._trial_id), ours
            if ours:
                # It ended before all was drawn, so nothing was trained.
                with ours:
                    study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        if len(begun(optuna, study)) >= plan.runs or study.user_attrs.get("exhausted"):
            return None
        return new_trial(optuna, study, plan, folder)


def new_trial(optuna: Any, study: Any, plan: Plan, folder: Path) -> tuple[Any, Held]:
    trial = study.ask()
    ours = hold(folder, trial)
    if ours is None:
        raise Mismatch(f"the run {name_of(trial)} of {folder} is new, and another process is training it")
    ranges = ranges_now(plan, finished(optuna, study)) if plan.sampler.name == SHRINKING else plan.ranges
    trial.set_user_attr("settings", draw(optuna, trial, ranges))
    return trial, ours


def hold(folder: Path, trial: Any) -> Held | None:
    """Return the lock of a run, or None if another process holds it."""
    try:
        return file_lock(folder / f".{name_of(trial)}.lock").acquire(blocking=False)
    except Timeout:
        return None


# ---------------------------------------------------------------------------------------- the study


def load_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise missing("linnet search", "optuna") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def methods_of(optuna: Any, plan: Plan) -> dict[str, Any]:
    """Return the sampler and the pruner of a study."""
    own = plan.sampler._replace(name="random") if plan.sampler.name == SHRINKING else plan.sampler
    return {"sampler": make(optuna, "sampler", own), "pruner": make(optuna, "pruner", plan.pruner)}


def open_study(optuna: Any, storage: str | None, folder: Path, methods: Mapping[str, Any]) -> Any:
    opened = open_storage(optuna, storage, folder)
    with replaying(storage or folder / "study.log"):
        study = optuna.create_study(study_name=folder.name, storage=opened, load_if_exists=True, **methods)
    refuse_other_study(study, folder, storage)
    study.set_user_attr("folder", folder_code(folder))
    # A sampler that has drawn everything calls this; Optuna's own is for its own loop.
    study.stop = lambda: study.set_user_attr("exhausted", True)
    return study


def refuse_other_study(study: Any, folder: Path, storage: str | None) -> None:
    """Processes that share a study share its folder: the locks there say whose runs are whose."""
    there = study.user_attrs.get("folder")
    if there is not None and there != folder_code(folder):
        raise Mismatch(
            f"the study {folder.name!r} in {storage} has its runs in another folder than {folder}; give that "
            "as --run-dir, or one of another name"
        )
    if there is None and any(folder.glob("[0-9]*/config.json")):
        raise Mismatch(
            f"the runs in {folder} are not of the study in {storage or 'study.log'}; give the --storage with "
            "which they were made, or another --run-dir"
        )


def folder_code(folder: Path) -> str:
    """Return an identifier of the folder that does not depend on where it is mounted."""
    path = folder / "study.id"
    code = read_bytes(path)
    if code is None:
        code = uuid.uuid4().hex.encode()
        write_atomically(path, code)
    check(bool(re.fullmatch(rb"[0-9a-f]{32}", code)), path, "it is not the 32 digits of a study")
    return code.decode()


def open_storage(optuna: Any, storage: str | None, folder: Path) -> Any:
    """Return a database by its address, or a journal file (the default), which works in any shared folder."""
    if storage and ADDRESS.match(storage):
        return storage
    path = Path(storage or folder / "study.log")
    # This lock ends with its process; Optuna's own remains after its process was killed.
    lock = file_lock(path.with_name(f".{path.name}.lock"))
    with lock:
        mend(path)
    backend = optuna.storages.journal.JournalFileBackend(str(path), lock_obj=lock)
    with replaying(path):
        return optuna.storages.JournalStorage(backend)


@contextmanager
def replaying(journal: str | Path) -> Iterator[None]:
    """Report errors of Optuna while it replays a journal, which it does without checks."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AssertionError, IndexError, AttributeError) as error:
        raise Damaged(f"{journal} is damaged: Optuna cannot read its study ({error!r})") from None


def mend(path: Path) -> None:
    """Remove an incomplete last line, which a full disk leaves: it would damage the next line."""
    content = read_bytes(path, LARGE) or b""
    if content and not content.startswith(b'{"op_code"'):
        raise ValueError(f"{path} is not a journal of Optuna; give a journal, or the name of a new file")
    whole = content[: content.rfind(b"\n") + 1]
    for number, line in enumerate(whole.splitlines(), 1):
        where = f"{path}, line {number}"
        entry = parse_json(where, line)
        check(
            isinstance(entry, dict) and isinstance(entry.get("op_code"), int),
            where,
            "it is not an entry of Optuna",
        )
    if whole != content:
        with open_file(path, "ab") as file:
            file.truncate(len(whole))


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
