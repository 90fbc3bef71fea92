"""Heat maps of what models of two texts read: attention and alignments."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import Any

from linnet.analysis.drawing import NothingToShow, literal, new_figure, note
from linnet.analysis.layer_plots import has_checkpoint
from linnet.analysis.runs import Recorded
from linnet.data.errors import DataError
from linnet.runs.load import TrainedRun, load
from linnet.runs.untrusted import harmless
from linnet.tasks import TASKS
from linnet.tasks.results import AttentionMap

EXAMPLES = 3
"""The number of validation examples that are drawn for one run without a text; several runs get one each."""

MOST_LETTERS = 90
"""The most characters of a title."""

CELL = 0.24
"""The width and the height of a cell in inches."""


def draw_attention(runs: Sequence[Recorded], text: str | None) -> Any:
    """Draw a heat map for each example of each run: darker cells have more weight."""
    shown = [run for run in runs if is_drawable(run, text)]
    if not shown:
        raise NothingToShow(
            "no finished run has a model with attention: those of nli, read and translate have. "
            "For a run that has not finished, give --text"
        )
    maps = [(run, each) for run in shown for each in maps_of(run, text, EXAMPLES if len(shown) == 1 else 1)]
    width = max(len(each.columns) for _, each in maps) * CELL + 3
    height = sum(len(each.rows) for _, each in maps) * CELL / len(maps) + 1.6
    figure, all_axes = new_figure(1, rows=len(maps), height=height, width=width)
    for axes, (run, each) in zip(all_axes, maps, strict=True):
        draw_map(axes, each, f"{run.name}: {each.title}" if len(shown) > 1 else each.title)
    note(figure, "darker: more attention; mean over the heads")
    return figure


def is_drawable(run: Recorded, text: str | None) -> bool:
    """A run that still trains needs a text of the user: reports would read its data repeatedly."""
    return TASKS[run.config.task].has_attention and has_checkpoint(run) and bool(run.result or text)


def maps_of(run: Recorded, text: str | None, count: int) -> list[AttentionMap]:
    trained = load(run.folder)
    return trained.task.attention(trained.model, [text] if text else examples_of(trained, count))


def examples_of(trained: TrainedRun, count: int) -> list[Any]:
    try:
        return trained.task.first_inputs("valid", count)
    except DataError as error:
        raise NothingToShow(
            f"there are no examples, as the data cannot be read; give --text. {error}"
        ) from None


def draw_map(axes: Any, shown: AttentionMap, title: str) -> None:
    axes.imshow(shown.weights.cpu().numpy(), aspect="auto", cmap="Blues", vmin=0, interpolation="nearest")
    axes.set_xticks(range(len(shown.columns)), labels(shown.columns), rotation=90, fontsize=8)
    axes.set_yticks(range(len(shown.rows)), labels(shown.rows), fontsize=8)
    axes.set(title=labels([shorten(title, MOST_LETTERS)])[0], xlabel=shown.column_text, ylabel=shown.row_text)


def labels(words: Sequence[str]) -> list[str]:
    return [literal(harmless(word)) for word in words]
