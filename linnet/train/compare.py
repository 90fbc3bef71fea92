"""Several units under one budget of parameters: the same data, the same settings, the width that fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from linnet.base.suggest import did_you_mean
from linnet.models.config import find_unit
from linnet.runs.config import RunConfig, override
from linnet.tasks import TASKS


def plans(
    config: RunConfig, units: Sequence[str], budget: int, folder: Path, seeds: Sequence[int] = ()
) -> Iterator[tuple[RunConfig, Path]]:
    """A run for each unit and seed, as wide as the budget allows."""
    task = TASKS[config.task](config.data, config.model, config.loop.seed)
    variants = task.variants(config.data)
    for name in units:
        if name in variants:
            unit, options, settings = variants[name]
        else:
            refuse_unknown(name, variants)
            unit, options, settings = name, config.model.unit_options if name == config.model.unit else {}, {}
        own = override(config, {**settings, "unit": unit, "unit_options": dict(options)})
        fitted = dataclasses.replace(own, model=task.with_model(own.model).fitted(budget))
        for seed in seeds or (config.loop.seed,):
            place = folder / (name if len(seeds) < 2 else f"{name}-{seed}")
            yield override(fitted, {"seed": seed}), place


def variations(
    config: RunConfig, vary: Mapping[str, Sequence[Any]], folder: Path, seeds: Sequence[int] = ()
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
        for seed in seeds or (config.loop.seed,):
            yield override(made, {"seed": seed}), folder / (name if len(seeds) < 2 else f"{name}-{seed}")


def with_option(config: RunConfig, option: str, value: Any) -> RunConfig:
    """With a field of the model changed, or else an option of its unit."""
    if option in {each.name for each in dataclasses.fields(config.model)}:
        return override(config, {option: value})
    known = find_unit(config.model.unit).options()
    if option not in known:
        fields = [each.name for each in dataclasses.fields(config.model)]
        near = did_you_mean(option, [*known, *fields])
        raise ValueError(f"neither the model nor the unit {config.model.unit} has an option {option!r}{near}")
    options = config.model.unit_options
    same = value == options.get(option, known[option].default)
    return config if same else override(config, {"unit_options": {**options, option: value}})


def refuse_unknown(name: str, variants: Collection[str]) -> None:
    try:
        find_unit(name)
    except ValueError as error:
        also = f"; here also {', '.join(variants)}{did_you_mean(name, variants)}" if variants else ""
        raise ValueError(f"{error}{also}") from None
