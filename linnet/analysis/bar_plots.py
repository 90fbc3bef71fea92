"""Bars and points for runs: updates until a task is solved, speed, and sensitivity to a setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linnet.analysis.colours import INK, Look, looks
from linnet.analysis.drawing import NothingToShow, draw_curve, finish, label_bar, literal, new_figure, note
from linnet.analysis.runs import (
    SOLVED,
    Group,
    Panel,
    Recorded,
    baseline,
    groups,
    main_figure,
    panels,
    settings,
    speed_of,
    updates_to_solve,
)


def draw_converge(runs: Sequence[Recorded]) -> Any:
    """Figure 3 of the NRU paper."""
    shown_panels = [panel for panel in panels(runs) if baseline(panel) is not None]
    if not shown_panels:
        raise NothingToShow("only memory tasks record the baseline by which a task counts as solved")
    figure, all_axes = new_figure(len(shown_panels), height=bars_height(shown_panels))
    for axes, panel in zip(all_axes, shown_panels, strict=True):
        for y, (group, look) in enumerate(zip(panel.groups, looks(panel.groups), strict=True)):
            draw_bar(axes, y, group, look)
        finish(axes, panel.title, f"updates until the loss is below {SOLVED:.0%} of the baseline", "")
        name_bars(axes, panel)
    note(figure, "bars: mean over seeds; dots: each seed; hatched bars, open dots: not solved by then")
    return figure


def bars_height(drawn: Sequence[Panel]) -> float:
    return 1.4 + 0.42 * max(len(panel.groups) for panel in drawn)


def name_bars(axes: Any, panel: Panel) -> None:
    axes.set_yticks(range(len(panel.groups)), [literal(group.label) for group in panel.groups])
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(visible=False, axis="y")


def draw_bar(axes: Any, y: int, group: Group, look: Look) -> None:
    """Draw the mean number of updates; for a run that has not solved the task, all its updates."""
    solved = [updates_to_solve(run.valid) for run in group.runs]
    ended = [run.valid[-1]["step"] if run.valid else 0 for run in group.runs]
    lengths = [end if step is None else step for step, end in zip(solved, ended, strict=True)]
    whole, mean = None not in solved, sum(lengths) / len(lengths)
    pale = {} if whole else {"hatch": "///", "alpha": 0.45}
    axes.barh(y, mean, color=look.color, height=0.6, **pale)
    if len(lengths) > 1:
        inside = ["white" if step is None else look.color for step in solved]
        axes.scatter(lengths, [y] * len(lengths), color=inside, edgecolor=INK.light, s=18, zorder=3)
    share = f"{sum(step is not None for step in solved)} of {len(solved)} solved"
    text = f"{mean:,.0f}" if whole else share if len(solved) > 1 else "not solved"
    label_bar(axes, max(lengths), y, text)


def draw_speed(runs: Sequence[Recorded]) -> Any:
    """Not in a paper: the speed of each unit in this comparison."""
    known = [run for run in runs if speed_of(run)]
    if not known:
        raise NothingToShow("no run has finished, and speed is known at the end of a run")
    shown_panels = panels(known)
    figure, all_axes = new_figure(len(shown_panels), height=bars_height(shown_panels))
    for axes, panel in zip(all_axes, shown_panels, strict=True):
        for y, (group, look) in enumerate(zip(panel.groups, looks(panel.groups), strict=True)):
            mean = sum(speed_of(run) or 0.0 for run in group.runs) / len(group.runs)
            axes.barh(y, mean, color=look.color, height=0.6)
            label_bar(axes, mean, y, f"{mean:,.0f}")
        finish(axes, f"{panel.title}: training speed", "tokens per second", "")
        name_bars(axes, panel)
    return figure


# ------------------------------------------------------------------------------------ sensitivity


def draw_sensitivity(runs: Sequence[Recorded]) -> Any:
    """Figure 8 of the NRU paper."""
    varied = variations(groups(runs))
    if not varied:
        raise NothingToShow(
            "no two models differ in exactly one option; see `linnet compare TASK --vary NAME=VALUE,...`"
        )
    figure, all_axes = new_figure(1, rows=len(varied))
    shown = main_figure(runs[0])
    for axes, (option, by_value) in zip(all_axes, varied.items(), strict=True):
        draw_variation(axes, option, by_value, shown.name)
        finish(axes, option, "updates", f"validation: {shown.label}")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")
    return figure


def draw_variation(axes: Any, option: str, by_value: dict[Any, Group], name: str) -> None:
    from matplotlib import colormaps

    for number, value in enumerate(sorted(by_value)):
        # Without the darkest and the brightest colours, which vanish on a dark and on a light page.
        colour = colormaps["viridis"](0.25 + 0.5 * number / max(len(by_value) - 1, 1))
        look = Look(colour, ("-", "--", "-.", ":")[number % 4])
        draw_curve(axes, [run.valid for run in by_value[value].runs], name, f"{option} = {value}", look)


def variations(known: Sequence[Group]) -> dict[str, dict[Any, Group]]:
    """Return, for each option that was varied alone, the groups by its value.

    The starting point is the group from which the most others differ in one option only.
    """
    flat = [settings(group.runs[0].config) for group in known]
    neighbours = [[changed for other in flat if len(changed := differing(one, other)) == 1] for one in flat]
    if not any(neighbours):
        return {}
    start = max(range(len(flat)), key=lambda number: len(neighbours[number]))
    varied: dict[str, dict[Any, Group]] = {}
    for group, other in zip(known, flat, strict=True):
        changed = differing(flat[start], other)
        if len(changed) == 1:
            (option,) = changed
            varied.setdefault(option, {flat[start][option]: known[start]})[other[option]] = group
    return varied


def differing(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    """Return the options in which two runs differ; all options if their units or tasks differ."""
    names = {name for name in {*one, *other} if one.get(name) != other.get(name)}
    alike = one.keys() == other.keys() and not names & {"task", "unit", "span"}
    return names if alike else {*one, *other}
