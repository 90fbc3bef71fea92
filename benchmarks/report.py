"""Rows as a table in plain text and as a plot; the selection of rows for the tables of two pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.rows import Row
from benchmarks.settings import SHAPES, Shape
from linnet.base.project import advice
from linnet.base.tables import text_table
from linnet.units import UNITS

SHOWN = {
    **{"unit": "unit", "backend": "by", "mode": "mode", "L": "L", "B": "B", "d": "d"},
    **{"p20_ms": "p20 ms", "p50_ms": "p50 ms", "p80_ms": "p80 ms", "peak_mb": "peak MB"},
    **{"ratio": "ratio", "ratio_to": "of", "target": "target", "met": "met"},
}
NOTHING = "-"
LEFT = ("unit", "backend", "mode", "ratio_to", "met")
# Two rows that are equal in these columns are the same measurement, repeated.
KEY = ("what", "unit", "backend", "mode", "L", "B", "d", "dtype", "threads", "memory", "ratio_to")


def table(rows: Sequence[Row]) -> str:
    """Return a table in plain text without columns that are empty."""
    columns = [column for column in SHOWN if any(row[column] for row in rows)]
    cells = [[SHOWN[column] for column in columns], *([row[c] for c in columns] for row in rows)]
    return text_table(cells, left=[number for number, column in enumerate(columns) if column in LEFT])


def latest(rows: Iterable[Row]) -> list[Row]:
    """Return the last row of each measurement."""
    return list({tuple(row[column] for column in KEY): row for row in rows}.values())


def shape_of(row: Row) -> Shape:
    return Shape(int(row["L"]), int(row["B"]), int(row["d"]))


def raced(rows: Iterable[Row], memory: str = "new") -> list[Row]:
    """Return the rows of our layers relative to nn.LSTM; not single steps, for which nn.LSTM is not made."""
    return [row for row in fitting(rows, "speed", "nn.LSTM", memory) if row["mode"] != "step"]


def cell_steps(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of our cells relative to nn.LSTMCell."""
    return fitting(rows, "cell", "nn.LSTMCell")


def peaks(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of the peak memory of our layers relative to nn.LSTM."""
    return fitting(rows, "memory", "nn.LSTM")


def fitting(rows: Iterable[Row], what: str, to: str, memory: str = "new") -> list[Row]:
    fixed = {"what": what, "ratio_to": to, "memory": memory}
    return [row for row in latest(rows) if all(row[key] == value for key, value in fixed.items())]


def shapes_in(rows: Sequence[Row]) -> list[Shape]:
    """Return the shapes that the project reports; if none of them was measured, all measured shapes."""
    measured = list(dict.fromkeys(map(shape_of, rows)))
    return [shape for shape in SHAPES if shape in measured] or measured


def units_in(rows: Sequence[Row]) -> list[str]:
    measured = {row["unit"] for row in rows}
    return [unit for unit in UNITS if unit in measured]


def name_of(unit: str) -> str:
    return UNITS[unit].__name__ if unit in UNITS else unit


# -------------------------------------------------------------------------------------- the plot


def write_plot(path: Path, rows: Sequence[Row]) -> None:
    """Write a plot of the time of each unit relative to nn.LSTM, with a panel for each shape."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RuntimeError(f"a plot needs matplotlib: {advice('plot')}") from error
    drawn = raced(rows)
    if not drawn:
        raise ValueError(
            "there are no rows of layers relative to nn.LSTM; "
            "`python -m benchmarks --what speed` measures them"
        )
    shapes, units = shapes_in(drawn), units_in(drawn)
    figure = Figure(figsize=(2.6 * len(shapes) + 1, 0.35 * len(units) + 1.4), layout="constrained")
    panels = figure.subplots(1, len(shapes), sharey=True, squeeze=False)[0]
    for panel, shape in zip(panels, shapes, strict=True):
        draw(panel, [row for row in drawn if shape_of(row) == shape], units)
        panel.set_title(f"{shape.L} x {shape.B} x {shape.d}", fontsize=9)
    figure.supxlabel("time relative to nn.LSTM (L x B x d)", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def draw(panel: Any, rows: Sequence[Row], units: Sequence[str]) -> None:
    modes = [mode for mode in ("inference", "training", "step") if any(row["mode"] == mode for row in rows)]
    thick = 0.8 / max(1, len(modes))
    for number, mode in enumerate(modes):
        ratios = {row["unit"]: float(row["ratio"]) for row in rows if row["mode"] == mode}
        heights = [y + (number - (len(modes) - 1) / 2) * thick for y in range(len(units))]
        panel.barh(heights, [ratios.get(unit, 0.0) for unit in units], thick, label=mode)
    panel.set_yticks(range(len(units)), [name_of(unit) for unit in units])
    panel.axvline(1.0, color="black", linewidth=0.8)
    if not panel.yaxis_inverted():
        panel.invert_yaxis()
    panel.legend(fontsize=7)
