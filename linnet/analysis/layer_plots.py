"""Plots of the layers of trained runs: the variances of their states, and how long LRN keeps each word.

They read the data of the run or a text, so `linnet plot` draws them only on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.analysis.colours import BLUE, DASHED, DOTTED, FAINT, MAGENTA, ORANGE, SOLID, looks
from linnet.analysis.drawing import (
    WIDTH,
    NothingToShow,
    draw_curve,
    finish,
    literal,
    mark_level,
    new_figure,
    note,
    shared_legend,
)
from linnet.analysis.layers import (
    Variances,
    first_layer_inputs,
    read_gates,
    reads_of_first_layer,
    start_variances,
)
from linnet.analysis.runs import Panel, Recorded, panels
from linnet.models.config import EncoderConfig
from linnet.runs.load import load
from linnet.tasks import TASKS

Rows = list[dict[str, Any]]

THEORY = (1 / 3, 1)
"""Var[c] / Var[x] of SRU if the inputs of all steps are independent, and if they are equal (equation 5)."""

HIGHLIGHTED = ((ORANGE, SOLID), (BLUE, DASHED), (MAGENTA, DOTTED))
"""The colours and styles of the words that a plot of decay names."""


def has_one_direction(run: Recorded) -> bool:
    return not getattr(run.config.model, "bidirectional", False)


def has_checkpoint(run: Recorded) -> bool:
    return (run.folder / "best").exists()


# -------------------------------------------------------------------------------------- variances


def draw_variance(runs: Sequence[Recorded]) -> Any:
    """Figure 6 of the SRU paper, and how the variance of the output changes from layer to layer."""
    shown_panels = panels([run for run in runs if is_deep(run)])
    if not shown_panels:
        raise NothingToShow("no run with a checkpoint has several layers in one direction")
    figure, all_axes = new_figure(2, rows=2 * len(shown_panels), height=3.2)
    for number, panel in enumerate(shown_panels):
        draw_variances(all_axes[4 * number : 4 * number + 4], panel)
    shared_legend(figure)
    note(figure, "random initial weights, last step; dotted: the theory for independent and for equal words")
    return figure


def is_deep(run: Recorded) -> bool:
    model = run.config.model
    # A sequence model of a memory task is one module with all its layers inside.
    layered = isinstance(model, EncoderConfig) and len(model.sizes) > 1
    return layered and has_one_direction(run) and has_checkpoint(run)


def draw_variances(all_axes: Sequence[Any], panel: Panel) -> None:
    """Draw two plots for the data of the runs, and two for independent numbers as input."""
    for group, look in zip(panel.groups, looks(panel.groups), strict=True):
        data, independent = zip(*map(variance_rows, group.runs), strict=True)
        for (state, output), rows in ((all_axes[:2], data), (all_axes[2:], independent)):
            draw_curve(state, rows, "state", group.label, look)
            draw_curve(output, rows, "output", group.label, look)
    for (state, output), title in ((all_axes[:2], panel.title), (all_axes[2:], "independent input")):
        finish_variances(state, output, title)


def finish_variances(state: Any, output: Any, title: str) -> None:
    finish(state, title, "layer", "variance of state / of the layer's input")
    finish(output, title, "layer", "variance of output / of the first input")
    for level in THEORY:
        mark_level(state, level, "", ":")
    state.set_ylim(bottom=0)
    output.set_yscale("log")
    for axes in (state, output):
        axes.xaxis.get_major_locator().set_params(integer=True)


def variance_rows(run: Recorded) -> tuple[Rows, Rows]:
    """Return a row for each layer, with the data of the run as input and with independent numbers."""
    loaded = load(run.folder)
    seed = loaded.config.loop.seed
    inputs = list(first_layer_inputs(loaded.task, loaded.model))  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(seed)
    # Of the same variance: large inputs open and close the gates, for which the paper's bounds do not hold.
    independent = [torch.randn(x.shape, generator=generator) * x.std() for x in inputs]
    of_data, of_numbers = (start_variances(loaded.task, seed, x) for x in (inputs, independent))
    return rows_of(of_data), rows_of(of_numbers)


def rows_of(layers: Sequence[Variances]) -> Rows:
    first_input = layers[0].x
    return [
        {"step": number, "state": layer.c_ratio, "output": layer.h / first_input}
        for number, layer in enumerate(layers, 1)
    ]


# ------------------------------------------------------------------------------------------ decay


class Decay(NamedTuple):
    """How the weight of each word of a text changes while an LRN reads the text."""

    words: list[str]
    weights: Tensor  # [T, T], at [t, k] the mean over channels of the weight of word k in state t
    answer: str


def draw_decay(runs: Sequence[Recorded], text: str | None) -> Any:
    """Figure 1 of the LRN paper."""
    shown = [run for run in runs if is_lrn_of_words(run)]
    if not shown:
        raise NothingToShow("no run is a classifier with a checkpoint and one layer of LRN in one direction")
    if not text or not text.split():
        raise NothingToShow("give the text that the model reads: --text 'a great film, with a dull end'")
    decays = [decay_of(run, text) for run in shown]
    width = max(WIDTH, 0.27 * len(decays[0].words))
    figure, all_axes = new_figure(1, rows=len(shown), height=4.4, width=width)
    for axes, run, decay in zip(all_axes, shown, decays, strict=True):
        draw_words(axes, decay)
        finish(axes, f"{run.name}: {decay.answer}", "", "mean weight in the state")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")
    later = len(decays[0].words) // 2
    note(figure, f"highlighted: the words with the highest weight after {later} further words")
    return figure


def is_lrn_of_words(run: Recorded) -> bool:
    model = run.config.model
    single_lrn = isinstance(model, EncoderConfig) and model.unit == "lrn" and len(model.sizes) == 1
    reads_text = hasattr(TASKS[run.config.task], "split_words")
    return single_lrn and reads_text and has_one_direction(run) and has_checkpoint(run)


@torch.no_grad()
def decay_of(run: Recorded, text: str) -> Decay:
    loaded = load(run.folder)
    task: Any = loaded.task
    model: Any = loaded.model
    answers: list[Any] = []
    x, _ = reads_of_first_layer(model, lambda: answers.extend(loaded.predict([text])))
    words = task.split_words(text)
    # With padding="left" the model reads padding before a short text.
    words = [*["<pad>"] * (len(x) - len(words)), *words]
    weights = read_gates(model.stack[0], x).weights()[:, :, 0].mean(-1)
    return Decay(words, weights, task.show(answers[0]))


def draw_words(axes: Any, decay: Decay) -> None:
    """Draw a curve for each word, from where it is read to the end, and name the most lasting words.

    Words are compared by their weights after the same number of further words.
    """
    words, weights, _ = decay
    steps, later = range(len(words)), len(words) // 2
    lasting = sorted(steps[: len(words) - later], key=lambda word: -float(weights[word + later, word]))
    named = dict(zip(lasting, HIGHLIGHTED, strict=False))
    for word in steps:
        curve = weights[word:, word].tolist()
        if word in named:
            shade, style = named[word]
            label = literal(
                f"{words[word]} (word {word + 1}): {curve[later]:.2g}, at the end {curve[-1]:.2g}"
            )
            axes.plot(steps[word:], curve, color=shade.light, linestyle=style, label=label, zorder=3)
        else:
            axes.plot(steps[word:], curve, color=FAINT.light, linewidth=0.8, alpha=0.5)
    axes.set_xticks(steps, [literal(word) for word in words], rotation=90, fontsize=8)
    axes.set_ylim(bottom=0)
