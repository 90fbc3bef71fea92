"""A report of runs as one HTML file: a table, plots, samples and settings, without scripts or downloads."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from linnet.analysis.colours import BLUE, FAINT, GRID, INK, css_variables
from linnet.analysis.drawing import inline
from linnet.analysis.paired import paired_section
from linnet.analysis.plots import PLOTS, figures, how_measured, is_reason
from linnet.analysis.runs import Panel, Recorded, best_value, main_figure, members, panels, unit_name
from linnet.analysis.states import HEAD, State
from linnet.analysis.table import SPEED, best_run, columns, rows, shared, shared_line
from linnet.analysis.verdict import baseline_section, verdict
from linnet.runs.config import parts
from linnet.runs.records import write_atomically
from linnet.tasks import TASKS
from linnet.tasks.results import Section
from linnet.units import UNITS

LENS = "lens.html"
"""The page of the best model, in the folder of the report."""
REFRESH = 5
"""Seconds after which a browser reads the page of an unfinished comparison again."""

PROGRESS = "<section id=progress>"
NOW = "What each run does now; linnet runs shows the same, and the last lines of those that failed."
INTRODUCTION = (
    "A recurrent unit is the part of a network that decides, at each step of a sequence, what to remember "
    "and what to forget. These models differ in their unit; they read the same data in the same order."
)

MOST_COLUMNS = 4
"""On a phone, a table with more columns becomes a list of cards."""

BARS = ("speed", "converge")
"""Plots with a bar for each model, which show nothing for a single one."""

NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?( ?[%±(].*)?|nan|inf|-?")
"""A cell that is a number, perhaps with its spread; other cells are texts, which are aligned to the left."""

STYLE = f"""
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--page); color: var({INK.variable}); overflow-wrap: break-word; }}
h1 {{ font-size: 1.6rem; line-height: 1.25; }} h2 {{ margin-top: 2.5rem; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .4rem .6rem; text-align: right; vertical-align: bottom; }}
td {{ white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; white-space: normal; min-width: 3rem;
  overflow-wrap: anywhere; }}
thead th {{ border-bottom: 2px solid var({FAINT.variable}); line-height: 1.2; }}
tbody tr:nth-child(even) {{ background: var(--stripe); }}
.detail th:first-child {{ overflow-wrap: normal; }}
.text {{ text-align: left; }} td.text {{ white-space: normal; }} .detail td {{ vertical-align: top; }}
.best {{ font-weight: 700; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; font-size: .9rem; }}
dt {{ font-weight: 600; }} dd {{ margin: 0; }}
.plots {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr));
  gap: 1.5rem; margin-top: 1.5rem; }}
a {{ color: var({BLUE.variable}); }}
figure {{ margin: 0; }} figure svg {{ display: block; width: 100%; height: auto; }}
.single {{ max-width: 44rem; }}
figcaption, .note {{ font-size: .9rem; color: var({FAINT.variable}); }}
blockquote {{ margin: .3rem 0 1.2rem; padding: .4rem 1rem; border-left: 4px solid var({GRID.variable});
  white-space: pre-wrap; }}
details {{ margin: .5rem 0; }}
pre {{ background: var(--stripe); padding: .8rem; white-space: pre-wrap; font-size: .85rem; }}
@media (max-width: 40rem) {{
  body {{ margin: 1rem auto; }} th, td {{ padding: .3rem .25rem; font-size: .8rem; }}
  blockquote {{ padding: .2rem .6rem; }} dl {{ grid-template-columns: 1fr; }} dd {{ margin-bottom: .4rem; }}
  .detail {{ display: block; overflow-x: auto; }}
  .wide thead {{ display: none; }} .wide, .wide tbody {{ display: block; }}
  .wide tr {{ display: grid; grid-template-columns: 1fr 1fr; gap: 0 1rem; padding: .4rem 0; }}
  .wide td {{ display: flex; justify-content: space-between; white-space: normal; }}
  .wide td:first-child {{ grid-column: 1 / -1; font-weight: 600; }}
  .wide td:not(:first-child)::before {{ content: attr(data-label); }}
}}
"""


def write_report(
    path: Path,
    runs: Sequence[Recorded],
    title: str,
    expected: int = 0,
    states: Sequence[State] = (),
    done: int | None = None,
) -> None:
    """Write the page.

    expected   the number of runs, some of which may not have finished or begun yet
    states     what these runs do now
    done       how many have ended, if `runs` are not all of them
    """
    lens = LENS if (path.parent / LENS).exists() else None
    write_atomically(path, page(runs, title, expected, lens, states, done).encode())


def write_progress(path: Path, done: int, expected: int, states: Sequence[State]) -> None:
    """Write again what runs do while they train, without drawing the curves again."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(PROGRESS)
    _, end, after = rest.partition("</section>")
    if begin and end:
        write_atomically(path, f"{before}{progress(done, expected, states)}{after}".encode())


def page(
    runs: Sequence[Recorded],
    title: str,
    expected: int = 0,
    lens: str | None = None,
    states: Sequence[State] = (),
    done: int | None = None,
) -> str:
    """Return the page; `lens` is the address of the page in which the best model can be watched."""
    done = sum(run.result is not None for run in runs) if done is None else done
    unfinished = done < expected
    body = [
        f"<h1>{escape(title)}</h1>",
        progress(done, expected, states) if unfinished else "",
        introduction(runs),
        lens_link(lens),
        *(section(panel, number) for number, panel in enumerate(panels(runs), 1)),
        samples(runs),
        details(runs),
        unit_list(runs),
        settings(runs),
        circumstances(runs),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head>{head(title, unfinished)}</head><body>\n'
        + "\n".join(filter(None, body))
        + "\n</body></html>\n"
    )


def head(title: str, unfinished: bool) -> str:
    refresh = f'<meta http-equiv="refresh" content="{REFRESH}">' if unfinished else ""
    return (
        f'<meta charset="utf-8"><title>{escape(title)}</title>{refresh}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{css_variables()}{STYLE}</style>"
    )


def escape(text: object) -> str:
    return html.escape(str(text))


def progress(done: int, expected: int, states: Sequence[State]) -> str:
    line = f"<p><strong>{done} of {expected} models are trained.</strong> This page updates by itself.</p>"
    table = detail(Section("", NOW, HEAD, tuple(each.cells for each in states))) if states else ""
    return f"{PROGRESS}{line}{table}</section>"


def introduction(runs: Sequence[Recorded]) -> str:
    units = {run.config.model.unit for run in runs}
    return f"<p>{escape(INTRODUCTION)}</p>" if len(units) > 1 else ""


def lens_link(lens: str | None) -> str:
    if lens is None:
        return ""
    return f'<p><a href="{escape(lens)}">Type a text and watch the best model read it</a></p>'


def circumstances(runs: Sequence[Recorded]) -> str:
    known = [run.environment for run in runs if run.environment]
    if not known:
        return ""
    one = known[0]
    versions = ", ".join(f"{name} {number}" for name, number in one["packages"].items())
    text = f"Started {one['started']} on {one['processor']} with {one['threads']} threads; {versions}."
    return f'<p class="note">{escape(text)}</p>'


# --------------------------------------------------------------------------------- one problem


def section(panel: Panel, number: int) -> str:
    """Return the part of the page about one problem: its summary, table and plots."""
    runs = list(members(panel))
    return "\n".join(
        [
            f"<p>{escape(summary(panel))}</p>",
            table(runs),
            explanations(runs),
            baselines(runs),
            repeated(panel),
            f'<div class="plots">{pictures(runs, panel, number)}</div>',
        ]
    )


def baselines(runs: Sequence[Recorded]) -> str:
    """Return the table of the baselines; with a single run, also what the result means."""
    done = [run for run in runs if run.result]
    if not done:
        return ""
    found = baseline_section(done[0].config, done[0].result)
    if found and len(runs) > 1:
        found = found._replace(rows=found.rows[:-1])
    lines = verdict(done[0].config, done[0].result) if len(runs) == 1 else ()
    table = f"<h2>{escape(found.title)}</h2>{detail(found, listed=True)}" if found else ""
    return table + "".join(f"<p>{escape(line)}</p>" for line in lines)


def repeated(panel: Panel) -> str:
    """Return the table of means over folds and seeds, if runs were repeated."""
    paired = paired_section(panel)
    return f"<h2>{escape(paired.title)}</h2>{detail(paired)}" if paired else ""


def summary(panel: Panel) -> str:
    runs = list(members(panel))
    task, best = TASKS[panel.first.config.task], best_run(runs)
    text = f"Task: {task.about} ({panel.title}). {sizes(runs)}"
    if best is None or len(runs) == 1:
        return text
    shown = main_figure(best)
    value = shown.show(best_value(best, shown) or 0.0)
    return f"{text} {best.name} has the best validation {shown.label}: {value} (its row is bold)."


def sizes(runs: Sequence[Recorded]) -> str:
    known = [run.result["parameters"] for run in runs if run.result]
    if not known:
        return ""
    least, most = (f"{size:,}" for size in (min(known), max(known)))
    count = "One model has" if len(known) == 1 else f"{len(known)} models have"
    return f"{count} {least if least == most else f'{least} to {most}'} parameters."


def table(runs: Sequence[Recorded]) -> str:
    first, *others = rows(runs)
    best = best_run(runs) if len(runs) > 1 else None
    labels = [f' data-label="{escape(label)}"' for label in first]
    body = "".join(
        f"<tr{' class=best' if run is best else ''}>{cells(row, 'td', labels)}</tr>"
        for run, row in zip(runs, others, strict=True)
    )
    wide = " class=wide" if len(first) > MOST_COLUMNS else ""
    table = f"<table{wide}><thead><tr>{cells(first, 'th')}</tr></thead><tbody>{body}</tbody></table>"
    line = shared_line(runs)
    return f'{table}\n<p class="note">{escape(line)}</p>' if line else table


def cells(row: Sequence[str], tag: str, labels: Sequence[str] = ()) -> str:
    marks = labels or [""] * len(row)
    return "".join(f"<{tag}{mark}>{escape(cell)}</{tag}>" for cell, mark in zip(row, marks, strict=True))


def explanations(runs: Sequence[Recorded]) -> str:
    """Return a list that explains the columns of the table."""
    shown = [*columns(runs), *shared(runs)]
    known = {column.figure.label: column.figure.about for column in shown}
    if SPEED.label in known:
        known[SPEED.label] += f" {how_measured(iter(runs))}"
    return definitions(known)


def definitions(known: dict[str, str]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in known.items()) + "</dl>"


def pictures(runs: Sequence[Recorded], panel: Panel, number: int) -> str:
    """Return every plot for which these runs have data, as SVG."""
    try:
        left_out = BARS if len(panel.groups) == 1 else ()
        drawn = [(n, figure) for n, figure in figures(runs) if not is_reason(figure) and n not in left_out]
        return "\n".join(picture(name, figure, panel, number) for name, figure in drawn)
    except ImportError as error:
        return f"<p>There are no plots: {escape(error)}</p>"


def picture(name: str, figure: Any, panel: Panel, number: int) -> str:
    caption = escape(explain(panel)) if (explain := PLOTS[name].caption) else ""
    drawn = inline(figure, f"{name}{number}", escape(PLOTS[name].about))
    return f"<figure>{drawn}<figcaption>{caption}</figcaption></figure>"


# ------------------------------------------------------------------------ samples, units, settings


def samples(runs: Sequence[Recorded]) -> str:
    texts = [
        f"<h3>{escape(run.name)}</h3><blockquote>{escape(run.sample.strip())}</blockquote>"
        for run in runs
        if run.sample
    ]
    about = "<p>What each model writes. All continue the same prompt, with the same random numbers.</p>"
    return "\n".join(["<h2>Samples</h2>", about, *texts]) if texts else ""


def details(runs: Sequence[Recorded]) -> str:
    """Return the tables that tasks store with the test result; unfolded if there is a single run."""
    shown = " open" if len(runs) == 1 else ""
    texts = [
        f"<details{shown}><summary>{escape(run.name)}: {escape(each.title)}</summary>{detail(each)}</details>"
        for run in runs
        for each in run.details
    ]
    return "\n".join(["<h2>The tests in detail</h2>", *texts]) if texts else ""


def detail(section: Section, listed: bool = False) -> str:
    """Return a table, which scrolls on a phone; `listed`: with many columns it becomes a list of cards."""
    wide = listed and len(section.head) > MOST_COLUMNS
    columns = zip(*section.rows, strict=True) if section.rows else [()] * len(section.head)
    marks = ["" if all(map(NUMBER.fullmatch, column)) else " class=text" for column in columns]
    labels = [f' data-label="{escape(label)}"' if wide else "" for label in section.head]
    each = [mark + label for mark, label in zip(marks, labels, strict=True)]
    body = "".join(f"<tr>{cells(row, 'td', each)}</tr>" for row in section.rows)
    head = f"<thead><tr>{cells(section.head, 'th', marks)}</tr></thead>"
    kind = '"detail wide"' if wide else "detail"
    return (
        f'<p class="note">{escape(section.about)}</p><table class={kind}>{head}<tbody>{body}</tbody></table>'
    )


def unit_list(runs: Sequence[Recorded]) -> str:
    """Return the recurrent units of these runs and their papers."""
    names = {run.config.model.unit: unit_name(run.config) for run in runs}
    known = {name: str(UNITS[name].__doc__).strip().splitlines()[0] for name in names if name in UNITS}
    return f"<h2>Units</h2>{definitions(known)}" if known else ""


def settings(runs: Sequence[Recorded]) -> str:
    """Return the settings that all runs share, and those in which each run differs."""
    flat = [dict(flat_settings(run)) for run in runs]
    if not flat:
        return ""
    shared = {name: value for name, value in flat[0].items() if all(each.get(name) == value for each in flat)}
    blocks = [("all runs", shared)] if len(runs) > 1 else [(runs[0].name, shared)]
    for run, own in zip(runs, flat, strict=True) if len(runs) > 1 else ():
        blocks.append((run.name, {name: value for name, value in own.items() if name not in shared}))
    return "\n".join(["<h2>Settings</h2>", *(block(name, values) for name, values in blocks)])


def flat_settings(run: Recorded) -> Iterator[tuple[str, Any]]:
    yield "task", run.config.task
    for part in parts(run.config.task):
        yield from dataclasses.asdict(getattr(run.config, part)).items()


def block(name: str, values: dict[str, Any]) -> str:
    lines = "\n".join(f"{key}: {json.dumps(value)}" for key, value in values.items())
    return f"<details><summary>{escape(name)}</summary><pre>{escape(lines)}</pre></details>"
