"""Several units under one budget of parameters: the same data, the same settings, the width that fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from linnet.models.config import find_unit
from linnet.train.config import RunConfig, override
from linnet.train.errors import nearest
from linnet.train.kinds import Comparison, kind


def comparison(task: str) -> Comparison:
    found = kind(task).comparison
    if found is None:
        raise ValueError(f"units cannot be compared at {task!r}: it does not say how models are fitted")
    return found


def plans(
    config: RunConfig, units: Sequence[str], budget: int, folder: Path, seeds: Sequence[int] = ()
) -> Iterator[tuple[RunConfig, Path]]:
    """A run for each unit and seed, as wide as the budget allows."""
    how = comparison(config.task)
    fit, variants = how.fitting(config.data), how.variants(config.data)
    for name in units:
        if name in variants:
            unit, options = variants[name]
        else:
            refuse_unknown(name, variants)
            unit, options = name, config.model.unit_options if name == config.model.unit else {}
        model = override(config, {"unit": unit, "unit_options": dict(options)}).model
        fitted = dataclasses.replace(config, model=fit(model, budget))
        for seed in seeds or (config.loop.seed,):
            place = folder / (name if len(seeds) < 2 else f"{name}-{seed}")
            yield override(fitted, {"seed": seed}), place


def refuse_unknown(name: str, variants: Collection[str]) -> None:
    try:
        find_unit(name)
    except ValueError as error:
        also = f"; here also {', '.join(variants)}{nearest(name, variants)}" if variants else ""
        raise ValueError(f"{error}{also}") from None
