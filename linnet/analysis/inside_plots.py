"""What the states of models remember, and how far gradients reach back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linnet.analysis.colours import looks
from linnet.analysis.curve_plots import legend_of_runs
from linnet.analysis.drawing import NothingToShow, draw_curve, finish, literal, new_figure, note
from linnet.analysis.inside import memory_changes, reach, trained
from linnet.analysis.runs import Recorded, panels, problem
from linnet.runs.load import load


def draw_memory(runs: Sequence[Recorded]) -> Any:
    """Figure 6 of the NRU paper."""
    # Only the first of several seeds: heat maps cannot be averaged.
    first = [group.runs[0] for panel in panels(trained(runs)) for group in panel.groups]
    shown = [run for run in first if run.config.model.unit == "nru"]
    if not shown:
        raise NothingToShow("no run of NRU has a checkpoint; other units have no such memory")
    figure, all_axes = new_figure(1, rows=len(shown), height=3.4)
    for axes, run in zip(all_axes, shown, strict=True):
        draw_changes(figure, axes, run)
    note(figure, "dashed line: the first answer; solid line: the start of another sequence")
    return figure


def draw_changes(figure: Any, axes: Any, run: Recorded) -> None:
    from matplotlib.colors import PowerNorm

    trained_run = load(run.folder)
    sizes, starts, answers = memory_changes(trained_run.task, trained_run.model)  # type: ignore[arg-type]
    # On a square-root scale: the first changes are small compared with those during the answers.
    style = {"aspect": "auto", "cmap": "viridis", "interpolation": "nearest", "origin": "lower"}
    picture = axes.imshow(sizes.T.numpy(), norm=PowerNorm(0.5, vmin=0), **style)
    figure.colorbar(picture, ax=axes, label="absolute change of a cell")
    for step in answers:
        axes.axvline(step - 0.5, color="white", linewidth=1, linestyle="--")
    for step in starts[1:]:
        axes.axvline(step - 0.5, color="white", linewidth=1.5)
    axes.set(title=literal(f"{run.name}: {problem(run.config)}"), xlabel="time step", ylabel="memory cell")


def draw_distance(runs: Sequence[Recorded]) -> Any:
    """Not in a paper: how far back gradients reach."""
    shown = trained(runs)
    if not shown:
        raise NothingToShow("no run of a memory task has a checkpoint yet")
    shown_panels = panels(shown)
    figure, all_axes = new_figure(len(shown_panels))
    for axes, panel in zip(all_axes, shown_panels, strict=True):
        for group, look in zip(panel.groups, looks(panel.groups), strict=True):
            rows = [reach_rows(run) for run in group.runs]
            name = group.label if any(rows) else f"{group.label}: 0 at every distance"
            draw_curve(axes, rows, "reach", name, look)
        axes.set_yscale("log")
        finish(axes, panel.title, "time steps before the last", "norm of d answer / d state")
    legend_of_runs(figure, shown)
    return figure


def reach_rows(run: Recorded) -> list[dict[str, Any]]:
    trained_run = load(run.folder)
    norms = reach(trained_run.task, trained_run.model)  # type: ignore[arg-type]
    # A logarithmic scale cannot show norms that underflow to 0.
    return [{"step": d, "reach": size} for d, size in enumerate(norms.tolist(), 1) if size > 0]
