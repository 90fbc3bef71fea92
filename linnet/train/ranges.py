"""What a search draws from: ranges of numbers, even or logarithmic, and lists of values.

    lr=0.0001:0.1:log    hidden_size=50:200    optimiser=adam,sgd

Numbers of a range are whole where the setting is one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from linnet.runs.config import RunConfig, options, override


class Range(NamedTuple):
    """The numbers from `low` to `high`, all equally likely."""

    low: float
    high: float


class LogRange(Range):
    """The numbers from `low` to `high`, whose logarithms are equally likely."""


Space = tuple[float, float] | list[Any]
"""A range, or a list of values."""
Ranges = Mapping[str, Space]
"""By the name of a setting, or by several names with + between them that share a value."""


def checked(config: RunConfig, ranges: Mapping[str, Any]) -> dict[str, Space]:
    """Return the ranges with numbers as the settings have them; raise if a value cannot be drawn."""
    made = {names: fitted(config, names, space) for names, space in ranges.items()}
    for names, space in made.items():
        for value in space:
            override(config, same_value(names, value))
    return made


def fitted(config: RunConfig, names: str, space: Any) -> Space:
    if isinstance(space, list):
        return refuse_unfit(names, space)
    found = space if isinstance(space, Range) else Range(*space)
    low, high = found
    if not -math.inf < low <= high < math.inf:
        raise ValueError(
            f"the range of {names} is from the lower to the higher end, both finite; got {low:g}:{high:g}"
        )
    if isinstance(found, LogRange) and low <= 0:
        raise ValueError(f"a logarithmic range has ends above 0; got {low:g}:{high:g} for {names}")
    kind = int if are_whole(config, names) and low == int(low) and high == int(high) else float
    return type(found)(kind(low), kind(high))


def refuse_unfit(names: str, values: list[Any]) -> list[Any]:
    """Raise unless Optuna can keep each of these values."""
    wrong = [value for value in values if not isinstance(value, (bool, int, float, str, type(None)))]
    if wrong or not values:
        raise ValueError(f"{names} is drawn from a list of numbers and words; got {wrong or values}")
    return values


def are_whole(config: RunConfig, names: str) -> bool:
    known = {each.name: hint for _, each, hint in options(config.task)}
    return all(known.get(name) is int for name in names.split("+"))


def same_value(names: str, value: Any) -> dict[str, Any]:
    return dict.fromkeys(names.split("+"), value)


def kind_of(space: Space) -> str:
    """Return what must stay the same over a study, in words."""
    if isinstance(space, list):
        return "one of " + ", ".join(map(str, space))
    numbers = "whole numbers" if isinstance(space[0], int) else "numbers"
    return f"a logarithmic range of {numbers}" if isinstance(space, LogRange) else f"a range of {numbers}"


def distribution(optuna: Any, space: Space) -> Any:
    """Return what Optuna calls it."""
    known = optuna.distributions
    if isinstance(space, list):
        return known.CategoricalDistribution(tuple(space))
    make = known.IntDistribution if isinstance(space[0], int) else known.FloatDistribution
    return make(*space, log=isinstance(space, LogRange))


def draw(optuna: Any, trial: Any, ranges: Ranges) -> dict[str, Any]:
    """Return the settings of a run, drawn by the sampler of its study."""
    drawn: dict[str, Any] = {}
    for names, space in ranges.items():
        drawn |= same_value(names, value_of(trial, names, distribution(optuna, space)))
    return drawn


def value_of(trial: Any, names: str, wanted: Any) -> Any:
    if hasattr(wanted, "choices"):
        return trial.suggest_categorical(names, wanted.choices)
    suggest = trial.suggest_int if isinstance(wanted.low, int) else trial.suggest_float
    return suggest(names, wanted.low, wanted.high, log=wanted.log)


# ------------------------------------------------------------------------------------- narrower


def narrowed(best: Any, space: Space, share: float) -> Space:
    """Return a part of a range around `best`; a list of values stays as it is."""
    if isinstance(space, list):
        return space
    low, high = space
    if isinstance(space, LogRange):
        ends = around(math.log(best), (math.log(low), math.log(high)), share)
        start, end = (min(max(math.exp(each), low), high) for each in ends)
    else:
        start, end = around(best, (low, high), share)
    if isinstance(low, int):
        start, end = math.floor(start), math.ceil(end)
    return (LogRange if isinstance(space, LogRange) else Range)(start, end)


def around(best: float, whole: tuple[float, float], share: float) -> tuple[float, float]:
    """Return a part of the range centred on `best`, moved so that it stays inside the range."""
    low, high = whole
    width = (high - low) * share
    start = min(max(best - width / 2, low), high - width)
    return start, start + width
