"""linnet bench: how fast is it on this machine?"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence

import torch
from torch import nn

from linnet.base.machine import processor_name
from linnet.base.project import advice
from linnet.base.tables import text_table
from linnet.bench import engines
from linnet.bench.layers import Shape, call_of, check_device
from linnet.bench.timing import Call, Times, clock_of, race
from linnet.cli.parser import DEVICES, at_least_one, unit_name
from linnet.units import UNITS

MODES = ("inference", "training")
BASELINE = "nn.LSTM"
RACED = ("sru", "lrn", "ran", "scrn", "atr", "gru", "lstm")
SHAPES = (Shape(64, 32, 256), Shape(100, 1, 256), Shape(1, 1, 256))
ENGINE_SHAPES = (Shape(16, 1, 64), Shape(100, 1, 128), Shape(500, 1, 256))
ROUNDS = 9
SECONDS = 4.0  # for the rounds of one race: all of them take less than a minute
ABSENT = "-"


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Time layers in inference and in training (forward and backward pass) and compare them with nn.LSTM "
        "of the same size; with --what engines, time LSTM and GRU in inference and compare Linnet with the "
        f"inference engines that are installed ({advice('bench')}). All run in turn in one "
        "process, so that the ratios are meaningful on a busy machine too. The default takes less than a "
        "minute; nothing is written."
    )
    add = command.add_argument
    add("--what", choices=("layers", "engines"), default="layers", help="what is compared (layers)")
    add("--units", nargs="+", type=unit_name, metavar="UNIT", help=UNITS_HELP)
    add("--shapes", nargs="+", type=shape, metavar="LxBxd", help=SHAPES_HELP)
    add("--device", choices=DEVICES, default="cpu", help="where layers run: cpu, or cuda for a GPU (cpu)")
    add("--threads", type=at_least_one, default=torch.get_num_threads(), help=THREADS_HELP)
    command.set_defaults(run=run)


UNITS_HELP = f"the units that are measured ({' '.join(RACED)}; with --what engines {' '.join(engines.TORCH)})"
SHAPES_HELP = (
    f"steps, sequences, input and hidden size ({' '.join(map(str, SHAPES))}; with --what engines "
    f"{' '.join(map(str, ENGINE_SHAPES))})"
)
THREADS_HELP = f"of torch ({torch.get_num_threads()})"


def shape(text: str) -> Shape:
    """256x32x512"""
    parts = re.split("[x,]", text)
    if len(parts) != 3 or not all(part.isdigit() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(
            f"a shape is LxBxd, steps by sequences by width, like 256x32x512; got {text!r}"
        )
    return Shape(*map(int, parts))


def run(options: argparse.Namespace) -> None:
    check_device(options.device)
    if options.device == "cpu":
        warn_of_passive_threads("linnet bench")
    if options.what == "engines":
        race_engines(options)
        return
    units = options.units or RACED
    print(conditions(options.device, options.threads))
    for size in options.shapes or SHAPES:
        times = {mode: race_of(size, mode, units, options) for mode in MODES}
        print(f"\nsteps x sequences x channels: {size}")
        print(table(units, times), flush=True)


def warn_of_passive_threads(command: str) -> None:
    """Time that is lost in waking threads is not that of a layer, and nn.LSTM loses most."""
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":
        print(
            f"{command}: OMP_WAIT_POLICY=passive is set. With it, nn.LSTM and nn.LSTMCell take up to four "
            "times as long with a batch of one, which makes the ratios too good; unset it to measure.",
            file=sys.stderr,
        )


def conditions(device: str, threads: int) -> str:
    on_cpu = f"{threads} {'thread' if threads == 1 else 'threads'} of {processor_name()}"
    processor = torch.cuda.get_device_name() if device == "cuda" else on_cpu
    return f"{processor}, float32, torch {torch.__version__}; milliseconds, median of up to {ROUNDS} rounds"


def race_of(size: Shape, mode: str, units: Sequence[str], options: argparse.Namespace) -> dict[str, Times]:
    """Return the times of nn.LSTM and of the units; a unit that fails is left out, and the reason printed."""
    entrants = {name: entrant(name, size, mode) for name in (BASELINE, *units)}
    return race(entrants, ROUNDS, options.threads, SECONDS, print, options.device)


def entrant(name: str, size: Shape, mode: str) -> Callable[[], Call]:
    layer = nn.LSTM if name == BASELINE else UNITS[name]
    return lambda: call_of(layer(size.d, size.d), size, mode)


def table(units: Sequence[str], times: dict[str, dict[str, Times]]) -> str:
    head = ["unit", *(cell for mode in MODES for cell in (mode, f"of {BASELINE}"))]
    return text_table([head, *(row(name, times) for name in (BASELINE, *units))], left=[0])


def row(name: str, times: dict[str, dict[str, Times]]) -> list[str]:
    label = BASELINE if name == BASELINE else UNITS[name].__name__
    return [label, *(cell for mode in MODES for cell in cells(name, times[mode]))]


def cells(name: str, times: dict[str, Times]) -> tuple[str, str]:
    """Return the milliseconds of a layer, and their ratio to those of nn.LSTM."""
    if name not in times or BASELINE not in times:
        return ABSENT, ABSENT
    return f"{times[name].p50:.3f}", f"{times[name].p50 / times[BASELINE].p50:.2f}"


# ------------------------------------------------------------------------------------------- engines


def race_engines(options: argparse.Namespace) -> None:
    units = options.units or list(engines.TORCH)
    unknown = [unit for unit in units if unit not in engines.TORCH]
    if unknown or options.device != "cpu":
        found = unknown[0] if unknown else f"--device {options.device}"
        raise ValueError(f"engines are compared by {', '.join(engines.TORCH)} on the CPU; got {found}")
    print(conditions(options.device, options.threads))
    for size in options.shapes or ENGINE_SHAPES:
        for unit, both in ((unit, both) for unit in units for both in (False, True)):
            print(f"\n{UNITS[unit].__name__}, {'both directions' if both else 'one direction'}, {size}")
            found = engines.entrants(unit, size, both, options.threads)
            clock = clock_of(options.threads)
            times = race(found, ROUNDS, options.threads, SECONDS, print, clock=clock)
            print(engine_table(times), flush=True)


def engine_table(times: dict[str, Times]) -> str:
    """A line for each engine: its milliseconds, and those of Linnet's layers relative to them."""
    head = ["", "ms", *(f"{ours} of it" for ours in engines.RIVALS)]
    return text_table([head, *(engine_row(name, times) for name in times)], left=[0])


def engine_row(name: str, times: dict[str, Times]) -> list[str]:
    own = times[name].p50
    ratios = [
        f"{times[ours].p50 / own:.2f}" if name in rivals and ours in times else ABSENT
        for ours, rivals in engines.RIVALS.items()
    ]
    return [name, f"{own:.3f}", *ratios]
