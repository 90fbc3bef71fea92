"""One sequence on one thread: LSTM and GRU, unfrozen, frozen and in int8, relative to inference engines."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.contestants import Contestant
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Comparison, Race
from benchmarks.targets import ALONE
from linnet.bench.engines import FROZEN, INT8, LINNET, RIVALS, TORCH, entrants

OURS = {LINNET: "", FROZEN: " frozen", INT8: " int8"}


def measure(settings: Settings, book: Book) -> list[Row]:
    alone = replace(settings, threads=1)
    units = [unit for unit in TORCH if unit in settings.units]
    races = [
        race_of(unit, shape, both) for unit in units for both in (False, True) for shape in settings.alone
    ]
    return [row for race in races for row in race.run(alone, book)]


def race_of(unit: str, shape: Shape, both: bool) -> Race:
    found = entrants(unit, shape, both, threads=1)
    contestants = {
        name: Contestant(f"{unit}{OURS[name]}", "cpu", build)
        if name in OURS
        else Contestant(unit, name, build)
        for name, build in found.items()
    }
    names = {"torch": f"nn.{unit.upper()}"}
    comparisons = [
        Comparison(ours, rival, names.get(rival, rival))
        for ours, rivals in RIVALS.items()
        for rival in rivals
        if rival in found
    ]
    return Race("engines", shape, ALONE[both], contestants, comparisons)
