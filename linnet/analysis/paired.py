"""Runs of several units repeated with other seeds or folds: means, deviations and paired differences.

Runs with the same fold and the same seed have the same data, so their difference varies less than each of
them: units are compared by the mean of these differences and its standard error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import mean, stdev

from linnet.analysis.runs import Group, Panel, main_figure
from linnet.analysis.table import DASH
from linnet.tasks.results import Figure, Section

Results = Mapping[tuple[int, int], float]


def paired_section(panel: Panel) -> Section | None:
    """Return the table of a problem; None if no unit has two finished runs."""
    figure = main_figure(panel.first)
    by_unit = {group.label: results(group, figure) for group in panel.groups}
    if max(map(len, by_unit.values())) < 2:
        return None
    first = panel.groups[0].label
    head = ("unit", "runs", f"test {figure.label}", "deviation", f"minus {first}", "standard error")
    about = (
        f"The mean and the standard deviation of the test {figure.label} over the folds and seeds, and the "
        f"mean of the differences from {first} on the same fold with the same seed, with its standard error."
    )
    rows = tuple((name, *numbers(own, by_unit[first], figure)) for name, own in by_unit.items())
    return Section("Repeated runs", about, head, rows)


def results(group: Group, figure: Figure) -> Results:
    """Return the figure of each finished run by its fold and its seed."""
    return {
        (getattr(run.config.data, "fold", 0), run.config.loop.seed): run.result["test"][figure.name]
        for run in group.runs
        if run.result
    }


def numbers(own: Results, first: Results, figure: Figure) -> tuple[str, ...]:
    """Return the cells of a unit: runs, mean, deviation, mean difference and its standard error."""
    values = list(own.values())
    differences = [] if own is first else [own[key] - first[key] for key in own if key in first]
    error = deviation(differences)
    return (
        str(len(values)),
        shown(figure, mean(values) if values else None),
        shown(figure, deviation(values)),
        shown(figure, mean(differences) if differences else None),
        shown(figure, None if error is None else error / sqrt(len(differences))),
    )


def deviation(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


def shown(figure: Figure, value: float | None) -> str:
    return DASH if value is None else figure.show(value)
