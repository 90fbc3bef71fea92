"""From rows to what people read: a table in plain text, the tables of two pages, a plot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from linnet.base.tables import text_table
from linnet.bench.rows import Row
from linnet.bench.settings import SHAPES, Shape
from linnet.units import UNITS

SHOWN = {
    **{"unit": "unit", "backend": "by", "mode": "mode", "L": "L", "B": "B", "d": "d"},
    **{"p20_ms": "p20 ms", "p50_ms": "p50 ms", "p80_ms": "p80 ms", "peak_mb": "peak MB"},
    **{"ratio": "ratio", "ratio_to": "of", "target": "asked", "met": "met"},
}
NOTHING = "-"
LEFT = ("unit", "backend", "mode", "ratio_to", "met")
# Two rows that agree in these are the same measurement, made twice.
KEY = ("what", "unit", "backend", "mode", "L", "B", "d", "dtype", "threads", "huge_pages", "ratio_to")


def table(rows: Sequence[Row]) -> str:
    """Plain text; columns that are empty throughout are left out."""
    columns = [column for column in SHOWN if any(row[column] for row in rows)]
    cells = [[SHOWN[column] for column in columns], *([row[c] for c in columns] for row in rows)]
    return text_table(cells, left=[number for number, column in enumerate(columns) if column in LEFT])


def latest(rows: Iterable[Row]) -> list[Row]:
    """Of each measurement the last one made."""
    return list({tuple(row[column] for column in KEY): row for row in rows}.values())


def shape_of(row: Row) -> Shape:
    return Shape(int(row["L"]), int(row["B"]), int(row["d"]))


def raced(rows: Iterable[Row], huge_pages: str = "no") -> list[Row]:
    """Rows of our layers relative to nn.LSTM."""
    fixed = {"what": "speed", "ratio_to": "nn.LSTM", "huge_pages": huge_pages}
    return [row for row in latest(rows) if all(row[key] == value for key, value in fixed.items())]


def shapes_in(rows: Sequence[Row]) -> list[Shape]:
    """The shapes that the project reports; if none of them was measured, all measured shapes."""
    there = list(dict.fromkeys(map(shape_of, rows)))
    return [shape for shape in SHAPES if shape in there] or there


def units_in(rows: Sequence[Row]) -> list[str]:
    there = {row["unit"] for row in rows}
    return [unit for unit in UNITS if unit in there]


def name_of(unit: str) -> str:
    return UNITS[unit].__name__ if unit in UNITS else unit


# -------------------------------------------------------------------------------------- the plot


def write_plot(path: Path, rows: Sequence[Row]) -> None:
    """One panel a shape: the time of each unit relative to nn.LSTM."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RuntimeError('a plot needs matplotlib: pip install "linnet-rnn[plot]"') from error
    found = raced(rows)
    if not found:
        raise ValueError(
            "there are no rows of layers relative to nn.LSTM; `linnet bench --what speed` measures them"
        )
    shapes, units = shapes_in(found), units_in(found)
    figure = Figure(figsize=(2.6 * len(shapes) + 1, 0.35 * len(units) + 1.4), layout="constrained")
    panels = figure.subplots(1, len(shapes), sharey=True, squeeze=False)[0]
    for panel, shape in zip(panels, shapes, strict=True):
        draw(panel, [row for row in found if shape_of(row) == shape], units)
        panel.set_title(f"{shape.L} x {shape.B} x {shape.d}", fontsize=9)
    figure.supxlabel("time relative to nn.LSTM (L x B x d)", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def draw(panel: Any, rows: Sequence[Row], units: Sequence[str]) -> None:
    modes = [mode for mode in ("inference", "training", "step") if any(row["mode"] == mode for row in rows)]
    thick = 0.8 / max(1, len(modes))
    for number, mode in enumerate(modes):
        known = {row["unit"]: float(row["ratio"]) for row in rows if row["mode"] == mode}
        places = [at + (number - (len(modes) - 1) / 2) * thick for at in range(len(units))]
        panel.barh(places, [known.get(unit, 0.0) for unit in units], thick, label=mode)
    panel.set_yticks(range(len(units)), [name_of(unit) for unit in units])
    panel.axvline(1.0, color="black", linewidth=0.8)
    if not panel.yaxis_inverted():
        panel.invert_yaxis()
    panel.legend(fontsize=7)
