"""The tables of README.md: all tables with their progress, and all results with their conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments import layer_times
from experiments.claims import claims_part
from experiments.ett_table import ett_part
from experiments.ranks import ranks_part
from experiments.results import Result, ours, read_results
from experiments.show import PAIR_HEAD, number, paired_lines, progress, short
from experiments.tables import HERE, Row, Table, names, read_table
from experiments.times import read_times, times_part
from linnet.base.pages import filled_text
from linnet.base.tables import markdown

README = HERE / "README.md"


def readme_part(results: Sequence[Result]) -> str:
    """Return a list of all tables with their progress, then all results with their conditions."""
    tables = [read_table(name) for name in names()]
    head = ["table", "what", "measured", "not run"]
    body = [
        [f"[{t.name}]({t.name}.toml)", t.title, progress(t, results), " / ".join(left(t, results)) or "-"]
        for t in tables
    ]
    compared = [line for table in tables for line in paired_lines(table, results)]
    pairs = f"\n\n{markdown(PAIR_HEAD, compared)}" if compared else ""
    times = f"\n\n{times_part(known)}" if (known := read_times()) else ""
    return f"{markdown(head, body)}\n\n{measured_part(tables, results)}{pairs}{times}"


def left(table: Table, results: Sequence[Result]) -> list[str]:
    """Return the reasons why rows are not measured, each once."""
    rows = [row for row in table.row if not row.quoted and not ours(results, table, row)]
    return list(dict.fromkeys(table.reasons[row.not_run] if row.not_run else "not yet" for row in rows))


def measured_part(tables: Sequence[Table], results: Sequence[Result]) -> str:
    head = [
        "row",
        "",
        "paper: valid, test",
        "ours: valid, test",
        "size",
        "epochs, updates",
        "changed",
        "circumstances",
    ]
    body = [
        [f"{table.name} {row.name}", row.label, paper_of(row), pair(result), *circumstances(result)]
        for table in tables
        for row in table.row
        for result in ours(results, table, row)
    ]
    return markdown(head, body) if body else "Nothing is measured yet."


def paper_of(row: Row) -> str:
    return pair(row.paper) if row.paper or not row.says else row.says


def pair(figures: dict[str, Any]) -> str:
    numbers = ", ".join(short(number(str(figures.get(name, "")))) for name in ("valid", "test"))
    solved = figures.get("solved", "")
    return (
        f"{numbers}; {f'solved after {solved}' if str(solved).isdigit() else 'not solved'}"
        if solved
        else numbers
    )


def circumstances(result: Result) -> list[str]:
    where = f"{result['threads']} thread{'s' * (result['threads'] != '1')} of {result['cpu']}"
    when = f"{result['date']}, commit {result['commit'] or 'unknown'}, {where}"
    speed = f", {int(result['tokens_per_second']):,} tokens/s" if result["tokens_per_second"] else ""
    note = "".join(f"; {result[name]}" for name in ("also", "note") if result[name])
    size = short(number(result["parameters"]))
    length = f"{result['epochs']}, {int(result['steps']):,}" if result["steps"] else "-"
    return [size, length, result["changed"] or "-", f"{when}{speed}{note}"]


def parts(results: Sequence[Result]) -> dict[str, str]:
    """Return what stands between the markers of the README, by their name."""
    return {
        "claims": claims_part(results),
        "NRU's Table 1": ranks_part(results),
        "layer times": layer_times.table(layer_times.read_times()),
        "ETT": ett_part(results),
        "tables": readme_part(results),
    }


def page() -> str:
    """Return the README with its tables up to date."""
    text = README.read_text(encoding="utf-8")
    for name, part in parts(read_results()).items():
        markers = f"<!-- {name}: begin, written by run.py --readme -->", f"<!-- {name}: end -->"
        text = filled_text(README.name, text, part, *markers)
    return text
