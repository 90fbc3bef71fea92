"""linnet atlas: every unit on a fixed set of small tasks, on one page."""

from __future__ import annotations

import argparse

from linnet.cli.folders import RUNS
from linnet.cli.options import add_launcher
from linnet.cli.output import say
from linnet.cli.parser import path_name, unit_name
from linnet.units import UNITS


def add_options(command: argparse.ArgumentParser) -> None:
    # Imported here, not above: `linnet --help` needs no task.
    from linnet.atlas.problems import SEEDS, problem_names

    quick, full = (" ".join(map(str, SEEDS[form])) for form in ("quick", "full"))
    names = ", ".join(name.replace(" ", "-") for name in problem_names("full"))
    command.description = (
        "Train every unit on small tasks, with the same number of parameters and with the same time, and "
        "write one page: results with intervals over seeds, the time of an update and of a streamed step, "
        "the size in int8 and what int8 loses, and a lens of each unit. The same command continues after an "
        "interruption, and units, tasks and seeds can be added. We expect the quick form to take "
        "an hour of one core, and the full one two days. "
        f"Tasks: {names}."
    )
    add = command.add_argument
    add("--quick", action="store_true", help="smaller models, fewer updates and fewer tasks")
    add("--units", nargs="+", type=unit_name, default=list(UNITS), metavar="UNIT", help="(all)")
    add("--tasks", nargs="+", metavar="TASK", help="(all of the form)")
    add("--seeds", nargs="+", type=int, metavar="N", help=f"({full}; --quick: {quick})")
    add_launcher(command)
    add("--run-dir", type=path_name, dest="folder", metavar="DIR", help="(runs/atlas, runs/atlas-quick)")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from linnet.atlas.make import Making
    from linnet.atlas.problems import SEEDS, find_problems, problem_names
    from linnet.atlas.table import text_summary

    form = "quick" if options.quick else "full"
    folder = options.folder or RUNS / ("atlas-quick" if options.quick else "atlas")
    problems = find_problems(options.tasks or problem_names(form))
    seeds = list(dict.fromkeys(options.seeds or SEEDS[form]))
    units = list(dict.fromkeys(options.units))
    atlas = Making(folder, form, problems, units, seeds, options.launcher, say).run()
    say(f"\n{text_summary(atlas)}\n\nThe page is {folder / 'atlas.html'}")
