"""Install projects that use recurrent layers, run them with Linnet, and write docs/compatibility.md.

    python -m tools.compat                       every project
    python -m tools.compat skorch darts          some of them
    python -m tools.compat --what check skorch   whether it works, without timing it

The exit code is 1 if a project does not work.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.compat import page, record
from tools.compat.processes import run_case
from tools.compat.projects import PROJECTS

WHATS = ("check", "time")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    for name in options.projects or PROJECTS:
        project = PROJECTS[name]
        for what in WHATS if options.what == "all" else (options.what,):
            if not project.unavailable:
                record.save(options.results, run_case(project, what))
        rows = record.read(options.results)
        print(" | ".join(page.line_of(project, [row for row in rows if row["project"] == name])), flush=True)
    rows = record.read(options.results)
    page.write(options.page, rows, PROJECTS.values())
    return 1 if any(row["works"] == "no" for row in rows) else 0


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.compat", description=(__doc__ or "").split("\n")[0]
    )
    names = ", ".join(PROJECTS)
    parser.add_argument("projects", nargs="*", choices=[*PROJECTS, []], metavar="PROJECT", help=names)
    parser.add_argument("--what", choices=[*WHATS, "all"], default="all", help="default: all")
    parser.add_argument("--results", type=Path, default=record.RESULTS, metavar="CSV")
    parser.add_argument("--page", type=Path, default=page.PAGE, metavar="MD")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
