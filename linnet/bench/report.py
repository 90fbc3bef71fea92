"""From rows to what people read: a table in plain text, the tables of two pages, a plot."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from linnet.base.tables import markdown, text_table
from linnet.bench.rows import Row
from linnet.bench.settings import SHAPES, Shape
from linnet.layers.stacks import UNITS

SHOWN = {
    **{"unit": "unit", "backend": "by", "mode": "mode", "L": "L", "B": "B", "d": "d"},
    **{"p20_ms": "p20 ms", "p50_ms": "p50 ms", "p80_ms": "p80 ms", "peak_mb": "peak MB"},
    **{"ratio": "ratio", "ratio_to": "of", "target": "asked", "met": "met"},
}
NOTHING = "-"
LEFT = ("unit", "backend", "mode", "ratio_to", "met")
BEGIN, END = "<!-- speed: begin, written by linnet bench -->", "<!-- speed: end -->"
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
    """Our layers beside nn.LSTM."""
    fixed = {"what": "speed", "ratio_to": "nn.LSTM", "huge_pages": huge_pages}
    return [row for row in latest(rows) if all(row[key] == value for key, value in fixed.items())]


def shapes_in(rows: Sequence[Row]) -> list[Shape]:
    """The shapes the project reports; where none of them was measured, those that were."""
    there = list(dict.fromkeys(map(shape_of, rows)))
    return [shape for shape in SHAPES if shape in there] or there


def units_in(rows: Sequence[Row]) -> list[str]:
    there = {row["unit"] for row in rows}
    return [unit for unit in UNITS if unit in there]


# ------------------------------------------------------------------------------------- the pages


def write_readme(readme: Path, rows: Sequence[Row], plot: Path | None = None) -> None:
    """How fast each unit is."""
    picture = image(readme, plot) if plot is not None and plot.exists() else ""
    fill(readme, "\n\n".join(filter(None, [speed_table(rows), picture])))


def write_targets(page: Path, rows: Sequence[Row]) -> None:
    """What was asked for, and what was reached."""
    fill(page, targets_table(rows))


def fill(page: Path, body: str) -> None:
    page.write_text(filled(page, body, BEGIN, END), encoding="utf-8")


def filled(page: Path, body: str, begin: str, end: str) -> str:
    """The page with this between the two markers, and nothing else changed."""
    old = page.read_text(encoding="utf-8")
    if old.count(begin) != 1 or old.count(end) != 1:
        raise ValueError(f"{page} must hold once each: {begin} and {end}")
    between = re.compile(re.escape(begin) + ".*" + re.escape(end), re.DOTALL)
    return between.sub(lambda _: f"{begin}\n\n{body}\n\n{end}", old)


def image(readme: Path, plot: Path) -> str:
    there = Path(os.path.relpath(plot, readme.parent)).as_posix()
    return f"![Time of each unit relative to nn.LSTM]({there})"


def speed_table(rows: Sequence[Row]) -> str:
    found = raced(rows)
    if not found:
        raise ValueError("no rows of layers beside nn.LSTM; `linnet bench --what speed` measures them")
    shapes = shapes_in(found)
    head = ["unit", *(("step " if shape.is_step else "") + ", ".join(map(str, shape)) for shape in shapes)]
    body = [[name_of(unit), *(ratios(found, unit, shape) for shape in shapes)] for unit in units_in(found)]
    return f"{told(found)}\n\n{markdown(head, body)}"


def told(rows: Sequence[Row]) -> str:
    """The circumstances, in a sentence or two."""
    last = max(rows, key=lambda row: row["date"])
    commits = ", ".join(dict.fromkeys(row["commit"] or "unknown" for row in rows))
    where = f"Measured on {last['date'][:10]} with {last['threads']} threads of {last['cpu']}"
    versions = f"{last['dtype']}, torch {last['torch']}, commit {commits}"
    return (
        f"{where}, {versions}. Time of a layer relative to `nn.LSTM` of the same size in the same run, "
        "inference / training, the median of several rounds in turn; smaller is faster. "
        "The columns are time steps, batch, and input and hidden size."
    )


def ratios(rows: Sequence[Row], unit: str, shape: Shape) -> str:
    found = {row["mode"]: row["ratio"] for row in rows if row["unit"] == unit and shape_of(row) == shape}
    modes = ("step",) if shape.is_step else ("inference", "training")
    return " / ".join(f"{float(found[mode]):.2f}" if mode in found else NOTHING for mode in modes)


def targets_table(rows: Sequence[Row]) -> str:
    """What was asked for and what was reached, over all units and shapes that share a target."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in (row for row in latest(rows) if row["target"]):
        groups.setdefault((described(row), row["ratio_to"], row["target"]), []).append(row)
    body = [
        [f"{names(group)} {what}".strip(), measure(to), reached(group), f"at most {target}", verdict(group)]
        for (what, to, target), group in groups.items()
    ]
    return markdown(["what", "of", "reached", "asked", "met"], body)


def described(row: Row) -> str:
    """What was measured, of whichever unit."""
    what = "" if row["what"] in ("speed", "start") else f"{row['what']}, "
    # How much of a layer are products depends on how wide it is, and so does what is asked of it.
    width = f", d = {row['d']}" if row["ratio_to"] == "limit" else ""
    pages = ", huge pages for all" if row["huge_pages"] == "yes" else ""
    return f"{what}{row['mode']}{width}{pages}"


def names(rows: Sequence[Row]) -> str:
    return ", ".join(dict.fromkeys(name_of(row["unit"]) for row in rows))


def measure(to: str) -> str:
    return {"": NOTHING, "limit": "the limit"}.get(to) or (f"`{to}`" if to.startswith("nn.") else name_of(to))


def reached(rows: Sequence[Row]) -> str:
    if not rows[0]["ratio"]:
        return " to ".join(dict.fromkeys(f"{float(row['p50_ms']):.0f} ms" for row in rows))
    low, *_, high = sorted(2 * [float(row["ratio"]) for row in rows])
    return " to ".join(dict.fromkeys((f"{low:.2f}", f"{high:.2f}")))


def verdict(rows: Sequence[Row]) -> str:
    met = sum(row["met"] == "yes" for row in rows)
    return {len(rows): "yes", 0: "no"}.get(met, f"{met} of {len(rows)}")


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
        raise ValueError("no rows of layers beside nn.LSTM; `linnet bench --what speed` measures them")
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
