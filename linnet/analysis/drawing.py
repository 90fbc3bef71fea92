"""Drawing with matplotlib: curves with a band, a legend below the axes, PNG and SVG files."""

from __future__ import annotations

import io
import re
import warnings
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


class NothingToShow(ValueError):  # noqa: N818, it is not a mistake
    """The runs do not have the data of a plot."""


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
    """Return a figure with rows x columns axes, and the list of its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def literal(text: str) -> str:
    """Escape dollar signs: matplotlib reads the text between two of them as a formula."""
    return text.replace("$", r"\$")


def finish(axes: Any, title: str, x_label: str, y_label: str) -> None:
    axes.set(title=literal(title), xlabel=x_label, ylabel=literal(y_label))
    axes.grid(visible=True)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def shared_legend(figure: Any) -> None:
    """Add one legend for all axes, below them, in one row if it fits."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        of_axes, names = axes.get_legend_handles_labels()
        handles |= dict(zip(names, of_axes, strict=True))
    if handles:
        columns = legend_columns(list(handles), figure.get_figwidth())
        layout = {"loc": "outside lower center", "ncols": columns, "handlelength": 2.6, "columnspacing": 1.2}
        figure.legend(handles.values(), handles, frameon=False, fontsize=9, **layout)


def legend_columns(names: Sequence[str], inches: float) -> int:
    """Return how many columns fit, with about thirteen letters per inch and a line before each name."""
    letters = inches * 13
    for columns in range(len(names), 1, -1):
        widths = [max(map(len, names[start::columns])) + 8 for start in range(columns)]
        if sum(widths) <= letters:
            return columns
    return 1


def mark_level(axes: Any, value: float, text: str, style: str = "-") -> None:
    """Draw a horizontal line with a text on it, inside the axes."""
    axes.axhline(value, color=FAINT.light, linewidth=1, linestyle=style, label=f"_{text}")
    position = {"xycoords": ("axes fraction", "data"), "xytext": (-2, 2), "textcoords": "offset points"}
    axes.annotate(text, (1, value), ha="right", va="bottom", fontsize="small", color=FAINT.light, **position)


def label_bar(axes: Any, value: float, y: float, text: str) -> None:
    """Write a text at the end of the bar at height `y`."""
    style = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": "small"}
    axes.annotate(text, (value, y), **style)


def note(figure: Any, text: str) -> None:
    """Write a small text above the axes, such as what lines and bands mean."""
    figure.suptitle(text, fontsize="small", color=FAINT.light)


# ------------------------------------------------------------------------------------------ curves


class Curve(NamedTuple):
    """The mean, the minimum and the maximum of a figure over several runs, by update."""

    steps: list[int]
    mean: list[float]
    least: list[float]
    most: list[float]


def curve(runs: Sequence[Sequence[Row]], name: str) -> Curve | None:
    """Return the mean and the range over runs; a run that has ended keeps its last value."""
    series = [thinned([row for row in rows if name in row], name) for rows in runs]
    series = [each for each in series if each]
    if not series:
        return None
    first = max(min(each) for each in series)
    steps = sorted({step for each in series for step in each if step >= first})
    columns = list(zip(*(last_values(each, steps) for each in series), strict=True))
    mean = [sum(column) / len(column) for column in columns]
    return Curve(steps, mean, [min(column) for column in columns], [max(column) for column in columns])


def thinned(rows: Sequence[Row], name: str, most: int = POINTS) -> dict[int, float]:
    """Return the values by update; of more than `most` rows, the means of consecutive ones."""
    size = -(-len(rows) // most) or 1
    pieces = [rows[start : start + size] for start in range(0, len(rows), size)]
    return {piece[-1]["step"]: sum(row[name] for row in piece) / len(piece) for piece in pieces}


def last_values(series: dict[int, float], steps: Sequence[int]) -> list[float]:
    """Return the last known value at each of `steps`; the series starts at or before the first of them."""
    points, values, last = iter(sorted(series.items())), [], 0.0
    following = next(points, None)
    for step in steps:
        while following is not None and following[0] <= step:
            last, following = following[1], next(points, None)
        values.append(last)
    return values


def draw_curve(
    axes: Any, runs: Sequence[Sequence[Row]], name: str, label: str, look: Look, scale: float = 1
) -> None:
    drawn, label = curve(runs, name), literal(label)
    if drawn is None:
        axes.plot([], [], label=label, **look._asdict())
        return
    mean, least, most = ([scale * value for value in line] for line in drawn[1:])
    marker = "o" if len(mean) < 20 else None
    axes.plot(drawn.steps, mean, label=label, marker=marker, markersize=3, **look._asdict())
    if len(runs) > 1:
        axes.fill_between(drawn.steps, least, most, color=look.color, alpha=0.2, linewidth=0)


# ------------------------------------------------------------------------------------------ saving


def save(figure: Any, path: Path) -> None:
    """Write a PNG or SVG file, by its suffix; the same figure gives the same bytes."""
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
    """Return an SVG. `name` becomes part of its ids, so that a page can contain several."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    file = io.StringIO()
    with house_style(), matplotlib.rc_context({"svg.hashsalt": name}), warnings.catch_warnings():
        # matplotlib only measures the text here: whoever shows the page has the font.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        FigureCanvasSVG(figure).print_figure(file, format="svg", facecolor=facecolor, metadata={"Date": None})
    return file.getvalue()


def inline(figure: Any, name: str, label: str = "") -> str:
    """Return an SVG for a page: transparent, with the page's colours and font, without URLs."""
    svg = svg_of(figure, name, "none")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    # An SVG inside HTML needs no namespaces.
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r"(font: [^;\"]*?px) [^;\"]*", r"\1 system-ui, sans-serif", svg)
    # Ids such as "axes_1" would otherwise occur in each figure of the page.
    svg = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    return with_variables(svg).replace("<svg ", f'<svg role="img" aria-label="{label or name}" ', 1)
