"""The figures of recorded runs, by name: those of the NRU paper, of any runs that have what they show.

Each reads runs and gives a figure, or says why it has nothing to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from linnet.analysis.drawing import (
    BASELINE,
    Look,
    draw_curve,
    finish,
    literal,
    looks,
    new_figure,
    note,
    save,
    shared_legend,
)
from linnet.analysis.runs import (
    SOLVED,
    Group,
    Panel,
    Recorded,
    baseline,
    by_accuracy,
    groups,
    panels,
    problem,
    settings,
    updates_to_solve,
)
from linnet.base.suggest import no_such
from linnet.runs.load import load
from linnet.tasks import TASKS
from linnet.tasks.memory import Memory

FORMATS = ("png", "svg")
SEVERAL = "lines: the mean of several seeds; bands: from the least to the most of them"


class NothingToShow(ValueError):  # noqa: N818, it is no mistake
    """These runs have not what this figure is about."""


class Plot(NamedTuple):
    about: str
    draw: Callable[[Sequence[Recorded]], Any]


# ------------------------------------------------------------------------------- curves by update


def draw_loss(runs: Sequence[Recorded]) -> Any:
    """Figures 1, 2, 4."""
    return draw_panels(runs, "train", lambda panel: ("loss", loss_unit(panel.first), 1.0), "training loss")


def draw_validation(runs: Sequence[Recorded]) -> Any:
    """Figure 5."""
    return draw_panels(runs, "valid", judged_by, "validation")


def draw_gradient(runs: Sequence[Recorded]) -> Any:
    """Figure 7."""
    told = ("gradient_norm", "norm of the gradient, before it is clipped", 1.0)
    figure = draw_panels(runs, "train", lambda panel: told, "gradient")
    for axes in figure.axes:
        axes.set_yscale("log")
    return figure


def judged_by(panel: Panel) -> tuple[str, str, float]:
    """The figure of a validation, its name, and its factor."""
    if by_accuracy(panel.first.config):
        return "accuracy", "right answers, %", 100.0
    return "loss", loss_unit(panel.first), 1.0


def loss_unit(run: Recorded) -> str:
    if run.config.task == "memory.adding":
        return "mean squared error"
    return "cross-entropy, nats a token" if run.config.task == "lm" else "cross-entropy, nats a step"


def draw_panels(
    runs: Sequence[Recorded], split: str, shown: Callable[[Panel], tuple[str, str, float]], what: str
) -> Any:
    """A panel for each problem, in it a curve for each group of runs."""
    asked = panels(runs)
    if not any(
        shown(panel)[0] in row for panel in asked for run in members(panel) for row in getattr(run, split)
    ):
        raise NothingToShow(f"no run has a row of {split} yet")
    figure, places = new_figure(len(asked))
    for axes, panel in zip(places, asked, strict=True):
        name, unit, scale = shown(panel)
        draw_groups(axes, panel.groups, split, name, scale)
        finish(axes, f"{panel.title}: {what}", "updates", unit)
        if name == "loss":
            draw_baseline(axes, panel)
    legend_of_runs(figure, runs)
    return figure


def draw_groups(axes: Any, drawn: Sequence[Group], split: str, name: str, scale: float = 1.0) -> None:
    for group, how in zip(drawn, looks(drawn), strict=True):
        draw_curve(axes, [getattr(run, split) for run in group.runs], name, group.label, how, scale)


def draw_baseline(axes: Any, panel: Panel) -> None:
    """Where those are who remember nothing, and those who have solved the task."""
    level = baseline(panel)
    if level is None:
        return
    axes.set_yscale("log")
    axes.axhline(level, color=BASELINE, linewidth=1, linestyle="-", label="without a memory")
    axes.axhline(
        SOLVED * level, color=BASELINE, linewidth=1, linestyle=":", label=f"solved: {SOLVED:.0%} of it"
    )


def legend_of_runs(figure: Any, runs: Sequence[Recorded]) -> None:
    shared_legend(figure)
    if any(len(group.runs) > 1 for group in groups(runs)):
        note(figure, SEVERAL)


def members(panel: Panel) -> Iterator[Recorded]:
    return (run for group in panel.groups for run in group.runs)


# ------------------------------------------------------------------------------ steps to converge


def draw_converge(runs: Sequence[Recorded]) -> Any:
    """Figure 3."""
    asked = [panel for panel in panels(runs) if baseline(panel) is not None]
    if not asked:
        raise NothingToShow("only evaluations of memory tasks tell when a task is solved, and there are none")
    most = max(len(panel.groups) for panel in asked)
    figure, places = new_figure(len(asked), height=1.6 + 0.45 * most)
    for axes, panel in zip(places, asked, strict=True):
        for place, (group, how) in enumerate(zip(panel.groups, looks(panel.groups), strict=True)):
            draw_bar(axes, place, group, how)
        axes.set_yticks(range(len(panel.groups)), [literal(group.label) for group in panel.groups])
        axes.invert_yaxis()
        axes.margins(x=0.3)
        finish(axes, panel.title, f"updates until the loss is below {SOLVED:.0%} of the baseline", "")
    note(
        figure,
        "bars: the mean over seeds; dots: each seed; hatched and open: not solved after so many updates",
    )
    return figure


def draw_bar(axes: Any, place: int, group: Group, how: Look) -> None:
    """As long as it took; who has not solved it took at least as long as the run."""
    solved = [updates_to_solve(run.valid) for run in group.runs]
    ended = [run.valid[-1]["step"] if run.valid else 0 for run in group.runs]
    lengths = [end if step is None else step for step, end in zip(solved, ended, strict=True)]
    whole, mean = None not in solved, sum(lengths) / len(lengths)
    pale = {} if whole else {"hatch": "///", "alpha": 0.45}
    axes.barh(place, mean, color=how.color, height=0.6, **pale)
    if len(lengths) > 1:
        inside = ["white" if step is None else how.color for step in solved]
        axes.scatter(lengths, [place] * len(lengths), color=inside, edgecolor="black", s=18, zorder=3)
    share = f"{sum(step is not None for step in solved)} of {len(solved)} solved"
    text = f"{mean:,.0f}" if whole else share if len(solved) > 1 else "not solved"
    axes.annotate(f"  {text}", (max(lengths), place), va="center", fontsize="small")


# ------------------------------------------------------------------------------------ sensitivity


def draw_sensitivity(runs: Sequence[Recorded]) -> Any:
    """Figure 8."""
    varied = variations(groups(runs))
    if not varied:
        raise NothingToShow(
            "no two models differ in one option alone; `linnet compare TASK --vary NAME=VALUE,...` makes such"
        )
    figure, places = new_figure(len(varied), width=4.2, height=4.6)
    panel = panels(runs)[0]
    name, unit, scale = judged_by(panel)
    for axes, (option, found) in zip(places, varied.items(), strict=True):
        draw_variation(axes, option, found, name, scale)
        finish(axes, option, "updates", f"validation: {unit}")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)
    return figure


def draw_variation(axes: Any, option: str, found: dict[Any, Group], name: str, scale: float) -> None:
    from matplotlib import colormaps

    for place, value in enumerate(sorted(found)):
        colour = colormaps["viridis"](place / max(len(found), 2))
        how = Look(colour, ("-", "--", "-.", ":")[place % 4])
        draw_curve(axes, [run.valid for run in found[value].runs], name, f"{option} = {value}", how, scale)


def variations(known: Sequence[Group]) -> dict[str, dict[Any, Group]]:
    """For each option that was varied alone, the groups by its value: the one in the middle, its neighbours.

    The middle is the group that the most others differ from in one option only.
    """
    flat = [settings(group.runs[0].config) for group in known]
    neighbours = [[changed for other in flat if len(changed := differing(one, other)) == 1] for one in flat]
    if not any(neighbours):
        return {}
    middle = max(range(len(flat)), key=lambda place: len(neighbours[place]))
    found: dict[str, dict[Any, Group]] = {}
    for group, other in zip(known, flat, strict=True):
        changed = differing(flat[middle], other)
        if len(changed) == 1:
            (option,) = changed
            found.setdefault(option, {flat[middle][option]: known[middle]})[other[option]] = group
    return found


def differing(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    """The options in which two runs differ; all of them, if they are not of one unit and one task."""
    names = {name for name in {*one, *other} if one.get(name) != other.get(name)}
    alike = one.keys() == other.keys() and not names & {"task", "unit", "span"}
    return names if alike else {*one, *other}


# ------------------------------------------------------------------------------ inside the models


def draw_memory(runs: Sequence[Recorded]) -> Any:
    """Figure 6."""
    # Of several seeds the first: a heat map has no mean.
    first = [group.runs[0] for panel in panels(trained(runs)) for group in panel.groups]
    shown = [run for run in first if run.config.model.unit == "nru"]
    if not shown:
        raise NothingToShow(
            "no run is of NRU with a checkpoint, and no other unit has a memory beside its state"
        )
    figure, places = new_figure(1, rows=len(shown), height=3.4, width=8.5)
    for axes, run in zip(places, shown, strict=True):
        draw_changes(figure, axes, run)
    note(figure, "it is to answer from the dashed line on; a full line is where another sequence begins")
    return figure


def draw_changes(figure: Any, axes: Any, run: Recorded) -> None:
    from matplotlib.colors import PowerNorm

    from linnet.analysis.inside import memory_changes

    trained_run = load(run.folder)
    sizes, starts, asked = memory_changes(trained_run.task, trained_run.model)  # type: ignore[arg-type]
    # By the root: what is written first is small beside what goes on while it answers.
    how = {"aspect": "auto", "cmap": "viridis", "interpolation": "nearest", "origin": "lower"}
    picture = axes.imshow(sizes.T.numpy(), norm=PowerNorm(0.5, vmin=0), **how)
    figure.colorbar(picture, ax=axes, label="change of a cell, absolute")
    for step in asked:
        axes.axvline(step - 0.5, color="white", linewidth=1, linestyle="--")
    for step in starts[1:]:
        axes.axvline(step - 0.5, color="white", linewidth=1.5)
    title = literal(f"{run.name}: {problem(run.config)}")
    axes.set_title(title, fontsize="medium")
    axes.set(xlabel="time step", ylabel="memory cell")


def draw_distance(runs: Sequence[Recorded]) -> Any:
    """How far gradients reach back."""
    shown = trained(runs)
    if not shown:
        raise NothingToShow("no run of a memory task has a checkpoint yet")
    asked = panels(shown)
    figure, places = new_figure(len(asked))
    for axes, panel in zip(places, asked, strict=True):
        for group, how in zip(panel.groups, looks(panel.groups), strict=True):
            rows = [reach_rows(run) for run in group.runs]
            name = group.label if any(rows) else f"{group.label}: 0 at every distance"
            draw_curve(axes, rows, "reach", name, how)
        axes.set_yscale("log")
        finish(axes, panel.title, "distance in time, steps before the last", "norm of d answer / d state")
    legend_of_runs(figure, shown)
    return figure


def reach_rows(run: Recorded) -> list[dict[str, Any]]:
    from linnet.analysis.inside import reach

    there = load(run.folder)
    found = reach(there.task, there.model)  # type: ignore[arg-type]
    # What underflows to 0 has no place on a logarithmic scale.
    return [{"step": d, "reach": size} for d, size in enumerate(found.tolist(), 1) if size > 0]


def trained(runs: Sequence[Recorded]) -> list[Recorded]:
    """Those of memory tasks that have a model to look into."""
    return [
        run for run in runs if issubclass(TASKS[run.config.task], Memory) and (run.folder / "best").exists()
    ]


# --------------------------------------------------------------------------------------- all plots

PLOTS: dict[str, Plot] = {
    "loss": Plot(
        "training loss by update, with the line of who remembers nothing (Figures 1, 2, 4)", draw_loss
    ),
    "converge": Plot(
        "updates until a task is solved, of runs with one or several T (Figure 3)", draw_converge
    ),
    "validation": Plot(
        "validation by update: right answers of images, else the loss (Figure 5)", draw_validation
    ),
    "memory": Plot("a heat map of the changes of NRU's memory over time (Figure 6)", draw_memory),
    "gradient": Plot("the norm of the gradient by update (Figure 7)", draw_gradient),
    "distance": Plot("how much the last answer depends on the state by distance in time", draw_distance),
    "sensitivity": Plot(
        "validation for several values of k, m, h, or any option of a model (Figure 8)", draw_sensitivity
    ),
}


def figures(runs: Sequence[Recorded], names: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    """Each figure by its name, those asked for or all; a reason instead of one with nothing to show."""
    for name in names or PLOTS:
        if name not in PLOTS:
            raise ValueError(no_such("plot", name, PLOTS))
        try:
            yield name, PLOTS[name].draw(runs)
        except NothingToShow as reason:
            if names:
                raise NothingToShow(f"nothing to show in the plot {name!r}: {reason}") from None
            yield name, reason


def is_reason(made: Any) -> bool:
    return isinstance(made, NothingToShow)


def write_figures(runs: Sequence[Recorded], folder: Path, names: Sequence[str], form: str) -> Iterator[str]:
    """Write them; a line about each."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, made in figures(runs, names):
        if is_reason(made):
            yield f"no {name}: {made}"
            continue
        path = folder / f"{name}.{form}"
        save(made, path)
        yield f"{path}: {PLOTS[name].about}"
