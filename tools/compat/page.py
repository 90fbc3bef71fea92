"""The table of docs/compatibility.md, from the record and the list of projects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.fresh import since
from benchmarks.rows import Row
from linnet.base.pages import filled
from linnet.base.tables import markdown
from tools.compat.projects import Project

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
BEGIN, END = "<!-- table: begin, written by tools/compat -->", "<!-- table: end -->"
HEAD = ("project", "version", "the line", "works with", "time")
NOTHING = "-"


def write(page: Path, rows: Sequence[Row], projects: Iterable[Project]) -> None:
    page.write_text(filled(page, body(rows, projects), BEGIN, END), encoding="utf-8")


def body(rows: Sequence[Row], projects: Iterable[Project]) -> str:
    lines = [
        line_of(project, [row for row in rows if row["project"] == project.name]) for project in projects
    ]
    return "\n\n".join([conditions(rows), markdown(HEAD, lines)])


def line_of(project: Project, rows: Sequence[Row]) -> list[str]:
    start = [project.name, project.version, f"`{project.line}`" if project.line else NOTHING]
    if project.unavailable:
        return [*start, f"not run: {project.unavailable}", NOTHING]
    checks, times = ([row for row in rows if row["what"] == what] for what in ("check", "time"))
    return [*start, verdicts(checks), ratios(times)]


def verdicts(checks: Sequence[Row]) -> str:
    """Name the contestants that work, and those that fail with the reason; not the original."""
    if not checks:
        return "not run yet"
    works = [row["contestant"] for row in checks[1:] if row["works"] == "yes"]
    fails = [failure(row) for row in checks if row["works"] == "no"]
    return "; ".join(filter(None, [", ".join(works), *fails]))


def ratios(times: Sequence[Row]) -> str:
    """Give the time of each contestant relative to the first one, the original."""
    if not times:
        return NOTHING
    if times[0]["works"] == "no":
        return failure(times[0])
    listed = ", ".join(f"{row['contestant']} {float(row['ratio']):.2f}" for row in times[1:])
    return f"{listed} of {times[0]['contestant']}'s {float(times[0]['p50_ms']):.0f} ms"


def failure(row: Row) -> str:
    return f"**{(row['contestant'] + ' fails').strip()}**: {escaped(row['why'])}"


def escaped(text: str) -> str:
    """Return a text for a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").strip()


def conditions(rows: Sequence[Row], what: str = "time") -> str:
    times = [row for row in rows if row["what"] == what and row["ratio"]]
    if not times:
        return "No times have been measured yet."
    last = max(times, key=lambda row: row["date"])
    commits = ", ".join(dict.fromkeys(row["commit"] or "unknown" for row in times))
    return (
        f"Times are medians of rounds in which the contestants took turns, measured on {last['date'][:10]} "
        f"with {last['threads']} thread{'' if last['threads'] == '1' else 's'} of {last['cpu']}, "
        f"torch {last['torch']}, commit {commits}{since(times, 'compat')}."
    )
