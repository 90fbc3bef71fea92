"""The papers' figures of curves, drawn from the files that run.py writes to curves/ at the end of a row.

    python -m experiments.curve_figures --list
    python -m experiments.curve_figures sru_figure3                        validation accuracy by seconds
    python -m experiments.curve_figures sru_figure3 --by epoch --rows cr-sru2 cr-lstm trec-sru2 trec-lstm

Lines are means over the folds or seeds of a row, and over rows with the same label; bands are the standard
deviations. Rows without a recorded curve are left out and named. The picture is pictures/<figure>.png.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import exp
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from experiments.curves import CURVES, curve_path, read_curves
from experiments.results import Result
from experiments.tables import HERE
from linnet.analysis.colours import Look, look
from linnet.analysis.drawing import finish, house_style, new_figure, note, save, shared_legend
from linnet.base.suggest import no_such
from linnet.cli.parser import Parser, path_name

PICTURES = HERE / "pictures"
COLUMNS = 3  # panels next to each other, at most
# The x axis: a column of the curves, its label, and the column whose values are the points of a line.
BY = {
    "epoch": ("epoch", "epoch"),
    "step": ("updates", "step"),
    "seconds": ("seconds of training", "epoch"),
}
# What is drawn, and how it follows from a line of a file.
VALUES: dict[str, Callable[[Result], float]] = {
    "accuracy in %": lambda line: 100 * float(line["accuracy"]),
    "BLEU": lambda line: float(line["bleu"]),
    "perplexity": lambda line: exp(float(line["loss"])),
}


class Line(NamedTuple):
    label: str
    look: Look
    rows: tuple[str, ...]


class Panel(NamedTuple):
    title: str
    split: str
    value: str  # of VALUES
    lines: tuple[Line, ...]


class Drawn(NamedTuple):
    about: str
    table: str
    panels: tuple[Panel, ...]
    by: str = "epoch"


def of_set(name: str) -> Panel:
    models = {"cnn": ("CNN", "gru"), "lstm": ("LSTM, 2 layers", "lstm"), "sru2": ("SRU, 2 layers", "sru")}
    lines = (Line(label, look(unit), (f"{name}-{model}",)) for model, (label, unit) in models.items())
    return Panel(name.upper(), "valid", "accuracy in %", tuple(lines))


TRANSLATORS = (
    Line("Transformer, 3 layers", look("lstm"), ("base-seed1", "base-seed2")),
    Line("Transformer with SRU, 2 layers", look("sru"), ("sru-seed1", "sru-seed2")),
)
FIGURES = {
    "sru_figure3": Drawn(
        "validation accuracy of CNN, LSTM and SRU on six sets of sentences",
        "sru_table1",
        tuple(map(of_set, ("cr", "subj", "mr", "trec", "mpqa", "sst"))),
        by="seconds",
    ),
    "sru_figure4": Drawn(
        "validation accuracy of Transformers with and without SRU",
        "sru_figure7",
        (Panel("validation accuracy", "valid", "accuracy in %", TRANSLATORS),),
        by="step",
    ),
    "sru_figure7": Drawn(
        "training and validation perplexity of Transformers with and without SRU",
        "sru_figure7",
        (
            Panel("training", "train", "perplexity", TRANSLATORS),
            Panel("validation", "valid", "perplexity", TRANSLATORS),
        ),
        by="step",
    ),
    "sru_table7": Drawn(
        "validation BLEU of Transformers with and without SRU by epoch",
        "sru_table3",
        (Panel("validation BLEU", "valid", "BLEU", TRANSLATORS),),
    ),
}


# ------------------------------------------------------------------------------------------- lines


class Point(NamedTuple):
    """One point of a line: where on the x axis, and the mean and the deviation over its runs."""

    x: float
    mean: float
    deviation: float


def points(runs: Sequence[Sequence[Result]], value: Callable[[Result], float], by: str) -> Iterator[Point]:
    """Yield a point for each epoch, or each update, that all runs have."""
    epochs = [grouped(lines, BY[by][1]) for lines in runs]
    for number in sorted(set.intersection(*(set(each) for each in epochs))):
        values = [mean(value(line) for line in each[number]) for each in epochs]
        ends = [float(each[number][-1][by]) for each in epochs]
        yield Point(mean(ends), mean(values), stdev(values) if len(values) > 1 else 0.0)


def grouped(lines: Sequence[Result], by: str) -> dict[int, list[Result]]:
    found = defaultdict(list)
    for line in lines:
        found[int(line[by])].append(line)
    return found


def runs_of(table: str, rows: Sequence[str], split: str, changed: str, curves: Path) -> list[list[Result]]:
    """Return the lines of each run of these rows that has been recorded."""
    found = defaultdict(list)
    for row in rows:
        path = curve_path(table, row, changed, curves)
        for line in read_curves(path) if path.exists() else ():
            if line["split"] == split:
                found[row, line["run"]].append(line)
    return list(found.values())


# ----------------------------------------------------------------------------------------- drawing


def draw(figure: Drawn, by: str, rows: Sequence[str], changed: str, curves: Path, path: Path) -> None:
    """Draw the panels that have a recorded line; `rows` selects rows (none: all)."""
    recorded = [(panel, lines_of(figure.table, panel, rows, changed, curves)) for panel in figure.panels]
    recorded = [(panel, lines) for panel, lines in recorded if lines]
    if not recorded:
        raise ValueError(
            f"no curves of {figure.table} in {curves}: run.py writes them when a row has finished"
        )
    with house_style():
        columns = min(COLUMNS, len(recorded))
        drawing, all_axes = new_figure(columns, 3.2, 4.4, rows=-(-len(recorded) // columns))
        for axes in all_axes[len(recorded) :]:
            axes.set_axis_off()
        for axes, (panel, lines) in zip(all_axes, recorded, strict=False):
            for line, runs in lines:
                draw_line(axes, line, list(points(runs, VALUES[panel.value], by)))
            finish(axes, panel.title, BY[by][0], panel.value)
            axes.set_yscale("log" if panel.value == "perplexity" else "linear")
        shared_legend(drawing)
        note(drawing, "lines: mean over folds or seeds; bands: standard deviation")
    save(drawing, path)


def lines_of(
    table: str, panel: Panel, rows: Sequence[str], changed: str, curves: Path
) -> list[tuple[Line, list[list[Result]]]]:
    chosen = [(line, [row for row in line.rows if not rows or row in rows]) for line in panel.lines]
    found = [(line, runs_of(table, names, panel.split, changed, curves)) for line, names in chosen]
    return [(line, runs) for line, runs in found if runs]


def draw_line(axes: Any, line: Line, of: Sequence[Point]) -> None:
    x = [point.x for point in of]
    axes.plot(
        x, [point.mean for point in of], label=line.label, marker="o", markersize=2.5, **line.look._asdict()
    )
    lower, upper = ([point.mean + sign * point.deviation for point in of] for sign in (-1, 1))
    axes.fill_between(x, lower, upper, color=line.look.color, alpha=0.2, linewidth=0)


def missing(figure: Drawn, changed: str, curves: Path) -> list[str]:
    rows = dict.fromkeys(row for panel in figure.panels for line in panel.lines for row in line.rows)
    return [row for row in rows if not curve_path(figure.table, row, changed, curves).exists()]


# ------------------------------------------------------------------------------------ command line


def parser() -> Parser:
    result = Parser(prog="python -m experiments.curve_figures", description="The papers' figures of curves.")
    add = result.add_argument
    add("figure", nargs="?", help="the figure, such as sru_figure3")
    add("--list", action="store_true", help="list all figures")
    add("--by", choices=list(BY), help="the x axis (that of the paper)")
    add("--rows", nargs="+", default=[], help="only these rows of the table")
    add("--changed", default="", help='runs with these changes, as results.csv names them: "epochs=8"')
    add("--curves", type=path_name, default=CURVES, metavar="DIR", help="the folder of curves (curves/)")
    add("--picture", type=path_name, metavar="PNG", help="the picture (pictures/<figure>.png)")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    if options.list or not options.figure:
        print("\n".join(f"{name}  {figure.about} ({figure.table})" for name, figure in FIGURES.items()))
        return
    if options.figure not in FIGURES:
        raise SystemExit(no_such("figure", options.figure, FIGURES))
    figure, path = FIGURES[options.figure], options.picture or PICTURES / f"{options.figure}.png"
    draw(figure, options.by or figure.by, options.rows, options.changed, options.curves, path)
    print(path)
    if left := missing(figure, options.changed, options.curves):
        print(f"no curves yet: {', '.join(left)}")


if __name__ == "__main__":
    main()
