"""Fan charts: the end of a series, its forecast with intervals, and what followed if that is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from linnet.data.frequency import Frequency
from linnet.data.grid import shown
from linnet.data.series import Series
from linnet.tasks.results import Band, Chart, Line

MOST_PAST = 300
"""Values before a forecast; more only if the forecast is longer."""


class Fan(NamedTuple):
    """A forecast of one target of a series after its step `last`.

    quantiles   [horizon, levels], in the unit of the series
    others      further forecasts [horizon] by name
    """

    title: str
    series: Series
    target: int
    last: int
    quantiles: np.ndarray
    levels: Sequence[float]
    others: Mapping[str, np.ndarray] = {}


def fan_chart(fan: Fan, frequency: Frequency, season: int, label: str) -> Chart:
    horizon = len(fan.quantiles)
    first = max(0, fan.last + 1 - past_steps(horizon, season))
    values = fan.series.values[first : fan.last + 1 + horizon, fan.target]
    times = [*map(label_of, frequency.at(fan.series.start, np.arange(first, fan.last + 1 + horizon)))]
    ahead, now = times[fan.last - first :], fan.series.values[fan.last, fan.target]

    def line(name: str, forecast: np.ndarray) -> Line:
        return Line(name, ahead, [float(now), *map(float, forecast)])

    middle = fan.quantiles[:, list(fan.levels).index(0.5)]
    lines = (
        Line("values", times[: len(values)], [*map(float, values)]),
        line("forecast", middle),
        *(line(name, forecast) for name, forecast in fan.others.items()),
    )
    bands = tuple(
        Band(f"{100 * (high - low):.3g} % interval", ahead, line("", lower).y, line("", upper).y, 1)
        for low, high, lower, upper in intervals(fan.quantiles, fan.levels)
    )
    return Chart(fan.title, about(bands, fan.others), "", label, lines, bands)


def past_steps(horizon: int, season: int) -> int:
    """Return how many values before a forecast are shown."""
    return min(max(3 * horizon, 2 * season), max(MOST_PAST, horizon))


def label_of(time: Any) -> Any:
    return int(time) if isinstance(time, int | np.integer) else shown(time)


def intervals(
    quantiles: np.ndarray, levels: Sequence[float]
) -> Iterator[tuple[float, float, np.ndarray, np.ndarray]]:
    """Yield the levels and the values of each interval around the median, the widest first."""
    pairs = zip(range(len(levels)), reversed(range(len(levels))), strict=True)
    for low, high in pairs:
        if levels[low] < 0.5 < levels[high]:
            yield levels[low], levels[high], quantiles[:, low], quantiles[:, high]


def about(bands: Sequence[Band], others: Mapping[str, Any]) -> str:
    shares = " and ".join(each.label.removesuffix(" interval") for each in bands)
    shaded = f" The shaded areas should contain {shares} of the values." if bands else ""
    compared = f" Beside it: {', '.join(others)}." if others else ""
    return f"The forecast was made where its line, the median, begins.{shaded}{compared}"
