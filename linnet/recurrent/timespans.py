"""The time between steps, for units that read it.

Users give `timespans=`, one number for each step: the time since the step before. Inside, it is one more
channel of the input of each layer, which every way of running a unit then treats as it treats x: padding,
directions, kernels, exports. Without that channel the time is 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linnet.base.errors import InputError, InputTypeError
from linnet.program.readable import is_recording
from linnet.program.unit import ByNature, CannotFuse, Operation
from linnet.recurrent.projection import Projection


class WithoutTime(Projection):
    """The projection of an input that may have one more channel, the time, which it leaves out."""

    def __init__(self, input_size: int, *args: Any, **options: Any):
        super().__init__(input_size, *args, **options)
        self.input_size = input_size

    def prepare(self, x: Tensor) -> Tensor:
        return super().prepare(x[..., : self.input_size].contiguous())

    @property
    def is_bare(self) -> bool:
        return False

    def operations(self) -> list[Operation]:
        raise CannotFuse(ByNature("its input has a channel of time, which the projection leaves out"))


def times_of(x: Tensor, input_size: int) -> Tensor:
    """[..., 1]: the time before each step of x."""
    return x[..., input_size:] if x.shape[-1] > input_size else x.new_ones(*x.shape[:-1], 1)


def timed(x: Tensor, timespans: Any, unit: str) -> Tensor:
    """x [..., input_size] with the time, if it is given, as a further channel."""
    if timespans is None:
        return x
    if not isinstance(timespans, Tensor):
        raise InputTypeError(f"{unit} takes timespans as a Tensor; got {type(timespans).__name__}")
    if timespans.shape == x.shape[:-1]:
        timespans = timespans[..., None]
    if timespans.shape != (*x.shape[:-1], 1):
        raise InputError(
            f"timespans have one number for each step, so the shape {tuple(x.shape[:-1])} for x of shape "
            f"{tuple(x.shape)}; got {tuple(timespans.shape)}"
        )
    # A recorder has no values to look at.
    if not is_recording() and not timespans.is_meta and bool(((timespans < 0) | timespans.isnan()).any()):
        raise InputError(
            "timespans are times since the step before, so at least 0; got "
            f"{timespans.detach().min().item():g}. Sort the steps by time before taking differences"
        )
    return torch.cat([x, timespans.to(x.dtype)], -1)


def refuse_timespans(timespans: Any, unit: str, readers: list[str]) -> None:
    if timespans is not None:
        raise TypeError(
            f"{unit} does not read the time between steps; use {' or '.join(readers)}, or make timespans a "
            "channel of x"
        )
