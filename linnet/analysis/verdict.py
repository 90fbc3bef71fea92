"""What a result means: the baselines next to it, whether one of them wins, and what to do then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from linnet.runs.config import RunConfig
from linnet.tasks import TASKS
from linnet.tasks.results import Figure, Section

Row = Mapping[str, Any]


def baseline_section(config: RunConfig, result: Row) -> Section | None:
    """Return a table of the baselines and the run, by the figures that both have; None without baselines."""
    found = result.get("baselines", [])
    shown = shared_figures(config, found)
    if not shown:
        return None
    named = [(each["name"], each["figures"]) for each in found] + [("this run", result["test"])]
    rows = [(name, *(figure.show(figures[figure.name]) for figure in shown)) for name, figures in named]
    about = " ".join(f"{each['name']}: {each['about']}" for each in found)
    head = ("answers by", *(f"test {figure.label}" for figure in shown))
    return Section(
        "Baselines", f"Answers without a network, on the same test set. {about}", head, tuple(rows)
    )


def shared_figures(config: RunConfig, found: Sequence[Row]) -> list[Figure]:
    """Return the figures that all baselines have."""
    known = TASKS[config.task].figures(config.data)
    return [figure for figure in known if found and all(figure.name in each["figures"] for each in found)]


def verdict(config: RunConfig, result: Row) -> Iterator[str]:
    """Yield a line for each thing that the reader of a result should know: budgets, baselines that win."""
    yield from length_lines(result)
    found = result.get("baselines", [])
    shown = shared_figures(config, found)
    if not shown:
        return
    figure, remedies = defined(shown, result), TASKS[config.task].remedies
    own = result["test"][figure.name]
    margins = (CLEARLY, *[0.0] * len(found))
    better = [
        each
        for each, margin in zip(found, margins, strict=False)
        if not wins(figure, own, each["figures"][figure.name], margin)
    ]
    if found[0] not in better:
        yield from yardstick_line(figure, own, found, TASKS[config.task].yardstick)
    if not better:
        return
    best = (max if figure.higher else min)(better, key=lambda each: each["figures"][figure.name])
    against = f"{figure.show(best['figures'][figure.name])} against {figure.show(own)}"
    if found[0] in better:
        yield (
            f"This run has hardly learned: the baseline {best['name']} has a test {figure.label} of "
            f"{against}. Check the data and its options first; then try {remedies}."
        )
    else:
        yield (
            f"The baseline {best['name']} is better than this run: a test {figure.label} of {against}. "
            f"What may help: {remedies}."
        )


def defined(shown: Sequence[Figure], result: Row) -> Figure:
    """Return the first figure that is a number for the run and for all baselines; else the first."""
    known = [result["test"], *(each["figures"] for each in result["baselines"])]
    numbers = [figure for figure in shown if all(isfinite(each[figure.name]) for each in known)]
    return (numbers or shown)[0]


PERFECT = (1.0, 100.0)
"""The highest value of a figure that is a share, or one in %."""

CLEARLY = 0.01
"""A loss must be lower than that of the simplest baseline by this share of it: noise lowers it by less."""


def wins(figure: Figure, value: float, other: float, margin: float) -> bool:
    """Whether a run is better than a baseline; if both answer everything right, nothing is wrong with it."""
    if figure.higher:
        return value > other or value == other in PERFECT
    # No answer is better than one without an error.
    return value < (1 - margin) * other or figure.show(value) == figure.show(other) == figure.show(0.0)


def yardstick_line(figure: Figure, own: float, found: Sequence[Row], name: str) -> Iterator[str]:
    """Yield by how much a run has less error than the baseline that readers of a task expect."""
    for other in (each["figures"][figure.name] for each in found if each["name"] == name):
        gain = 100 * (1 - own / other) if other else 0.0
        if not figure.higher and gain >= 1:
            values = f"{figure.show(own)} against {figure.show(other)}"
            yield f"This run beats {name} by {gain:.0f} % (test {figure.label} {values})."


def length_lines(result: Row) -> Iterator[str]:
    """Yield what a run that ended before its planned length would have needed, or why it ended."""
    step, planned = result["step"], result.get("planned_steps")
    reason, spent = result.get("stopped_by"), result.get("spent", 0.0) / 60
    if reason == "minutes":
        more = f"of {planned:,} planned updates" if planned else "updates"
        needed = spent * planned / max(step, 1) if planned else 2 * spent
        goal = "all of them need about" if planned else "to double them, give"
        yield (
            f"The time budget ended after {step:,} {more}; {goal} {needed:.1f} minutes: the same command "
            f"with --minutes {needed:.1f} goes on."
        )
    elif reason == "patience":
        yield (
            f"Training stopped after {step:,} updates because validation no longer improved (--patience); "
            f"the weights are those of update {result['best_step']:,}."
        )
