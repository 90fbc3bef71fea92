"""Charts of the answers of a model: lines and bands that a task has made (`linnet.tasks.results.Chart`)."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import numpy as np

from linnet.analysis.colours import BLUE, DASH_DOT, DASHED, DOTTED, INK, MAGENTA, ORANGE, SOLID, TEAL, Look
from linnet.analysis.drawing import NothingToShow, finish, literal, new_figure, shared_legend
from linnet.analysis.runs import Panel, Recorded, members, panels
from linnet.analysis.table import best_run
from linnet.runs.untrusted import harmless
from linnet.tasks.results import Chart

HEIGHT = 3.1
"""Inches of a chart."""
LETTERS = 55
"""Of a line of a title."""
SHADE = 0.2
"""The opacity of the first band; each further one, which is inside it, has as much more."""

LOOKS = (
    *(Look(INK.light, SOLID), Look(BLUE.light, SOLID), Look(ORANGE.light, DASHED)),
    *(Look(TEAL.light, DOTTED), Look(MAGENTA.light, DASH_DOT)),
)
"""Of the lines of a chart, in their order: the truth, the model, and what it is compared with."""


def draw_stored_charts(runs: Sequence[Recorded]) -> Any:
    """Draw the charts of the best run of each problem, one below the other."""
    columns = [run.charts for run in map(charted, panels(runs)) if run]
    if not columns:
        raise NothingToShow("no finished run has charts of its answers")
    return draw_charts(columns)


def charted(panel: Panel) -> Recorded | None:
    """Return the best of the runs that have charts."""
    known = [run for run in members(panel) if run.charts]
    return (best_run(known) or known[0]) if known else None


def chart_captions(panel: Panel) -> str:
    run = charted(panel)
    if run is None:
        return ""
    of = f"Of {run.name}: " if sum(1 for _ in members(panel)) > 1 else ""
    return of + captions(run.charts)


def captions(charts: Sequence[Chart]) -> str:
    """Return what charts say about themselves, without repetitions."""
    return " ".join(dict.fromkeys(each.about for each in charts))


def draw_charts(columns: Sequence[Sequence[Chart]]) -> Any:
    """Return a figure with the charts of each column below each other, and one legend."""
    rows = max(map(len, columns))
    figure, all_axes = new_figure(len(columns), height=HEIGHT, rows=rows)
    for number, axes in enumerate(all_axes):
        row, column = divmod(number, len(columns))
        if row < len(columns[column]):
            draw_chart(axes, columns[column][row])
        else:
            axes.set_visible(False)
    shared_legend(figure)
    return figure


def draw_chart(axes: Any, chart: Chart) -> None:
    looks = [LOOKS[number % len(LOOKS)] for number in range(len(chart.lines))]
    for line, look in zip(chart.lines, looks, strict=True):
        style = {"marker": "o" if has_lonely(line.y) else None, "markersize": 3, **look._asdict()}
        axes.plot(places(line.x), line.y, label=text(line.label), **style)
    for number, band in enumerate(chart.bands, 1):
        style = {"color": looks[band.line].color, "alpha": min(SHADE * number, 1), "linewidth": 0}
        axes.fill_between(places(band.x), band.low, band.high, label=text(band.label), **style)
    title = "\n".join(wrap(harmless(chart.title), LETTERS))
    finish(axes, title, harmless(chart.x_label), harmless(chart.y_label))
    if any(isinstance(x, str) for each in chart.lines for x in each.x[:1]):
        show_dates(axes)


def text(label: str) -> str:
    return literal(harmless(label))


def places(x: Sequence[Any]) -> np.ndarray:
    """Return numbers or times as matplotlib takes them."""
    return np.array(x, dtype="datetime64[s]" if any(isinstance(each, str) for each in x) else float)


def has_lonely(y: Sequence[float]) -> bool:
    """Whether a value of a line has no neighbour to be joined with."""
    known = np.isfinite(np.asarray(y, dtype=float))
    alone = known & ~np.append(known[1:], False) & ~np.insert(known[:-1], 0, False)
    return bool(alone.any())


def show_dates(axes: Any) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=7)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
