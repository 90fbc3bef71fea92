"""How figures look: one colour for each unit, curves with a band, a legend outside the data, PNG or SVG."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from linnet.analysis.runs import Group
from linnet.runs.errors import missing
from linnet.runs.records import Row, write_atomically

# Of Okabe and Ito and of Tol's muted set, which people with any colour vision tell apart.
COLOURS = {
    **{"nru": "#D55E00", "lstm": "#0072B2", "janet": "#009E73", "gru": "#E69F00", "eurnn": "#CC79A7"},
    **{"sru": "#56B4E9", "lrn": "#882255", "ran": "#332288", "scrn": "#999933", "rnn": "#000000"},
    **{"statisticalru": "#7F7F7F", "goru": "#44AA99", "atr": "#DDCC77", "qrnn": "#117733"},
    **{"olrn": "#882255", "glrn": "#882255", "elrn": "#882255"},
}
DASHES = {
    **{"olrn": "--", "glrn": ":", "elrn": "-."},
    **{"rnn-orth": "--", "rnn-id": ":", "lstm-peephole": ":", "lstm-chrono": "--", "gru-before": "--"},
    **{"janet-chrono": "--"},
}
MORE_DASHES = ("-", (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (8, 2)))
BASELINE = "#555555"
POINTS = 300
"""A curve has at most so many: more cannot be seen, and a page with them would be large."""


class Look(NamedTuple):
    color: Any
    linestyle: Any


def look(name: str, which: int = 0) -> Look:
    """The same for a name in every figure; `which` tells apart several groups of one name in a panel."""
    unit = name.split("-")[0]
    colours = list(dict.fromkeys(COLOURS.values()))
    colour = COLOURS.get(unit) or colours[zlib.crc32(unit.encode()) % len(colours)]
    return Look(colour, MORE_DASHES[which % len(MORE_DASHES)] if which else DASHES.get(name, "-"))


def looks(groups: Sequence[Group]) -> list[Look]:
    names = [group.name for group in groups]
    return [look(name, names[:place].count(name)) for place, name in enumerate(names)]


# ----------------------------------------------------------------------------------------- figures


def new_figure(columns: int, height: float = 4.2, width: float = 5.0, rows: int = 1) -> tuple[Any, list[Any]]:
    """A figure with so many axes side by side."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing("matplotlib", error) from None
    figure = Figure(figsize=(max(width * columns, 7.2), height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def literal(text: str) -> str:
    """Shown as it is: matplotlib would read formulas between dollars, also in what a run is called."""
    return text.replace("$", r"\$")


def finish(axes: Any, title: str, across: str, up: str) -> None:
    axes.set(title=literal(title), xlabel=across, ylabel=up)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def shared_legend(figure: Any) -> None:
    """One for all axes, below them, each name once."""
    known: dict[str, Any] = {}
    for axes in figure.axes:
        handles, names = axes.get_legend_handles_labels()
        known |= dict(zip(names, handles, strict=True))
    if known:
        # About thirteen letters to the inch, and the line before them.
        columns = min(max(int(figure.get_figwidth() * 13 / (max(map(len, known)) + 6)), 1), 5)
        place = {"loc": "outside lower center", "ncols": columns, "fontsize": "small"}
        figure.legend(known.values(), known, frameon=False, **place)


def note(figure: Any, text: str) -> None:
    """What a reader has to know to read it, small, above everything."""
    figure.suptitle(text, fontsize="small", color=BASELINE)


# ------------------------------------------------------------------------------------------ curves


class Curve(NamedTuple):
    """A figure by update over several runs."""

    steps: list[int]
    mean: list[float]
    least: list[float]
    most: list[float]


def curve(runs: Sequence[Sequence[Row]], name: str) -> Curve | None:
    """The mean over runs and its band; one that has ended counts on with its last figure."""
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
    """By update; where there are too many rows, the mean of a few at the last of them."""
    size = -(-len(rows) // most) or 1
    pieces = [rows[start : start + size] for start in range(0, len(rows), size)]
    return {piece[-1]["step"]: sum(row[name] for row in piece) / len(piece) for piece in pieces}


def held(series: dict[int, float], steps: Sequence[int]) -> list[float]:
    """The last known figure at each of these steps, of which the first is not before the series begins."""
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
    """As PNG or SVG, by its name; the same figure gives the same file."""
    if path.suffix == ".svg":
        write_atomically(path, svg_of(figure, path.stem).encode())
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    file = io.BytesIO()
    FigureCanvasAgg(figure).print_figure(file, format="png", dpi=120, metadata={"Software": None})
    write_atomically(path, file.getvalue())


def svg_of(figure: Any, name: str) -> str:
    """`name` goes into the names of its parts, so that two of them can stand in one page."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    return file.getvalue()


def inline(figure: Any, name: str) -> str:
    """An SVG for a page, without its preamble, which names addresses on the network."""
    svg = svg_of(figure, name)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    # An SVG inside HTML needs no namespace but that of its links, and those are inside it.
    return re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href", "href")
