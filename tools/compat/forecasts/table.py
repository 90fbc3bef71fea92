"""The record as a table in Markdown: the mean over seeds of each contestant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from benchmarks.rows import Row
from linnet.base.tables import markdown

HEAD = ("contestant", "seeds", "sMAPE", "MASE", "OWA", "CPU seconds", "steps", "parameters")


def table(rows: Sequence[Row], name: str) -> str:
    """Return the lines of a set, the lowest MASE first."""
    contestants = dict.fromkeys(row["contestant"] for row in rows if row["set"] == name)
    groups = [
        [row for row in rows if (row["set"], row["contestant"]) == (name, each)] for each in contestants
    ]
    lines = [line(group) for group in sorted(groups, key=lambda group: mean(group, "mase"))]
    return markdown(HEAD, lines)


def summary(rows: Sequence[Row], contestants: Mapping[str, str], sets: Sequence[str]) -> str:
    """Return a line for each contestant with its MASE, sMAPE, seeds and CPU seconds on each set."""
    found = {
        (contestant, name): [row for row in rows if (row["contestant"], row["set"]) == (contestant, name)]
        for contestant in contestants
        for name in sets
    }
    body = [
        [label, *(cell(found[contestant, name]) for name in sets)]
        for contestant, label in contestants.items()
    ]
    return markdown(["", *sets], body)


def cell(rows: Sequence[Row]) -> str:
    """Return "0.92 ± 0.01, 10.1 (84 s, 3)": MASE with its deviation over seeds, sMAPE, seconds and seeds."""
    if not rows:
        return ""
    values = [float(row["mase"]) for row in rows]
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    seeds = f", {len(rows)} seeds" if len(rows) > 1 else ""
    took = f" ({mean(rows, 'train_seconds'):.0f} s{seeds})" if mean(rows, "train_seconds") else ""
    return f"{fmean(values):.2f}{spread}, {mean(rows, 'smape'):.3g}{took}"


def mean(rows: Sequence[Row], column: str) -> float:
    return fmean(float(row[column]) for row in rows)


def line(rows: Sequence[Row]) -> list[str]:
    figures = [format(mean(rows, column), ".3f") for column in ("smape", "mase", "owa")]
    counts = [format(mean(rows, column), ",.0f") for column in ("train_seconds", "steps", "parameters")]
    return [rows[0]["contestant"], str(len(rows)), *figures, *counts]
