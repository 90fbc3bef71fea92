"""The advice of docs/which_unit.md next to what the recorded atlas shows, by task."""

from __future__ import annotations

from collections.abc import Sequence

from linnet.atlas.plan import PARAMETERS
from linnet.atlas.record import Atlas, Known, Row
from linnet.atlas.table import ranked, short_format, unit_label
from linnet.base.tables import markdown

ADVICE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "to remember something after a fixed lag": (("copying", "small digits"), ("eurnn", "lru")),
    "to choose what to remember": (("selective copying", "adding"), ("sru", "janet", "gru")),
    "to track a state, such as parity, a position or brackets": (
        ("parity", "cycle"),
        ("lstm", "gru", "ran", "slstm"),
    ),
    "forecasts of numbers": (("forecasting",), ("sru", "janet")),
    "a class for a series of numbers": (("labelled series",), ("sru", "indrnn")),
    "to predict characters after a short training": (("characters",), ("sru", "ligru")),
}
"""What somebody wants, the tasks of the atlas that are like it, and the units that we advise."""
USUAL = "lstm"
ABOUT_ADVICE = (
    "The units that the first table of this page names, at equal parameters. In parentheses are the rank "
    "among all units and the time of a streamed step."
)


def advice_table(atlas: Atlas) -> str:
    """Return the results of the units for each line of the advice and each of its tasks."""
    head = ["you want", "task", "advised", "best", unit_label(USUAL)]
    body = [
        [wanted, name, *results(atlas, atlas.problem(name), units)]
        for wanted, (names, units) in ADVICE.items()
        for name in names
        if with_units(atlas, name, (*units, USUAL))
    ]
    return markdown(head, body)


def with_units(atlas: Atlas, name: str, units: tuple[str, ...]) -> bool:
    return set(units) <= {row.unit for row in atlas.of(name, PARAMETERS) if row.result is not None}


def results(atlas: Atlas, problem: Known, units: tuple[str, ...]) -> list[str]:
    """Return the results of the advised units, of the best one and of the usual one."""
    rows = ranked(atlas, problem, PARAMETERS)
    found = {row.unit: placed(row, rows, problem) for row in rows}
    best = rows[0].unit
    advised = ", ".join(f"{unit_label(unit)} {found[unit]}" for unit in units)
    return [advised, f"{unit_label(best)} {found[best]}", found[USUAL]]


def placed(row: Row, rows: Sequence[Row], problem: Known) -> str:
    """Return the mean of a unit with its rank and the time of its step."""
    mean = f"{mean_of(row):{short_format(problem)}}"
    step = "" if row.step_us is None else f", {row.step_us:.0f} µs"
    return f"{mean} ({rank(row, rows)}{step})"


def rank(row: Row, rows: Sequence[Row]) -> int:
    """Return the rank of a row among rows in their order; those with the same result share one."""
    return 1 + [mean_of(each) for each in rows].index(mean_of(row))


def mean_of(row: Row) -> float:
    assert row.result is not None
    return row.result.mean
