"""The part of `linnet predict` for answers in tables: a file, or the data of the run, in one piece."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from linnet.base.tables import text_table
from linnet.cli.folders import data_name, local_folder
from linnet.cli.output import say
from linnet.runs.answer_tables import check_table_path, json_rows, write_table
from linnet.runs.load import TrainedRun
from linnet.tasks.results import AnswerTable

MOST_CHARTS = 12
"""Of a plot: each has a line of the page or of the picture."""
MOST_PARTS, MOST_ROWS = 3, 150
"""A table with more is not printed in full."""
FIRST_ROWS = 10
"""Of such a table."""
NAME = "next.csv"
"""The file in the folder of the run for a table that is not printed in full."""


def is_table(trained: TrainedRun, options: argparse.Namespace) -> bool:
    """Whether the run answers in tables, and the input is a file or nothing at all."""
    inputs = options.inputs
    whole = not inputs or (len(inputs) == 1 and Path(inputs[0]).is_file())
    return trained.task.answers_tables and options.file is None and whole


def answer_table(trained: TrainedRun, options: argparse.Namespace, settings: dict[str, Any]) -> None:
    from linnet.analysis.chart_page import check_chart_path, write_chart_file

    if options.out:
        check_table_path(options.out)
    if options.plot:
        check_chart_path(options.plot)
    path, charts = next(iter(options.inputs), None), MOST_CHARTS if options.plot else 0
    answers = trained.task.answer_table(trained.model, path, charts=charts, **settings)
    write_answers(answers, options)
    if options.plot:
        write_chart_file(options.plot, answers.charts, title_of(trained, path), answers.about)
        say(f"the plot{first_of(answers)} is in {options.plot}")


def title_of(trained: TrainedRun, path: str | None) -> str:
    name = Path(path).name if path else data_name(trained.config)
    return f"{name}: {trained.config.task}"


def first_of(answers: AnswerTable) -> str:
    """Say how many charts there are, if some were left out."""
    count = len(answers.charts)
    return (
        f", with the first {count:,} of {answers.all_charts:,} charts," if count < answers.all_charts else ""
    )


def write_answers(answers: AnswerTable, options: argparse.Namespace) -> None:
    """Write the table to --out, or print it; of a long one the first rows, with a file for all of them."""
    count = len(next(iter(answers.columns.values())))
    if options.out:
        write_table(options.out, answers.columns)
        say(f"{answers.about}: {count:,} rows are in {options.out}")
    elif options.json:
        for row in json_rows(answers.columns):
            say(row)
    elif answers.parts <= MOST_PARTS and count <= MOST_ROWS:
        say(text_table([*printed(answers, count)], left=texts(answers)))
    else:
        write_table(local_folder(options.folder) / NAME, answers.columns)
        say(text_table([*printed(answers, FIRST_ROWS)], left=texts(answers)))
        say(f"{answers.about}: all {count:,} rows are in {local_folder(options.folder) / NAME}")


def texts(answers: AnswerTable) -> set[int]:
    """Return which columns have texts."""
    return {number for number, column in enumerate(answers.columns.values()) if isinstance(column[0], str)}


def printed(answers: AnswerTable, most: int) -> Iterator[tuple[str, ...]]:
    """Yield the names of the columns, and the first rows."""
    columns = [cells(column) for column in answers.columns.values()]
    yield tuple(answers.columns)
    yield from islice(zip(*columns, strict=True), most)


def cells(column: Sequence[Any]) -> list[str]:
    """Return floats with as many decimals as give the largest of a column five digits."""
    if not isinstance(column[0], float):
        return [str(each) for each in column]
    largest = max(map(abs, column))
    if not 1e-3 <= largest < 1e12:
        return [f"{each:.5g}" for each in column]
    decimals = max(0, 4 - math.floor(math.log10(largest)))
    return [f"{each:,.{decimals}f}" for each in column]
