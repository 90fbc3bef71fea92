"""What a run tells its study while it trains: the value of each validation, by which a pruner may stop it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linnet.runs.errors import Pruned, log, room_for
from linnet.train.claims import first_line
from linnet.train.samplers import Method, make
from linnet.train.study import load_optuna, open_storage


class Reports:
    """Called after each validation of a run that a launcher makes; it is sent to the process of the run."""

    def __init__(self, folder: Path, storage: str | None, pruner: Method, number: int):
        self.folder, self.storage, self.pruner, self.number = folder, storage, pruner, number
        self.trial: Any = None

    def __call__(self, costs: Sequence[float]) -> None:
        optuna = load_optuna()
        from sqlalchemy.exc import SQLAlchemyError

        with room_for(self.folder):
            try:
                self.trial = self.trial or self.open(optuna)
            except (optuna.exceptions.OptunaError, SQLAlchemyError) as error:
                say_unknown(f"{self.number:04}", error)
                return
            report(optuna, self.trial, costs)

    def open(self, optuna: Any) -> Any:
        storage, _ = open_storage(optuna, self.storage, self.folder)
        # This process draws nothing, so any sampler will do.
        methods = {
            "sampler": optuna.samplers.RandomSampler(),
            "pruner": make(optuna, "pruner", self.pruner),
        }
        study = optuna.load_study(study_name=self.folder.name, storage=storage, **methods)
        return optuna.trial.Trial(study, study.get_trials(deepcopy=False)[self.number]._trial_id)


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
        say_unknown(name_of(trial), error)


def say_unknown(name: str, error: Exception) -> None:
    log.warning("run %s goes on, unknown to its study: %s", name, first_line(error))


def report_worst(trial: Any) -> None:
    """A sampler compares runs that were stopped by their last report."""
    trial.report(math.inf, max(reported(trial), default=0) + 1)


def reported(trial: Any) -> Mapping[int, float]:
    return trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values


def name_of(trial: Any) -> str:
    return f"{trial.number:04}"
