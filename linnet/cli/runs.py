"""linnet runs: what runs do now, from their folders."""

from __future__ import annotations

import argparse

from linnet.analysis.states import HEAD, LEFT, find_states
from linnet.base.tables import text_table
from linnet.cli.folders import RUNS, records_of
from linnet.cli.output import say
from linnet.cli.parser import run_name


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "What the runs in a folder do now: which are running, where and how far they are, and what was wrong "
        "with those that failed, with the last lines of their logs. Only their folders are read, so it works "
        "from any machine that sees them. FOLDER may be the URL of a store (--store)."
    )
    command.add_argument("folder", nargs="?", type=run_name, default=RUNS, metavar="FOLDER", help=f"({RUNS})")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    found = find_states(records_of(options.folder))
    if not found:
        raise FileNotFoundError(f"there are no runs in {options.folder}")
    say(text_table([HEAD, *(each.cells for each in found)], LEFT))
    for each in found:
        if each.problem:
            say(f"\n{each.cells[0]} ({each.cells[1]}): {each.problem}")
