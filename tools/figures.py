"""Figures within sentences of pages, from the records. A comment after a figure names its row and its column:

    LSTM took 0.31<!-- benchmarks/compat.csv: sb3-contrib, time, LSTM, ratio --> of the time

The words are the file, the row by the key columns of the file, and the column. A plus sign joins rows whose
mean the figure is, as in `lrn-seed1+lrn-seed2`; `*` joins all rows, such as those of all seeds. The figure
keeps its number of decimals. Before the column, `lowest` and `highest` choose one of several rows; after it,
`in %` and `in µs` multiply a share by 100 and milliseconds by 1,000, and `over lstm` divides by the figure of
the row whose last key this is. A result of experiments/results.csv has the further figures of its test as
columns, such as `mase`.

benchmarks/results.csv has no key: its rows are repeated measurements, of which each says what was measured in
some columns. A figure is that of the newest row, and `lowest` and `highest` are over the rows of all runs:

    0.63<!-- benchmarks/results.csv: what=step, unit=sru, mode=step with gradients, d=64, lowest ratio -->

The column `when` writes a parenthesis with the dates and commits of these rows, and says whether the code has
changed since:

    (measured on 2026-11-18, commit 1a0c791)<!-- benchmarks/results.csv: what=padding, when -->

`python -m tools.pages` writes all of them again; tests/tools/test_figures.py compares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from statistics import mean

from benchmarks import defaults, rows
from benchmarks.fresh import when
from benchmarks.records import RecordFile, Row
from benchmarks.report import latest
from experiments import results, times
from tools.compat import record
from tools.compat.forecasts import measure

ROOT = Path(__file__).parents[1]
TIMES = "benchmarks/results.csv"
RECORDS: dict[str, RecordFile] = {
    "benchmarks/compat.csv": record.RECORD,
    "benchmarks/defaults.csv": defaults.RECORD,
    TIMES: rows.RECORD,
    "experiments/forecast_rivals.csv": measure.RECORD,
    "experiments/results.csv": results.RECORD,
    "experiments/times.csv": times.RECORD,
}
PAGES = sorted(
    path for folder in (".", "docs", "benchmarks", "experiments") for path in (ROOT / folder).glob("*.md")
)
COMMENT = r"(?P<comment><!-- (?P<file>\S+\.csv): (?P<words>.+?) -->)"
MARK = re.compile(rf"(\d[\d,]*(\.(?P<decimals>\d+))?|(?P<when>\([^()]*\))){COMMENT}")
COLUMN = re.compile(r"((?P<which>lowest|highest) )?(?P<name>.+?)( in (?P<unit>%|µs))?( over (?P<other>\S+))?")
WHICH: dict[str | None, Callable[[list[float]], float]] = {None: mean, "lowest": min, "highest": max}
FACTORS = {None: 1, "%": 100, "µs": 1000}


def update() -> None:
    """Write the figures of all pages again."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := updated(text)) != text:
            page.write_text(new, encoding="utf-8")


def updated(text: str) -> str:
    return MARK.sub(lambda mark: recorded(mark) + mark["comment"], text)


def recorded(mark: re.Match[str]) -> str:
    *words, last = mark["words"].split(", ")
    if last == "when":
        return f"({when(rows_of(mark['file'], words))})"
    column = COLUMN.fullmatch(last)
    assert column is not None
    found = rows_of(mark["file"], words)
    if mark["file"] == TIMES and not column["which"]:
        found = newest(found, mark["words"])
    figures = [figure(mark["file"], row, column["name"]) for row in found]
    value = FACTORS[column["unit"]] * WHICH[column["which"]](figures)
    if column["other"]:
        (other,) = rows_of(mark["file"], [*words[:-1], column["other"]])
        value /= figure(mark["file"], other, column["name"])
    return f"{value:,.{len(mark['decimals'] or '')}f}"


def newest(found: Sequence[Row], words: str) -> list[Row]:
    last = latest(found)
    if len(last) > 1:
        raise ValueError(
            f"{TIMES} has {len(last)} measurements of {words}; expected one: name more of its columns"
        )
    return last


def figure(file: str, row: Row, column: str) -> float:
    values = {**row, **results.further(row)}
    if not values.get(column):
        raise ValueError(f"{file} has no {column} of {', '.join(key_of(file, row))}; expected a column")
    return float(values[column])


def rows_of(file: str, words: Sequence[str]) -> list[Row]:
    form = RECORDS[file]
    if form.key:
        return [row for key in product(*(word.split("+") for word in words)) for row in by_key(file, key)]
    wanted = {name: values.split("+") for name, _, values in (word.partition("=") for word in words)}
    found = [row for row in read(file) if all(row.get(name) in wanted[name] for name in wanted)]
    if not found:
        raise ValueError(f"{file} has no row of {', '.join(words)}; expected columns and their values")
    return found


def by_key(file: str, key: Sequence[str]) -> list[Row]:
    wanted = dict(zip(RECORDS[file].key, key, strict=True))
    found = [row for row in read(file) if all(value in ("*", row[name]) for name, value in wanted.items())]
    if not found:
        raise ValueError(f"{file} has no row of {', '.join(key)}; expected its {', '.join(wanted)}")
    return found


def key_of(file: str, row: Row) -> list[str]:
    return [row[name] for name in RECORDS[file].key]


@cache
def read(file: str) -> list[Row]:
    return RECORDS[file].read(ROOT / file)
