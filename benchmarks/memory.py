"""Peak memory of a training step, each in a new process.

    python -m benchmarks.memory sru 1024 8 512 2

prints by how many megabytes a forward and backward pass raises the peak memory of the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.children import run_python
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.targets import judged, target_of
from linnet.bench.layers import call_of
from linnet.units import UNITS


def measure(settings: Settings, book: Book) -> list[Row]:
    names = [*settings.units, "nn.LSTM"]
    peaks = {}
    for name in names:
        try:
            peaks[name] = median(peak_of(name, settings) for _ in range(settings.repeats))
        except RuntimeError as error:
            book.say(f"skipped: memory of {name}: {error}")
    return book.add(*(row(name, settings.peak, peaks) for name in peaks))


def row(name: str, shape: Shape, peaks: dict[str, float]) -> dict[str, Any]:
    backend = "torch" if name == "nn.LSTM" else "cpu"
    known = {"what": "memory", "unit": name, "backend": backend, "mode": "training", **shape.columns()}
    known |= {"peak_mb": peaks[name]}
    if name == "nn.LSTM" or "nn.LSTM" not in peaks:
        return known
    figure = target_of(name, "memory", shape, "nn.LSTM")
    # At the small sizes of `quick`, the peak may not rise at all.
    return {**known, **judged(peaks[name] / (peaks["nn.LSTM"] or 1.0), "nn.LSTM", figure)}


def peak_of(name: str, settings: Settings) -> float:
    numbers = map(str, (*settings.peak, settings.threads))
    return float(run_python("-m", "benchmarks.memory", name, *numbers))


def peak() -> float:
    """Return the peak memory of the process so far, in megabytes."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        import resource  # not on Windows

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    # Not ru_maxrss: on Linux, a new process inherits the peak of its parent.
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def resident() -> float:
    """Return the current memory in megabytes; 0 if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def trim() -> None:
    """Return unused memory to the system, so that only used memory is counted."""
    gc.collect()
    if sys.platform.startswith("linux"):
        with contextlib.suppress(AttributeError):  # not every C library has it
            ctypes.CDLL(None).malloc_trim(0)


def main(arguments: Sequence[str]) -> None:
    name, *numbers = arguments
    *shape, threads = map(int, numbers)
    torch.set_num_threads(threads)
    layer = (nn.LSTM if name == "nn.LSTM" else UNITS[name])(shape[2], shape[2])
    # Run a short sequence first, so that compilation and other set-up do not count.
    call_of(layer, Shape(2, *shape[1:]), "training")()
    x = torch.randn(*shape, requires_grad=True)
    above = torch.ones(*shape[:2], getattr(layer, "output_size", shape[2]))
    before = peak()
    torch.autograd.grad(layer(x)[0], [x, *layer.parameters()], above)
    print(peak() - before)


if __name__ == "__main__":
    main(sys.argv[1:])
