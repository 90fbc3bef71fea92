"""Forecasts of series: a unit reads the values one by one, and after each value the next ones are predicted.

With x_t the value (its logarithm for series that are always positive) and l_t, s_t its location and scale
so far (level.py):

    z_{k|t} = (x_k - l_t) / s_t                                  the past as seen from t
    y_t = unit(z_{t|t}, z_{t|t} - z_{t-1|t}, z_{t|t} - z_{t-season|t}, log s_t, covariates)
    m_{t+h} = W_h (z_{t-context+1|t} ... z_{t|t}) + head(y_t)_h  the middle of the forecast of x_{t+h}
    forecast of x_{t+h} = l_t + s_t m_{t+h}

The linear part W starts as the seasonal naive forecast, from which the task brings it to least squares before
training; the head starts at zero. In training, many times t of a window are forecast at once, for the cost of
reading the window once.

    model = Forecaster(Sizes(horizon=48, context=168, season=24), ForecasterConfig(unit="gru"))
    answer = model(window)                  # of training, linnet.tasks.forecast_windows
    forecast, state = model.step(x, state)  # one value in, one forecast out; model.initial_state()
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_rate, check_size, choose
from linnet.models import level
from linnet.models.answers import ANSWERS, Answer, answer_of, check_levels
from linnet.models.config import MOST_LAYERS, find_unit, option
from linnet.models.encoder import Encoder
from linnet.models.level import Level, LevelState
from linnet.models.sequence import REFUSED
from linnet.recurrent.recurrent import Recurrent

DECODERS = ("direct", "steps")
LARGEST_INPUT = 10.0
LARGEST_PAST = 20.0
"""An outlier counts no more than this many scales."""
FUTURE_SIZE = 32
"""The size of what is made of the covariates of a step to come."""


@dataclass(frozen=True)
class ForecasterConfig:
    """A stack of any unit, and how its output becomes a forecast."""

    unit: str = option("sru", "the recurrent unit, a name of linnet.UNITS")
    unit_options: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "options of the unit's paper, and norm, zoneout, ..."},
    )
    hidden_size: int = option(64, "the size of each layer")
    num_layers: int = option(2, "the number of layers")
    dropout: float = option(0.1, "dropout between layers and on what the head reads")
    decoder: str = option(
        "direct", "direct: all steps of the horizon at once; steps: a second stack, one step for each"
    )
    linear: bool = option(True, "add a linear forecast from the last --context values")
    answer: str = option("quantiles", "quantiles: by the quantile loss; student: Student's t distribution")
    quantiles: tuple[float, ...] = option(
        (0.025, 0.1, 0.5, 0.9, 0.975), "the levels of a forecast: intervals of 80 and 95 %"
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantiles", check_levels(self.quantiles))
        find_unit(self.unit)
        check_size("hidden_size", self.hidden_size)
        check_size("num_layers", self.num_layers, most=MOST_LAYERS)
        check_rate("dropout", self.dropout)
        choose("decoder", self.decoder, DECODERS)
        choose("answer", self.answer, ANSWERS)
        for name in self.unit_options:
            if name in REFUSED:
                raise ValueError(f"{name} is not a unit option of a forecaster: {REFUSED[name]}")


class Sizes(NamedTuple):
    """What a model is built for.

    horizon   steps to forecast
    context   values that the linear part reads
    season    steps of a season; 1: none
    targets   channels of a series
    known     covariates that are known ahead, those of the calendar included
    observed  covariates that are known up to now
    log       forecast logarithms: all values are positive
    floor     forecasts are not negative: no value is
    gaps      values may be missing; an input says where
    """

    horizon: int
    context: int
    season: int = 1
    targets: int = 1
    known: int = 0
    observed: int = 0
    log: bool = False
    floor: bool = False
    gaps: bool = False

    @property
    def span(self) -> int:
        """Steps after which the level of a series has forgotten a value."""
        return max(2 * self.season, 12)

    @property
    def inputs(self) -> int:
        """The size of the input of a step: values, observed and known covariates, known ones to come."""
        return self.targets + self.observed + self.known * (1 + self.horizon)


class SeriesWindow(Protocol):
    """A batch of windows of W steps; step t has the place t + context - 1 in `values`."""

    values: Tensor  # [context - 1 + W + horizon, B, targets]; missing ones are replaced by the location
    location: Tensor  # [W, B, targets]
    scale: Tensor
    size: Tensor  # as `Level.size`
    present: Tensor  # like values: 1 where there is a value that may be read or asked
    known: Tensor  # [W + horizon, B, known]
    observed: Tensor  # [W, B, observed]; NaN where missing
    lengths: Tensor  # [B], the steps that a window has
    origins: Tensor  # int64 [F, B]: the steps after which there is a forecast

    def in_dtype(self, dtype: torch.dtype) -> SeriesWindow: ...


class Forecast(NamedTuple):
    """The answer of a model at each origin, as seen from there."""

    middle: Tensor  # [F, B, horizon, targets]
    extra: Tensor  # [F, B, horizon, targets, outputs besides the middle]


class StreamState(NamedTuple):
    """What a stream knows of the series so far; level and past are those of the values minus the centre."""

    centre: Tensor  # [1, targets]: where the series was; 0 before the first value
    level: LevelState
    past: Tensor  # [1, context, targets]
    rnn: Any


class Forecaster(Encoder):
    """Forecasts after any step of a series."""

    def __init__(
        self,
        sizes: Sizes,
        config: ForecasterConfig,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_sizes(sizes)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.sizes, self.config = sizes, config
        self.answer: Answer = answer_of(config.answer, config.quantiles)
        features = (4 + sizes.gaps) * sizes.targets + sizes.observed + sizes.known
        self.rnn = self.make_stack(features, where)
        self.head_dropout = nn.Dropout(config.dropout)
        self.make_head(self.rnn.output_size, where)
        self.linear = nn.Linear(sizes.context, sizes.horizon, **where) if config.linear else None
        for name in ("known", "observed"):
            count = getattr(sizes, name)
            self.register_buffer(f"{name}_mean", torch.zeros(count, **where))
            self.register_buffer(f"{name}_deviation", torch.ones(count, **where))
        self.reset_head()

    def make_stack(self, features: int, where: dict[str, Any]) -> Recurrent:
        config = self.config
        dropout = {"dropout": config.dropout} if config.dropout and config.num_layers > 1 else {}
        options = {**dropout, **config.unit_options}
        return find_unit(config.unit)(features, config.hidden_size, config.num_layers, **where, **options)

    def make_head(self, size: int, where: dict[str, Any]) -> None:
        sizes, config = self.sizes, self.config
        outputs = sizes.targets * (1 + self.answer.extra)
        if config.decoder == "steps":
            self.hidden = nn.Linear(size, FUTURE_SIZE, **where)
            self.decoder = find_unit(config.unit)(
                FUTURE_SIZE + sizes.known, config.hidden_size, **where, **config.unit_options
            )
            self.output = nn.Linear(self.decoder.output_size, outputs, **where)
            return
        self.hidden = nn.Linear(size, 2 * config.hidden_size, **where)
        self.output = nn.Linear(2 * config.hidden_size, sizes.horizon * outputs, **where)
        if sizes.known:
            self.future = nn.Linear(size + sizes.known, FUTURE_SIZE, **where)
            self.future_output = nn.Linear(FUTURE_SIZE, outputs, **where)

    def reset_head(self) -> None:
        """Before training, the forecast is seasonal naive: the value one season before."""
        for name in ("output", "future_output"):
            layer = getattr(self, name, None)
            if layer is not None:
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)
        if self.linear is not None:
            steps = torch.arange(self.sizes.horizon)
            places = self.sizes.context - self.sizes.season + steps % self.sizes.season
            with torch.no_grad():
                self.linear.weight.zero_()[steps, places] = 1.0
                self.linear.bias.zero_()

    def reset_parameters(self) -> None:
        for layer in (self.rnn, self.hidden, *self.optional_layers()):
            layer.reset_parameters()  # type: ignore[operator]
        self.reset_head()

    def optional_layers(self) -> list[nn.Module]:
        found = (getattr(self, name, None) for name in ("decoder", "future"))
        return [layer for layer in found if layer is not None]

    @property
    def stack(self) -> list[Recurrent]:
        return [self.rnn]

    # ------------------------------------------------------------------------------------ covariates

    def set_covariates(self, known: tuple[Any, Any], observed: tuple[Any, Any]) -> None:
        """Set the mean and the deviation of each covariate in the training set."""
        for name, (mean, deviation) in (("known", known), ("observed", observed)):
            getattr(self, f"{name}_mean").copy_(torch.as_tensor(mean))
            getattr(self, f"{name}_deviation").copy_(torch.as_tensor(deviation))

    def standardised(self, name: str, x: Tensor) -> Tensor:
        """Covariates [..., count] with mean 0 and deviation 1; a missing one is 0."""
        scaled = (x - getattr(self, f"{name}_mean")) / getattr(self, f"{name}_deviation")
        return clipped(torch.where(scaled == scaled, scaled, 0.0), LARGEST_INPUT)

    # --------------------------------------------------------------------------------------- windows

    def forward(self, window: SeriesWindow) -> Forecast:
        """Return the forecasts after the steps `window.origins`."""
        window = window.in_dtype(self.example.dtype)
        steps, columns = len(window.location), torch.arange(window.values.shape[1])
        known = self.standardised("known", window.known)
        y = self.encode(self.features(window, known[:steps]), lengths=window.lengths).output
        origins, seen = window.origins, self.past_at_origins(window)
        ahead = origins[..., None] + torch.arange(1, self.sizes.horizon + 1)
        return self.decode(y[origins, columns], seen, known[ahead, columns[:, None]])

    def past_at_origins(self, window: SeriesWindow) -> Tensor:
        """Return what the linear part reads, [F, B, targets, context]."""
        origins, columns = window.origins, torch.arange(window.values.shape[1])
        past = window.values[origins[..., None] + torch.arange(self.sizes.context), columns[:, None]]
        return self.past_of(past, window.location[origins, columns], window.scale[origins, columns])

    def features(self, window: SeriesWindow, known: Tensor) -> Tensor:
        first, steps = self.sizes.context - 1, len(window.location)

        def before(lag: int) -> Tensor:
            return window.values[first - lag : first - lag + steps]

        present = window.present[first : first + steps]
        now = Level(before(0), window.location, window.scale, window.size, present)
        return self.inputs(now, before(1), before(self.sizes.season), known, window.observed)

    def read(self, x: Tensor) -> Tensor:
        return x

    def inputs(
        self, now: Level, previous: Tensor, seasonal: Tensor, known: Tensor, observed: Tensor
    ) -> Tensor:
        """Return the input of the unit at a step, [..., features]."""
        value, scale = now.value, now.scale
        parts = [(value - now.location) / scale, (value - previous) / scale, (value - seasonal) / scale]
        parts = [clipped(each, LARGEST_INPUT) for each in (*parts, now.size)]
        if self.sizes.gaps:
            parts.append(1 - now.present)
        if self.sizes.observed:
            parts.append(self.standardised("observed", observed))
        if self.sizes.known:
            parts.append(known)
        return torch.cat(parts, -1)

    def past_of(self, past: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """Return the last values [..., context, targets] as seen from now, [..., targets, context]."""
        seen = (past - location[..., None, :]) / scale[..., None, :]
        return clipped(seen, LARGEST_PAST).transpose(-1, -2)

    def decode(self, y: Tensor, past: Tensor, known: Tensor) -> Forecast:
        """Return the forecast for the output of the unit [..., size] and known [..., horizon, known]."""
        y = self.head_dropout(y)
        raw = self.by_steps(y, known) if self.config.decoder == "steps" else self.directly(y, known)
        raw = raw.unflatten(-1, (self.sizes.targets, 1 + self.answer.extra))
        middle, extra = raw[..., 0], raw[..., 1:]
        if self.linear is not None:
            middle = middle + self.linear(past).transpose(-1, -2)
        return Forecast(middle, extra)

    def directly(self, y: Tensor, known: Tensor) -> Tensor:
        raw = self.output(self.head_dropout(F.gelu(self.hidden(y))))
        raw = raw.unflatten(-1, (self.sizes.horizon, -1))
        if self.sizes.known:
            # The product with y is the same for all steps of the horizon.
            weight, size = self.future.weight, y.shape[-1]
            now = F.linear(y, weight[:, :size], self.future.bias)[..., None, :]
            raw = raw + self.future_output(F.gelu(now + F.linear(known, weight[:, size:])))
        return raw

    def by_steps(self, y: Tensor, known: Tensor) -> Tensor:
        read = F.gelu(self.hidden(y))[..., None, :].expand(*known.shape[:-1], FUTURE_SIZE)
        x = torch.cat([read, known], -1).flatten(0, -3).transpose(0, 1)
        made = self.output(self.decoder(x)[0])
        return made.transpose(0, 1).unflatten(0, known.shape[:-2])

    # --------------------------------------------------------------------------------------- streams

    def initial_state(self) -> StreamState:
        """Return the state before the first value of one series."""
        zeros, sizes = self.example.new_zeros(1, self.sizes.targets), self.sizes
        rnn = self.rnn.write_state(self.rnn.initial_state(1, self.example), True)
        return StreamState(zeros, level.start(zeros), zeros.new_zeros(1, sizes.context, sizes.targets), rnn)

    def step(self, x: Tensor, state: StreamState) -> tuple[Tensor, StreamState]:
        """Read one step of one series; return its forecast, [1, horizon, targets, levels].

        x   [1, sizes.inputs]: the values (NaN: missing), the observed covariates, the known covariates of
            this step, then those of each step of the horizon
        """
        value, observed, known = self.split_inputs(x)
        state = self.centred(value, state)
        now, reached = self.advance(value - state.centre, state)
        past = torch.cat([state.past[:, 1:], now.value[:, None]], 1)
        previous, seasonal = (past[:, self.sizes.context - 1 - lag] for lag in (1, self.sizes.season))
        y, rnn = self.rnn(self.inputs(now, previous, seasonal, known[:, 0], observed)[None], state.rnn)
        seen = self.past_of(past, now.location, now.scale)
        forecast = self.decode(y[0], seen, known[:, 1:])
        answer = self.in_unit(forecast, now.location + state.centre, now.scale)
        return answer, StreamState(state.centre, reached, past, rnn)

    def centred(self, value: Tensor, state: StreamState) -> StreamState:
        """Return the state with the last location as its centre: float32 keeps the digits of large values.

        Before its first value, a series is taken to have been at that value.
        """
        is_first = state.level.weight == 0
        first = torch.where(value == value, value, 0.0)
        centre = torch.where(is_first, first, state.centre + level.location_of(state.level))
        # As it was rounded: what is subtracted below is what the centre has moved by.
        shift = centre - state.centre
        past = torch.where(is_first[:, None], 0.0, state.past - shift[:, None])
        return StreamState(centre, level.moved(state.level, shift), past, state.rnn)

    def split_inputs(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the values in which the model computes, the observed and the known covariates of x."""
        sizes = self.sizes
        value, observed, known = x.split(
            [sizes.targets, sizes.observed, sizes.known * (1 + sizes.horizon)], -1
        )
        known = known.unflatten(-1, (1 + sizes.horizon, sizes.known))
        return torch.log(value) if sizes.log else value, observed, self.standardised("known", known)

    def advance(self, value: Tensor, state: StreamState) -> tuple[Level, LevelState]:
        return level.advance(value, state.level, self.sizes.span, not self.sizes.log, state.centre)

    def in_unit(self, forecast: Forecast, location: Tensor, scale: Tensor) -> Tensor:
        """Return the quantiles in the unit of the series, [..., horizon, targets, levels]."""
        quantiles = self.answer.quantiles(*forecast)
        made = location[..., None, :, None] + scale[..., None, :, None] * quantiles
        if self.sizes.log:
            return torch.exp(made)
        return torch.clamp(made, min=0) if self.sizes.floor else made


def clipped(x: Tensor, most: float) -> Tensor:
    return torch.clamp(x, -most, most)


def check_sizes(sizes: Sizes) -> None:
    for name in ("horizon", "context", "season", "targets"):
        check_size(name, getattr(sizes, name))
    if sizes.context <= sizes.season:
        raise ValueError(
            f"a context of {sizes.context} values does not reach back over a season of {sizes.season}; "
            f"expected a context of at least {sizes.season + 1}"
        )
