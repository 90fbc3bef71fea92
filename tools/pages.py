"""The tables of README.md and benchmarks/README.md, written from the rows of `linnet bench`.

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

BEGIN, END = "<!-- speed: begin, written by tools/pages.py -->", "<!-- speed: end -->"
ROOT = Path(__file__).parents[1]
README, TARGETS = ROOT / "README.md", ROOT / "benchmarks" / "README.md"
RESULTS, PLOT = ROOT / "benchmarks" / "results.csv", ROOT / "benchmarks" / "speed.png"


def write_readme(readme: Path, rows: Sequence[Row], plot: Path | None = None) -> None:
    """How fast each unit is."""
    picture = image(readme, plot) if plot is not None and plot.exists() else ""
    fill(readme, "\n\n".join(filter(None, [speed_table(rows), picture])))


def write_targets(page: Path, rows: Sequence[Row]) -> None:
    """What was asked for, and what was reached."""
    fill(page, targets_table(rows))


def fill(page: Path, body: str) -> None:
    page.write_text(filled(page, body, BEGIN, END), encoding="utf-8")


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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.pages", description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="CSV", help="the rows to read")
    rows = read(parser.parse_args(arguments).results)
    write_readme(README, rows, PLOT)
    write_targets(TARGETS, rows)
    print(f"The tables of {README} and {TARGETS} are written.")


if __name__ == "__main__":
    main()
