"""The record as a table in Markdown: the mean over seeds of each contestant."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

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


def mean(rows: Sequence[Row], column: str) -> float:
    return fmean(float(row[column]) for row in rows)


def line(rows: Sequence[Row]) -> list[str]:
    figures = [format(mean(rows, column), ".3f") for column in ("smape", "mase", "owa")]
    counts = [format(mean(rows, column), ",.0f") for column in ("train_seconds", "steps", "parameters")]
    return [rows[0]["contestant"], str(len(rows)), *figures, *counts]
