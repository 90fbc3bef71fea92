"""The command line: linnet list, show, bench here; training in lm.py, pictures in plot.py."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from linnet.bench.settings import MODES, RACED, SHAPES, Settings, Shape, quick
from linnet.bench.show import DTYPES
from linnet.cli import lm, plot
from linnet.cli.options import LazyParser
from linnet.cli.parser import Parser, at_least_one, unit_name
from linnet.layers.stacks import UNITS
from linnet.train.untrusted import harmless

DEVICES = ("cpu", "cuda")
WHAT = ("speed", "recurrence", "checks", "growth", "memory", "start", "loss", "loop", "all")
RESULTS, PLOT = Path("benchmarks/results.csv"), Path("benchmarks/speed.png")
README, TARGETS = Path("README.md"), Path("benchmarks/README.md")


def shape(text: str) -> Shape:
    """256x32x512"""
    parts = re.split("[x,]", text)
    if len(parts) != 3 or not all(part.isdigit() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(
            f"a shape is LxBxd, steps by sequences by width, like 256x32x512; got {text!r}"
        )
    return Shape(*map(int, parts))


def parser() -> Parser:
    made = Parser(
        prog="linnet", description="Light recurrent networks: look at them, measure them, train them."
    )
    made.add_argument("--version", action="version", version=f"linnet {version('linnet-rnn')}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=LazyParser)
    add_list(
        commands.add_parser("list", help="the units with their options, the recipes, the corpora, the plots")
    )
    shown = commands.add_parser("show", help="what a kernel is made of")
    add_show(shown.add_subparsers(dest="thing", required=True, metavar="THING"))
    add_bench(commands.add_parser("bench", help="measure speed and memory, and keep the rows"))
    lm.add_commands(commands)
    plot.add_command(commands)
    return made


# ------------------------------------------------------------------------------------------ list


def add_list(command: argparse.ArgumentParser) -> None:
    command.description = (
        "The units with their papers and options, the papers' recipes, the corpora, the plots."
    )
    text = "`units`, `recipes`, `corpora`, `plots`, or the names of units (everything)"
    command.add_argument("what", nargs="*", type=listed_name, metavar="WHAT", help=text)
    command.set_defaults(run=list_all)


def listed_name(name: str) -> str:
    return name if name in LISTS else unit_name(name)


def list_all(options: argparse.Namespace) -> None:
    wanted = options.what or list(LISTS)
    for name in wanted:
        if name in LISTS and len(wanted) > 1:
            print(f"{name}:")
        for line in LISTS[name]() if name in LISTS else unit_lines([name]):
            print(line)


def unit_lines(names: Sequence[str] = tuple(UNITS)) -> Iterator[str]:
    for name in names:
        paper = str(UNITS[name].__doc__).strip().splitlines()[0]
        yield f"{name:<15}{paper}"
        for option, parameter in UNITS[name].options().items():
            yield f"{'':<15}  {option}={parameter.default!r}"


def recipe_lines() -> Iterator[str]:
    from linnet.train.recipes import RECIPES

    for name, recipe in RECIPES.items():
        yield f"{name:<31}{recipe.about}"


def corpus_lines() -> Iterator[str]:
    from linnet.data.sources import CORPORA

    for name, source in CORPORA.items():
        yield f"{name:<15}{source.about}"
        yield f"{'':<15}  by {', '.join(source.levels)}; {source.terms}"


def plot_lines() -> Iterator[str]:
    from linnet.analysis.plots import PLOTS

    for name, made in PLOTS.items():
        yield f"{name:<15}{made.about}"


LISTS: dict[str, Callable[[], Iterator[str]]] = {
    "units": unit_lines,
    "recipes": recipe_lines,
    "corpora": corpus_lines,
    "plots": plot_lines,
}


# ------------------------------------------------------------------------------------------ show


def add_show(things: argparse._SubParsersAction) -> None:
    about = "The traced lines of a unit's step, and then the code that they become."
    command = things.add_parser("kernel", help=about, description=about)
    command.add_argument("unit", type=unit_name, metavar="UNIT", help=", ".join(UNITS))
    command.add_argument("--backward", action="store_true", help="the gradient's kernel, not the step's")
    command.add_argument("--assembly", action="store_true", help="machine code instead of LLVM's or Triton's")
    command.add_argument("--device", choices=DEVICES, default="cpu", help="cuda: the kernel for a GPU (cpu)")
    command.add_argument("--dtype", choices=list(DTYPES), default="float32", help="of the numbers (float32)")
    command.set_defaults(run=show_kernel)


def show_kernel(options: argparse.Namespace) -> None:
    from linnet.bench.show import gpu_kernel, kernel

    show = gpu_kernel if options.device == "cuda" else kernel
    print(show(options.unit, options.backward, options.assembly, options.dtype))


# ----------------------------------------------------------------------------------------- bench


def add_bench(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Measure, print tables and append rows to a file. Everything that is compared runs in turn in one "
        "process. recurrence, growth and memory are of SRU and LRN, checks of what is checked before a "
        "kernel runs, start is of SRU, LSTM and NRU, loss "
        "of softmaxes over two vocabularies, loop of language models of SRU, LSTM and SCRN. "
        "With --plot, --readme or --targets and without --what, nothing is measured: they read the rows."
    )
    add = command.add_argument
    add("--what", choices=WHAT, help="which part (all, which takes about ten minutes on two cores)")
    add("--units", nargs="+", type=unit_name, default=list(RACED), metavar="UNIT", help=UNITS_HELP)
    add("--shapes", nargs="+", type=shape, default=list(SHAPES), metavar="LxBxd", help=shapes_help())
    add("--modes", nargs="+", choices=MODES, default=list(MODES), help="of --what speed and growth (both)")
    add(
        "--rounds",
        type=at_least_one,
        default=Settings.rounds,
        help=f"of each race, at most ({Settings.rounds})",
    )
    add("--device", choices=DEVICES, default="cpu", help="where layers run: cpu, or cuda for a GPU (cpu)")
    add("--threads", type=at_least_one, default=Settings.threads, help=f"of torch ({Settings.threads})")
    add("--reference", nargs="*", type=unit_name, default=["nru"], metavar="UNIT", help=REFERENCE_HELP)
    add("--peers", action="store_true", help="race the sru package too, where it is installed")
    add("--huge-pages", choices=("both", "here"), default="both", help=PAGES_HELP)
    add("--quick", action="store_true", help="tiny sizes, to see that it runs; rows go only to --results")
    add("--results", type=Path, metavar="CSV", help=f"where rows are appended ({RESULTS})")
    add("--no-rows", action="store_true", help="append no rows anywhere")
    add("--plot", type=Path, nargs="?", const=PLOT, metavar="PNG", help=f"draw the rows ({PLOT})")
    add("--readme", type=Path, nargs="?", const=README, metavar="MD", help=f"write its table ({README})")
    add("--targets", type=Path, nargs="?", const=TARGETS, metavar="MD", help=f"asked, reached ({TARGETS})")
    command.set_defaults(run=bench)


UNITS_HELP = f"the units that are measured ({' '.join(RACED)})"
REFERENCE_HELP = "units that race their own loop over time, too (nru)"
PAGES_HELP = "both: SRU and LRN again, in a fresh process, with the other setting of huge pages (both)"


def shapes_help() -> str:
    return f"steps, sequences, width; 1 step is streaming ({' '.join(map(str, SHAPES))})"


def bench(options: argparse.Namespace) -> None:
    from linnet.bench import rows
    from linnet.bench.run import run

    path = options.results or (None if options.quick else RESULTS)
    measured: list[rows.Row] = []
    shown = options.plot or options.readme or options.targets
    if options.what or not shown:
        again = options.huge_pages == "both"
        kept = None if options.no_rows else path
        measured = run(settings(options), options.what or "all", kept, again)
    if shown:
        known = rows.read(path) if path is not None and path.exists() else measured or rows.read(RESULTS)
        show_rows(options, known)


def settings(options: argparse.Namespace) -> Settings:
    names = ("units", "shapes", "modes", "rounds", "threads", "peers", "device")
    given = {name: getattr(options, name) for name in names}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    made = Settings(**given, references=tuple(options.reference))
    return quick(made) if options.quick else made


def show_rows(options: argparse.Namespace, known: list) -> None:
    from linnet.bench import report

    if options.plot:
        report.write_plot(options.plot, known)
        print(f"The plot is {options.plot}.")
    if options.readme:
        report.write_readme(options.readme, known, options.plot or PLOT)
        print(f"The speed of each unit is in {options.readme}.")
    if options.targets:
        report.write_targets(options.targets, known)
        print(f"What was asked and what was reached is in {options.targets}.")


# ------------------------------------------------------------------------------------------ main


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has read enough. What is left in the buffer goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("linnet: stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130
    except (RuntimeError, ValueError, OSError, ImportError) as error:
        print(f"linnet: {harmless(error)}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    return 0
