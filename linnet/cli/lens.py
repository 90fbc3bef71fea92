"""linnet lens: a page in which you type and watch a trained model read."""

from __future__ import annotations

import argparse

from linnet.cli.folders import local_folder
from linnet.cli.options import add_checkpoint
from linnet.cli.output import say
from linnet.cli.parser import path_name, run_name


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Write one HTML file, which needs no network and no server, in which you type a text and watch a "
        "trained model read it: what it remembers of each word, its gates, its memory, what it expects next. "
        "Give two runs to see them side by side."
    )
    add = command.add_argument
    add("folders", nargs="+", type=run_name, metavar="RUN", help="one run, or two to be shown side by side")
    add("--text", help="what the model reads at first (the beginning of the validation text)")
    add("--out", type=path_name, metavar="FILE", help="(lens.html in the first RUN)")
    whether = argparse.BooleanOptionalAction
    add("--int8", action=whether, help="weights of eight bits (for more than 300,000 parameters)")
    add_checkpoint(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    # Imported here, not above: `linnet lens --help` needs no model.
    from linnet.analysis.lens.runs import lens_of_runs

    if len(options.folders) > 2:
        raise ValueError(f"a lens shows one run or two; got {len(options.folders)}")
    page = lens_of_runs(options.folders, options.text, options.int8, options.checkpoint)
    path = page.save(options.out or local_folder(options.folders[0]) / "lens.html")
    say(f"The page is {path}; open it in a browser")
