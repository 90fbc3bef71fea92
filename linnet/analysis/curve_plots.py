"""Curves of the metrics of runs, by update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from linnet.analysis.colours import looks
from linnet.analysis.drawing import (
    NothingToShow,
    draw_curve,
    finish,
    mark_level,
    new_figure,
    note,
    shared_legend,
)
from linnet.analysis.runs import (
    SOLVED,
    Group,
    Panel,
    Recorded,
    baseline,
    figure_named,
    groups,
    main_figure,
    members,
    panels,
)

DIVERGED = 20  # times the median loss
SEVERAL = "lines: mean over seeds; bands: from the lowest to the highest seed"


def draw_loss(runs: Sequence[Recorded]) -> Any:
    """Figures 1, 2 and 4 of the NRU paper."""
    return draw_panels(runs, "train", lambda panel: ("loss", label_of(panel, "loss")), "training loss")


def draw_validation(runs: Sequence[Recorded]) -> Any:
    """Figure 5 of the NRU paper."""

    def shown(panel: Panel) -> tuple[str, str]:
        return main_figure(panel.first).name, main_figure(panel.first).label

    return draw_panels(runs, "valid", shown, "validation")


def draw_gradient(runs: Sequence[Recorded]) -> Any:
    """Figure 7 of the NRU paper."""
    figure = draw_panels(
        runs, "train", lambda panel: ("gradient_norm", "gradient norm before clipping"), "gradient norm"
    )
    for axes in figure.axes:
        axes.set_yscale("log")
    return figure


def label_of(panel: Panel, name: str) -> str:
    return figure_named(panel.first, name).label


def draw_panels(
    runs: Sequence[Recorded], split: str, shown: Callable[[Panel], tuple[str, str]], what: str
) -> Any:
    """Draw a panel for each problem, with a curve for each group of runs.

    shown   returns the name and the label of the figure on the y axis
    what    the end of each panel's title
    """
    shown_panels = panels(runs)
    if not any(
        shown(panel)[0] in row
        for panel in shown_panels
        for run in members(panel)
        for row in getattr(run, split)
    ):
        raise NothingToShow(f"no run has a row of {split} yet")
    figure, all_axes = new_figure(len(shown_panels))
    for axes, panel in zip(all_axes, shown_panels, strict=True):
        name, label = shown(panel)
        draw_groups(axes, panel.groups, split, name)
        finish(axes, f"{panel.title}: {what}", "updates", label)
        if name == "loss":
            draw_baseline(axes, panel)
            show_divergence(axes)
    legend_of_runs(figure, runs)
    return figure


def draw_groups(axes: Any, drawn: Sequence[Group], split: str, name: str) -> None:
    for group, look in zip(drawn, looks(drawn), strict=True):
        draw_curve(axes, [getattr(run, split) for run in group.runs], name, group.label, look)


def draw_baseline(axes: Any, panel: Panel) -> None:
    """Draw the loss of a model without memory, and the loss below which a task counts as solved."""
    level = baseline(panel)
    if level is not None:
        axes.set_yscale("log")
        mark_level(axes, level, "memoryless baseline")
        mark_level(axes, SOLVED * level, f"solved: {SOLVED:.0%} of it", ":")


def show_divergence(axes: Any) -> None:
    """Use a logarithmic scale if a loss has grown so much that the other curves would be flat."""
    values = [value for line in axes.get_lines() for value in line.get_ydata() if value > 0]
    if values and max(values) > DIVERGED * median(values):
        axes.set_yscale("log")


def legend_of_runs(figure: Any, runs: Sequence[Recorded]) -> None:
    shared_legend(figure)
    if any(len(group.runs) > 1 for group in groups(runs)):
        note(figure, SEVERAL)
