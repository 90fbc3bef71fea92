"""Pictures of recorded runs: linnet plot."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from linnet.train.untrusted import harmless, has_folder


def add_command(commands: Any) -> None:
    commands.add_parser("plot", help="pictures of recorded runs").fill = add_plot


def add_plot(command: argparse.ArgumentParser) -> None:
    from linnet.analysis.plots import FORMATS, PLOTS

    command.description = (
        "Draw what `train` and `compare` have recorded; nothing is trained. Runs that differ by their\n"
        "seed alone are one curve with a band. Without --what, all is drawn for which\n"
        "these runs have something to show."
    )
    names = "\n".join(f"  {name:<13}{plot.about}" for name, plot in PLOTS.items())
    command.epilog = f"plots:\n{names}"
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    add = command.add_argument
    add("paths", nargs="+", type=Path, metavar="RUN", help="a run, or a folder of runs: a comparison")
    add("--what", nargs="+", default=[], choices=list(PLOTS), metavar="NAME", help=", ".join(PLOTS))
    add("--out", type=Path, metavar="DIR", help="where the pictures go (the first RUN's folder `plots`)")
    add("--format", choices=FORMATS, default="png", help="(png)")
    command.set_defaults(run=plot)


def plot(options: argparse.Namespace) -> None:
    from linnet.analysis.plots import write_figures
    from linnet.analysis.runs import find_runs

    runs = find_runs(options.paths)
    own = options.paths[0] / "plots"
    if options.out is None:
        has_folder(own)
    for line in write_figures(runs, options.out or own, options.what, options.format):
        print(harmless(line), flush=True)
