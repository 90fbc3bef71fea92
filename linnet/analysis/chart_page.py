"""Charts of answers as a file: a page that follows the colours of the reader's screen, or one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from linnet.analysis.chart_plots import captions, draw_charts
from linnet.analysis.drawing import house_style, inline, save
from linnet.analysis.report import escape, head
from linnet.runs.errors import room_for
from linnet.runs.records import write_atomically
from linnet.tasks.results import Chart

SUFFIXES = (".html", ".svg", ".png")


def check_chart_path(path: Path) -> None:
    """Raise if charts cannot be written to this file; it is called before they are computed."""
    if path.suffix not in SUFFIXES:
        *others, last = SUFFIXES
        raise ValueError(
            f"--plot {path} ends with {path.suffix or 'nothing'!r}; expected {', '.join(others)} or {last}"
        )


def write_chart_file(path: Path, charts: Sequence[Chart], title: str, about: str) -> None:
    with house_style(), room_for(path):
        if path.suffix == ".html":
            write_atomically(path, chart_page(charts, title, about).encode())
        else:
            save(draw_charts([charts]), path)


def chart_page(charts: Sequence[Chart], title: str, about: str) -> str:
    figures = [
        f"<figure>{inline(draw_charts([[each]]), f'chart{number}', escape(each.title))}</figure>"
        for number, each in enumerate(charts)
    ]
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(about[:1].upper() + about[1:])}.</p>",
        f'<div class="plots{" single" if len(charts) == 1 else ""}">{"".join(figures)}</div>',
        f'<p class="note">{escape(captions(charts))}</p>',
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head>{head(title, False)}</head><body>\n'
        + "\n".join(body)
        + "\n</body></html>\n"
    )
