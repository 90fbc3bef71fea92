"""Plots of the signals inside the layers of trained runs: their variance, and how long LRN keeps each word.

They need the data or a text to read, so `linnet plot` draws them only where they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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

Rows = list[dict[str, Any]]

HIGHLIGHTED = ((ORANGE, SOLID), (BLUE, DASHED), (MAGENTA, DOTTED))
"""The looks of the words that a plot of decay names."""


# -------------------------------------------------------------------------------------- variances


def draw_variance(runs: Sequence[Recorded]) -> Any:
    """Figure 6 of the SRU paper, and how the variance of the output grows or shrinks."""
    shown = panels([run for run in runs if is_deep(run)])
    if not shown:
        raise NothingToShow("no run with a checkpoint has several layers in one direction")
    figure, places = new_figure(2, rows=2 * len(shown), height=3.2)
    for number, panel in enumerate(shown):
        draw_variances(places[4 * number : 4 * number + 4], panel)
    shared_legend(figure)
    note(figure, "random initial weights; variance over sequences and channels, at the last step")
    return figure


def is_deep(run: Recorded) -> bool:
    model = run.config.model
    # A sequence model of a memory task is one module with all its layers inside.
    layered = isinstance(model, EncoderConfig) and len(model.sizes) > 1
    return layered and not getattr(model, "bidirectional", False) and (run.folder / "best").exists()


def draw_variances(places: Sequence[Any], panel: Panel) -> None:
    """Two plots for the data of the runs, and two for independent numbers in its place."""
    for group, how in zip(panel.groups, looks(panel.groups), strict=True):
        data, independent = zip(*map(variance_rows, group.runs), strict=True)
        for (state, output), rows in ((places[:2], data), (places[2:], independent)):
            draw_curve(state, rows, "state", group.label, how)
            draw_curve(output, rows, "output", group.label, how)
    for (state, output), title in ((places[:2], panel.title), (places[2:], "independent input")):
        finish_variances(state, output, title)


def finish_variances(state: Any, output: Any, title: str) -> None:
    finish(state, title, "layer", "variance of state / of the layer's input")
    finish(output, title, "layer", "variance of output / of the first input")
    state.set_ylim(0, 1.15)
    mark_level(state, 1, "1: the same word at every step", ":")
    mark_level(state, 1 / 3, "1/3: independent words", ":")
    output.set_yscale("log")
    for axes in (state, output):
        axes.xaxis.get_major_locator().set_params(integer=True)


def variance_rows(run: Recorded) -> tuple[Rows, Rows]:
    """A row for each layer, with the data of the run as input and with independent numbers."""
    there = load(run.folder)
    seed = there.config.loop.seed
    inputs = list(first_layer_inputs(there.task, there.model))  # type: ignore[arg-type]
    numbers = torch.Generator().manual_seed(seed)
    independent = [torch.randn(x.shape, generator=numbers) for x in inputs]
    data, other = (rows_of(start_variances(there.task, seed, each)) for each in (inputs, independent))
    return data, other


def rows_of(layers: Sequence[Variances]) -> Rows:
    first = layers[0].x
    return [
        {"step": number, "state": layer.c_ratio, "output": layer.h / first}
        for number, layer in enumerate(layers, 1)
    ]


# ------------------------------------------------------------------------------------------ decay


def draw_decay(runs: Sequence[Recorded], text: str | None) -> Any:
    """Figure 1 of the LRN paper."""
    shown = [run for run in runs if is_decaying(run)]
    if not shown:
        raise NothingToShow("no run is a classifier with a checkpoint and one layer of LRN in one direction")
    if not text or not text.split():
        raise NothingToShow("give the text that the model reads: --text 'a great film, with a dull end'")
    found = [words_and_weights(run, text) for run in shown]
    width = max(WIDTH, 0.27 * len(found[0][0]))
    figure, places = new_figure(1, rows=len(shown), height=4.4, width=width)
    for axes, run, (words, weights, answer) in zip(places, shown, found, strict=True):
        draw_words(axes, words, weights)
        finish(axes, f"{run.name}: {answer}", "", "mean weight in the state")
        axes.legend(frameon=False, fontsize=9)
    note(figure, "highlighted: the words of the first half with the highest weight in the last state")
    return figure


def is_decaying(run: Recorded) -> bool:
    model = run.config.model
    return (
        run.config.task == "classify"
        and (model.unit, len(model.sizes), model.bidirectional) == ("lrn", 1, False)
        and (run.folder / "best").exists()
    )


@torch.no_grad()
def words_and_weights(run: Recorded, text: str) -> tuple[list[str], Tensor, str]:
    """The words of the text, the mean weight [T, T] of word k in state t, and the answer."""
    there = load(run.folder)
    task: Any = there.task
    answers: list[Any] = []
    x, _ = reads_of_first_layer(there.model, lambda: answers.extend(there.predict([text])))  # type: ignore[arg-type]
    words = task.split_words(text)
    # With padding="left" the model reads padding before a short text.
    words = [*["<pad>"] * (len(x) - len(words)), *words]
    rnn: Any = there.model.stack[0]  # type: ignore[index]
    weights = read_gates(rnn, x).weights()[:, :, 0].mean(-1)
    return words, weights, task.show(answers[0])


def draw_words(axes: Any, words: Sequence[str], weights: Tensor) -> None:
    """A curve for each word, from where it is read to the end; the most lasting ones are named."""
    steps = range(len(words))
    lasting = sorted(steps[: max(1, len(words) // 2)], key=lambda word: -float(weights[-1, word]))
    named = dict(zip(lasting, HIGHLIGHTED, strict=False))
    for word in steps:
        curve = weights[word:, word].tolist()
        if word in named:
            shade, style = named[word]
            label = literal(f"{words[word]} (word {word + 1}): {curve[-1]:.2g} at the end")
            axes.plot(steps[word:], curve, color=shade.light, linestyle=style, label=label, zorder=3)
        else:
            axes.plot(steps[word:], curve, color=FAINT.light, linewidth=0.8, alpha=0.5)
    axes.set_xticks(steps, [literal(word) for word in words], rotation=90, fontsize=8)
    axes.set_ylim(bottom=0)
