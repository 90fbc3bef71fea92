"""The learning rate as a pure function of the position of a run: there is nothing to save.

linear     lr min(p / w, (1 - p) / (1 - w))                p: the share of the run that is done, w: 1/20
constant   lr
after      lr decay^max(epoch - n, 0)                      RAN; SCRN with variational dropout
once       lr decay^(1 if epoch > n else 0)                LEM, coRNN and UnICORNN on images
plateau    lr decay^(number of validations that did not improve on the best)       SCRN, naive dropout
patient    lr decay^(number of times that decay_patience validations in a row were no better than a
           reference, which is the best one, or after a decay the last one)         R-Net
cosine     lr min(t / warmup, (1 + cos(pi s)) / 2)         s: from 0 after the warm-up to 1 at the end
noam       lr / sqrt(width) min(t^-1/2, t warmup^-3/2)     SRU on enwik8, with lr 3
gnmt       lr min(1 + t (n - 1) / (n warmup), n, n (2 n)^((s - n t) / (e - s)))    LRN's translation
           n: peak, s: decay_start, e: decay_end; the schedule of GNMT+ (Chen et al. 2018)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from linnet.runs.config import ScheduleConfig

WARM = 0.05
"""The share of a run in which the linear schedule rises."""


class Moment(NamedTuple):
    """The position of a run: epochs and updates count from 1; `history` has the costs of the validations."""

    epoch: int
    step: int
    history: Sequence[float]
    steps: int | None = None  # updates of the whole run
    spent: float = 0.0  # the share of the time budget that is spent; 0 without a budget

    @property
    def done(self) -> float:
        """The share of the run that is done in the middle of this update, by updates or by time."""
        # Windows of varied lengths may give a few more updates than the first epoch promised.
        by_steps = (self.step - 0.5) / self.steps if self.steps else 0.0
        return min(max(by_steps, self.spent), 1.0)


def linear(settings: ScheduleConfig, moment: Moment) -> float:
    return min(moment.done / WARM, (1 - moment.done) / (1 - WARM))


def constant(settings: ScheduleConfig, moment: Moment) -> float:
    return 1.0


def after(settings: ScheduleConfig, moment: Moment) -> float:
    return settings.decay ** max(moment.epoch - settings.decay_after, 0)


def once(settings: ScheduleConfig, moment: Moment) -> float:
    return settings.decay if moment.epoch > settings.decay_after else 1.0


def plateau(settings: ScheduleConfig, moment: Moment) -> float:
    return settings.decay ** disappointments(moment.history)


def patient(settings: ScheduleConfig, moment: Moment) -> float:
    return settings.decay ** exhausted(moment.history, settings.decay_patience)


def noam(settings: ScheduleConfig, moment: Moment) -> float:
    t, warmup = moment.step, max(settings.warmup, 1)
    return settings.width**-0.5 * min(t**-0.5, t * warmup**-1.5)


def gnmt(settings: ScheduleConfig, moment: Moment) -> float:
    t, n, warmup = moment.step, settings.peak, max(settings.warmup, 1)
    decayed = (settings.decay_start - n * t) / max(settings.decay_end - settings.decay_start, 1)
    # Long before the decay begins, the power would be too large for a float.
    return min(1 + t * (n - 1) / (n * warmup), n * (2 * n) ** min(decayed, 0.0))


def cosine(settings: ScheduleConfig, moment: Moment) -> float:
    t, warmup, end = moment.step, settings.warmup, moment.steps
    if t <= warmup:
        return t / warmup
    if end is None:
        raise ValueError("the cosine schedule needs the number of updates of the run (--steps)")
    # Windows of varied lengths may give a few more updates than the first epoch promised.
    done = min(max((t - 1 - warmup) / max(end - warmup, 1), moment.spent), 1.0)
    return (1 + math.cos(math.pi * done)) / 2


FACTORS: dict[str, Callable[[ScheduleConfig, Moment], float]] = {
    "linear": linear,
    "constant": constant,
    "after": after,
    "once": once,
    "plateau": plateau,
    "patient": patient,
    "cosine": cosine,
    "noam": noam,
    "gnmt": gnmt,
}


def factor(settings: ScheduleConfig, moment: Moment) -> float:
    return FACTORS[settings.schedule](settings, moment)


def disappointments(history: Sequence[float]) -> int:
    """Return how often a validation did not improve on the best one before it."""
    return sum(loss >= min(history[:i]) for i, loss in enumerate(history) if i)


def exhausted(history: Sequence[float], patience: int) -> int:
    """Return how often `patience` validations in a row did not improve on the reference (HKUST's R-Net)."""
    reference, waited, times = math.inf, 0, 0
    for loss in history:
        waited = 0 if loss < reference else waited + 1
        if waited == patience:
            waited, times = 0, times + 1
            reference = loss
        reference = min(loss, reference)
    return times


def stuck(history: Sequence[float], n: int) -> bool:
    """Return whether the last validation is worse than the best of those more than n before it."""
    past = history[:-1]
    return len(past) > n and history[-1] > min(past[:-n])


def ever_stuck(history: Sequence[float], n: int) -> bool:
    return any(stuck(history[: i + 1], n) for i in range(len(history)))
