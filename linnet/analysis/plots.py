"""The plots of recorded runs, by name: the figures of the papers and more.

Each plot takes runs and returns a matplotlib figure, or raises `NothingToShow` if the runs do not have the
data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from linnet.analysis.attention_plots import draw_attention
from linnet.analysis.colours import INK, Look, looks
from linnet.analysis.drawing import (
    NothingToShow,
    draw_curve,
    finish,
    house_style,
    label_bar,
    literal,
    mark_level,
    new_figure,
    note,
    save,
    shared_legend,
)
from linnet.analysis.inside import memory_changes, reach, trained
from linnet.analysis.layer_plots import draw_decay, draw_variance
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
    problem,
    settings,
    speed_of,
    updates_to_solve,
)
from linnet.base.suggest import no_such
from linnet.runs.load import load

FORMATS = ("png", "svg")
DIVERGED = 20  # times the median loss
SEVERAL = "lines: mean over seeds; bands: from the lowest to the highest seed"


class Plot(NamedTuple):
    about: str  # one line for `linnet plot --help` and `linnet list plots`
    draw: Callable[..., Any]  # takes the runs, and the `options` as keyword arguments
    # For a report: an explanation for readers who do not know the papers. None: drawn only on request.
    caption: Callable[[Panel], str] | None = None
    options: tuple[str, ...] = ()  # names of options of `figures`


# ------------------------------------------------------------------------------- curves by update


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


# ------------------------------------------------------------------------------------------- bars


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


# ------------------------------------------------------------------------------ inside the models


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


# --------------------------------------------------------------------------------------- captions


def loss_caption(panel: Panel) -> str:
    text = (
        "How wrong each model is on the data that it is trained on, after each number of updates; lower is "
        "better."
    )
    return text + (baseline_caption() if baseline(panel) is not None else "")


def baseline_caption() -> str:
    return (
        " A model without memory cannot get below the line “memoryless baseline”; below the dotted line the "
        "task counts as solved."
    )


def validation_caption(panel: Panel) -> str:
    shown = main_figure(panel.first)
    text = f"{shown.label.capitalize()} on validation data, which no model is trained on. {shown.about}"
    drawn = shown.name == "loss" and baseline(panel) is not None
    return text + (baseline_caption() if drawn else "")


def speed_caption(panel: Panel) -> str:
    return (
        f"Tokens that each model is trained on per second; longer is faster. {how_measured(members(panel))}"
    )


def how_measured(runs: Iterator[Recorded]) -> str:
    if all(run.speed for run in runs):
        return "It was measured after training, one model at a time and in turn."
    return "It was measured during training: other programs may have slowed down some of the runs."


# --------------------------------------------------------------------------------------- all plots

PLOTS: dict[str, Plot] = {
    "validation": Plot(
        "the main metric on validation data by update (Figure 5)", draw_validation, validation_caption
    ),
    "loss": Plot(
        "training loss by update, with the memoryless baseline if there is one (Figures 1, 2, 4)",
        draw_loss,
        loss_caption,
    ),
    "speed": Plot("training speed, in tokens per second", draw_speed, speed_caption),
    "gradient": Plot(
        "the norm of the gradient by update (Figure 7)",
        draw_gradient,
        lambda panel: (
            "The size of the gradient, which drives learning, before it is clipped. Sudden peaks are a sign "
            "of unstable training; values near zero, of a model that no longer learns."
        ),
    ),
    "converge": Plot(
        "updates until a memory task is solved, for runs with one or several T (Figure 3)",
        draw_converge,
        lambda panel: (
            f"How many updates each model needs until its validation loss is below {SOLVED:.0%} of the loss "
            "of a model without memory; shorter is better."
        ),
    ),
    "memory": Plot(
        "a heat map of the changes of NRU's memory over time (Figure 6)",
        draw_memory,
        lambda panel: (
            "How much each cell of NRU's memory changes at each time step; bright is much. A model that "
            "remembers writes while it reads symbols, and keeps its memory until it must answer."
        ),
    ),
    "distance": Plot(
        "how much the last answer depends on the state, by distance in time",
        draw_distance,
        lambda panel: (
            "How strongly the last answer depends on the state some time steps earlier. A model whose curve "
            "falls quickly cannot learn from what happened long ago."
        ),
    ),
    "sensitivity": Plot(
        "validation for several values of k, m, h, or of any option of a model (Figure 8)",
        draw_sensitivity,
        lambda panel: (
            "The same model with one option changed at a time. Curves close to each other mean that the "
            "option hardly matters."
        ),
    ),
    "attention": Plot(
        "heat maps of the words that models of two texts read, for --text or examples of the validation set",
        draw_attention,
        lambda panel: (
            "Which words of one text the model reads at each word of the other, for a few validation "
            "examples; the titles are its answers. Dark cells show what it relates to what."
        ),
        options=("text",),
    ),
    "variance": Plot(
        "the variance of state and output in each layer at initialisation (SRU: Figure 6)", draw_variance
    ),
    "decay": Plot(
        "how long an LRN classifier keeps each word of --text (LRN: Figure 1)", draw_decay, options=("text",)
    ),
}
IN_REPORTS = tuple(name for name, plot in PLOTS.items() if plot.caption)


def figures(runs: Sequence[Recorded], names: Sequence[str] = (), **options: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the figure of the plots `names` (default: those of a report).

    Instead of a figure, yield the `NothingToShow` of a plot whose data the runs do not have; if `names` has
    the plot, raise it.

    text   the text that the models of `decay` and `attention` read
    """
    for name in names or IN_REPORTS:
        if name not in PLOTS:
            raise ValueError(no_such("plot", name, PLOTS))
        try:
            with house_style():
                plot = PLOTS[name]
                figure = plot.draw(runs, **{option: options.get(option) for option in plot.options})
            yield name, figure
        except NothingToShow as reason:
            if names:
                raise NothingToShow(f"nothing to show in the plot {name!r}: {reason}") from None
            yield name, reason


def is_reason(figure: Any) -> bool:
    return isinstance(figure, NothingToShow)


def write_figures(
    runs: Sequence[Recorded], folder: Path, names: Sequence[str], form: str, **options: Any
) -> Iterator[str]:
    """Write the figures to files, and yield a line about each."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures(runs, names, **options):
        if is_reason(figure):
            yield f"no {name}: {figure}"
            continue
        path = folder / f"{name}.{form}"
        save(figure, path)
        yield f"{path}: {PLOTS[name].about}"
