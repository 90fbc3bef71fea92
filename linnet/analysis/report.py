"""One page about one or several runs: figures, pictures, samples, settings; no server, no network."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linnet.analysis.drawing import inline
from linnet.analysis.plots import PLOTS, figures, is_reason
from linnet.analysis.runs import Recorded
from linnet.runs.config import parts
from linnet.runs.records import write_atomically

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .3rem .8rem; text-align: right; }
th:first-child, td:first-child { text-align: left; } thead { border-bottom: 2px solid #444; }
tbody tr:nth-child(even) { background: #f4f4f2; } svg { max-width: 100%; height: auto; }
blockquote { margin: .5rem 0 1.5rem;
  padding: .5rem 1rem; border-left: 4px solid #bbb; white-space: pre-wrap; }
details { margin: .5rem 0; } pre { background: #f4f4f2; padding: .8rem; overflow: auto; }
.best { font-weight: 600; } figure { margin: 1.5rem 0; } figcaption { font-size: .9rem; opacity: .8; }
@media (prefers-color-scheme: dark) { body { background: #1b1b1b; color: #ddd; }
  tbody tr:nth-child(even), pre { background: #262626; } svg { background: #fff; } }
"""
DASH = "\N{EN DASH}"
HEAD = ("run", "parameters", "tokens/s", "steps", "valid", "test")


def write_report(path: Path, runs: Sequence[Recorded], title: str) -> None:
    write_atomically(path, page(runs, title).encode())


def page(runs: Sequence[Recorded], title: str) -> str:
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(circumstances(runs))}</p>",
        table(runs),
        "<h2>Pictures</h2>",
        pictures(runs),
        samples(runs),
        "<h2>Settings</h2>",
        *(settings(run) for run in runs),
    ]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}{view}</head><body>\n'
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def escape(text: object) -> str:
    return html.escape(str(text))


def circumstances(runs: Sequence[Recorded]) -> str:
    known = [run.environment for run in runs if run.environment]
    if not known:
        return ""
    one = known[0]
    versions = ", ".join(f"{name} {number}" for name, number in one["packages"].items())
    return f"{one['started']}; {one['processor']}, {one['threads']} threads; {versions}"


# ------------------------------------------------------------------------------------------ table


def measure_of(run: Recorded) -> str:
    """Perplexity of words, bits of characters and bytes, the loss of whatever else."""
    known = (run.result or {}).get("valid") or (run.valid[-1] if run.valid else {})
    level = getattr(run.config.data, "level", None)
    small = level in ("char", "byte") or getattr(run.config.data, "corpus", "") in (
        "ptb-char",
        "text8",
        "enwik8",
    )
    wanted = ("bpc", "perplexity", "loss") if small else ("perplexity", "bpc", "loss")
    return next((name for name in wanted if name in known), "loss")


def shown(name: str, value: float) -> str:
    """A loss may be anywhere near 0, where a perplexity or bits are not."""
    return f"{value:.4g}" if name == "loss" else f"{value:.2f}"


def figures_of(run: Recorded) -> tuple[str, ...]:
    """A row of the table; what is not known yet is a dash."""
    name, result = measure_of(run), run.result
    if result:
        numbers = [shown(name, result[split][name]) for split in ("valid", "test")]
        counts = (f"{result['parameters']:,}", f"{result['tokens_per_second']:,.0f}", f"{result['step']:,}")
        return (run.name, *counts, *numbers)
    valid = shown(name, min(row[name] for row in run.valid)) if run.valid else DASH
    return (run.name, DASH, DASH, DASH, valid, DASH)


def heading(runs: Sequence[Recorded]) -> tuple[str, ...]:
    kinds = {measure_of(run) for run in runs}
    unit = kinds.pop() if len(kinds) == 1 else "figure"
    return (*HEAD[:4], f"valid {unit}", f"test {unit}")


def table(runs: Sequence[Recorded]) -> str:
    rows = [figures_of(run) for run in runs]
    best = min((float(row[4]) for row in rows if row[4] != DASH), default=None)
    body = "".join(f"<tr{mark(row, best)}>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{cells(heading(runs), 'th')}</tr></thead><tbody>{body}</tbody></table>"


def mark(row: Sequence[str], best: float | None) -> str:
    return ' class="best"' if row[4] != DASH and float(row[4]) == best else ""


def cells(row: Sequence[str], tag: str) -> str:
    return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)


# --------------------------------------------------------------------------------------- pictures


def pictures(runs: Sequence[Recorded]) -> str:
    """Every figure of `linnet plot` that these runs have something to show in, as an SVG inside the page."""
    try:
        return "\n".join(picture(name, made) for name, made in figures(runs) if not is_reason(made))
    except ImportError as error:
        return f"<p>There are no pictures: {escape(error)}</p>"


def picture(name: str, made: Any) -> str:
    return f"<figure>{inline(made, name)}<figcaption>{escape(PLOTS[name].about)}</figcaption></figure>"


# ------------------------------------------------------------------------------- samples, settings


def samples(runs: Sequence[Recorded]) -> str:
    texts = [
        f"<h3>{escape(r.name)}</h3><blockquote>{escape(r.sample)}</blockquote>" for r in runs if r.sample
    ]
    return "\n".join(["<h2>Samples</h2>", *texts]) if texts else ""


def settings(run: Recorded) -> str:
    known = {name: dataclasses.asdict(getattr(run.config, name)) for name in parts(run.config.task)}
    return (
        f"<details><summary>{escape(run.name)}</summary>"
        f"<pre>{escape(json.dumps(known, indent=2))}</pre></details>"
    )
