"""The lens of trained runs, for `linnet lens RUN [RUN2]`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from torch import nn

from linnet.analysis.lens.describe import CannotShow, about_model, cells_of, text_of
from linnet.analysis.lens.page import TEXT, Lens, lens
from linnet.runs.load import TrainedRun, load
from linnet.tasks.typed import TypedText


def lens_of_runs(
    folders: Sequence[Path], text: str | None = None, int8: bool | None = None, checkpoint: str = "best"
) -> Lens:
    """Return a page with the models of these runs side by side."""
    pages = [lens_of(load(folder, checkpoint), text, int8) for folder in folders]
    return reduce(Lens.beside, pages)


def lens_of_any(model: nn.Module | TrainedRun, vocabulary: Any, **options: Any) -> Lens:
    """Return the lens of a trained run, which has its vocabulary, or of a model and its vocabulary."""
    if isinstance(model, TrainedRun):
        if vocabulary is not None:
            raise TypeError("a trained run has its own vocabulary: linnet.lens(run)")
        return lens_of(model, **options)
    if vocabulary is None:
        raise TypeError(
            "the lens of a model needs its vocabulary: linnet.lens(model, vocabulary); a trained run has its "
            "own: linnet.lens(linnet.load(folder))"
        )
    return lens(model, vocabulary, **options)


def lens_of(run: TrainedRun, text: str | None = None, int8: bool | None = None) -> Lens:
    """Return the lens of a trained run; the text to begin with is one of its data, if that is there."""
    typed = run.task.typed_text()
    if typed is None:
        raise CannotShow(
            f"the lens shows models that read a typed text one token at a time; {run.folder} is a run of "
            f"{run.config.task!r}, which reads something else"
        )
    try:
        return shown(run, typed, text, int8)
    except CannotShow as reason:
        hint = f". The lens can show a model that was trained with {typed.options}" if typed.options else ""
        raise CannotShow(f"{reason}{hint}") from None


def shown(run: TrainedRun, typed: TypedText, text: str | None, int8: bool | None) -> Lens:
    return lens(
        run.model,
        text_of(typed.vocabulary, typed.pattern, typed.rewrites),
        text=text or typed.example or TEXT,
        name=run.folder.resolve().name,
        about=about_run(run),
        labels=typed.labels,
        counts=typed.counts,
        passages=typed.passages,
        int8=int8,
    )


def about_run(run: TrainedRun) -> str:
    data = run.task.data_name(run.config.data)
    return f"{about_model(run.model, cells_of(run.model))}, trained on {data} for {run.step:,} updates"
