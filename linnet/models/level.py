"""The level of a series as it goes on: where its values are, and how far they spread.

With x_t the value, a, b < 1 and the sums over the values that are observed:

    l_t = sum_k a^(t-k) x_k / sum_k a^(t-k)                 location, a mean that forgets
    s_t = sum_k b^(t-k) |x_k - l_k| / sum_k b^(t-k)         scale, with b = 1 - (1 - a) / 2

Only the past is read, so large and small series can be brought to the same size without knowing how they go
on, in training, in a stream and in exported code alike. A missing value is NaN; it is replaced by l_t.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST = 1e-4
"""The smallest scale: of logarithms, or relative to the location. A constant series has it."""
TINY = 1e-30
"""The scale of a series of zeros, and the weight of one without values."""

TOGETHER = 256
"""Steps that are added at once."""


class LevelState(NamedTuple):
    """The sums of the location and of the scale, and those of their weights; zeros before the first value."""

    total: Tensor
    weight: Tensor
    spread: Tensor
    spread_weight: Tensor


class Level(NamedTuple):
    """What is known of a series at a time."""

    value: Tensor  # the value, or the location where it is missing
    location: Tensor
    scale: Tensor
    size: Tensor  # the logarithm of the scale, relative to the location unless the values are logarithms
    present: Tensor  # 1 where there is a value, 0 where it is missing


def start(like: Tensor) -> LevelState:
    zeros = torch.zeros_like(like)
    return LevelState(zeros, zeros, zeros, zeros)


def moved(state: LevelState, shift: Tensor) -> LevelState:
    """Return the state of the same series with `shift` subtracted from all values."""
    return state._replace(total=state.total - shift * state.weight)


def location_of(state: LevelState) -> Tensor:
    return state.total / torch.clamp(state.weight, min=TINY)


def add_one(keep: float, total: Tensor, x: Tensor) -> Tensor:
    return keep * total + x


def add_all(keep: float, total: Tensor, x: Tensor) -> Tensor:
    """Return what `add_one` gives after each step of x [T, ...], up to rounding, many steps at once."""
    steps = torch.arange(TOGETHER, dtype=x.dtype)
    decay = torch.tril(keep ** torch.clamp(steps[:, None] - steps, min=0))
    blocks = F.pad(x.flatten(1).T, (0, -len(x) % TOGETHER)).unflatten(1, (-1, TOGETHER))
    own, carried, before = blocks @ decay.T, [], total.flatten()
    for ends in own[..., -1].unbind(1):
        carried.append(before)
        before = keep**TOGETHER * before + ends
    first = torch.stack(carried, 1)[..., None] * keep ** (steps + 1)
    return (own + first).flatten(1)[:, : len(x)].T.reshape(x.shape)


def advance(
    x: Tensor,
    state: LevelState,
    span: float,
    relative: bool,
    origin: Tensor | float = 0.0,
    add: Callable[[float, Tensor, Tensor], Tensor] = add_one,
) -> tuple[Level, LevelState]:
    """Read one value of each series, x [...]; NaN: it is missing. With `add_all`, read all of x [T, ...].

    span       after as many steps, a value counts 1/e in the location; twice as many in the scale
    relative   the smallest scale is relative to the location, else it is SMALLEST itself (logarithms)
    origin     what was subtracted from the values of x and of the state
    """
    keep, keep_spread = 1 - 1 / span, 1 - 1 / (2 * span)
    present = (x == x).to(x.dtype)
    given = torch.where(x == x, x, 0.0)
    total, weight = add(keep, state.total, given), add(keep, state.weight, present)
    location = location_of(state._replace(total=total, weight=weight))
    value = torch.where(x == x, x, location)
    spread = add(keep_spread, state.spread, torch.abs(value - location))
    spread_weight = add(keep_spread, state.spread_weight, present)
    distance = torch.abs(location + origin)
    least = SMALLEST * (distance if relative else torch.ones_like(location)) + TINY
    scale = torch.maximum(spread / torch.clamp(spread_weight, min=TINY), least)
    size = torch.log(scale / (distance + scale) if relative else scale)
    return Level(value, location, scale, size, present), LevelState(total, weight, spread, spread_weight)
