"""The table of docs/convert.md, from the record and the list of models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.rows import Row
from linnet.base.pages import filled
from linnet.base.tables import markdown
from tools.compat.page import BEGIN, END, NOTHING, conditions, failure
from tools.compat.projects import Model

PAGE = Path(__file__).parents[2] / "docs" / "convert.md"
HEAD = (
    *("project", "what is timed", "weights", "the line", "the package's own way"),
    *("largest difference", "float32", "int8"),
)


def write(page: Path, rows: Sequence[Row], models: Iterable[Model]) -> None:
    page.write_text(filled(page, body(rows, models), BEGIN, END), encoding="utf-8")


def body(rows: Sequence[Row], models: Iterable[Model]) -> str:
    lines = [line_of(model, [row for row in rows if row["project"] == model.name]) for model in models]
    return "\n\n".join([conditions(rows, "convert"), markdown(HEAD, lines)])


def line_of(model: Model, rows: Sequence[Row]) -> list[str]:
    found = {row["contestant"]: row for row in rows if row["what"] == "convert"}
    start = [f"{model.name} {model.version}", model.does, model.weights, f"`{model.line}`"]
    if not found:
        return [*start, model.way, "not run yet", NOTHING, NOTHING]
    if "package" not in found:
        return [*start, model.way, failure(found[""]), NOTHING, NOTHING]
    float32, int8 = found["float32"], found["int8"]
    verdict = f"{float(float32['difference']):.1e}" if float32["works"] == "yes" else failure(float32)
    how_long = f"{model.way}, {float(found['package']['p50_ms']):.3g} ms"
    if "rebuilt" in found:
        how_long += f"; rebuilt in torch {float(found['rebuilt']['ratio']):.2f}"
    return [*start, how_long, verdict, f"{float(float32['ratio']):.2f}", rounded(int8)]


def rounded(row: Row) -> str:
    """The time in int8, with what rounding changes."""
    changes = ", ".join(filter(None, [f"{float(row['difference']):.1e}", row["why"]]))
    return f"{float(row['ratio']):.2f} ({changes})"
