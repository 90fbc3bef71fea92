"""The figures of an atlas as text: for the terminal, for the page and for the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sized

from linnet.analysis.table import DASH
from linnet.atlas.plan import PARAMETERS, VIEWS
from linnet.atlas.record import Atlas, Known, Row
from linnet.base.tables import text_table
from linnet.units import UNITS

ABOUT_VIEWS = {
    "parameters": "All models of a task have the same number of parameters and make the same number of "
    "updates.",
    "time": "The same models, each with as many updates as it makes in the time that LSTM takes at equal "
    "parameters.",
}
FASTEST = "fastest step in reach of the best"
FEW = 3
"""How many units the summary of a task names."""


def unit_label(unit: str) -> str:
    return UNITS[unit].__name__


def shown(atlas: Atlas, row: Row) -> str:
    """Return the result with its interval, and of how many seeds it is if other units have more."""
    if row.result is None:
        return DASH
    own, most = seeds_of(row), max(map(seeds_of, atlas.of(row.problem, row.view)))
    fewer = "" if own == most else f" ({own} of {most} seeds)"
    return row.result.shown(short_format(atlas.problem(row.problem))) + fewer


def seeds_of(row: Row) -> int:
    return sum(value is not None for value in row.results)


def short_format(problem: Known) -> str:
    """Return the format of the figure with at most three decimals: the intervals are wider than that."""
    return min(problem.format, ".3f") if problem.format.endswith("f") else problem.format


def ranked(atlas: Atlas, problem: Known, view: str) -> list[Row]:
    """Return the rows with a result, the best first."""
    rows = [row for row in atlas.of(problem.name, view) if row.result is not None]
    return sorted(rows, key=lambda row: row.result.mean, reverse=problem.higher)  # type: ignore[union-attr]


def leaders(atlas: Atlas, problem: Known, view: str) -> list[Row]:
    """Return the best row, and those whose interval meets that of the best; [] without intervals."""
    rows = ranked(atlas, problem, view)
    return [row for row in rows if meets(row, rows[0])]


def meets(row: Row, best: Row) -> bool:
    own, other = row.result, best.result
    if own is None or other is None or own.half is None or other.half is None:
        return False
    return abs(own.mean - other.mean) <= own.half + other.half


def with_results(atlas: Atlas, view: str) -> list[Known]:
    """Return the problems of which most units have a result in this view."""
    return [each for each in atlas.problems if 2 * len(ranked(atlas, each, view)) > len(atlas.units)]


def summary(atlas: Atlas, view: str) -> tuple[list[str], list[list[str]]]:
    """Return a table of the best units of each problem, and the fastest of those in reach."""
    head = ["task", "figure", "baseline", "best", FASTEST]
    body = [summary_row(atlas, problem, view) for problem in with_results(atlas, view)]
    # Without intervals, nothing is in reach.
    count = len(head) - (all(line[-1] == DASH for line in body))
    return head[:count], [line[:count] for line in body]


def summary_row(atlas: Atlas, problem: Known, view: str) -> list[str]:
    rows = ranked(atlas, problem, view)
    best = ", ".join(f"{unit_label(row.unit)} {shown(atlas, row)}" for row in rows[:FEW])
    same = sum(row.result == rows[FEW - 1].result for row in rows[FEW:])
    best += f" and {same} more" if same else ""
    level = DASH if problem.level is None else format(problem.level, short_format(problem))
    baseline = f"{level} ({problem.baseline})"
    return [problem.name, problem.figure, baseline, best, fastest(atlas, problem, view)]


def fastest(atlas: Atlas, problem: Known, view: str) -> str:
    """Return the unit with the fastest streamed step among the leaders, and how many these are."""
    rows = leaders(atlas, problem, view)
    steps = {row.unit: row.step_us for row in atlas.of(problem.name, PARAMETERS)}
    known = [(steps[row.unit], row) for row in rows if steps[row.unit] is not None]
    if not known:
        return DASH
    step, row = min(known, key=lambda each: each[0] or 0.0)
    return f"{unit_label(row.unit)} ({step:.1f} µs; {len(rows)} in reach)"


def text_summary(atlas: Atlas) -> str:
    tables = []
    for view in VIEWS:
        head, body = summary(atlas, view)
        if body:
            tables.append(f"At equal {view}:\n\n{text_table([head, *body], left=range(len(head)))}")
    return "\n\n".join(tables)


def circumstances(atlas: Atlas) -> str:
    """Say what the figures are of, in a few sentences."""
    every = atlas.circumstances
    dates, commits = listed(each.date for each in every), listed(each.commit or "unknown" for each in every)
    processors = listed(each.processor for each in every)
    torch = listed(each.packages.get("torch", "?") for each in every)
    parts = [
        f"The {atlas.form} form: {counted(atlas.units, 'unit')}, {counted(atlas.problems, 'task')}, "
        f"{counted(atlas.seeds, 'seed')}; made on {dates}, commit {commits}, one thread of {processors}, "
        f"float32, torch {torch}.",
        times_of(atlas) if len(dict.fromkeys((each.processor, torch) for each in every)) > 1 else "",
        "With a single seed there are no intervals." if len(atlas.seeds) == 1 else "",
        unfinished(atlas),
    ]
    return " ".join(filter(None, parts))


def counted(items: Sized, noun: str) -> str:
    return f"{len(items)} {noun}" + ("" if len(items) == 1 else "s")


def listed(items: Iterable[str]) -> str:
    """Return "a, b and c", each item once."""
    *first, last = dict.fromkeys(items)
    return f"{', '.join(first)} and {last}" if first else last


def times_of(atlas: Atlas) -> str:
    numbers = {row.measured for row in atlas.rows if row.measured is not None}
    return f"The times are of {listed(atlas.circumstances[each].processor for each in numbers)}."


def unfinished(atlas: Atlas) -> str:
    """Say which runs have no result: those of most units of a task were not made yet, others have failed."""
    waiting: dict[tuple[str, int], list[str]] = {}
    failed = []
    for view in VIEWS:
        for problem in atlas.problems:
            rows = atlas.of(problem.name, view)
            for position, seed in enumerate(atlas.seeds):
                without = [row for row in rows if row.results[position] is None]
                if 2 * len(without) > len(rows):
                    waiting.setdefault((view, seed), []).append(problem.name)
                else:
                    of = f"on {problem.name} at equal {view}, seed {seed}"
                    failed += [f"{unit_label(row.unit)} {of}" for row in without]
    parts = [
        f"At equal {view}, the runs with seed {seed} of {listed(names)} were not made yet."
        for (view, seed), names in waiting.items()
    ]
    return " ".join([*parts, *([f"Without a result: {listed(failed)}."] if failed else [])])


def matrix(atlas: Atlas, view: str) -> tuple[list[str], list[list[str]]]:
    """Return the head and a row for each unit, with its result in each problem; the best of each is bold."""
    problems = with_results(atlas, view)
    best = {each.name: ranked(atlas, each, view)[0] for each in problems}
    body = [
        [unit_label(unit), *(cell(atlas, each, view, unit, best[each.name]) for each in problems)]
        for unit in atlas.units
    ]
    return ["unit", *(each.name for each in problems)], body


def cell(atlas: Atlas, problem: Known, view: str, unit: str, best: Row) -> str:
    row = next(row for row in atlas.of(problem.name, view) if row.unit == unit)
    text = shown(atlas, row)
    return f"**{text}**" if row.result == best.result else text
