"""How figures look: curves with a band, a legend below the axes, PNG or SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from linnet.analysis.colours import FAINT, GRID, INK, Look, with_variables
from linnet.runs.errors import missing
from linnet.runs.records import Row, write_atomically

POINTS = 300
"""The most points of a curve: more cannot be seen, and would make a page large."""

WIDTH = 6.0
"""Inches of one panel: on a phone, its text is still readable."""

STYLE: Any = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor"), INK.light),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK.light),
    **{"grid.color": GRID.light, "grid.linewidth": 0.8, "axes.titlesize": "medium", "lines.linewidth": 1.8},
    # Text as text: it can be selected and read aloud, and the page gives it its own font.
    **{"svg.fonttype": "none", "figure.facecolor": "none", "axes.facecolor": "none"},
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw and write figures with these settings of matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise missing("a plot", "matplotlib") from None
    with matplotlib.rc_context(STYLE):
        yield


# ----------------------------------------------------------------------------------------- figures


def new_figure(
    columns: int, height: float = 3.8, width: float = WIDTH, rows: int = 1
) -> tuple[Any, list[Any]]:
    """A figure with rows x columns axes, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def literal(text: str) -> str:
    """The text as it is: matplotlib would read formulas between dollars, also in the name of a run."""
    return text.replace("$", r"\$")


def finish(axes: Any, title: str, x_label: str, y_label: str) -> None:
    axes.set(title=literal(title), xlabel=x_label, ylabel=literal(y_label))
    axes.grid(visible=True)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def shared_legend(figure: Any) -> None:
    """One legend for all axes, below them, in one row if it fits."""
    known: dict[str, Any] = {}
    for axes in figure.axes:
        handles, names = axes.get_legend_handles_labels()
        known |= dict(zip(names, handles, strict=True))
    if known:
        columns = legend_columns(list(known), figure.get_figwidth())
        place = {"loc": "outside lower center", "ncols": columns, "fontsize": 9}
        figure.legend(known.values(), known, frameon=False, handlelength=2.6, columnspacing=1.2, **place)


def legend_columns(names: Sequence[str], inches: float) -> int:
    """As many columns as fit: about thirteen letters to the inch, and the line before each name."""
    letters = inches * 13
    for columns in range(len(names), 1, -1):
        widths = [max(map(len, names[start::columns])) + 8 for start in range(columns)]
        if sum(widths) <= letters:
            return columns
    return 1


def mark_level(axes: Any, value: float, text: str, style: str = "-") -> None:
    """A horizontal line with its name on it, inside the axes."""
    axes.axhline(value, color=FAINT.light, linewidth=1, linestyle=style, label=f"_{text}")
    place = {"xycoords": ("axes fraction", "data"), "xytext": (-2, 2), "textcoords": "offset points"}
    axes.annotate(text, (1, value), ha="right", va="bottom", fontsize="small", color=FAINT.light, **place)


def name_value(axes: Any, value: float, place: float, text: str) -> None:
    """Write a value at the end of its bar."""
    how = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": "small"}
    axes.annotate(text, (value, place), **how)


def note(figure: Any, text: str) -> None:
    """What a reader has to know to read the figure, small, above everything."""
    figure.suptitle(text, fontsize="small", color=FAINT.light)


# ------------------------------------------------------------------------------------------ curves


class Curve(NamedTuple):
    """A figure by update over several runs."""

    steps: list[int]
    mean: list[float]
    least: list[float]
    most: list[float]


def curve(runs: Sequence[Sequence[Row]], name: str) -> Curve | None:
    """The mean over runs and its band; a run that has ended keeps its last value."""
    series = [thinned([row for row in rows if name in row], name) for rows in runs]
    series = [each for each in series if each]
    if not series:
        return None
    begun = max(min(each) for each in series)
    steps = sorted({step for each in series for step in each if step >= begun})
    columns = list(zip(*(held(each, steps) for each in series), strict=True))
    mean = [sum(column) / len(column) for column in columns]
    return Curve(steps, mean, [min(column) for column in columns], [max(column) for column in columns])


def thinned(rows: Sequence[Row], name: str, most: int = POINTS) -> dict[int, float]:
    """Values by update; if there are too many rows, means of a few consecutive ones."""
    size = -(-len(rows) // most) or 1
    pieces = [rows[start : start + size] for start in range(0, len(rows), size)]
    return {piece[-1]["step"]: sum(row[name] for row in piece) / len(piece) for piece in pieces}


def held(series: dict[int, float], steps: Sequence[int]) -> list[float]:
    """The last known value at each of these steps; the series begins at or before the first of them."""
    known, values, last = iter(sorted(series.items())), [], 0.0
    following = next(known, None)
    for step in steps:
        while following is not None and following[0] <= step:
            last, following = following[1], next(known, None)
        values.append(last)
    return values


def draw_curve(
    axes: Any, runs: Sequence[Sequence[Row]], name: str, label: str, how: Look, scale: float = 1
) -> None:
    found, label = curve(runs, name), literal(label)
    if found is None:
        axes.plot([], [], label=label, **how._asdict())
        return
    mean, least, most = ([scale * value for value in line] for line in found[1:])
    marker = "o" if len(mean) < 20 else None
    axes.plot(found.steps, mean, label=label, marker=marker, markersize=3, **how._asdict())
    if len(runs) > 1:
        axes.fill_between(found.steps, least, most, color=how.color, alpha=0.2, linewidth=0)


# ------------------------------------------------------------------------------------------ saving


def save(figure: Any, path: Path) -> None:
    """Write PNG or SVG, by the name of the file; the same figure gives the same file."""
    if path.suffix == ".svg":
        write_atomically(path, svg_of(figure, path.stem).encode())
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    file = io.BytesIO()
    with house_style():
        FigureCanvasAgg(figure).print_figure(
            file, format="png", dpi=120, facecolor="white", metadata={"Software": None}
        )
    write_atomically(path, file.getvalue())


def svg_of(figure: Any, name: str, facecolor: str = "white") -> str:
    """An SVG. `name` becomes part of the ids inside it, so that several can be in one page."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    file = io.StringIO()
    with house_style(), matplotlib.rc_context({"svg.hashsalt": name}):
        FigureCanvasSVG(figure).print_figure(file, format="svg", facecolor=facecolor, metadata={"Date": None})
    return file.getvalue()


def inline(figure: Any, name: str, label: str = "") -> str:
    """An SVG for a page: transparent, in the page's colours and font, without addresses on the network."""
    svg = svg_of(figure, name, "none")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    # An SVG inside HTML needs no namespaces.
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r"(font: [^;\"]*?px) [^;\"]*", r"\1 system-ui, sans-serif", svg)
    # Ids that are made of names ("axes_1") would occur once in each figure of the page.
    svg = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    return with_variables(svg).replace("<svg ", f'<svg role="img" aria-label="{label or name}" ', 1)
