"""linnet plot: plots of recorded runs."""

from __future__ import annotations

import argparse

from linnet.analysis.plots import FORMATS, PLOTS, write_figures
from linnet.analysis.runs import find_runs, split_by
from linnet.cli.folders import local_folder, records_of
from linnet.cli.output import say
from linnet.cli.parser import path_name, run_name
from linnet.runs.untrusted import has_folder


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Draw what `train` and `compare` have recorded; nothing is trained. Runs that differ only in\n"
        "their seed are one curve with a band. Without --what, every plot is drawn for which these\n"
        "runs have data, except variance and decay."
    )
    names = "\n".join(f"  {name:<13}{plot.about}" for name, plot in PLOTS.items())
    command.epilog = f"plots:\n{names}"
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    add = command.add_argument
    add("paths", nargs="+", type=run_name, metavar="RUN", help="a run, or a folder of runs (a comparison)")
    add("--what", nargs="+", default=[], choices=list(PLOTS), metavar="NAME", help=", ".join(PLOTS))
    add("--by", metavar="SETTING", help="a panel for each value of this setting, such as num_layers")
    add("--text", help="decay, attention: the text that the model reads")
    add("--out", type=path_name, metavar="DIR", help="where to write the plots (`plots` in the first RUN)")
    add("--format", choices=FORMATS, default="png", help="(png)")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    if options.text is not None and not {"decay", "attention"} & {*options.what}:
        raise ValueError("--text is for some plots only; give --what attention or --what decay as well")
    runs = find_runs(map(records_of, options.paths))
    if options.by:
        runs = split_by(runs, options.by)
    own = local_folder(options.paths[0]) / "plots"
    if options.out is None:
        has_folder(own)
    for line in write_figures(runs, options.out or own, options.what, options.format, text=options.text):
        say(line)
