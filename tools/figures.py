"""Figures within sentences of pages, from the records. A comment after a figure names its row and its column:

    LSTM took 0.31<!-- benchmarks/compat.csv: sb3-contrib, time, LSTM, ratio --> of the time

The words are the file, the row by the key columns of the file, and the column. A plus sign joins rows whose
mean the figure is, as in `lrn-seed1+lrn-seed2`. The figure keeps its number of decimals. `python -m
tools.pages` writes the figures again; tests/tools/test_figures.py compares them.
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from statistics import mean

from benchmarks.records import RecordFile
from experiments import results
from tools.compat import record

ROOT = Path(__file__).parents[1]
RECORDS: dict[str, RecordFile] = {
    "benchmarks/compat.csv": record.RECORD,
    "experiments/results.csv": results.RECORD,
}
PAGES = sorted(
    path for folder in (".", "docs", "benchmarks", "experiments") for path in (ROOT / folder).glob("*.md")
)
COMMENT = r"(?P<comment><!-- (?P<file>\S+\.csv): (?P<words>.+?) -->)"
MARK = re.compile(rf"\d+(\.(?P<decimals>\d+))?{COMMENT}")


def update() -> None:
    """Write the figures of all pages again."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := updated(text)) != text:
            page.write_text(new, encoding="utf-8")


def updated(text: str) -> str:
    return MARK.sub(lambda mark: recorded(mark) + mark["comment"], text)


def recorded(mark: re.Match[str]) -> str:
    *words, column = mark["words"].split(", ")
    keys = product(*(word.split("+") for word in words))
    decimals = len(mark["decimals"] or "")
    return f"{mean(figure(mark['file'], list(key), column) for key in keys):.{decimals}f}"


def figure(file: str, key: list[str], column: str) -> float:
    form = RECORDS[file]
    rows = [row for row in form.read(ROOT / file) if [row[name] for name in form.key] == key]
    if not rows or column not in rows[0]:
        expected = f"expected its {', '.join(form.key)} and a column"
        raise ValueError(f"{file} has no {column} of {', '.join(key)}; {expected}")
    return float(rows[0][column])
