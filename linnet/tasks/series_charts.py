"""Charts of series that a model mistakes: their channels, or the classes of their steps and the answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from linnet.data.labelled_series import LabelledSeries
from linnet.tasks.results import Chart, Line

ABOUT = "The series of the test set with the most confident wrong answers."
MOST_CHARTS = 4
MOST_CHANNELS = 5
"""Of a chart: those that change most in the series."""
MOST_POINTS = 500
"""Of a line; of a longer series, steps at equal distances."""
Mistake = tuple[float, int, int, int]
"""The probability of a wrong answer, the number of the series, its class and the answer."""


def mistaken_series(
    series: Sequence[LabelledSeries],
    found: Sequence[Mistake],
    classes: Sequence[str],
    channels: Sequence[str],
    scales: tuple[np.ndarray, np.ndarray],
) -> list[Chart]:
    """Return charts of the most confident mistakes; `scales` are mean and deviation of the channels."""
    charts = []
    for probability, number, label, answer in sorted(found, reverse=True)[:MOST_CHARTS]:
        title = f"{series[number].name}: {classes[answer]} ({probability:.2f}) instead of {classes[label]}"
        charts.append(channel_chart(title, series[number], channels, scales, ABOUT))
    return charts


def channel_chart(
    title: str,
    series: LabelledSeries,
    channels: Sequence[str],
    scales: tuple[np.ndarray, np.ndarray],
    about: str = "",
) -> Chart:
    mean, deviation = scales
    several = len(channels) > 1
    values = (series.values - mean) / deviation if several else series.values
    shown = most_changing(values)
    steps = places(len(series))
    lines = tuple(
        Line(channels[number], [*map(int, steps + 1)], [*map(float, values[steps, number])])
        for number in shown
    )
    if len(shown) < len(channels):
        about += f" Of {len(channels)} channels, the {len(shown)} that change most."
    unit = "deviations from the mean" if several else channels[0]
    return Chart(title, about, "step", unit, lines)


def most_changing(values: np.ndarray) -> list[int]:
    """Return the numbers of the channels that change most, in their order."""
    known = np.where(np.isnan(values), 0.0, values)
    return sorted(np.argsort(-known.std(0), kind="stable")[:MOST_CHANNELS].tolist())


def places(steps: int) -> np.ndarray:
    return np.unique(np.linspace(0, steps - 1, min(steps, MOST_POINTS)).round().astype(int))


def mistaken_steps(
    series: Sequence[LabelledSeries], found: Sequence[tuple[int, int, int]], classes: Sequence[str]
) -> list[Chart]:
    """Return charts of the series with the most wrong steps.

    found   the number of the series, of the step, and the answer, for each wrong step
    """
    wrong: dict[int, dict[int, int]] = defaultdict(dict)
    for number, step, answer in found:
        wrong[number][step] = answer
    chosen = sorted(wrong, key=lambda number: (-len(wrong[number]), number))[:MOST_CHARTS]
    return [step_chart(series[number], wrong[number], classes) for number in chosen]


def step_chart(series: LabelledSeries, wrong: dict[int, int], classes: Sequence[str]) -> Chart:
    truth = [float(classes.index(label)) if label else float("nan") for label in series.labels]
    answers = [float(wrong.get(step, number)) for step, number in enumerate(truth)]
    lines = (stairs("class", truth), stairs("answer", answers))
    names = ", ".join(f"{number} {name}" for number, name in enumerate(classes))
    about = "The series of the test set with the most wrong steps."
    title = f"{series.name}: {len(wrong):,} wrong step{'s' * (len(wrong) > 1)}"
    return Chart(title, about, "step", f"class: {names}", lines)


def stairs(name: str, classes: Sequence[float]) -> Line:
    """Return a line that is level for each step: between two classes, there is nothing."""
    x = [step + side for step in range(1, len(classes) + 1) for side in (-0.5, 0.5)]
    return Line(name, x, [number for number in classes for _ in range(2)])
