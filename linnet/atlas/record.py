"""The record of an atlas, atlas.json: what every run gave, and under which circumstances.

    {"form": "quick", "seeds": [1, 2, 3], "circumstances": [...], "problems": [...], "rows": [...], ...}

A row is a unit on a problem in one view, with the result of each seed and the number of its circumstances.
Means, intervals and what int8 loses are computed from the rows, and are not in the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from linnet.base.files import write_atomically
from linnet.base.settings import refuse_unknown

# The 97.5th percentile of Student's t with 1, 2, ... degrees of freedom.
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
Values = Sequence[float | None]


class Estimate(NamedTuple):
    """The mean over seeds, and half of its 95 % interval by Student's t; None for a single seed."""

    mean: float
    half: float | None

    @classmethod
    def of(cls, values: Values) -> Estimate | None:
        """None if there is no value."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        degrees = len(known) - 1
        half = T[min(degrees, len(T)) - 1] * stdev(known) / sqrt(len(known)) if degrees else None
        return cls(mean(known), half)

    def shown(self, form: str) -> str:
        return f"{self.mean:{form}}" + ("" if self.half is None else f" ± {self.half:{form}}")


@dataclass(frozen=True)
class Known:
    """What a reader must know of a problem: its task, its figure and the level of a baseline.

    level      what the baseline reaches in the test; None: not computed yet
    reads      the task, and the settings that differ from its defaults
    """

    name: str
    kind: str
    about: str
    figure: str
    figure_about: str
    format: str
    higher: bool
    baseline: str
    budget: int
    updates: int
    reads: str
    level: float | None = None


class Cell(NamedTuple):
    """Where a row belongs."""

    view: str
    problem: str
    unit: str


@dataclass(frozen=True)
class Circumstances:
    """When and where something was measured: the day, the commit of a checkout, and what the machine has."""

    date: str
    commit: str
    processor: str
    packages: Mapping[str, str]

    @classmethod
    def of(cls, environment: Mapping[str, Any]) -> Circumstances:
        """Return those of a run, from its environment.json."""
        known = {name: environment[name] for name in ("processor", "packages")}
        return cls(environment["started"][:10], environment.get("commit", ""), **known)


@dataclass(frozen=True)
class Row:
    """A unit on a problem in one view; `results` has one for each seed, None for a run without a result.

    made       of each result, the number of its circumstances in the atlas
    measured   the same of update_ms and step_us
    update_ms, step_us, int8_bytes, int8   None or empty: see `notes`; a row at equal time has none of them,
               as its model is that at equal parameters
    """

    view: str
    problem: str
    unit: str
    hidden_size: int
    parameters: int
    updates: int
    results: tuple[float | None, ...] = ()
    made: tuple[int | None, ...] = ()
    measured: int | None = None
    update_ms: float | None = None
    step_us: float | None = None
    int8_bytes: int | None = None
    int8: tuple[float | None, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def cell(self) -> Cell:
        return Cell(self.view, self.problem, self.unit)

    @property
    def result(self) -> Estimate | None:
        return Estimate.of(self.results)

    def int8_loss(self, higher: bool) -> Estimate | None:
        """By how much int8 is worse, with the differences of the same model."""
        sign = 1 if higher else -1
        pairs = zip(self.results, self.int8, strict=False)
        return Estimate.of([sign * (a - b) for a, b in pairs if a is not None and b is not None])


@dataclass(frozen=True)
class Atlas:
    """All of it. `seeds` are those of `results`; `left_out` says which problems are not in it, and why."""

    form: str
    seeds: tuple[int, ...]
    circumstances: tuple[Circumstances, ...]
    problems: tuple[Known, ...]
    rows: tuple[Row, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def problem(self, name: str) -> Known:
        return next(each for each in self.problems if each.name == name)

    def of(self, problem: str, view: str) -> list[Row]:
        return [row for row in self.rows if (row.problem, row.view) == (problem, view)]

    @property
    def units(self) -> list[str]:
        return list(dict.fromkeys(row.unit for row in self.rows))


# ------------------------------------------------------------------------------------------ the file


LISTS = {"circumstances": Circumstances, "problems": Known, "rows": Row}


def write_atlas(path: Path, atlas: Atlas) -> None:
    write_atomically(path, to_text(atlas).encode())


def to_text(atlas: Atlas) -> str:
    """Return JSON with one of the circumstances, a problem or a row on each line."""
    head = asdict(atlas)
    lists = {name: lines(head.pop(name)) for name in LISTS}
    text = json.dumps(head, indent=1, ensure_ascii=False)[:-2]
    return text + "".join(f',\n "{name}": [\n{each}\n ]' for name, each in lists.items()) + "\n}\n"


def lines(items: Iterable[Mapping[str, Any]]) -> str:
    return ",\n".join("  " + json.dumps(without_empty(each), ensure_ascii=False) for each in items)


def without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, ())}


def read_atlas(path: Path) -> Atlas:
    """Return a record; ValueError says what is not as `write_atlas` writes it."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        lists = {name: tuple(made(cls, each) for each in values.pop(name)) for name, cls in LISTS.items()}
        return made(Atlas, {**values, **lists})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a record that `linnet atlas` has written: {error!r}") from None


def made(cls: Any, values: Mapping[str, Any]) -> Any:
    refuse_unknown(cls.__name__, values, {each.name: each.type for each in fields(cls)})
    return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
