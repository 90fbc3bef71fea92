"""Writes a page for each unit, units/<name>.md.

Its parts come from other sources: the picture of the cell from the unit's code, the equations and options
from units.md, the advice from which_unit.md, speed and memory from benchmarks/results.csv, and the lens from
a model that the build trains (unit_lenses.py).
"""

from __future__ import annotations

import re
from pathlib import Path

from cell_picture import draw
from sphinx.application import Sphinx
from unit_lenses import section, shown_units

import linnet
from benchmarks.report import peaks, shape_of, shapes_in
from benchmarks.rows import Row, read
from tools.pages import RESULTS, conditions, markdown, measured, ratios

SIZES = (64, 256, 512)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    app.connect("source-read", shorten)
    return {"parallel_read_safe": True}


def write(app: Sphinx) -> None:
    folder = Path(app.srcdir)
    sections = split(folder / "units.md")
    advice = {row[0]: row[1:] for row in table_rows(folder / "which_unit.md", "## Each unit")}
    rows = read(RESULTS)
    lenses = shown_units(app)
    for name, unit in linnet.UNITS.items():
        title = unit.__name__
        page = page_of(name, unit, sections[title], advice[f"[{title}](units.md#{name})"], rows)
        if name in lenses:
            page += f"\n{section(name, app.config.lens_steps)}\n"
        write_if_changed(folder / "units" / f"{name}.md", page)


def shorten(app: Sphinx, docname: str, source: list[str]) -> None:
    """On the site, units.md has its introduction only: its sections are on the pages of the units."""
    if docname == "units":
        introduction, _, _ = source[0].partition("\n## ")
        introduction = re.sub(r"\]\(#(\w+)\)", r"](units/\1.md)", introduction)
        pages = "\n".join(f"units/{name}" for name in linnet.UNITS)
        source[0] = f"{introduction}\n\n```{{toctree}}\n:hidden:\n{pages}\n```\n"


def page_of(name: str, unit: type[linnet.Recurrent], section: str, advice: list[str], rows: list[Row]) -> str:
    # The links of units.md and which_unit.md lead from docs/, those of this page from docs/units/.
    good, bad, body = (re.sub(r"\]\((?!https?:|#)", "](../", text) for text in (*advice, section))
    parts = [
        f"# {unit.__name__}",
        f"**Choose it for**: {good}\n\n**Think twice for**: {bad}",
        f"```{{raw}} html\n{draw(unit(4, 4))}\n```",
        "*One step of the cell, drawn from its code: W is a matrix product, σ a gate.*",
        body,
        f"## Parameters\n\n{parameters(unit)}",
        f"## Speed\n\n{speed(name, measured(rows))}",
        f"## Memory\n\n{memory(name, rows)}",
    ]
    return "\n\n".join(parts) + "\n"


def parameters(unit: type[linnet.Recurrent]) -> str:
    counts = [f"{sum(p.numel() for p in unit(size, size).parameters()):,}" for size in SIZES]
    lstm = [sum(p.numel() for p in linnet.LSTM(size, size).parameters()) for size in SIZES]
    shares = [f"{int(n.replace(',', '')) / of:.2f}" for n, of in zip(counts, lstm, strict=True)]
    head = ["input and hidden size", *map(str, SIZES)]
    return markdown(head, [["parameters", *counts], ["relative to LSTM", *shares]])


def speed(name: str, known: list[Row]) -> str:
    shapes = [shape for shape in shapes_in(known) if any(row["unit"] == name for row in known)]
    if not shapes:
        return (
            "The benchmarks do not measure this unit. [How it works]"
            "(../how_it_works.md#which-units-and-options-have-kernels) says where it has kernels."
        )
    cells = [ratios(known, name, shape) for shape in shapes]
    head = [f"step {shape}" if shape.is_step else str(shape) for shape in shapes]
    note = "A column with two numbers is inference / training."
    return f"{markdown(head, [cells])}\n\n{conditions(known)} {note}"


def memory(name: str, rows: list[Row]) -> str:
    known = next((row for row in peaks(rows) if row["unit"] == name), None)
    if known is None:
        return "Not measured."
    return (
        f"A training step of one layer raises the peak of the memory by {float(known['peak_mb']):.0f} MB, "
        f"{float(known['ratio']):.2f} of what `nn.LSTM` needs ({shape_of(known)}, float32; "
        "[which unit?](../which_unit.md#what-we-measured) compares all units)."
    )


# --------------------------------------------------------------------------------------------- files


def split(page: Path) -> dict[str, str]:
    """Return the sections of a page by their titles."""
    _, *parts = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    sections = (part.partition("\n") for part in parts)
    return {title: body.strip() for title, _, body in sections}


def table_rows(page: Path, title: str) -> list[list[str]]:
    """Return the rows of the table below a title."""
    _, _, text = page.read_text(encoding="utf-8").partition(title)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def write_if_changed(path: Path, text: str) -> None:
    """Write the file, unless it is the same: Sphinx reads pages again that are newer."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
