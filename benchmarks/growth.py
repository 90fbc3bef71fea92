"""How the time of a layer grows with the length of its sequences."""

from __future__ import annotations

from typing import Any

from benchmarks.contestants import KERNELS, ours
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.targets import judged, target_of
from linnet.bench.timing import Times, race

TO = "a step at the shortest L"


def measure(settings: Settings, book: Book) -> list[Row]:
    """Time all lengths in one race, so that each is compared with the shortest of the same run."""
    rows: list[Row] = []
    shapes = {str(length): settings.growing._replace(L=length) for length in settings.lengths}
    for unit in settings.elementwise("sru", "lrn"):
        for mode in settings.modes:
            entrants = {name: ours(unit, shape, mode, settings.device) for name, shape in shapes.items()}
            builders = {name: entrant.build for name, entrant in entrants.items()}
            limits = (settings.rounds, settings.threads, settings.seconds)
            times = race(builders, *limits, book.say, settings.device)
            kernels = {"backend": KERNELS[settings.device]}
            rows += book.add(*({**row(unit, mode, shapes[name], times), **kernels} for name in times))
    return rows


def row(unit: str, mode: str, shape: Shape, times: dict[str, Times]) -> dict[str, Any]:
    first = next(iter(times))
    ratio = (times[str(shape.L)].p50 / shape.L) / (times[first].p50 / int(first))
    known = {"what": "growth", "unit": unit, "mode": mode, **shape.columns()}
    known |= times[str(shape.L)].columns()
    figure = target_of(unit, mode, shape, TO) if str(shape.L) != first else None
    return {**known, **judged(ratio, TO, figure)}
