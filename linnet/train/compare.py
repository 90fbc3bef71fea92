"""Several units under one budget of parameters: the same data, the same settings, the width that fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from linnet.base.suggest import did_you_mean
from linnet.models.config import default_options, find_unit
from linnet.runs.config import RunConfig, override
from linnet.tasks import TASKS
from linnet.tasks.base import Task


def shared_task(config: RunConfig) -> Task:
    """Return a task whose data all runs of a comparison use, so that it is read once."""
    return TASKS[config.task](config.data, config.model, config.loop.seed)


def plans(
    config: RunConfig,
    task: Task,
    units: Sequence[str],
    budget: int,
    folder: Path,
    seeds: Sequence[int] = (),
    folds: int = 0,
) -> Iterator[tuple[RunConfig, Path]]:
    """Yield a run for each unit, seed and fold, with the hidden size that comes closest to the budget."""
    for name in units:
        own = with_unit(config, task, name)
        fitted = dataclasses.replace(own, model=task.with_model(own.model).fitted(budget))
        for label, settings in repeats(config, seeds, folds):
            yield override(fitted, settings), folder / f"{name}{label}"


def repeats(config: RunConfig, seeds: Sequence[int], folds: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the settings of each repetition of a run, and what it adds to the name of the run."""
    parts = TASKS[config.task].fold_settings(config.data, folds) if folds else [{}]
    for seed in seeds or (config.loop.seed,):
        for part in parts:
            label = f"-{seed}" * (len(seeds) > 1) + (f"-fold{part['fold']}" if part else "")
            yield label, {"seed": seed, **part}


def with_unit(config: RunConfig, task: Task, name: str) -> RunConfig:
    """Return the run with another unit, by its name or by the name of a variant of the task."""
    variants = task.variants(config.data)
    if name in variants:
        unit, options, settings = variants[name]
        return override(config, {**settings, "unit": unit, "unit_options": dict(options)})
    check_unit(name, variants)
    options = config.model.unit_options if name == config.model.unit else {}
    return override(config, task.implied({"unit": name, "unit_options": dict(options)}))


def variations(
    config: RunConfig,
    vary: Mapping[str, Sequence[Any]],
    folder: Path,
    seeds: Sequence[int] = (),
    folds: int = 0,
) -> Iterator[tuple[RunConfig, Path]]:
    """The run itself, and for each option and value the run with that one changed."""
    unit, seen = config.model.unit, set()
    for option, value in [
        ("", None),
        *((option, value) for option, values in vary.items() for value in values),
    ]:
        made = with_option(config, option, value) if option else config
        if made.fingerprint in seen:
            continue
        seen.add(made.fingerprint)
        name = f"{unit}-{option}-{value}" if option else unit
        for label, settings in repeats(config, seeds, folds):
            yield override(made, settings), folder / f"{name}{label}"


def with_option(config: RunConfig, option: str, value: Any) -> RunConfig:
    """Return the settings with a field of the model changed, or else an option of its unit."""
    if option in {each.name for each in dataclasses.fields(config.model)}:
        return override(config, {option: value})
    known = default_options(config.model.unit)
    if option not in known:
        fields = [each.name for each in dataclasses.fields(config.model)]
        near = did_you_mean(option, [*known, *fields])
        raise ValueError(f"neither the model nor the unit {config.model.unit} has an option {option!r}{near}")
    options = config.model.unit_options
    same = value == options.get(option, known[option])
    return config if same else override(config, {"unit_options": {**options, option: value}})


def check_unit(name: str, variants: Collection[str]) -> None:
    """Raise ValueError unless `name` is a unit or one of these variants."""
    if name in variants:
        return
    try:
        find_unit(name)
    except ValueError as error:
        also = f"; here also {', '.join(variants)}{did_you_mean(name, variants)}" if variants else ""
        raise ValueError(f"{error}{also}") from None
