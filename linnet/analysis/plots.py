"""The plots of recorded runs, by name: the figures of the papers and more.

Each plot takes runs and returns a matplotlib figure, or raises `NothingToShow` if the runs do not have the
data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from linnet.analysis.attention_plots import draw_attention
from linnet.analysis.bar_plots import draw_converge, draw_sensitivity, draw_speed
from linnet.analysis.chart_plots import chart_captions, draw_stored_charts
from linnet.analysis.curve_plots import draw_gradient, draw_loss, draw_validation
from linnet.analysis.drawing import NothingToShow, house_style, save
from linnet.analysis.inside_plots import draw_distance, draw_memory
from linnet.analysis.layer_plots import draw_decay, draw_variance
from linnet.analysis.runs import SOLVED, Panel, Recorded, baseline, main_figure, members
from linnet.base.suggest import no_such

FORMATS = ("png", "svg")


class Plot(NamedTuple):
    about: str  # one line for `linnet plot --help` and `linnet list plots`
    draw: Callable[..., Any]  # takes the runs, and the `options` as keyword arguments
    # For a report: an explanation for readers who do not know the papers. None: drawn only on request.
    caption: Callable[[Panel], str] | None = None
    options: tuple[str, ...] = ()  # names of options of `figures`


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
    label = shown.label[:1].upper() + shown.label[1:]
    text = f"{label} on validation data, which no model is trained on. {shown.about}"
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
    "answers": Plot(
        "charts of some answers to the test set, such as the best and the worst forecast",
        draw_stored_charts,
        chart_captions,
    ),
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
