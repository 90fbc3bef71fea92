"""Install projects that use recurrent layers, run them with Linnet, and write the tables of the docs.

    python -m tools.compat                       every project and every model
    python -m tools.compat skorch darts          some of them
    python -m tools.compat --what check skorch   whether it works, without timing it
    python -m tools.compat --what convert        models that linnet.convert changes, without the rest
    python -m tools.compat forecasts --sets co2  forecasts of other libraries and of Linnet, see its --help

docs/compatibility.md has the projects, docs/convert.md the models, experiments/README.md the forecasts.
The exit code is 1 if a project does not work.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.rows import Row
from tools.compat import models_page, page, record
from tools.compat.forecasts import __main__ as forecasts
from tools.compat.processes import run_case
from tools.compat.projects import MODELS, PROJECTS, Project

# The list of each kind of run.
LISTS: dict[str, Mapping[str, Project]] = {"check": PROJECTS, "time": PROJECTS, "convert": MODELS}
NAMES = list(PROJECTS | MODELS)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Another comparison, with sets and contestants in place of projects.
    if given[:1] == ["forecasts"]:
        return forecasts.main(given[1:])
    options = parsed(given)
    for name in options.projects or NAMES:
        for what in LISTS if options.what == "all" else (options.what,):
            project = LISTS[what].get(name)
            if project is not None and not project.unavailable:
                record.save(options.results, run_case(project, what))
        print_lines(name, [row for row in record.read(options.results) if row["project"] == name])
    rows = record.read(options.results)
    page.write(options.page, rows, PROJECTS.values())
    models_page.write(options.models_page, rows, MODELS.values())
    return 1 if any(row["works"] == "no" for row in rows) else 0


def print_lines(name: str, rows: Sequence[Row]) -> None:
    """Print the lines that a project has in the tables."""
    if name in PROJECTS:
        print(" | ".join(page.line_of(PROJECTS[name], rows)), flush=True)
    if name in MODELS:
        print(" | ".join(models_page.line_of(MODELS[name], rows)), flush=True)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.compat", description=(__doc__ or "").split("\n")[0]
    )
    names = ", ".join(NAMES)
    parser.add_argument("projects", nargs="*", choices=[*NAMES, []], metavar="PROJECT", help=names)
    parser.add_argument("--what", choices=[*LISTS, "all"], default="all", help="default: all")
    parser.add_argument("--results", type=Path, default=record.RESULTS, metavar="CSV")
    parser.add_argument("--page", type=Path, default=page.PAGE, metavar="MD")
    parser.add_argument("--models-page", type=Path, default=models_page.PAGE, metavar="MD")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
