"""Forecasts of series of numbers, with intervals.

    linnet train forecast --path sales.csv --time date --target sales --group shop
    linnet predict runs/sales-gru --out next.csv
    linnet eval runs/sales-gru

The last `folds` horizons of each series are the test set, those before them the validation set. A forecast is
made after the last value before each, from what was known then (rolling origin).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.base.settings import Checked, option
from linnet.data.batches import epoch_generator
from linnet.data.calendar import calendar_names
from linnet.data.columnar import FORMATS, split_names
from linnet.data.errors import DataError
from linnet.data.frames import ForecastRows, as_frame, forecast_frame, forecast_table
from linnet.data.frequency import STEP, Frequency
from linnet.data.grid import series_at, shown
from linnet.data.layouts import LAYOUTS, SeriesColumns
from linnet.data.series import LARGEST, Series, SeriesTable, series_of_frame
from linnet.data.series_sets import SERIES_SETS, SeriesSet, load_series
from linnet.data.tables import format_of
from linnet.data.text import parse_json
from linnet.models.forecaster import LARGEST_PAST, Forecaster, ForecasterConfig, Sizes, clipped
from linnet.models.level import TINY
from linnet.recurrent.modes import evaluating
from linnet.tasks.base import SPLITS, Comparison, Task, unit_options_checked
from linnet.tasks.baselines import Baseline
from linnet.tasks.examples import file_name
from linnet.tasks.forecast_charts import Fan, fan_chart
from linnet.tasks.forecast_measures import (
    FIGURES,
    MASE,
    ForecastMetrics,
    Forecasts,
    Score,
    Window,
    best_median_worst,
    extremes,
    naive_baselines,
)
from linnet.tasks.forecast_stream import ForecastStep
from linnet.tasks.forecast_windows import SeriesArrays, WindowBatch
from linnet.tasks.linear_forecasts import linear_baselines
from linnet.tasks.memory import numbers
from linnet.tasks.naive_forecasts import naive_forecast
from linnet.tasks.results import AnswerTable, Chart, Figure, Metrics, Section, StepResult
from linnet.tasks.statistical_forecasts import missing_note, statistical_baselines

FOUND = "series.json"
TRANSFORMS = ("auto", "none", "log")
VALUES_PER_BATCH, FEWEST_BATCHES, MOST_BATCHES = 50, 20, 100
"""Windows are drawn at random, so an epoch has no end of its own. That of few values is short: a model learns
them by heart, and validations must find the best weights before."""
ENOUGH = 16
"""Forecasts from which figures can be compared."""
LARGEST_TRUTH = 100.0
"""A jump counts no more than this many scales in the loss: after constant values, it may be millions."""
LINEAR_BATCHES, LINEAR_RIDGE = 50, 1e-2
"""Least squares before training: from as many batches, with the weight of the squared changes."""
DENSE = 0.5
"""The least share of times with a value, in a file to predict."""
FEWEST = 4
"""Values that a series must have for training."""
RANKS = {0: (), 1: ("",), 2: ("best, ", "worst, "), 3: ("best, ", "median, ", "worst, ")}
"""Of the charts of a test, by their number."""


@dataclass(frozen=True)
class ForecastData(Checked):
    """Series on a regular grid of times."""

    set: str = option("co2", "a name of `linnet list sets`; own: the file --path", choices=(*SERIES_SETS,))
    path: str | None = option(None, "your own .csv, .tsv (each also .gz or .xz) or .parquet")
    data_dir: str | None = option(None, "the folder where the files of a set are searched first")
    time: str = option("", "the column with the times (the first one, if it has times)")
    target: str = option("", "the columns to forecast, separated by commas")
    group: str = option("", "the columns that name the series of a row")
    known: str = option("", "columns that are also known in the future")
    observed: str = option("", "further columns that are known up to now")
    layout: str = option(
        "auto", "long: a row for each time; columns, rows: a series in each", choices=LAYOUTS
    )
    time_format: str = option("", "of strptime, for unusual times")
    frequency: str = option("", "the distance of times, such as 15min, D or M (found from the times)")
    horizon: int = option(0, "steps to forecast (0: by the frequency)", least=0)
    season: int = option(0, "steps of a season, 1: none (0: by the frequency)", least=0)
    context: int = option(0, "past values that a forecast reads (0: four horizons or two seasons)", least=0)
    transform: str = option(
        "auto", "log: forecast logarithms; auto: if all values are positive", choices=TRANSFORMS
    )
    calendar: bool = option(True, "read the hour, the day of the week and of the year where they matter")
    folds: int = option(
        0,
        "forecasts of each series in the validation and in the test set (0: one, of a few series more)",
        least=0,
    )
    test_steps: int = option(0, "steps of each series for the test (0: folds x horizon)", least=0)
    valid_steps: int = option(0, "steps of each series for validation (0: folds x horizon)", least=0)
    stride: int = option(0, "steps between two forecasts of the test (0: one horizon)", least=0)
    batch: int = option(32, "windows in a batch, over all processes", least=1)
    origins: int = option(32, "forecasts of each window of a training batch", least=1)
    eval_batch: int = option(256, "forecasts in a batch of an evaluation", least=1)

    @property
    def columns(self) -> SeriesColumns:
        given = {name: split_names(getattr(self, name)) for name in ("group", "known", "observed")}
        return SeriesColumns(
            time=self.time,
            targets=split_names(self.target),
            layout=self.layout,
            time_format=self.time_format,
            frequency=self.frequency,
            **given,
        )


def fingerprint_of(series: Sequence[Series]) -> str:
    code = hashlib.sha256()
    for each in series:
        code.update(each.name.encode())
        for values in (each.values, each.known, each.observed):
            code.update(np.ascontiguousarray(values).tobytes())
    return code.hexdigest()[:12]


def check_positive(table: SeriesTable, remedy: str) -> None:
    """Raise if a value has no logarithm."""
    for each in table.series:
        if (each.values <= 0).any():
            step, target = np.argwhere(each.values <= 0)[0]
            raise DataError(
                f"{named(each)}: the value at {time_at(each, step, table.frequency)} is "
                f"{each.values[step, target]:g}, and logarithms need positive values; {remedy}"
            )


def check_density(table: SeriesTable) -> None:
    """Raise if most values are missing, for a run without gaps: times of another distance look like that."""
    values = max(table.series, key=len).values
    share = 1 - np.isnan(values).mean()
    if share < DENSE:
        raise DataError(
            f"{named(max(table.series, key=len))} has values at {share:.0%} of its times, at a distance of "
            f"{table.frequency}, and the run was trained on series without gaps; give rows at that distance"
        )


def named(series: Series) -> str:
    return series_at([series.name], 0, series.where)


def time_at(series: Series, step: int, frequency: Frequency) -> str:
    """Return the time of a step of a series, for messages; arrays have no times."""
    if isinstance(series.start, int) and frequency.unit != STEP:
        return f"step {step}"
    return shown(frequency.times(series.start, step + 1)[-1])


def check_sizes(table: SeriesTable) -> None:
    """Raise if a number is so large that its square, or a float32, may overflow."""
    for each in table.series:
        for part in (each.values, each.known, each.observed):
            large = np.abs(part) > LARGEST
            if large.any():
                step, column = np.argwhere(large)[0]
                raise DataError(
                    f"{named(each)} has a value of {part[step, column]:g} at "
                    f"{time_at(each, step, table.frequency)}; expected at most {LARGEST:g}. Divide the "
                    "values, or leave wrong ones empty"
                )


class Found(NamedTuple):
    """What was found in the training data; it stays with the run."""

    sizes: Sizes
    frequency: Frequency
    targets: tuple[str, ...]
    columns: SeriesColumns
    held_out: int  # the last steps of each series, which training does not read
    data: str  # a fingerprint of the series: a run is not continued with others

    def to_bytes(self) -> bytes:
        kept = {
            "sizes": self.sizes._asdict(),
            "frequency": str(self.frequency),
            "targets": self.targets,
            "columns": self.columns._asdict(),
            "held_out": self.held_out,
            "data": self.data,
        }
        return json.dumps(kept, indent=1).encode()

    @classmethod
    def parse(cls, content: bytes) -> Found:
        kept = parse_json(FOUND, content.decode("utf-8", "replace"))
        try:
            columns: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in kept["columns"].items()
            }
            sizes = Sizes(**kept["sizes"])
            if not all(isinstance(value, int) and value >= 0 for value in sizes):
                raise ValueError(f"the sizes are {tuple(sizes)}")
            frequency, targets = Frequency.parse(kept["frequency"]), tuple(map(str, kept["targets"]))
            return cls(
                sizes, frequency, targets, SeriesColumns(**columns), int(kept["held_out"]), str(kept["data"])
            )
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise DataError(f"{FOUND} is not what a run of forecast keeps: {error}") from None


class Forecast(Task):
    """Series, and a model that forecasts them."""

    name, about = "forecast", "forecasts of series of numbers, with intervals"
    Data: ClassVar[type] = ForecastData
    Model: ClassVar[type] = ForecasterConfig
    sets: ClassVar[Mapping[str, SeriesSet]] = SERIES_SETS
    splits = (*SPLITS, "all")
    asset_files = (FOUND,)
    defaults = {
        **{"optimiser": "adam", "lr": 3e-3, "clip": 1.0, "schedule": "cosine", "warmup": 50},
        **{"updates": 1000, "patience": 0},
    }
    comparison = Comparison(("sru", "lrn", "gru", "lstm", "mingru"), budget=60_000)
    remedies = "more series or longer ones, a longer training (--minutes), another --context or --transform"

    answers_tables = True
    yardstick = "seasonal naive"
    is_new = True  # False: a trained run, whose data may not be there

    # ------------------------------------------------------------------------------------------ data

    def prepare(self) -> None:
        table = self.table
        frequency = table.frequency
        horizon, season, context = self.chosen_sizes(table)
        lowest = min(float(np.nanmin(each.values)) for each in table.series)
        log = self.data.transform == "log" or (self.data.transform == "auto" and lowest > 0)
        if log:
            check_positive(table, "leave out --transform log")
        known = len(table.known) + (len(calendar_names(frequency)) if self.data.calendar else 0)
        gaps = any(bool(np.isnan(each.values).any()) for each in table.series)
        sizes = Sizes(
            horizon=horizon,
            context=context,
            season=season,
            targets=len(table.targets),
            known=known,
            observed=len(table.observed),
            log=log,
            floor=not log and lowest >= 0,
            gaps=gaps,
        )
        held_out, data = sum(self.held_out(horizon)), fingerprint_of(table.series)
        self.found = Found(sizes, frequency, table.targets, table.columns, held_out, data)
        self.check_lengths()

    def chosen_sizes(self, table: SeriesTable) -> tuple[int, int, int]:
        """Return horizon, season and context: as given, or by the frequency and the length of the series."""
        data, frequency = self.data, table.frequency
        longest = max(map(len, table.series))
        horizon = data.horizon or max(1, min(frequency.horizon, longest // 8))
        season = data.season or (frequency.season if 3 * frequency.season <= longest else 1)
        context = data.context or min(max(4 * horizon, 2 * season), max(longest // 2, season + 1))
        if data.context and data.context <= season:
            raise DataError(
                f"--context {data.context} does not reach back over a season of {season}; give at least "
                f"{season + 1}, or another --season"
            )
        return horizon, season, max(context, season + 1, 2)

    def check_lengths(self) -> None:
        short = [each for each in self.table.series if self.train_end(each) < FEWEST]
        self.too_short = len(short)
        if len(short) == len(self.table.series):
            longest = max(short, key=len)
            least = len(longest) - self.train_end(longest) + FEWEST
            several = self.data.folds > 1
            raise DataError(
                f"{longest.where}: the longest series, {longest.name or 'the only one'!r}, has "
                f"{len(longest):,} values; a horizon of {self.found.sizes.horizon} needs at least {least:,}, "
                f"for training, validation and test. Give a smaller --horizon{' or --folds' * several} or "
                "longer series"
            )

    @cached_property
    def table(self) -> SeriesTable:
        columns = self.data.columns if self.is_new else self.columns_again()
        table = load_series(self.data.set, self.data.path, columns, self.data.data_dir)
        if self.is_new:
            check_sizes(table)
            return table
        return self.checked_table(table)

    def columns_again(self) -> SeriesColumns:
        """Return the columns of another file: as in training, unless they are given."""
        given = {name: value for name, value in self.data.columns._asdict().items() if value}
        if given.get("layout") == "auto":
            given.pop("layout")
        return self.found.columns._replace(**given)

    def checked_table(self, table: SeriesTable) -> SeriesTable:
        """Return the table if a model of this run can read it."""
        check_sizes(table)
        targets = len(self.found.targets)
        if len(table.targets) != targets or table.frequency != self.found.frequency:
            raise DataError(
                f"the run forecasts {targets} targets at a distance of {self.found.frequency}; the data has "
                f"{len(table.targets)} at a distance of {table.frequency}"
            )
        if not self.found.sizes.gaps:
            check_density(table)
        if self.found.sizes.log:
            check_positive(table, "train the run with --transform none")
        return table

    @cached_property
    def arrays(self) -> SeriesArrays:
        return self.arrays_of(self.table)

    def arrays_of(self, table: SeriesTable) -> SeriesArrays:
        found = self.found
        return SeriesArrays(table.series, found.sizes, found.frequency, self.uses_calendar)

    @property
    def uses_calendar(self) -> bool:
        return self.data.calendar and bool(calendar_names(self.found.frequency))

    # ---------------------------------------------------------------------------------------- splits

    def split_end(self, series: Series, split: str) -> int:
        """Return the step at which a split of a series ends."""
        valid, test = self.held_out(self.found.sizes.horizon)
        return len(series) - {"train": test + valid, "valid": test, "test": 0, "all": 0}[split]

    def held_out(self, horizon: int) -> tuple[int, int]:
        """Return the steps of each series for validation and for the test."""
        usual = self.folds(horizon) * horizon
        return self.data.valid_steps or usual, self.data.test_steps or usual

    def folds(self, horizon: int) -> int:
        """As given; else ENOUGH for a split, but not more than a third of a series for both splits."""
        longest = max(map(len, self.table.series))
        most = max(1, longest // (6 * horizon))
        return self.data.folds or min(most, -(-ENOUGH // len(self.table.series)))

    def train_end(self, series: Series) -> int:
        return self.split_end(series, "train")

    def split_origins(self, split: str) -> list[tuple[int, int]]:
        """Return the series and the last known step of each forecast of a split."""
        horizon = self.found.sizes.horizon
        stride = self.data.stride or horizon
        before = {"train": "train", "valid": "train", "test": "valid", "all": "valid"}[split]
        found = []
        for number, series in enumerate(self.table.series):
            end = self.split_end(series, split)
            start = self.split_end(series, before) if split != "train" else end - horizon
            if start >= (FEWEST if split == "train" else 1):
                found += [(number, step - 1) for step in range(start, end - horizon + 1, stride)]
        return found

    def batches(self, split: str, epoch: int = 0, first: int = 0) -> Iterator[WindowBatch]:
        if epoch:
            return self.training(split, epoch, first)
        return self.evaluation(split)

    def batches_per_epoch(self, epoch: int) -> int:
        values = sum(max(self.train_end(each), 0) for each in self.table.series)
        return min(max(values // VALUES_PER_BATCH, FEWEST_BATCHES), MOST_BATCHES)

    def training(self, split: str, epoch: int, first: int) -> Iterator[WindowBatch]:
        generator = epoch_generator(self.seed, epoch)
        usable = torch.tensor(
            [number for number, each in enumerate(self.table.series) if self.train_end(each) >= FEWEST]
        )
        ends = torch.tensor([self.train_end(self.table.series[number]) for number in usable.tolist()])
        for index in range(self.batches_per_epoch(epoch)):
            chosen = torch.randint(len(usable), (self.data.batch,), generator=generator)
            drawn = torch.rand(1 + self.data.origins, self.data.batch, generator=generator)
            if index >= first:
                yield self.training_batch(usable[chosen], ends[chosen], drawn, index)

    def training_batch(self, rows: Tensor, ends: Tensor, drawn: Tensor, index: int) -> WindowBatch:
        """Return windows that start anywhere; forecasts follow after at least `warm` steps of a window."""
        warm = torch.minimum(torch.tensor(self.warm), ends - 2)
        starts = (drawn[0] * (ends - 1 - warm)).long()
        lengths = torch.minimum(ends - starts, torch.tensor(self.window))
        origins = warm + (drawn[1:] * (torch.minimum(lengths, ends - 1 - starts) - warm)).long()
        return self.arrays.batch(rows, starts, int(lengths.max()), ends, origins, index)

    @property
    def window(self) -> int:
        """The steps that the unit reads in training and before a forecast."""
        return 2 * self.found.sizes.context

    @property
    def warm(self) -> int:
        sizes = self.found.sizes
        return max(sizes.season, sizes.context // 4)

    def evaluation(self, split: str) -> Iterator[WindowBatch]:
        origins = self.split_origins(split)
        if not origins:
            raise DataError(
                f"no series is long enough for a forecast of {self.found.sizes.horizon} steps in the {split} "
                "set; give longer series, or train with a smaller --horizon"
            )
        size = self.data.eval_batch
        for index, start in enumerate(range(0, len(origins), size)):
            yield self.origin_batch(self.arrays, origins[start : start + size], index)

    def origin_batch(
        self, arrays: SeriesArrays, origins: Sequence[tuple[int, int]], index: int
    ) -> WindowBatch:
        rows, last = torch.tensor(origins).T
        starts = (last + 1 - self.window).clamp(min=0)
        ends = torch.minimum(last + 1 + self.found.sizes.horizon, arrays.lengths[rows])
        steps = int((last + 1 - starts).max())
        return arrays.batch(rows, starts, steps, ends, (last - starts)[None], index)

    # ----------------------------------------------------------------------------------------- model

    def build(self) -> Forecaster:
        with unit_options_checked():
            model = Forecaster(self.found.sizes, self.model)
        if self.is_new and not model.example.is_meta:
            model.set_covariates(*self.covariate_scales)
            self.fit_linear(model)
        return model

    @torch.no_grad()
    def fit_linear(self, model: Forecaster) -> None:
        """Bring the linear part from the seasonal naive forecast to least squares on the training set."""
        if model.linear is None:
            return
        layer, size = model.linear, self.found.sizes.context + 1
        square, product = torch.zeros(size, size).double(), torch.zeros(size, layer.out_features).double()
        for batch in islice(self.training("train", 1, 0), LINEAR_BATCHES):
            x, y = self.linear_rows(model, batch)
            square += x.T @ x
            product += x.T @ (y - layer(x[:, :-1].to(layer.weight)).double())
        ridge = LINEAR_RIDGE * square.trace() / size + TINY
        change = torch.linalg.solve(square + ridge * torch.eye(size), product).to(layer.weight)
        layer.weight.add_(change[:-1].T)
        layer.bias.add_(change[-1])

    def linear_rows(self, model: Forecaster, batch: Any) -> tuple[Tensor, Tensor]:
        """Return past values with a 1 for the bias, and the values that follow; outliers are left out."""
        truth, asked = (each.transpose(-1, -2).flatten(0, 2).double() for each in self.asked(batch))
        past = model.past_at_origins(batch).flatten(0, 2).double()
        usable = (asked > 0).all(-1) & (truth.abs() < LARGEST_PAST).all(-1)
        return F.pad(past, (0, 1), value=1.0)[usable], truth[usable]

    @cached_property
    def covariate_scales(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Mean and deviation of each covariate in the training set; those of the calendar are 0 and 1."""
        found = []
        for name, count in (("known", self.found.sizes.known), ("observed", self.found.sizes.observed)):
            parts = [getattr(each, name)[: max(self.train_end(each), 0)] for each in self.table.series]
            values = np.concatenate(parts)
            mean, deviation = np.zeros(count), np.ones(count)
            if values.shape[1]:
                mean[: values.shape[1]] = np.nan_to_num(np.nanmean(values, 0))
                spread = np.nan_to_num(np.nanstd(values, 0))
                deviation[: values.shape[1]] = np.where(spread > 0, spread, 1.0)
            found.append((mean, deviation))
        return found

    def step(self, model: Forecaster, batch: WindowBatch, carry: Any) -> StepResult:  # type: ignore[override]
        forecast = model(batch)
        truth, asked = self.asked(batch)
        losses = model.answer.losses(forecast.middle, forecast.extra, truth.to(forecast.middle.dtype))
        total, count = (losses * asked).sum(), int(asked.sum())
        outputs = None
        if not model.training:
            outputs = Forecasts(
                self.windows_of(batch), self.by_window(model, batch, forecast), model.answer.levels
            )
        tokens = int(batch.lengths.sum())
        return StepResult(total / max(count, 1), total.detach(), count, tokens, outputs=outputs)

    def asked(self, batch: WindowBatch) -> tuple[Tensor, Tensor]:
        """Return the values to forecast as seen from their origins, and which of them count.

        Both are [F, B, horizon, targets]. After nothing but zeros there is no scale, and nothing counts.
        """
        sizes, columns = self.found.sizes, torch.arange(len(batch))
        first = batch.origins[..., None] + sizes.context
        places = first + torch.arange(sizes.horizon)
        location, scale = (
            each[batch.origins, columns][..., None, :] for each in (batch.location, batch.scale)
        )
        truth = (batch.values[places, columns[:, None]] - location) / scale
        has_scale = scale * batch.unit[0][:, None] > 2 * TINY
        asked = batch.present[places, columns[:, None]] * has_scale
        return torch.where(has_scale, clipped(truth, LARGEST_TRUTH), 0.0), asked

    def quantiles_of(self, model: Forecaster, batch: WindowBatch, forecast: Any) -> Tensor:
        """Return the quantiles of the only origin of each window, float64 [B, horizon, targets, levels]."""
        columns = torch.arange(len(batch))
        location, scale = (each[batch.origins[0], columns].double() for each in (batch.location, batch.scale))
        exact = type(forecast)(*(each[0].double() for each in forecast))
        centre, unit = batch.centre[0], batch.unit[0]
        return model.in_unit(exact, location * unit + centre, scale * unit)

    def by_window(self, model: Forecaster, batch: WindowBatch, forecast: Any) -> Tensor:
        """Return the quantiles of each series and target, [B x targets, horizon, levels]."""
        return self.quantiles_of(model, batch, forecast).transpose(1, 2).flatten(0, 1)

    def windows_of(self, batch: WindowBatch) -> list[Window]:
        rows, last = batch.rows.tolist(), (batch.starts + batch.origins[0]).tolist()
        return [
            self.window_at(row, step, target)
            for row, step in zip(rows, last, strict=True)
            for target in range(self.found.sizes.targets)
        ]

    def window_at(self, row: int, last: int, target: int) -> Window:
        """Return what a forecast of one target of a series is measured by."""
        series, sizes = self.table.series[row], self.found.sizes
        values = series.values[:, target]
        truth = np.full(sizes.horizon, np.nan)
        following = values[last + 1 : last + 1 + sizes.horizon]
        truth[: len(following)] = following
        known = values[: max(self.train_end(series), 1)]
        deviation = float(np.nanstd(known)) if np.isfinite(known).any() else 0.0
        name = self.origin_name(series, target, last)
        return Window(name, values[: last + 1], truth, sizes.season, deviation)

    def origin_name(self, series: Series, target: int, last: int) -> str:
        """Return the name of a forecast; of several of a series, with the time after which it begins."""
        name, horizon = self.name_of(series, target), self.found.sizes.horizon
        has_several = self.held_out(horizon)[1] > horizon
        return f"{name} after {shown(self.times_of(series)[last])}" if has_several else name

    def name_of(self, series: Series, target: int) -> str:
        targets = self.found.targets
        one_of = targets[target] if len(targets) > 1 else ""
        return "/".join(filter(None, (series.name, one_of))) or targets[target]

    # --------------------------------------------------------------------------------------- results

    def metrics(self) -> Metrics:
        return ForecastMetrics()

    @classmethod
    def figures(cls, data: Any) -> tuple[Figure, ...]:
        return FIGURES

    def split_windows(self, split: str) -> list[Window]:
        targets = range(self.found.sizes.targets)
        return [self.window_at(*origin, target) for origin in self.split_origins(split) for target in targets]

    def baselines(self, split: str, figures: Mapping[str, float]) -> list[Baseline]:
        windows, levels = self.split_windows(split), self.model.quantiles
        known = [
            each.values[: max(self.train_end(each), 0), target]
            for each in self.table.series
            for target in range(self.found.sizes.targets)
        ]
        linear = linear_baselines(known, windows, self.found.sizes.context, levels)
        return [*naive_baselines(windows, levels), *linear]

    def details(self, split: str, metrics: Any) -> list[Section]:
        sections = [extremes(metrics.scores)] if len(metrics.scores) > 1 else []
        if not self.is_new:
            sections.insert(0, self.compared(split, metrics.compute()))
        return sections

    def compared(self, split: str, figures: Mapping[str, float]) -> Section:
        """Return a table of the model and of forecasts without a network."""
        windows = self.split_windows(split)
        found = [
            *self.baselines(split, figures),
            *statistical_baselines(windows, self.model.quantiles),
        ]
        shown = [figure for figure in FIGURES if figure.name != "loss"]
        rows = [("this run", figures), *((each.name, each.figures) for each in found)]
        return Section(
            "Forecasts without a network",
            " ".join(
                [*self.warnings(split), *(f"{each.name}: {each.about}" for each in found), missing_note()]
            ),
            ("forecast", *(figure.label for figure in shown)),
            tuple(
                (name, *(figure.show(of[figure.name]) if figure.name in of else "" for figure in shown))
                for name, of in rows
            ),
        )

    def warnings(self, split: str) -> list[str]:
        """Return what makes an evaluation too good: forecasts of values of the training set."""
        if fingerprint_of(self.table.series) != self.found.data:
            return []
        origins = self.split_origins(split)
        trained = sum(last + 1 < len(self.table.series[row]) - self.found.held_out for row, last in origins)
        if not trained:
            return []
        return [
            f"Careful: {trained:,} of {len(origins):,} forecasts are of values that the run was trained on; "
            "give --folds when you train."
        ]

    def charts(self, model: Forecaster, split: str, metrics: Any) -> list[Chart]:  # type: ignore[override]
        """Return the forecasts of the best, the median and the worst series."""
        chosen = best_median_worst(metrics.scores) or metrics.scores[:1]
        targets = range(self.found.sizes.targets)
        places = {
            (self.origin_name(self.table.series[row], target, last), last + 1): (row, last, target)
            for row, last in self.split_origins(split)
            for target in targets
        }
        return [
            self.chart_of_test(model, score, rank, *places[score.name, score.known])
            for score, rank in zip(chosen, RANKS[len(chosen)], strict=True)
        ]

    def chart_of_test(
        self, model: Forecaster, score: Score, rank: str, row: int, last: int, target: int
    ) -> Chart:
        (quantiles,) = self.quantiles_at(model, self.arrays, [(row, last)], batch=1)
        season, horizon = self.found.sizes.season, self.found.sizes.horizon
        name = "seasonal naive" if season > 1 else "naive"
        series = self.table.series[row]
        other = naive_forecast(name, series.values[: last + 1, target], horizon, season).centre
        error = "" if np.isnan(score.mase) else f": MASE {MASE.show(score.mase)}"
        title = f"{rank}{score.name}{error}"
        fan = Fan(title, series, target, last, quantiles[:, target], self.model.quantiles, {name: other})
        return fan_chart(fan, self.found.frequency, season, self.label_of(series, target))

    def label_of(self, series: Series, target: int) -> str:
        """Return what is on the y axis; in the layouts columns and rows, series have their own names."""
        return series.name if self.found.columns.layout != "long" else self.found.targets[target]

    # --------------------------------------------------------------------------------- a trained run

    def stream_step(self, model: Any) -> ForecastStep:
        found = self.found
        covariates = found.columns.observed, found.columns.known
        return ForecastStep(model, found.targets, *covariates, found.frequency, self.uses_calendar)

    def assets(self) -> dict[str, bytes]:
        return {FOUND: self.found.to_bytes()}

    def restore(self, assets: Mapping[str, bytes]) -> None:
        self.is_new, self.found, self.too_short = False, Found.parse(assets[FOUND]), 0

    def describe(self) -> dict[str, Any]:
        return {"sizes": list(self.found.sizes), "targets": list(self.found.targets)}

    def notes(self) -> list[str]:
        sizes, table = self.found.sizes, self.table
        steps = sum(map(len, table.series))
        said = [
            f"{len(table.series):,} series with {steps:,} times at a distance of {table.frequency}; "
            f"horizon {sizes.horizon}, season {sizes.season}, context {sizes.context}",
            *table.notes,
        ]
        if sizes.log:
            said.append("all values are positive: logarithms are forecast (--transform none: the values)")
        ended = [each for each in table.series if table.known and each.future < sizes.horizon]
        if ended:
            said.append(f"before you predict: {self.future_needed(ended[0], table)}")
        if self.too_short:
            said.append(
                f"{self.too_short:,} of {len(table.series):,} series too short for training: they are only "
                "forecast"
            )
        return said

    # ----------------------------------------------------------------------------------- predictions

    def predict(self, model: Any, raw: Any, *, batch: int = 256) -> Any:  # type: ignore[override]
        """Return the next values of each series, with quantiles.

        A frame of pandas or polars, a dict of arrays or arrays give a frame of the same kind. Texts are
        files, or numbers such as "3 5 4 6", and each gives its rows.

        batch   series that are forecast at once
        """
        if isinstance(raw, list | tuple) and raw and all(isinstance(each, str) for each in raw):
            return [self.typed_answer(model, each, batch) for each in raw]
        return self.frame_answer(model, raw, batch)

    def typed_answer(self, model: Any, text: str, batch: int) -> dict[str, Any]:
        path = Path(text)
        if format_of(path) in FORMATS:
            table = load_series("own", path, self.columns_again())
        else:
            table = series_of_frame(self.typed_values(text), self.array_columns)
        rows = self.next_rows(model, self.checked_table(table), batch)
        times = [str(time) for time in rows.times]
        return {
            "series": list(rows.series),
            "time": times,
            **{name: [float(f"{value:.6g}") for value in column] for name, column in rows.columns.items()},
        }

    def typed_values(self, text: str) -> np.ndarray:
        """Return [steps, targets] of "3 5 4 6", or of "1,2 3,4" with the targets of a step."""
        targets = len(self.found.targets)
        steps = (
            [[number] for number in numbers(text, float, NUMBERS)]
            if targets == 1
            else [numbers(step, float, NUMBERS) for step in text.split()]
        )
        if not steps or any(len(step) != targets for step in steps):
            raise DataError(
                f"expected steps with {targets} values each ({', '.join(self.found.targets)}), like "
                f"{' '.join([','.join('1' * targets)] * 2)!r}, or a file; got {text!r}"
            )
        return np.array(steps)

    @property
    def array_columns(self) -> SeriesColumns:
        return SeriesColumns(targets=self.found.targets, frequency=str(self.found.frequency))

    def answer_table(  # type: ignore[override]
        self, model: Forecaster, path: str | None, *, charts: int = 0, batch: int = 256
    ) -> AnswerTable:
        """Return the next values of each series of a file, or of the data of the run."""
        table = self.checked_table(load_series("own", path, self.columns_again())) if path else self.table
        quantiles = self.next_quantiles(model, table, batch)
        series, horizon = len(table.series), self.found.sizes.horizon
        about = f"the next {horizon} values" + (f" of {series:,} series" if series > 1 else "")
        fans = [
            self.next_fan(each, target, quantiles[number])
            for number, each in enumerate(table.series[:charts])
            for target in range(self.found.sizes.targets)
        ]
        rows = forecast_table(self.rows_of(table, quantiles), table.columns)
        return AnswerTable(about, rows, series, tuple(fans[:charts]), series * self.found.sizes.targets)

    def next_fan(self, series: Series, target: int, quantiles: np.ndarray) -> Chart:
        name, found = self.label_of(series, target), self.found
        fan = Fan(
            self.name_of(series, target),
            series,
            target,
            len(series) - 1,
            quantiles[:, target],
            self.model.quantiles,
        )
        return fan_chart(fan, found.frequency, found.sizes.season, name)

    def frame_answer(self, model: Any, frame: Any, batch: int) -> Any:
        frame = as_frame(frame)
        table = series_of_frame(frame, self.columns_again())
        return forecast_frame(self.next_rows(model, self.checked_table(table), batch), frame, table.columns)

    def next_rows(self, model: Forecaster, table: SeriesTable, batch: int) -> ForecastRows:
        return self.rows_of(table, self.next_quantiles(model, table, batch))

    def next_quantiles(self, model: Forecaster, table: SeriesTable, batch: int) -> np.ndarray:
        """Return the forecast after the last value of each series, [series, horizon, targets, levels]."""
        self.check_future(table)
        origins = [(number, len(each) - 1) for number, each in enumerate(table.series)]
        return self.quantiles_at(model, self.arrays_of(table), origins, batch)

    @torch.no_grad()
    def quantiles_at(
        self, model: Forecaster, arrays: SeriesArrays, origins: Sequence[tuple[int, int]], batch: int
    ) -> np.ndarray:
        """Return the forecasts after these steps of series, [origins, horizon, targets, levels]."""
        found = []
        with evaluating(model):
            for start in range(0, len(origins), batch):
                window = self.origin_batch(arrays, origins[start : start + batch], 0)
                window = window.to(model.example.device)
                found.append(self.quantiles_of(model, window, model(window)).cpu().numpy())
        return np.concatenate(found)

    def check_future(self, table: SeriesTable) -> None:
        horizon = self.found.sizes.horizon
        for each in table.series:
            if table.known and each.future < horizon:
                raise DataError(f"{named(each)}: {self.future_needed(each, table)}")

    def future_needed(self, series: Series, table: SeriesTable) -> str:
        """Return what rows are to be added to a series with known covariates that end too soon."""
        horizon, last = self.found.sizes.horizon, len(series) - 1
        first, end = (time_at(series, last + step, table.frequency) for step in (1, horizon))
        return (
            f"a forecast needs the known covariates {', '.join(table.known)} from {first} to {end}; they end "
            f"at {time_at(series, last + series.future, table.frequency)}. Add rows with an empty "
            f"{' and '.join(table.targets)}"
        )

    def rows_of(self, table: SeriesTable, quantiles: np.ndarray) -> ForecastRows:
        horizon, levels = self.found.sizes.horizon, self.model.quantiles
        named = len(table.series) > 1 or bool(table.columns.group)
        names = [each.name if named else "" for each in table.series for _ in range(horizon)]
        times = [self.times_of(each)[-horizon:] for each in table.series]
        columns = {}
        for number, target in enumerate(self.shown_targets(table)):
            columns[target] = quantiles[:, :, number, levels.index(0.5)].reshape(-1)
            for place, each in enumerate(levels):
                if each != 0.5:
                    columns[f"{target}_{each:g}"] = quantiles[:, :, number, place].reshape(-1)
        return ForecastRows(names, np.concatenate(times), columns)

    def times_of(self, series: Series) -> np.ndarray:
        """Return the times of a series and of its forecast; arrays have no times but steps."""
        frequency = self.found.frequency
        grid = Frequency() if isinstance(series.start, int) and frequency.unit != STEP else frequency
        return grid.times(series.start, len(series) + self.found.sizes.horizon)

    def shown_targets(self, table: SeriesTable) -> tuple[str, ...]:
        """Return the names of the columns of a forecast: that of the only series of the layout columns."""
        alone = len(table.series) == 1 and table.columns.layout == "columns"
        return (table.series[0].name,) if alone else self.found.targets

    def show(self, answer: Mapping[str, Any]) -> str:
        columns = {name: values for name, values in answer.items() if name not in ("series", "time")}
        lines = []
        for number, time in enumerate(answer["time"]):
            cells = "  ".join(f"{name} {values[number]:g}" for name, values in columns.items())
            lines.append("  ".join(filter(None, (answer["series"][number], time, cells))))
        return "\n".join(lines)

    # --------------------------------------------------------------------------------- in comparisons

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        own = {"set": "own"} if given.get("path") else {}
        chosen = SERIES_SETS.get({**own, **given}.get("set", ""))
        return {**own, **(chosen.settings if chosen else {}), **given}

    @classmethod
    def data_name(cls, data: Any) -> str:
        return file_name(data.path) if data.set == "own" else data.set


NUMBERS = 'values, like "3 5 4 6", or a file'
