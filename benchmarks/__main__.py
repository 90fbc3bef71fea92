"""python -m benchmarks: speed and memory, as tables and rows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report, rows
from benchmarks.run import PARTS
from benchmarks.run import run as measure
from benchmarks.settings import MODES, RACED, SHAPES, Settings, quick
from linnet.cli.bench import shape, warn_of_passive_threads
from linnet.cli.parser import DEVICES, Parser, at_least_one, path_name, unit_name

WHAT = (*PARTS, "all")
RESULTS, PLOT = Path("benchmarks/results.csv"), Path("benchmarks/speed.png")


def parser() -> Parser:
    command = Parser(prog="python -m benchmarks", description=DESCRIPTION)
    add = command.add_argument
    add("--what", choices=WHAT, help="which part (all, which takes about twenty minutes on two cores)")
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
    add("--memory", choices=("both", *rows.MEMORY), default="both", help=MEMORY_HELP)
    add("--quick", action="store_true", help="tiny sizes, to see that it runs; rows go only to --results")
    add("--results", type=path_name, metavar="CSV", help=f"where rows are appended ({RESULTS})")
    add("--no-rows", action="store_true", help="append no rows anywhere")
    add("--plot", type=path_name, nargs="?", const=PLOT, metavar="PNG", help=f"draw the rows ({PLOT})")
    return command


DESCRIPTION = (
    "Measure, print tables and append rows to a file. Everything that is compared runs in turn in one "
    "process. recurrence, growth and memory are of SRU and LRN, checks of what is checked before a "
    "kernel runs, steps of cells, of streams, with gradients and on a busy machine, blocks of frames "
    "of one stream, start is of SRU, LSTM and NRU, loss of softmaxes over two vocabularies, "
    "classifier of SRU, LRN, RAN and LSTM, tagging of taggers and of the CRF, reading of a reader's encoder, "
    "translating of beam search, matching of word-by-word "
    "attention, language of a language model, int8 and bfloat16 of units in these formats, onnx of LSTM, "
    "GRU and RNN in onnxruntime, engines of LSTM and GRU in inference engines, "
    "options of options whose kernels are compared with the loop, exported "
    "of SRU and LSTM in C and WebAssembly, today of newer units, padding of sequences of different lengths, "
    "loop of language models of SRU, LSTM and SCRN. "
    "With --plot and without --what, nothing is measured: the plot is drawn from the recorded rows."
)
UNITS_HELP = f"the units that are measured ({' '.join(RACED)})"
REFERENCE_HELP = "units that race their own loop over time, too (nru)"
MEMORY_HELP = (
    "new: as torch allocates it; reused: after linnet.reuse_memory(); "
    "both: new, then SRU and LRN again in a process with reused memory (both)"
)


def shapes_help() -> str:
    return f"steps, sequences, width; 1 step is streaming ({' '.join(map(str, SHAPES))})"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        run(options)
    except (RuntimeError, ValueError, OSError, ImportError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    return 0


def run(options: argparse.Namespace) -> None:
    path = options.results or (None if options.quick else RESULTS)
    measured: list[rows.Row] = []
    if options.what or not options.plot:
        if options.device == "cpu":
            warn_of_passive_threads("benchmarks")
        again = options.memory == "both"
        kept = None if options.no_rows else path
        measured = measure(settings(options), options.what or "all", kept, again)
    if options.plot:
        known = rows.read(path) if path is not None and path.exists() else measured or rows.read(RESULTS)
        report.write_plot(options.plot, known)
        print(f"The plot is {options.plot}.")


def settings(options: argparse.Namespace) -> Settings:
    names = ("units", "shapes", "modes", "rounds", "threads", "peers", "device")
    given = {name: getattr(options, name) for name in names}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    memory = "new" if options.memory == "both" else options.memory
    made = Settings(**given, references=tuple(options.reference), memory=memory)
    return quick(made) if options.quick else made


if __name__ == "__main__":
    sys.exit(main())
