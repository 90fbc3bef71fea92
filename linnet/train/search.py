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

import math
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from linnet.runs.config import RunConfig, override
from linnet.runs.errors import Damaged, Mismatch, NotFinite, Pruned, Stopped, log, missing, room_for
from linnet.runs.records import Row, file_lock, make_folder, read_result, write_atomically
from linnet.runs.stored import within
from linnet.runs.untrusted import LARGE, check, open_file, parse_json, read_bytes
from linnet.tasks import TASKS
from linnet.tasks.results import Metric
from linnet.train.claims import Claim, Claims, DatabaseClaims, FolderClaims, Lost, Watched, first_line
from linnet.train.loop import train
from linnet.train.progress import Progress, Silent
from linnet.train.ranges import Ranges, Space, checked, distribution, draw, kind_of, narrowed
from linnet.train.same_study import refuse_other
from linnet.train.samplers import NO_PRUNER, SHRINKING, Method, make

ADDRESS = re.compile(r"[a-z][a-z0-9+]+:")  # with one letter it is a drive of Windows
POSTGRES = re.compile(r"^postgres(ql)?://")
DEAD_AFTER = 60.0
"""Seconds after which a process that the database has not heard of is taken for dead."""


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
    return Searching(optuna, config, folder, plan, study, claims)


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


def report(optuna: Any, trial: Any, costs: Sequence[float]) -> None:
    """Report the cost of each validation to the study; raise Pruned if its pruner stops the run.

    A step of the pruner is a validation. Those that were reported before are not reported again: the run may
    have been resumed. If the storage fails, they are reported after the next validation.
    """
    try:
        known = reported(trial)
        for number, cost in enumerate(costs, 1):
            if number not in known:
                trial.report(cost, number)
        if trial.should_prune():
            raise Pruned(f"run {name_of(trial)} was stopped by the pruner after {len(costs)} validations")
    except optuna.exceptions.StorageInternalError as error:
        log.warning("run %s goes on, unknown to its study: %s", name_of(trial), first_line(error))


def report_worst(trial: Any) -> None:
    """A sampler compares runs that were stopped by their last report."""
    trial.report(math.inf, max(reported(trial), default=0) + 1)


def reported(trial: Any) -> Mapping[int, float]:
    return trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values


def name_of(trial: Any) -> str:
    return f"{trial.number:04}"


# ----------------------------------------------------------------------------------- the next run


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Say what to do about errors of the storage of a study."""
    load_optuna()
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (OptunaError, SQLAlchemyError) as error:
        raise Stopped(
            f"the storage of the study in {folder} failed ({first_line(error)}). It is a journal file or the "
            "address of a database, like sqlite:///study.db or postgresql://user@host/name. The runs are "
            "kept: repeat the command once it works"
        ) from None


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


def open_study(
    optuna: Any, opened: Any, storage: str | None, folder: Path, methods: Mapping[str, Any]
) -> Any:
    with replaying(storage or folder / "study.log"):
        study = optuna.create_study(study_name=folder.name, storage=opened, load_if_exists=True, **methods)
    if has_own_folders(storage):
        join_study(study, folder, storage)
    else:
        refuse_other_study(study, folder, storage)
    study.set_user_attr("folder", folder_code(folder))
    # A sampler that has drawn everything calls this; Optuna's own is for its own loop.
    study.stop = lambda: study.set_user_attr("exhausted", True)
    return study


def has_own_folders(storage: str | None) -> bool:
    """Whether processes that share the storage need not share a folder: a database on a server."""
    return bool(storage and ADDRESS.match(storage) and not storage.startswith("sqlite"))


def join_study(study: Any, folder: Path, storage: str | None) -> None:
    """Make an empty folder one of the study."""
    there = study.user_attrs.get("folder")
    if there is not None and read_bytes(folder / "study.id") is None and not has_runs(folder):
        write_atomically(folder / "study.id", there.encode())
    refuse_other_study(study, folder, storage)


def has_runs(folder: Path) -> bool:
    return any(folder.glob("[0-9]*/config.json"))


def refuse_other_study(study: Any, folder: Path, storage: str | None) -> None:
    """Raise if the folder has the runs of another study, or the study has its runs elsewhere."""
    there = study.user_attrs.get("folder")
    if there is not None and there != folder_code(folder):
        raise Mismatch(
            f"the study {folder.name!r} in {hidden(storage)} has its runs in another folder than {folder}; "
            "give that as --run-dir, or one of another name"
        )
    if there is None and has_runs(folder):
        raise Mismatch(
            f"the runs in {folder} are not of the study in {hidden(storage or 'study.log')}; give the "
            "--storage with which they were made, or another --run-dir"
        )


def hidden(storage: str | None) -> str:
    """Return the address of a storage without its password."""
    return re.sub(r"(://[^:@/]*):[^@/]*@", r"\1:***@", storage or "")


def folder_code(folder: Path) -> str:
    """Return an identifier of the folder that does not depend on where it is mounted."""
    path = folder / "study.id"
    code = read_bytes(path)
    if code is None:
        code = uuid.uuid4().hex.encode()
        write_atomically(path, code)
    check(bool(re.fullmatch(rb"[0-9a-f]{32}", code)), path, "it is not the 32 digits of a study")
    return code.decode()


def open_storage(optuna: Any, storage: str | None, folder: Path, dead_after: float) -> tuple[Any, Claims]:
    """Return a database by its address, or a journal file (the default), and who trains which run."""
    if storage and has_own_folders(storage):
        return open_database(optuna, storage, folder.name, dead_after)
    return storage if storage and ADDRESS.match(storage) else journal(optuna, storage, folder), FolderClaims(
        folder
    )


def open_database(optuna: Any, storage: str, study: str, dead_after: float) -> tuple[Any, Claims]:
    from sqlalchemy.exc import IntegrityError, ProgrammingError
    from sqlalchemy.pool import NullPool

    url = driver(storage)
    # A connection for each use: between two uses there are hours of training, in which one may break.
    how: dict[str, Any] = {"poolclass": NullPool}
    if url.startswith("postgresql"):
        # Seconds, and milliseconds: a network that is cut is an error, and not a wait of hours.
        how["connect_args"] = {"connect_timeout": 10, "keepalives_idle": 10, "tcp_user_timeout": 20_000}
    attempts = 5
    while True:
        try:
            opened = optuna.storages.RDBStorage(url, engine_kwargs=how)
            return opened, DatabaseClaims(opened.engine, study, dead_after)
        except (IntegrityError, ProgrammingError):
            # Processes that begin at the same time make the same tables: the second one finds them.
            attempts -= 1
            if not attempts:
                raise
            time.sleep(0.2)
        except ImportError:
            raise missing(f"a study in {url.partition(':')[0]}", extra="postgres") from None


def driver(storage: str) -> str:
    """Return the address of a database with the name of our driver, where it has none."""
    return POSTGRES.sub("postgresql+psycopg://", storage)


def journal(optuna: Any, storage: str | None, folder: Path) -> Any:
    """Return a journal file, which works in any shared folder."""
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
