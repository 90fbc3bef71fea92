"""Start-up times: the import, the first call, and the first call with an empty kernel cache."""

from __future__ import annotations

import tempfile
from typing import Any

from benchmarks.children import run_python
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings
from benchmarks.targets import MILLISECONDS
from linnet.bench.timing import Times
from linnet.units import UNITS

IMPORT = """
import time, torch
start = time.perf_counter()
import linnet
print(time.perf_counter() - start)
"""
# Builds a layer and runs a forward and a backward pass.
FIRST_CALL = """
import time, torch, linnet
torch.set_num_threads({threads})
x = torch.randn(32, 8, 256, requires_grad=True)
start = time.perf_counter()
linnet.{unit}(256, 256)(x)[0].sum().backward()
print(time.perf_counter() - start)
"""


def measure(settings: Settings, book: Book) -> list[Row]:
    """Time the units first: Python has then compiled the modules that the imports load."""
    rows: list[Row] = []
    try:
        for unit in (unit for unit in settings.starting if unit in settings.units):
            rows += book.add(*first_calls(unit, settings))
        seconds = [float(run_python("-c", IMPORT)) for _ in range(settings.repeats)]
        rows += book.add(row("import", "", seconds))
    except RuntimeError as error:
        book.say(f"skipped: start: {error}")
    return rows


def first_calls(unit: str, settings: Settings) -> list[dict[str, Any]]:
    """Return the rows with an empty kernel cache, new each time, and with a full one."""
    code = FIRST_CALL.format(unit=UNITS[unit].__name__, threads=settings.threads)
    cold, warm = [], []
    for _ in range(settings.repeats):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(float(run_python("-c", code, LINNET_CACHE=folder)))
            warm.append(float(run_python("-c", code, LINNET_CACHE=folder)))
    return [row("cold compile", unit, cold), row("first call", unit, warm)]


def row(mode: str, unit: str, seconds: list[float]) -> dict[str, Any]:
    times, most = Times.of(seconds), MILLISECONDS[mode]
    known = {"what": "start", "unit": unit, "mode": mode, "backend": "cpu" if unit else ""}
    return {**known, **times.columns(), "target": f"{most:.0f} ms", "met": times.p50 <= most}
