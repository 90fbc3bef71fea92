"""Random search whose ranges shrink around the best, on Optuna.

Kabdolov et al. (2018), section 5: draw uniformly from wide ranges; after a round of runs, shrink each range
to the neighbourhood of the best value, and draw again. The study is in a storage that several machines can
share: each asks it how many runs are done, and so in which round it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from linnet.train.config import RunConfig, override
from linnet.train.errors import NotFinite, missing
from linnet.train.loop import train
from linnet.train.progress import Progress

SCRN_RANGES = {
    "input_dropout": (0.01, 0.6),
    "layer_dropout+output_dropout": (0.01, 0.6),
    "lr": (0.5, 0.99),
    "decay": (0.5, 0.89),
    "init_scale": (0.05, 0.3),
}
"""Those of the paper for naive dropout; for variational, state_dropout too."""


class Plan(NamedTuple):
    ranges: Mapping[str, tuple[float, float]]  # a name, or several with + between them that share a value
    runs: int = 100  # in all, over all machines
    per_round: int = 100
    shrink: float = 0.5


def search(
    config: RunConfig,
    folder: Path,
    plan: Plan,
    *,
    storage: str | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> Any:
    """Go on with the study of this folder until it has `plan.runs` runs; the study."""
    check(config, plan)
    optuna = load_optuna()
    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name=folder.name,
        storage=open_storage(optuna, storage, folder),
        sampler=optuna.samplers.RandomSampler(),
        load_if_exists=True,
    )

    def one(trial: Any) -> float:
        drawn = draw(trial, ranges_now(plan, finished(optuna, study)))
        trial.set_user_attr("settings", drawn)
        name = f"{trial.number:04}"
        try:
            result = train(override(config, drawn), folder / name, progress(name) if progress else None)
        except NotFinite as error:
            raise optuna.TrialPruned(str(error)) from None
        return result["valid"]["loss"]

    while (left := plan.runs - len(done(optuna, study))) > 0:
        study.optimize(one, n_trials=min(left, 1))
    return study


def load_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise missing("optuna", error) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_storage(optuna: Any, storage: str | None, folder: Path) -> Any:
    """A database by its address, or a journal file: the default, which any shared folder will hold."""
    if storage and "://" in storage:
        return storage
    backend = optuna.storages.journal.JournalFileBackend(str(storage or folder / "study.log"))
    return optuna.storages.JournalStorage(backend)


def done(optuna: Any, study: Any) -> list[Any]:
    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    return study.get_trials(deepcopy=False, states=states)


def finished(optuna: Any, study: Any) -> list[tuple[float, Mapping[str, float]]]:
    """The loss and the draw of each run that came to its end, in the order of their numbers."""
    trials = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    return [(trial.value, trial.params) for trial in trials]


def ranges_now(plan: Plan, known: list[tuple[float, Mapping[str, float]]]) -> dict[str, tuple[float, float]]:
    """The ranges of the next draw: narrower by `shrink` for each round, around the best of those before."""
    rounds = len(known) // plan.per_round
    if not rounds:
        return dict(plan.ranges)
    _, best = min(known[: rounds * plan.per_round], key=lambda pair: pair[0])
    return {name: around(best[name], plan.ranges[name], plan.shrink**rounds) for name in plan.ranges}


def around(best: float, whole: tuple[float, float], share: float) -> tuple[float, float]:
    """A piece of the range with `best` in its middle, moved where it would stand out."""
    low, high = whole
    width = (high - low) * share
    start = min(max(best - width / 2, low), high - width)
    return start, start + width


def draw(trial: Any, ranges: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    drawn: dict[str, float] = {}
    for names, (low, high) in ranges.items():
        value = trial.suggest_float(names, low, high)
        drawn.update(dict.fromkeys(names.split("+"), value))
    return drawn


def check(config: RunConfig, plan: Plan) -> None:
    """Before the first run: a wrong name would be found after it otherwise."""
    for names, (low, high) in plan.ranges.items():
        if not low <= high:
            raise ValueError(
                f"the range of {names} is from the lower to the higher end; got {low:g}:{high:g}"
            )
        for end in (low, high):
            override(config, dict.fromkeys(names.split("+"), float(end)))
    if not 0 < plan.shrink <= 1 or plan.per_round < 1 or plan.runs < 1:
        raise ValueError(
            f"runs and per_round are at least 1 and shrink is above 0 and at most 1; got {plan[1:]}"
        )
