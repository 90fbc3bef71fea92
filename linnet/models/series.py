"""A model of labelled series: scaling, a stack of any unit, pooling, and a linear layer.

    x [T, B, channels] in the units of the file -> scaled -> stack -> one vector -> answers [B, outputs]
                                                                 or one for each step: [T, B, outputs]

A missing value (NaN) is the mean of its channel; with `gaps`, an input says where. With `times`, the last
channel of x is the time since the step before: units that read times between steps are given it in typical
distances, others its logarithm as one more input.

A model that reads in one direction also runs step by step: the answer after each step is that for the series
up to it.

    model = SeriesModel(SeriesSizes(channels=3, outputs=5), SeriesModelConfig())
    state = model.initial_state()
    answer, state = model.step(x, state)                  # x [1, channels], NaN where a value is missing
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_number, check_rate, check_size, choose
from linnet.layers.pooling import POOLINGS, pooled_size
from linnet.models.config import MOST_LAYERS, find_unit, option
from linnet.models.encoder import Encoder
from linnet.recurrent.recurrent import Recurrent
from linnet.recurrent.sequence import mask_of_lengths

REFUSED = {
    "num_layers": "set its num_layers",
    "hidden_size": "set its hidden_size",
    "bidirectional": "set its own bidirectional",
    "batch_first": "its series are [time, batch]",
    "device": "pass it to SeriesModel",
    "dtype": "pass it to SeriesModel",
}
SCALES = ("train", "sequence", "none")
LARGEST_INPUT = 10.0
"""In deviations: one wrong value of a sensor must not decide the answer."""
SHORTEST = 1e-3
"""The shortest time between two steps, in typical distances; its logarithm is an input."""
TINY = 1e-8
"""The smallest deviation within a series, relative to its mean."""


@dataclass(frozen=True)
class SeriesModelConfig:
    """A stack of any unit, in one direction or both, and the pooling of its output."""

    unit: str = option("sru", "the recurrent unit, a name of linnet.UNITS")
    unit_options: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "options of the unit's paper, and norm, zoneout, ..."},
    )
    hidden_size: int = option(64, "the size of each layer")
    num_layers: int = option(2, "the number of layers")
    bidirectional: bool = option(False, "read each series in both directions")
    pooling: str = option(
        "meanmax", "the vector of a series: the last state, or the max, mean or both (meanmax) over its steps"
    )
    dropout: float = option(0.3, "dropout between layers and on the vector of a series")
    noise: float = option(0.1, "training: the deviation of noise that is added to the scaled values")
    scale: str = option(
        "train",
        "scale values by mean and deviation of the training set, of each series (sequence), or not at all",
    )
    differences: bool = option(True, "also read the difference of each value from the one before")

    def __post_init__(self) -> None:
        find_unit(self.unit)
        check_size("hidden_size", self.hidden_size)
        check_size("num_layers", self.num_layers, most=MOST_LAYERS)
        check_rate("dropout", self.dropout)
        check_number("noise", self.noise, least=0)
        choose("pooling", self.pooling, tuple(POOLINGS))
        choose("scale", self.scale, SCALES)
        for name in self.unit_options:
            if name in REFUSED:
                raise ValueError(f"{name} is not a unit option of a model of series: {REFUSED[name]}")


class SeriesSizes(NamedTuple):
    """What a model is built for.

    channels  values of a step
    outputs   scores of the classes, or 1 for a number
    steps     answer at every step, not once
    gaps      values may be missing; an input says where
    times     the last channel of x is the time since the step before
    value     the answer is a number
    """

    channels: int
    outputs: int
    steps: bool = False
    gaps: bool = False
    times: bool = False
    value: bool = False

    @property
    def inputs(self) -> int:
        """The size of a step of x."""
        return self.channels + self.times


class SeriesState(NamedTuple):
    """What a stream knows of the series so far."""

    rnn: Any
    # The scaled values of the step before, and the number of steps: without differences, ().
    previous: tuple[Tensor, ...]
    # What pooling keeps of the outputs, in the order of POOLED.
    pooled: tuple[Tensor, ...]


class SeriesModel(Encoder):
    """Scores of the classes of series, or numbers."""

    # Of the training set: those of the channels and of the answers, the typical size of a difference of two
    # scaled values, and the typical time between steps.
    mean: Tensor
    deviation: Tensor
    change: Tensor
    answer_mean: Tensor
    answer_deviation: Tensor
    distance: Tensor

    def __init__(
        self,
        sizes: SeriesSizes,
        config: SeriesModelConfig,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("channels", sizes.channels)
        check_size("outputs", sizes.outputs)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.sizes, self.config = sizes, config
        self.rnn = self.make_stack(where)
        self.dropout = nn.Dropout(config.dropout)
        pooling = "last" if sizes.steps else config.pooling
        self.output = nn.Linear(pooled_size(pooling, self.rnn.output_size), sizes.outputs, **where)
        for name, size in (("mean", sizes.channels), ("answer_mean", 1)):
            self.register_buffer(name, torch.zeros(size, **where))
        ones = {"deviation": sizes.channels, "change": sizes.channels, "answer_deviation": 1, "distance": 1}
        for name, size in ones.items():
            self.register_buffer(name, torch.ones(size, **where))

    def make_stack(self, where: dict[str, Any]) -> Recurrent:
        config, sizes, unit = self.config, self.sizes, find_unit(self.config.unit)
        dropout = {"dropout": config.dropout} if config.dropout and config.num_layers > 1 else {}
        options = {**dropout, "bidirectional": config.bidirectional, **config.unit_options}
        features = sizes.channels * (1 + config.differences + sizes.gaps)
        features += sizes.times and not reads_time(config.unit)
        return unit(features, config.hidden_size, config.num_layers, **where, **options)

    def reset_parameters(self) -> None:
        self.rnn.reset_parameters()
        self.output.reset_parameters()

    @property
    def stack(self) -> list[Recurrent]:
        return [self.rnn]

    def set_scales(self, mean: Any, deviation: Any, change: Any = 1.0, distance: float = 1.0) -> None:
        """Set what the training set has of each channel, and the typical time between steps.

        change   the root of the mean square of the differences of two values, in deviations
        """
        given = {"mean": mean, "deviation": deviation, "change": change, "distance": distance}
        for name, values in given.items():
            getattr(self, name).copy_(torch.as_tensor(values))

    def set_answers(self, mean: float, deviation: float) -> None:
        """Set the mean and the deviation of the numbers that are learned."""
        self.answer_mean.fill_(mean)
        self.answer_deviation.fill_(deviation)

    # ---------------------------------------------------------------------------------- whole series

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """x [T, B, channels (+ 1 with times)], lengths [B] -> [B, outputs], or [T, B, outputs] with steps.

        Numbers are (number - mean) / deviation of the training set.
        """
        values, times = self.split_inputs(x)
        scaled = self.read(values, lengths)
        before = torch.cat([scaled[:1], scaled[:-1]])
        read = self.features(scaled, self.scaled_change(scaled - before, lengths), values, times)
        mask = None if lengths is None else mask_of_lengths(lengths, like=read)
        y = self.rnn(read, mask=mask, **self.timespans(times))[0]
        if self.sizes.steps:
            return self.output(self.dropout(y))
        pool = POOLINGS[self.config.pooling]
        return self.output(self.dropout(pool(y, lengths, self.rnn.num_directions)))

    def split_inputs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values, and the times in typical distances; a time that is not known is one."""
        values, times = x[..., : self.sizes.channels], x[..., self.sizes.channels :]
        relative = torch.clamp(times / self.distance, min=0.0)
        return values, torch.where(relative == relative, relative, 1.0).to(self.example.dtype)

    def read(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return scaled values, with 0 where one is missing."""
        if self.config.scale == "sequence":
            mean, deviation = moments(x, lengths)
            x = (x - mean) / deviation
        else:
            x = self.scaled(x)
        return without_gaps(x).to(self.example.dtype)

    def scaled_change(self, change: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return differences of scaled values with a mean square of about 1."""
        if self.config.scale == "sequence":
            return clipped(change / spread(change, lengths))
        return clipped(change / self.change)

    def scaled(self, x: Tensor) -> Tensor:
        return x if self.config.scale == "none" else (x - self.mean) / self.deviation

    def features(self, scaled: Tensor, change: Tensor, values: Tensor, times: Tensor) -> Tensor:
        """Return the input of the first layer."""
        parts = [scaled, change] if self.config.differences else [scaled]
        if self.training and self.config.noise:
            parts = [each + self.config.noise * torch.randn_like(each) for each in parts]
        if self.sizes.gaps:
            parts.append((values != values).to(scaled.dtype))
        if self.sizes.times and not reads_time(self.config.unit):
            parts.append(torch.log(torch.clamp(times, min=SHORTEST)))
        return torch.cat(parts, -1)

    def timespans(self, times: Tensor) -> dict[str, Tensor]:
        """Return the argument of units that read the time between steps."""
        return {"timespans": times} if self.sizes.times and reads_time(self.config.unit) else {}

    def in_unit(self, answers: Tensor) -> Tensor:
        """Return numbers in the unit of the file; scores of classes are what they are."""
        return self.answer_mean + self.answer_deviation * answers if self.sizes.value else answers

    # --------------------------------------------------------------------------------------- streams

    def check_streaming(self) -> None:
        """Raise if an answer depends on steps to come."""
        if self.config.bidirectional:
            raise ValueError(
                "a model that reads in both directions has no single steps; train it with --no-bidirectional"
            )
        if self.config.scale == "sequence":
            raise ValueError(
                "scale='sequence' needs the whole series before its first step; train it with --scale train"
            )

    def initial_state(self) -> SeriesState:
        """Return the state before the first step of one series."""
        self.check_streaming()
        like, sizes = self.example, self.sizes
        rnn = self.rnn.write_state(self.rnn.initial_state(1, like), True)
        previous = (like.new_zeros(1, sizes.channels), like.new_zeros(1, 1))
        size = self.rnn.output_size
        parts = {"total": (size, 0.0), "count": (1, 0.0), "largest": (size, -torch.inf)}
        pooled = tuple(like.new_full((1, parts[name][0]), parts[name][1]) for name in self.kept)
        return SeriesState(rnn, previous if self.config.differences else (), pooled)

    @property
    def kept(self) -> tuple[str, ...]:
        """What pooling keeps of the outputs so far."""
        return () if self.sizes.steps else POOLED[self.config.pooling]

    def step(self, x: Tensor, state: SeriesState) -> tuple[Tensor, SeriesState]:
        """Read one step of one series; return the answer for the series up to it.

        x   [1, channels (+ 1 with times)]: the values (NaN: missing), and the time since the step before

        The answer is the scores of the classes, or a number in the unit of the file, [1, outputs].
        """
        values, times = self.split_inputs(x)
        scaled = without_gaps(self.scaled(values))
        change, previous = self.changed(scaled, state.previous)
        read = self.features(scaled, change, values, times)
        y, rnn = self.rnn(read[None], state.rnn, **self.timespans(times[None]))
        vector, pooled = self.pool_step(y[0], state.pooled)
        return self.in_unit(self.output(vector)), SeriesState(rnn, previous, pooled)

    def changed(self, scaled: Tensor, previous: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the difference from the step before, 0 at the first, and what the next step needs."""
        if not previous:
            return scaled, ()
        before, seen = previous
        known = torch.clamp(seen, max=1.0)
        return self.scaled_change(known * (scaled - before)), (scaled, seen + 1)

    def pool_step(self, y: Tensor, kept: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the vector of the steps so far, and what pooling keeps of them."""
        if not kept:
            return y, ()
        old = dict(zip(self.kept, kept, strict=True))
        new: dict[str, Tensor] = {}
        parts = []
        if "total" in old:
            new |= {"total": old["total"] + y, "count": old["count"] + 1}
            parts.append(new["total"] / new["count"])
        if "largest" in old:
            new["largest"] = torch.maximum(old["largest"], y)
            parts.append(new["largest"])
        return torch.cat(parts, -1), tuple(new[name] for name in self.kept)


POOLED = {
    **{"last": (), "mean": ("total", "count"), "max": ("largest",)},
    "meanmax": ("total", "count", "largest"),
}
"""What each pooling keeps of the outputs so far, in the order of `SeriesState.pooled`."""


def reads_time(unit: str) -> bool:
    """Whether a unit is given the times between steps."""
    return find_unit(unit).cell_class.reads_time


def without_gaps(x: Tensor) -> Tensor:
    """Return scaled values within limits, with 0 where one is missing."""
    return clipped(torch.where(x == x, x, 0.0))


def clipped(x: Tensor) -> Tensor:
    return torch.clamp(x, -LARGEST_INPUT, LARGEST_INPUT)


def spread(change: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the root of the mean square of the differences of each series, [B, channels]; 1 if all are 0."""
    squares = change.square()
    if lengths is not None:
        squares = squares.masked_fill(~mask_of_lengths(lengths, like=change)[..., None], 0)
        mean = squares.sum(0) / lengths[:, None]
    else:
        mean = squares.mean(0)
    return torch.where(mean > TINY, mean, 1.0).sqrt()


def moments(x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the mean and the deviation of the known values of each series, [B, channels]."""
    known = x == x
    if lengths is not None:
        known = known & mask_of_lengths(lengths, like=x)[..., None]
    count = known.sum(0).clamp(min=1)
    mean = torch.where(known, x, 0.0).sum(0) / count
    variance = torch.where(known, x - mean, 0.0).square().sum(0) / count
    deviation = variance.sqrt()
    return mean, torch.where(deviation > TINY * mean.abs() + TINY, deviation, 1.0)
