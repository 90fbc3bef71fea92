"""A benchmark: run each part, print its table and record its rows."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import (
    bfloat16,
    blocks,
    checks,
    classifier,
    engines,
    exported,
    growth,
    int8,
    language,
    loss,
    matching,
    memory,
    onnx,
    options,
    padding,
    reading,
    recurrence,
    start,
    steps,
    tagging,
    today,
    translating,
)
from benchmarks.children import ROOT
from benchmarks.report import table
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings
from benchmarks.speed import races
from linnet.base.memory import reuse_memory
from linnet.bench.timing import Say

Part = Callable[[Settings, Book, bool], None]


def run(settings: Settings, what: str, path: Path | None, again: bool = True, say: Say = print) -> list[Row]:
    """Measure `what`, one of PARTS or "all".

    again   measure SRU and LRN again in a process that reuses freed memory
    """
    start = time.perf_counter()
    if settings.memory == "reused" and not reuse_memory():
        raise RuntimeError("only glibc can be told to reuse memory; this is another C library")
    book = Book(path, settings.threads, say, settings.device, settings.memory)
    for name, part in PARTS.items():
        if what in (name, "all"):
            run_part(name, part, settings, book, again)
    say(f"\n{summary(book.rows)} {time.perf_counter() - start:.0f} s.")
    if path is not None:
        say(f"The rows are in {path}.")
    return book.rows


def run_part(name: str, part: Part, settings: Settings, book: Book, again: bool) -> None:
    """Run a part; on a GPU, skip parts about the CPU's memory, threads and compiler."""
    if settings.device == "cuda" and name not in ON_GPU:
        book.say(f"\nskipped: {name}, which is measured on the CPU only")
        return
    part(settings, book, again and settings.device == "cpu")


def summary(rows: Sequence[Row]) -> str:
    judged = [row for row in rows if row["met"]]
    met = sum(row["met"] == "yes" for row in judged)
    return f"{len(rows)} rows; {met} of the {len(judged)} that have a target meet it."


def speed(settings: Settings, book: Book, again: bool) -> None:
    for race in races(settings):
        book.say(f"\n{race.what}, {race.mode}, {race.shape}: {', '.join(race.entrants)}")
        book.say(table(race.run(settings, book)))
    if again:
        with_reused_memory(settings, book)


def with_reused_memory(settings: Settings, book: Book) -> None:
    """Measure SRU and LRN relative to nn.LSTM in a new process, in which all reuse freed memory."""
    units = [unit for unit in ("sru", "lrn") if unit in settings.units]
    shapes = [str(shape) for shape in settings.shapes if not shape.is_step]
    if not units or not shapes:
        book.say("\nskipped: reused memory: it is measured with sequences of SRU and LRN")
        return
    book.say("\nSRU and LRN with linnet.reuse_memory():")
    command = ["-m", "benchmarks", "--what", "speed", "--memory", "reused"]
    command += ["--units", *units, "--shapes", *shapes, "--modes", *settings.modes]
    command += ["--rounds", str(settings.rounds), "--threads", str(settings.threads)]
    command += ["--results", str(book.path.resolve())] if book.path else ["--no-rows"]
    sys.stdout.flush()
    done = subprocess.run([sys.executable, *command], cwd=ROOT, check=False)
    if done.returncode:
        book.say(f"skipped: reused memory: exit code {done.returncode}")


def one_table(title: str, measure: Callable[[Settings, Book], list[Row]]) -> Part:
    def part(settings: Settings, book: Book, again: bool) -> None:
        book.say(f"\n{title}")
        book.say(table(measure(settings, book)))

    return part


def measure_loop(settings: Settings, book: Book) -> list[Row]:
    # Imported only when it is used: the training packages are an extra.
    from benchmarks import loop

    return loop.measure(settings, book)


ON_GPU = ("speed", "growth")
PARTS: dict[str, Part] = {
    "speed": speed,
    "steps": one_table("one step: cells, streams, with gradients, and under load", steps.measure),
    "blocks": one_table("frames of one stream, alone and in blocks, one thread", blocks.measure),
    "recurrence": one_table("recurrence alone, relative to a copy of the same bytes", recurrence.measure),
    "checks": one_table("the checks before a kernel, relative to the whole call", checks.measure),
    "growth": one_table("growth with the length of the sequences", growth.measure),
    "memory": one_table("peak memory of a training step, in new processes", memory.measure),
    "start": one_table("start-up, in new processes", start.measure),
    "loss": one_table("the loss of a language model, relative to its three matrix products", loss.measure),
    "classifier": one_table("a training step of a sentence classifier", classifier.measure),
    "tagging": one_table("a training step of a tagger, and the CRF", tagging.measure),
    "reading": one_table("a training step of a reader's document encoder", reading.measure),
    "translating": one_table("translation by beam search", translating.measure),
    "matching": one_table("word-by-word attention, relative to its matrix products", matching.measure),
    "language": one_table("a training step of a language model", language.measure),
    "int8": one_table("int8, relative to float32", int8.measure),
    "bfloat16": one_table("bfloat16, relative to float32", bfloat16.measure),
    "onnx": one_table("ONNX's own operators, relative to a Scan", onnx.measure),
    "padding": one_table("sequences of different lengths, one thread", padding.measure),
    "engines": one_table("one sequence on one thread, relative to inference engines", engines.measure),
    "options": one_table("units and options with kernels, relative to the loop over time", options.measure),
    "today": one_table("newer units, relative to their products and to other packages", today.measure),
    "exported": one_table("steps of exported models, one thread", exported.measure),
    "loop": one_table("the training loop, relative to the model alone", measure_loop),
}
