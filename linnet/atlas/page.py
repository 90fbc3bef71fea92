"""The page of an atlas: one HTML file with a plot and a table that can be sorted and filtered.

The numbers are in the page as JSON, and page.js draws them. The page reaches no address; the lenses are files
beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from linnet.analysis.colours import FAINT, GRID, INK, css_variables, shade_of
from linnet.analysis.lens.bundle import as_function, harmless
from linnet.analysis.lens.bundle import read as lens_file
from linnet.analysis.lens.page import policy
from linnet.analysis.report import STYLE, escape
from linnet.analysis.report import definitions as definition_list
from linnet.atlas.plan import PARAMETERS, VIEWS
from linnet.atlas.record import Atlas, Estimate, Known, Row
from linnet.atlas.table import ABOUT_VIEWS, circumstances, short_format, shown, unit_label
from linnet.base.files import write_atomically
from linnet.units import UNITS

PAGE = "atlas.html"
TITLE = "Atlas of light units"
INTRODUCTION = (
    "Every unit of Linnet on the same small tasks. Choose the kind of task that is like yours, and look for "
    "units that are high up and far to the left: good, and fast."
)
COLUMNS = {
    "result": "The figure of the test: the mean over seeds, and half of the 95 % interval of the mean by "
    "Student's t. A single seed has no interval.",
    "updates": "How many updates each run makes.",
    "parameters": "The trained weights of the model, with embeddings and output layer; its hidden size is "
    "the one that comes closest to the budget of the task.",
    "ms of an update": "Forward pass, backward pass and optimiser for one batch, on one thread, all units "
    "in turn; the faster fifth of the rounds.",
    "µs of a step": "One step of one stream through the two layers of the model by linnet.stream, called "
    "from Python, without embedding and output layer.",
    "kB in int8": "All tensors of the model after linnet.quantize.",
    "int8 loses": "By how much the result of the same model is worse in int8, with its interval; below 0 it "
    "is better.",
}
CAUTION = (
    "These are small models with a short training and one learning rate for all: a unit that is bad here may "
    "only need other settings or more updates, and differences inside the intervals mean nothing."
)


def write_page(path: Path, atlas: Atlas, lenses: Mapping[str, str]) -> None:
    """Write the page. `lenses` has the address of the lens of each unit that has one."""
    write_atomically(path, page(atlas, lenses).encode())


def page(atlas: Atlas, lenses: Mapping[str, str]) -> str:
    style = f"{css_variables()}:root {{ --ink: var({INK.variable}); }}\n{STYLE}{own_style()}"
    script = harmless(
        as_function("figure", lens_file("figure.js"))
        + as_function("page", read("page.js"))
        + f"$page.show({json.dumps(numbers(atlas, lenses), ensure_ascii=False)});\n"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(script, style)}">'
        f'<title>{TITLE}</title><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}</style></head><body>\n{read('page.html')}\n{notes(atlas)}\n"
        f"<script>{script}</script></body></html>\n"
    ).replace("<!--introduction-->", f"{escape(INTRODUCTION)} {escape(circumstances(atlas))}")


def read(name: str) -> str:
    return (files("linnet.atlas") / name).read_text(encoding="utf-8")


def own_style() -> str:
    names = {"FAINT": FAINT.variable, "GRID": GRID.variable}
    text = read("style.css")
    for name, variable in names.items():
        text = text.replace(f"--{name}", variable)
    return text


# ---------------------------------------------------------------------------------------- numbers


def numbers(atlas: Atlas, lenses: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page shows, as JSON values."""
    return {
        "views": ABOUT_VIEWS,
        "columns": COLUMNS,
        "problems": [about(each) for each in atlas.problems],
        "units": {unit: about_unit(atlas, unit, lenses.get(unit)) for unit in atlas.units},
        "rows": [
            number_row(atlas, each, row)
            for view in VIEWS
            for each in atlas.problems
            for row in atlas.of(each.name, view)
        ],
    }


def about(problem: Known) -> dict[str, Any]:
    level = None if problem.level is None else format(problem.level, short_format(problem))
    known = {name: getattr(problem, name) for name in KEPT}
    return {**known, "digits": short_format(problem), "levelText": level}


KEPT = ("name", "kind", "about", "figure", "higher", "baseline", "level", "budget", "reads")


def about_unit(atlas: Atlas, unit: str, lens: str | None) -> dict[str, Any]:
    paper = str(UNITS[unit].__doc__).strip().splitlines()[0]
    options = ", ".join(f"{name}={value}" for name, value in atlas.options.get(unit, {}).items())
    return {
        "label": unit_label(unit),
        "paper": paper,
        "colour": shade_of(unit).variable,
        "options": options,
        "lens": lens,
    }


def number_row(atlas: Atlas, problem: Known, row: Row) -> dict[str, Any]:
    """Return a row; at equal time the model, and so its times and sizes, are those at equal parameters."""
    model = next(each for each in atlas.of(problem.name, PARAMETERS) if each.unit == row.unit)
    loss = model.int8_loss(problem.higher)
    return {
        "view": row.view,
        "problem": problem.name,
        "unit": row.unit,
        "mean": None if row.result is None else row.result.mean,
        "half": None if row.result is None else row.result.half,
        "text": shown(atlas, row),
        "updates": row.updates,
        "hidden": row.hidden_size,
        "parameters": row.parameters,
        "update": model.update_ms,
        "step": model.step_us,
        "size": None if model.int8_bytes is None else model.int8_bytes / 1000,
        "loss": None if loss is None else loss.mean,
        "lossText": loss_text(loss, problem),
        "notes": list(dict.fromkeys([*model.notes, *row.notes])),
    }


def loss_text(loss: Estimate | None, problem: Known) -> str:
    return "" if loss is None else loss.shown(short_format(problem))


# ------------------------------------------------------------------------------------------ notes


def notes(atlas: Atlas) -> str:
    """Return what the columns are, how each task was trained, and what is not in the table."""
    views = {f"at equal {view}": text for view, text in ABOUT_VIEWS.items()}
    tasks = {each.name: f"{each.updates:,} updates: {each.reads}" for each in atlas.problems}
    parts = [
        f"<h2>What the columns are</h2>{definition_list(COLUMNS)}",
        f"<h2>How it was measured</h2><p>{escape(CAUTION)}</p>{definition_list(views)}",
        f"<details><summary>The settings of each task</summary>{definition_list(tasks)}</details>",
    ]
    if atlas.left_out:
        parts.append(f"<h2>Not in this atlas</h2>{definition_list(dict(atlas.left_out))}")
    return "\n".join(parts)
