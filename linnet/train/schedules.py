"""The learning rate, as a pure function of where a run is: nothing to save, nothing to forget.

constant   lr
after      lr decay^max(epoch - n, 0)                      RAN; SCRN with variational dropout
plateau    lr decay^(times validation was no better than the best before it)       SCRN, naive dropout
noam       lr / sqrt(width) min(t^-1/2, t warmup^-3/2)     SRU on enwik8, with lr 3
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from linnet.runs.config import ScheduleConfig


class Moment(NamedTuple):
    """How far a run is: epochs and steps count from 1; `history` has what selects, lower is better."""

    epoch: int
    step: int
    history: Sequence[float]


def constant(settings: ScheduleConfig, moment: Moment) -> float:
    return 1.0


def after(settings: ScheduleConfig, moment: Moment) -> float:
    return settings.decay ** max(moment.epoch - settings.decay_after, 0)


def plateau(settings: ScheduleConfig, moment: Moment) -> float:
    return settings.decay ** disappointments(moment.history)


def noam(settings: ScheduleConfig, moment: Moment) -> float:
    t, warm = moment.step, settings.warmup
    return settings.width**-0.5 * min(t**-0.5, t * warm**-1.5)


FACTORS: dict[str, Callable[[ScheduleConfig, Moment], float]] = {
    "constant": constant,
    "after": after,
    "plateau": plateau,
    "noam": noam,
}


def factor(settings: ScheduleConfig, moment: Moment) -> float:
    return FACTORS[settings.schedule](settings, moment)


def disappointments(history: Sequence[float]) -> int:
    """How often a validation was no better than the best one before it."""
    return sum(loss >= min(history[:i]) for i, loss in enumerate(history) if i)


def stuck(history: Sequence[float], n: int) -> bool:
    """Whether the last validation is worse than the best of those that lie more than n before it."""
    past = history[:-1]
    return len(past) > n and history[-1] > min(past[:-n])


def ever_stuck(history: Sequence[float], n: int) -> bool:
    return any(stuck(history[: i + 1], n) for i in range(len(history)))
