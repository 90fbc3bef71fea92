"""The tables of README.md with which to decide: light units or LSTM, and in which library, from records."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from benchmarks import race, rows
from benchmarks.fresh import when
from benchmarks.records import Row
from benchmarks.report import NOTHING, cell_steps, raced, shape_of
from benchmarks.settings import Shape
from experiments.results import read_results
from linnet.atlas.record import Atlas, read_atlas
from linnet.base.tables import markdown
from linnet.train.race import TORCH
from tools.compat import record

ROOT = Path(__file__).parents[1]
RESULTS, ATLAS = ROOT / "benchmarks" / "results.csv", ROOT / "benchmarks" / "atlas.json"
UNITS = ("sru", "lrn", "lstm")
HEAD = ("", "SRU", "LRN", "LSTM")
# Libraries in which people train recurrent layers every day; docs/compatibility.md has all.
LIBRARIES = ("sb3-contrib", "torchrl", "lightning", "transformers", "flair", "skorch")


class Records(NamedTuple):
    """All that is recorded, each as its file has it."""

    speed: Sequence[Row]
    race: Sequence[Row]
    compat: Sequence[Row]
    experiments: Sequence[Row]
    atlas: Atlas

    @classmethod
    def read(cls) -> Records:
        return cls(
            rows.read(RESULTS),
            race.read_rows(),
            record.read(record.RESULTS),
            read_results(),
            read_atlas(ATLAS),
        )


Figures = dict[str, float]


class Line(NamedTuple):
    """What is compared, and where its figures by unit are; `form` shows a figure."""

    about: str
    figures: Callable[[Records], Figures]
    form: str = ".2f"
    higher: bool = False


# ------------------------------------------------------------------------------------- figures


def layer(shape: Shape, mode: str) -> Callable[[Records], Figures]:
    """Times of a layer relative to nn.LSTM."""
    return lambda records: {**ratios(raced(records.speed), shape, mode), "lstm": 1.0}


def step(shape: Shape) -> Callable[[Records], Figures]:
    """Times of a step of a cell relative to nn.LSTMCell."""
    return lambda records: {**ratios(cell_steps(records.speed), shape, "step"), "lstm": 1.0}


def ratios(measured: Sequence[Row], shape: Shape, mode: str) -> Figures:
    found = [row for row in measured if shape_of(row) == shape and row["mode"] == mode]
    return {row["unit"]: float(row["ratio"]) for row in found}


def library(project: str) -> Callable[[Records], Figures]:
    """Times of the program of a library relative to the one with nn.LSTM."""
    return lambda records: {**times_in(records.compat, project), "lstm": 1.0}


def times_in(compat: Sequence[Row], project: str) -> Figures:
    return {row["contestant"].lower(): float(row["ratio"]) for row in of_library(compat, project)}


def raced_figure(column: str, scale: float = 1.0) -> Callable[[Records], Figures]:
    """Means over the seeds of the race; LSTM is torch's own."""
    return lambda records: {
        unit: scale * mean(float(row[column]) for row in records.race if row["unit"] == name)
        for unit, name in zip(UNITS, ("sru", "lrn", TORCH), strict=True)
    }


def trained(table: str, **names: str) -> Callable[[Records], Figures]:
    """Means over the runs of a table of the papers; a unit has a row, or one for each seed."""

    def figures(records: Records) -> Figures:
        found = [row for row in records.experiments if row["table"] == table and not row["changed"]]
        return {
            unit: mean(float(row["test"]) for row in found if re.fullmatch(rf"{name}(-seed\d+)?", row["row"]))
            for unit, name in names.items()
        }

    return figures


def in_atlas(problem: str, scale: float = 1.0) -> Callable[[Records], Figures]:
    """Means over the seeds of the atlas, at equal parameters."""

    def figures(records: Records) -> Figures:
        found = [r for r in records.atlas.rows if (r.view, r.problem) == ("parameters", problem)]
        known = {row.unit: [each for each in row.results if each is not None] for row in found}
        return {unit: scale * mean(known[unit]) for unit in UNITS if known.get(unit)}

    return figures


# ---------------------------------------------------------------------------------------- tables

LINES = (
    Line("time to train a layer, 256x32x512", layer(Shape(256, 32, 512), "training")),
    Line("time of one sequence without gradients, 128x1x512", layer(Shape(128, 1, 512), "inference")),
    Line("time of one step, 1x1x512", step(Shape(1, 1, 512))),
    Line("time of RecurrentPPO of sb3-contrib", library("sb3-contrib")),
    Line("bits per character after the same seconds of training", raced_figure("bits"), ".3f"),
    Line("kB of that model in int8", raced_figure("int8", 1e-3), ".0f"),
    Line(
        "perplexity of Penn Treebank, equal parameters, 3 epochs",
        trained("units_on_ptb", sru="sru", lrn="lrn", lstm="lstm"),
        ".0f",
    ),
    Line(
        "names in CoNLL-2003, F1",
        trained("lrn_table6", sru="sru", lrn="lrn", lstm="lstm"),
        ".1f",
        higher=True,
    ),
    Line(
        "answers in a tenth of SQuAD, F1 after 4 epochs",
        trained("sru_table2", sru="sru3", lstm="lstm3"),
        ".1f",
        higher=True,
    ),
    Line(
        "parity of sequences longer than in training, %",
        in_atlas("parity", 100),
        ".0f",
        higher=True,
    ),
)


def decision_table(records: Records) -> str:
    """Return what is measured of SRU, LRN and LSTM, with the best figure of each line in bold."""
    body = [[line.about, *cells(line, line.figures(records))] for line in LINES]
    return f"{circumstances(records)}\n\n{markdown(HEAD, body)}"


def cells(line: Line, figures: Figures) -> list[str]:
    shown = {unit: f"{figures[unit]:{line.form}}" for unit in UNITS if unit in figures}
    best = (max if line.higher else min)(shown.values(), key=float)
    return [f"**{best}**" if shown.get(unit) == best else shown.get(unit, NOTHING) for unit in UNITS]


def circumstances(records: Records) -> str:
    first = records.race[0]
    seeds = len({row["seed"] for row in records.race})
    runs = f"mean of {seeds} seeds" if seeds > 1 else "one seed"
    ours = mean(float(row["speed"]) for row in records.race if row["unit"] == "lstm")
    size = f"{first['num_layers']} layers of {first['hidden_size']} channels"
    return (
        "Times are relative to `nn.LSTM` (below 1 is faster), by time steps x batch x input and hidden size. "
        f"The seconds are {first['seconds']} of one core on the King James Bible, for {size} (`linnet race`, "
        f"{runs}; LSTM is `nn.LSTM`, and `linnet.LSTM` trains at {ours:.2f} of its speed there). The other "
        "figures are of `linnet.LSTM`, which computes the same; CoNLL-2003 and parity have three seeds, the "
        "others one. "
        f"The best figure of each line is bold. {dates(records)}"
    )


def dates(records: Records) -> str:
    """Say when the times were measured."""
    shapes = [Shape(256, 32, 512), Shape(128, 1, 512), Shape(1, 1, 512)]
    timed = [*raced(records.speed), *cell_steps(records.speed)]
    shown = [row for row in timed if row["unit"] in UNITS and shape_of(row) in shapes]
    parts = {
        "Layers and steps": when(shown),
        "sb3-contrib": when(of_library(records.compat, "sb3-contrib"), "compat"),
        "the race": when(records.race, "race"),
    }
    return f"{', '.join(f'{name} ({text})' for name, text in parts.items())}."


def of_library(compat: Sequence[Row], project: str) -> list[Row]:
    return [row for row in compat if (row["project"], row["what"]) == (project, "time") and row["ratio"]]


def libraries_table(records: Records) -> str:
    """Return the changed line and the times of some libraries."""
    lines = {project: times_in(records.compat, project) for project in LIBRARIES}
    body = [
        [project, *(f"{times[unit]:.2f}" if unit in times else NOTHING for unit in ("lstm", "sru"))]
        for project, times in lines.items()
    ]
    measured = when([row for project in LIBRARIES for row in of_library(records.compat, project)], "compat")
    table = markdown(["time relative to `nn.LSTM`", "`linnet.LSTM`", "`linnet.SRU`"], body)
    return f"{measured.capitalize()}.\n\n{table}"
