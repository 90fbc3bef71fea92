"""Write the tables of README.md and benchmarks/README.md from the rows of `linnet bench`.

python -m tools.pages
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from linnet.base.pages import filled
from linnet.base.tables import markdown
from linnet.bench.report import NOTHING, latest, name_of, raced, shape_of, shapes_in, units_in
from linnet.bench.rows import Row, read
from linnet.bench.settings import Shape

ROOT = Path(__file__).parents[1]
README, BENCHMARKS = ROOT / "README.md", ROOT / "benchmarks" / "README.md"
RESULTS, PLOT = ROOT / "benchmarks" / "results.csv", ROOT / "benchmarks" / "speed.png"
README_UNITS, README_SHAPE = ("sru", "lrn", "ran", "nru", "scrn", "lstm"), Shape(256, 32, 512)


def write_readme(readme: Path, rows: Sequence[Row]) -> None:
    """Write the table with the speed of a few units at one size."""
    fill(readme, "speed", short_table(rows))


def write_benchmarks(page: Path, rows: Sequence[Row], plot: Path | None = None) -> None:
    """Write the tables with the speed of all units at all sizes, and the targets."""
    picture = image(page, plot) if plot is not None and plot.exists() else ""
    fill(page, "speed", "\n\n".join(filter(None, [speed_table(rows), picture])))
    fill(page, "targets", targets_table(rows))


def fill(page: Path, table: str, body: str) -> None:
    page.write_text(filled(page, body, *markers(table)), encoding="utf-8")


def markers(table: str) -> tuple[str, str]:
    return f"<!-- {table}: begin, written by tools/pages.py -->", f"<!-- {table}: end -->"


def image(page: Path, plot: Path) -> str:
    path = Path(os.path.relpath(plot, page.parent)).as_posix()
    return f"![Time of each unit relative to nn.LSTM]({path})"


def measured(rows: Sequence[Row]) -> list[Row]:
    compared = raced(rows)
    if not compared:
        raise ValueError("no rows compare a layer with nn.LSTM; `linnet bench --what speed` measures them")
    return compared


def short_table(rows: Sequence[Row]) -> str:
    known = measured(rows)
    shapes = shapes_in(known)
    layer = README_SHAPE if README_SHAPE in shapes else next(s for s in shapes if not s.is_step)
    shown = [layer, *(shape for shape in shapes if shape.is_step)]
    known = [row for row in known if row["unit"] in README_UNITS and shape_of(row) in shown]
    head = ["unit", f"layer, {layer}: inference / training", *(f"one step, {shape}" for shape in shown[1:])]
    body = [[name_of(unit), *(ratios(known, unit, shape) for shape in shown)] for unit in units_in(known)]
    return f"{conditions(known)}\n\n{markdown(head, body)}"


def speed_table(rows: Sequence[Row]) -> str:
    known = measured(rows)
    shapes = shapes_in(known)
    head = ["unit", *(f"step {shape}" if shape.is_step else str(shape) for shape in shapes)]
    body = [[name_of(unit), *(ratios(known, unit, shape) for shape in shapes)] for unit in units_in(known)]
    return f"{conditions(known)} A column with two numbers is inference / training.\n\n{markdown(head, body)}"


def conditions(rows: Sequence[Row]) -> str:
    """Return a sentence on what was measured, on which machine and with which versions."""
    last = max(rows, key=lambda row: row["date"])
    commits = ", ".join(dict.fromkeys(row["commit"] or "unknown" for row in rows))
    where = f"measured on {last['date'][:10]} with {last['threads']} threads of {last['cpu']}"
    versions = f"{last['dtype']}, torch {last['torch']}, commit {commits}"
    return (
        "Time relative to `nn.LSTM` of the same size in the same run (below 1 is faster than `nn.LSTM`), "
        "by time steps x batch x input and hidden size; "
        f"median of several rounds, {where}, {versions}."
    )


def ratios(rows: Sequence[Row], unit: str, shape: Shape) -> str:
    by_mode = {row["mode"]: row["ratio"] for row in rows if row["unit"] == unit and shape_of(row) == shape}
    modes = ("step",) if shape.is_step else ("inference", "training")
    return " / ".join(f"{float(by_mode[mode]):.2f}" if mode in by_mode else NOTHING for mode in modes)


def targets_table(rows: Sequence[Row]) -> str:
    """Return the targets and the measured values; units and shapes with the same target share a row."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in (row for row in latest(rows) if row["target"]):
        groups.setdefault((described(row), row["ratio_to"], row["target"]), []).append(row)
    body = [
        [f"{names(group)} {what}".strip(), measure(to), reached(group), f"at most {target}", verdict(group)]
        for (what, to, target), group in groups.items()
    ]
    return markdown(["measured", "relative to", "result", "target", "met"], body)


def described(row: Row) -> str:
    """Return what was measured, without the unit."""
    what = "" if row["what"] in ("speed", "start") else f"{row['what']}, "
    # The share of the matrix products in a layer's time depends on its width, and so does the target.
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.pages", description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="CSV", help="the rows to read")
    rows = read(parser.parse_args(arguments).results)
    write_readme(README, rows)
    write_benchmarks(BENCHMARKS, rows, PLOT)
    print(f"Wrote the tables of {README} and {BENCHMARKS}.")


if __name__ == "__main__":
    main()
