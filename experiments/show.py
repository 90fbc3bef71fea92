"""Tables in plain text: the paper's results and ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean, stdev

from experiments.results import COLUMNS, Result, ours, state
from experiments.tables import FIGURES, METRICS, Row, Table, names, read_table
from linnet.base.tables import text_table

# The columns of results.csv that are shown for a table with this metric.
MEASURED = {**dict.fromkeys(METRICS, ("valid", "test")), "loss": ("valid", "test", "baseline", "solved")}


def show(table: Table, results: Sequence[Result]) -> str:
    """Return the paper's results and ours, in plain text."""
    used = [name for name in FIGURES if any(name in row.paper for row in table.row)]
    says = ["the paper says"] if any(row.says for row in table.row) else []
    theirs = [*(f"paper's {name}" for name in used), *says]
    head = ["row", "", *theirs, "our size", *MEASURED[table.metric], "state"]
    body = [cells for row in table.row for cells in lines_of(table, row, results, used, bool(says))]
    source = [table.paper] if table.paper else []
    shown = text_table([head, *body], left=range(len(head)))
    compared = [list(PAIR_HEAD), *paired_lines(table, results)]
    more = ["", text_table(compared, left=range(3))] if len(compared) > 1 else []
    return "\n".join([f"{table.name}: {table.title}", *source, table.about.strip(), "", shown, *more])


PAIR_HEAD = ("table", "set", "models", "paper's difference", "ours", "standard error")


def paired_lines(table: Table, results: Sequence[Result]) -> Iterator[list[str]]:
    """Yield the mean differences of pairs of models on the same folds, the paper's and ours."""
    rows = {row.name: row for row in table.row}
    for one, other in table.pairs:
        for name in (name for name in rows if name.endswith(f"-{one}")):
            group = name.removesuffix(f"-{one}")
            both = [rows[each] for each in (name, f"{group}-{other}") if each in rows]
            difference = (
                paired_difference(*(ours(results, table, row) for row in both)) if len(both) == 2 else None
            )
            if difference:
                theirs = [row.paper.get("test") for row in both]
                published = "-" if None in theirs else f"{theirs[0] - theirs[1]:+.1f}"  # type: ignore[operator]
                yield [
                    table.name,
                    group,
                    f"{one} - {other}",
                    published,
                    f"{difference[0]:+.2f}",
                    f"{difference[1]:.2f}",
                ]


def paired_difference(one: Sequence[Result], other: Sequence[Result]) -> tuple[float, float] | None:
    """Return the mean difference of runs with the same changes, and its standard error."""
    known = {result["changed"]: result["repeats"].split() for result in other}
    for result in one:
        values, others = result["repeats"].split(), known.get(result["changed"], [])
        if len(values) == len(others) > 1:
            differences = [float(a) - float(b) for a, b in zip(values, others, strict=True)]
            return mean(differences), stdev(differences) / len(differences) ** 0.5
    return None


def lines_of(
    table: Table, row: Row, results: Sequence[Result], used: list[str], says: bool
) -> Iterator[list[str]]:
    theirs = [*(short(row.paper.get(name)) for name in used), *([row.says or "-"] if says else [])]
    for result in ours(results, table, row) or [dict.fromkeys(COLUMNS, "")]:
        measured = [shown_cell(result[name]) for name in ("parameters", *MEASURED[table.metric])]
        described = state(table, row, [result] if result["row"] else [])
        yield [row.name, row.label, *theirs, *measured, described]


def shown_cell(cell: str) -> str:
    """Return a number in short form; a word, such as "never", stays as it is."""
    return cell if cell.isalpha() else short(number(cell))


def number(cell: str) -> float | None:
    return float(cell) if cell else None


def short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1e6:.2f}M" if value >= 1e5 else f"{value:g}"


def list_tables(results: Sequence[Result]) -> str:
    tables = map(read_table, names())
    lines = [[table.name, progress(table, results), table.title] for table in tables]
    return text_table(lines, left=range(3))


def progress(table: Table, results: Sequence[Result]) -> str:
    """Return how many rows were measured, of those that are neither quoted nor only settings."""
    rows = [row for row in table.row if not row.quoted and not row.expected]
    return f"{sum(bool(ours(results, table, row)) for row in rows)} of {len(rows)}" if rows else "-"
