"""The speed of a layer relative to torch's, to the reference loop, to another package and to the limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from benchmarks import contestants
from benchmarks.contestants import Contestant
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.targets import WITH_MATRICES, judged, target_of
from linnet.bench.timing import Call, Times, clock_of, race


class Comparison(NamedTuple):
    """The time of `entrant` relative to that of `baseline` in the same race; rows name the baseline `to`."""

    entrant: str
    baseline: str
    to: str


class Race(NamedTuple):
    what: str
    shape: Shape
    mode: str
    entrants: dict[str, Contestant]
    comparisons: list[Comparison]

    def run(self, settings: Settings, book: Book) -> list[Row]:
        builders = {name: entrant.build for name, entrant in self.entrants.items()}
        # Reference loops are slow and the differences large, so a few rounds are enough.
        seconds = settings.seconds / 2 if "reference" in self.entrants else settings.seconds
        how = (settings.rounds, settings.threads, seconds, book.say, settings.device)
        times = race(builders, *how, clock=clock_of(settings.threads))
        # A race may have other threads than the rest of the book.
        measured = [{"threads": settings.threads, **row} for name in times for row in self.rows(name, times)]
        return book.add(*measured)

    def rows(self, name: str, times: dict[str, Times]) -> list[dict[str, Any]]:
        """Return a row for each comparison of a contestant, or one without a ratio."""
        unit, backend, _ = self.entrants[name]
        known: dict[str, Any] = {"what": self.what, "unit": unit, "backend": backend, "mode": self.mode}
        known |= {**self.shape.columns(), **times[name].columns()}
        rows = []
        for _, baseline, to in (c for c in self.comparisons if c.entrant == name and c.baseline in times):
            ratio = times[name].p50 / times[baseline].p50
            rows.append({**known, **judged(ratio, to, target_of(unit, self.mode, self.shape, to))})
        return rows or [known]


def model_race(
    what: str,
    shape: Shape,
    mode: str,
    ours: Mapping[str, Callable[[], Any]],
    theirs: tuple[str, Callable[[], Any]],
    call_of: Callable[[Any, Shape], Call],
) -> Race:
    """Return the race of a model with several units against the same model with a unit of torch.

    ours      the functions that build the model, by unit
    theirs    the name of torch's unit, and the function that builds the model with it
    call_of   returns the call to measure, of a model
    """

    def contestant(unit: str, backend: str, build: Callable[[], Any]) -> Contestant:
        return Contestant(unit, backend, lambda: call_of(build(), shape))

    entrants = {unit: contestant(unit, "cpu", build) for unit, build in ours.items()}
    to = f"{what} with {theirs[0]}"
    entrants[to] = contestant(theirs[0], "torch", theirs[1])
    return Race(what, shape, mode, entrants, [Comparison(unit, to, to) for unit in ours])


def races(settings: Settings) -> list[Race]:
    """Return the races of each shape and mode; slow loops are in separate races."""
    slow = set(settings.references) | {
        u for u in settings.units if not contestants.has_kernel(u, settings.device)
    }
    result = []
    for shape in settings.shapes:
        for mode in ("step",) if shape.is_step else settings.modes:
            fused = [unit for unit in settings.units if unit not in slow]
            result.append(against_torch(settings, fused, shape, mode))
            with_loops = [u for u in settings.units if u in settings.references]
            result += [against_reference(u, shape, mode, settings.device) for u in with_loops]
            others = [u for u in settings.units if u in slow - set(settings.references)]
            result += [against_torch(settings, others, shape, mode)]
            if settings.peers and "sru" in settings.units and not shape.is_step:
                result.append(against_sru_package(shape, mode, settings.device))
    return [race for race in result if race.comparisons]


def against_torch(settings: Settings, units: list[str], shape: Shape, mode: str) -> Race:
    entrants = {unit: contestants.ours(unit, shape, mode, settings.device) for unit in units}
    comparisons = [Comparison(unit, "nn.LSTM", "nn.LSTM") for unit in units]
    entrants["nn.LSTM"] = contestants.torch_layer("nn.LSTM", shape, mode, settings.device)
    if "gru" in units:
        entrants["nn.GRU"] = contestants.torch_layer("nn.GRU", shape, mode, settings.device)
        comparisons.append(Comparison("gru", "nn.GRU", "nn.GRU"))
    for unit in settings.elementwise(*units):
        count = contestants.matrices_of(unit)
        entrants[f"limit of {count}"] = contestants.limit(count, shape, mode)
        comparisons.append(Comparison(unit, f"limit of {count}", "limit"))
    for unit in (unit for unit in units if unit in WITH_MATRICES):
        entrants[f"products of {unit}"] = contestants.own_products(unit, shape, mode)
        comparisons.append(Comparison(unit, f"products of {unit}", "own products"))
    if {"sru", "lrn"} <= set(units):
        comparisons.append(Comparison("lrn", "sru", "sru"))
    return Race("speed", shape, mode, entrants, comparisons)


def against_sru_package(shape: Shape, mode: str, device: str) -> Race:
    """The package has its own race: it is slow and leaves the memory fragmented."""
    entrants = {
        "nn.LSTM": contestants.torch_layer("nn.LSTM", shape, mode, device),
        "sru": contestants.ours("sru", shape, mode, device),
        "sru package": contestants.sru_package(shape, mode),
    }
    return Race("speed", shape, mode, entrants, [Comparison("sru", "sru package", "sru package")])


def against_reference(unit: str, shape: Shape, mode: str, device: str) -> Race:
    entrants = {
        unit: contestants.ours(unit, shape, mode, device),
        "reference": contestants.reference_loop(unit, shape, mode),
        "nn.LSTM": contestants.torch_layer("nn.LSTM", shape, mode, device),
    }
    comparisons = [Comparison(unit, other, other) for other in ("reference", "nn.LSTM")]
    return Race("speed", shape, mode, entrants, comparisons)
