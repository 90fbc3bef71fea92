"""The papers' tables and figures, and our results.

    python -m experiments.run --list                                  list all tables
    python -m experiments.run scrn_table4                             show the paper's results and ours
    python -m experiments.run scrn_table4 --row small-nd-wt           train this row, or resume it
    python -m experiments.run scrn_table4 --row small-nd-wt --lr 0.7  with any option of `linnet train <task>`
    python -m experiments.run --readme                                update the tables of the README

Each table is a TOML file in this folder; see README.md. Each finished run becomes a line of results.csv.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from experiments.curves import store_curves
from experiments.readme import README, page
from experiments.results import RESULTS, read_results, state, store
from experiments.show import list_tables, show
from experiments.tables import config_of, is_run, only_evaluates, read_table
from experiments.training import RUNS, folder_of, make_run, repeated, repetitions
from linnet.cli.folders import overwrite
from linnet.cli.options import add_cross_validation, add_launcher, add_run_options, given_options
from linnet.cli.parser import Parser, path_name
from linnet.runs.records import write_atomically


def parser(task: str) -> Parser:
    about = "The papers' tables and figures, and our results."
    result = Parser(prog="python -m experiments.run", description=about)
    add = result.add_argument
    add("table", nargs="?", help="the name of a TOML file in this folder, without .toml")
    add("--list", action="store_true", help="list all tables and how many rows were measured")
    add("--readme", action="store_true", help="update the tables of the README")
    add("--row", help="train this row, or resume it, and store its results")
    add_cross_validation(result, task, "the number of folds (that of the table)")
    add(
        "--run-dir",
        type=path_name,
        dest="folder",
        metavar="DIR",
        help=f"the run directory ({RUNS}/<table>/<row>)",
    )
    add_launcher(result)
    add("--overwrite", action="store_true", help="delete the files of the existing run and start over")
    add("--results", type=path_name, default=RESULTS, metavar="CSV", help="the file of results (results.csv)")
    add("--note", default="", help="a remark to store with the results")
    result.set_defaults(task=task)
    add_run_options(result, task)
    return result


def task_of(arguments: Sequence[str]) -> str:
    """Return the task of the table, which is the first argument."""
    first = next(iter(arguments), "-")
    return "lm" if first.startswith("-") else read_table(first).task


def run(options: argparse.Namespace) -> None:
    results, given = read_results(options.results), given_options(options, options.task)
    if options.readme:
        write_atomically(README, page().encode())
    elif options.list or not options.table:
        print(list_tables(results))
    elif options.row:
        run_row(options, given)
    elif given:
        raise ValueError("options of a run need --row, the name of the run")
    else:
        print(show(read_table(options.table), results))


def run_row(options: argparse.Namespace, given: dict[str, Any]) -> None:
    table = read_table(options.table)
    row = table.find(options.row)
    if options.cross_validation:
        table = dataclasses.replace(table, folds=options.cross_validation)
    if not is_run(table, row):
        raise ValueError(f"{row.name} of {table.name} cannot be run; {state(table, row, [])}")
    if options.overwrite and not only_evaluates(row):
        folder = options.folder or folder_of(table, row.name)
        for config, run_folder in repeated(table, row, config_of(table, row, given), folder):
            overwrite(run_folder, config)
    result = make_run(table, row, given, options.folder, options.note, options.launcher)
    store(result, options.results)
    if table.curves and not only_evaluates(row):
        folder = options.folder or folder_of(table, row.name)
        runs = repetitions(table, row, config_of(table, row, given), folder)
        store_curves(result, table.curves, runs, options.results.parent / "curves")
    print(show(dataclasses.replace(table, row=(row,)), [result]))


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        # The options of a run are those of the table's task.
        run(parser(task_of(sys.argv[1:] if arguments is None else arguments)).parse_args(arguments))
    except KeyboardInterrupt:
        print("experiments.run: stopped; the same command resumes from the last checkpoint", file=sys.stderr)
        return 130
    except (RuntimeError, ValueError, OSError, ImportError) as error:
        print(f"experiments.run: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
