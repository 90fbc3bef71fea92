"""linnet race: light units against nn.LSTM, with the same width and the same seconds of training."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from linnet.base.machine import processor_name
from linnet.cli.folders import RUNS, overwrite
from linnet.cli.output import say
from linnet.cli.parser import at_least_one, path_name, unit_name
from linnet.units import UNITS

RACED = ("lstm", "sru", "lrn", "ran")
HEAVY = ("lstm", "gru")
"""Units that are not light: the model that leaves Python is another one."""
SECONDS, VALIDATIONS = 32, 8
WIDTH, LAYERS, EMBEDDING = 128, 2, 64
SETTINGS = {
    **{"corpus": "kjv", "level": "char", "embedding_size": EMBEDDING, "batch": 16, "length": 64},
    **{"eval_batch": 64, "optimiser": "adamw", "fused": True, "lr": 0.02, "schedule": "linear"},
    # A race validates and saves by itself.
    **{"evaluate_every": 10**9, "log_every": 10**9, "checkpoint_seconds": 0.0},
}
PROMPT, SPOKEN, TIMED = "In the beginning", 300, 20_000
ROUNDS = 15
PAGE = "race.html"


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Train language models of characters on the King James Bible, of torch's nn.LSTM and of some units, "
        "all of one width and each for the same number of seconds; print a table and write a page. Then "
        "export the best light model to C, compile it and let it speak. The default takes less than four "
        "minutes and needs no download. A race starts over each time."
    )
    add = command.add_argument
    names = " ".join(RACED)
    add("--units", nargs="+", type=unit_name, default=list(RACED), metavar="UNIT", help=f"({names})")
    add("--seconds", type=at_least_one, default=SECONDS, help=SECONDS_HELP)
    add("--hidden-size", type=at_least_one, default=WIDTH, help=f"the size of each layer ({WIDTH})")
    add("--num-layers", type=at_least_one, default=LAYERS, help=f"the number of layers ({LAYERS})")
    add("--threads", type=at_least_one, default=1, help="CPU threads (1)")
    add("--seed", type=at_least_one, default=1, help="of the initial weights and the order of the text (1)")
    add("--run-dir", type=path_name, dest="folder", metavar="DIR", default=RUNS / "race", help="(runs/race)")
    add("--open", action=argparse.BooleanOptionalAction, default=has_display(), help=OPEN_HELP)
    command.set_defaults(run=run)


SECONDS_HELP = f"of training for each model; with one thread, of the processor ({SECONDS})"
OPEN_HELP = "open the pages in a browser (if there is a display)"


def has_display() -> bool:
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def run(options: argparse.Namespace) -> None:
    Race(options).run()


class Race:
    """A race under way, with its page."""

    def __init__(self, options: argparse.Namespace):
        from linnet.runs.config import RunConfig, override

        self.folder: Path = options.folder
        self.units: list[str] = options.units
        self.seconds, self.threads, self.opens = options.seconds, options.threads, options.open
        size = {"hidden_size": options.hidden_size, "num_layers": options.num_layers}
        config = override(
            RunConfig(task="lm"), {**SETTINGS, **size, "threads": options.threads, "seed": options.seed}
        )
        self.config, self.started, self.is_open, self.baseline = config, time.perf_counter(), False, ""
        self.title = (
            f"{len(self.units) + 1} models of {options.num_layers} x {options.hidden_size} channels on the "
            f"King James Bible, {options.seconds} seconds each"
        )

    @property
    def page(self) -> Path:
        return self.folder / PAGE

    @property
    def notes(self) -> str:
        threads = f"{self.threads} {'thread' if self.threads == 1 else 'threads'}"
        measured = f"Measured with {threads} of {processor_name()}, float32, torch {torch.__version__}."
        return f"{self.baseline} {measured}".strip()

    def run(self) -> None:
        say(f"{self.title}. {self.notes}")
        entrants = self.entrants()
        self.say_table(entrants)
        best = min((each for each in entrants[1:] if each.name not in HEAVY), key=bits, default=entrants[-1])
        speech = self.speak(best)
        self.write_lens(best)
        self.write(entrants, speech, done=True)
        self.show(self.folder / "lens.html")
        say(f"\nThe page is {self.page}; all in {time.perf_counter() - self.started:.0f} seconds")

    def entrants(self) -> list[Any]:
        """Train all models in turn, and measure them."""
        from linnet.bench.timing import clock_of
        from linnet.train.race import TORCH, of_unit, race

        for name in (TORCH, *self.units):
            overwrite(self.folder / name, of_unit(self.config, name))
        (self.folder / "lens.html").unlink(missing_ok=True)
        clock, told = clock_of(self.threads), self.validated
        lanes = race(self.config, self.units, self.folder, self.seconds, VALIDATIONS, told, clock)
        say("measuring single steps and sizes ...")
        self.baseline = baseline_of(lanes[0].run.task)
        return self.measured(lanes)

    # ------------------------------------------------------------------------------ the curves

    def validated(self, lanes: Sequence[Any]) -> None:
        shown = "  ".join(f"{label_of(lane.name)} {lane.curve[-1].bits:.3f}" for lane in lanes)
        say(f"{lanes[0].curve[-1].seconds:4.0f} s  {shown}  bits per character")
        self.write([entrant(lane, lanes[0]) for lane in lanes])
        if not self.is_open:
            self.is_open = True
            self.show(self.page)

    def write(self, entrants: Sequence[Any], speech: Any = None, done: bool = False) -> None:
        from linnet.analysis.race_page import write_page

        write_page(self.page, self.title, entrants, self.notes, speech, done)

    def show(self, path: Path) -> None:
        if self.opens and path.exists():
            webbrowser.open(path.resolve().as_uri())

    # ------------------------------------------------------------------------------- the table

    def measured(self, lanes: Sequence[Any]) -> list[Any]:
        from linnet.deploy.quantize import int8_size

        steps = self.step_times([lane.name for lane in lanes])
        found = []
        for lane in lanes:
            trained = self.trained(lane.name)
            more = {
                "bits": lane.result["test"]["bpc"],
                "step": steps.get(lane.name),
                "int8": int8_size(trained.model),
                "sample": trained.task.sample(trained.model, 200),
            }
            found.append(entrant(lane, lanes[0])._replace(**more))
        return found

    def trained(self, name: str) -> Any:
        from linnet.runs.load import load

        return load(self.folder / name)

    def step_times(self, names: Sequence[str]) -> dict[str, float]:
        """Return the microseconds of a step of all layers, in turn."""
        from linnet.bench.timing import clock_of
        from linnet.bench.timing import race as timed_in_turn

        sizes = (EMBEDDING, self.config.model.hidden_size, self.config.model.num_layers)
        calls = {name: step_of(name, sizes) for name in names}
        clock = clock_of(self.threads)
        times = timed_in_turn(calls, ROUNDS, self.threads, 10.0, say, clock=clock)
        return {name: 1000 * each.p50 for name, each in times.items()}

    def say_table(self, entrants: Sequence[Any]) -> None:
        from linnet.analysis.race_page import text_table, verdict

        say(f"\n{text_table(entrants)}\n\n{verdict(entrants)}\n{self.baseline}")

    # ------------------------------------------------------------------------- without Python

    def speak(self, best: Any) -> Any:
        """Write the model in C, compile it if there is a compiler, and let it continue a text."""
        from linnet.analysis.race_page import Speech
        from linnet.cli.export import tokens_of
        from linnet.deploy.c import export_c

        folder, trained = self.folder / "c", self.trained(best.name)
        shutil.rmtree(folder, ignore_errors=True)
        export_c(trained.model, folder, int8=True, vocabulary=tokens_of(trained))
        commands = f"linnet export {self.folder / best.name} --to c --int8 --out {folder}\ncd {folder}\n"
        commands += f'cc -O3 model.c main.c -lm\n./a.out "{PROMPT}"'
        about = f"{best.label} as a program in C that needs no library, with weights in int8."
        text, told = spoken(folder)
        about = f"{about} {told}"
        say(f"\n{about}\n\n{commands}\n\n{text}".rstrip())
        return Speech(best.label, commands, text, about)

    def write_lens(self, best: Any) -> None:
        from linnet.analysis.lens.describe import CannotShow
        from linnet.analysis.lens.runs import lens_of

        try:
            lens_of(self.trained(best.name)).save(self.folder / "lens.html")
            say(f"\nType a text and watch {best.label} read it: {self.folder / 'lens.html'}")
        except CannotShow as reason:
            say(f"\nThere is no lens of {best.label}: {reason}")


def spoken(folder: Path) -> tuple[str, str]:
    """Compile the program and run it; return what it says, and a sentence about it."""
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), None)
    if compiler is None:
        return "", "There is no C compiler on this machine, so it was not compiled."
    program = (folder / "speak").resolve()
    try:
        called([compiler, "-O3", "model.c", "main.c", "-lm", "-o", str(program)], folder)
        said = called([str(program), PROMPT, str(SPOKEN)], folder)
        start = time.perf_counter()
        called([str(program), PROMPT, str(TIMED)], folder)
    except subprocess.CalledProcessError as error:
        return "", f"{' '.join(error.cmd)} failed: {error.stderr.decode(errors='replace').strip()}"
    speed, size = TIMED / (time.perf_counter() - start), program.stat().st_size
    told = f"The program has {size / 1000:,.0f} kB and writes {speed:,.0f} characters a second."
    return said.strip(), told


def called(command: Sequence[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout.decode(
        errors="replace"
    )


def entrant(lane: Any, baseline: Any) -> Any:
    from linnet.analysis.race_page import Entrant
    from linnet.train.race import speed_ratio

    here = lane.run.context.here
    speed = here.tokens / max(here.seconds, 1e-9)
    size = lane.run.updater.model_size()
    return Entrant(lane.name, label_of(lane.name), size, lane.curve, speed_ratio(lane, baseline), speed)


def baseline_of(task: Any) -> str:
    """Say what counting needs, without a network."""
    from linnet.tasks.language import Language

    unigram, ngram = (each.figures["bpc"] for each in Language.baselines(task, "test", {}))
    return (
        f"Counts alone need {ngram:.3f} bits (5-grams of the training text; single characters {unigram:.3f})."
    )


def label_of(name: str) -> str:
    from linnet.train.race import TORCH

    return name if name == TORCH else "linnet.LSTM" if name == "lstm" else UNITS[name].__name__


def bits(each: Any) -> float:
    return each.bits


def step_of(name: str, sizes: tuple[int, int, int]) -> Callable[[], Callable[[], object]]:
    """Return what makes the call of one step of a stack."""
    from linnet.bench.layers import Shape, call_of
    from linnet.recurrent.stream import stream
    from linnet.train.race import TORCH

    def build() -> Callable[[], object]:
        if name == TORCH:
            layer = nn.LSTM(*sizes)
            return call_of(layer, Shape(1, 1, sizes[0]), "step")
        session, x = stream(UNITS[name](*sizes).eval()), torch.randn(1, sizes[0])
        return lambda: session(x)

    return build
