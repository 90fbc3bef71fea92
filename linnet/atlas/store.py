"""The record in the folder of an atlas, to which results are added. What it has is not made again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from linnet.atlas.plan import VIEWS, Place
from linnet.atlas.problems import NEEDED, PROBLEMS
from linnet.atlas.record import Atlas, Cell, Circumstances, Known, Row, read_atlas, write_atlas
from linnet.units import UNITS

SAME_SETTINGS = ("reads", "figure", "budget", "updates")


class Store:
    """Rows by their cells, problems by their names; `atlas` is all of it as it is written."""

    def __init__(self, path: Path, form: str):
        found = read_atlas(path) if path.exists() else Atlas(form, (), (), (), ())
        if found.form != form:
            raise ValueError(
                f"{path.parent} has an atlas of the {found.form} form, and this is the {form} one; "
                "give another --run-dir"
            )
        self.path, self.form = path, form
        self.seeds, self.circumstances = list(found.seeds), list(found.circumstances)
        self.problems = {each.name: each for each in found.problems}
        self.rows = {row.cell: row for row in found.rows}
        self.left_out = dict(found.left_out)

    def save(self) -> Atlas:
        write_atlas(self.path, self.atlas)
        return self.atlas

    @property
    def atlas(self) -> Atlas:
        """All of it; problems and units have the order of their lists, whenever they were added."""
        problems = [name for name in PROBLEMS if name in self.problems]
        cells = [Cell(view, name, unit) for view in VIEWS for name in problems for unit in UNITS]
        rows = [self.padded(self.rows[cell]) for cell in cells if cell in self.rows]
        return Atlas(
            form=self.form,
            seeds=tuple(self.seeds),
            circumstances=tuple(self.circumstances),
            problems=tuple(self.problems[name] for name in problems),
            rows=tuple(rows),
            left_out={name: why for name, why in self.left_out.items() if name not in self.problems},
            options={unit: dict(each) for unit, each in NEEDED[self.form].items() if unit in self.units},
        )

    @property
    def units(self) -> set[str]:
        return {cell.unit for cell in self.rows}

    def padded(self, row: Row) -> Row:
        """Return a row with a place for each seed."""
        return replace(row, results=self.of_seeds(row.results), made=self.of_seeds(row.made))

    def of_seeds(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return (*values, *[None] * (len(self.seeds) - len(values)))

    def with_value(self, values: Sequence[Any], seed: int, value: Any) -> tuple[Any, ...]:
        changed = list(self.of_seeds(values))
        changed[self.seeds.index(seed)] = value
        return tuple(changed)

    # -------------------------------------------------------------------------- before the runs

    def add_seeds(self, seeds: Iterable[int]) -> None:
        self.seeds += [seed for seed in seeds if seed not in self.seeds]

    def add_problem(self, known: Known) -> None:
        """Add a problem; one that the record has must have the same settings."""
        there = self.problems.setdefault(known.name, known)
        for name in SAME_SETTINGS:
            old, new = getattr(there, name), getattr(known, name)
            if old != new:
                raise ValueError(
                    f"{self.path} has {known.name} with other settings: {name} was {old!r} and is now "
                    f"{new!r}. Give another --run-dir"
                )

    def refuse_other_machine(self, here: Circumstances) -> None:
        """Raise unless the times in the record were measured on such a machine: others cannot be compared."""
        for number in {row.measured for row in self.rows.values() if row.measured is not None}:
            there = self.circumstances[number]
            if machine_of(there) != machine_of(here):
                raise ValueError(
                    f"the times in {self.path} were measured on {machine_of(there)}, and this is "
                    f"{machine_of(here)}: they cannot be compared. Add units and tasks there, or give "
                    "another --run-dir; seeds can be added on any machine"
                )

    def add_rows(self, rows: Iterable[Row]) -> None:
        self.rows |= {row.cell: row for row in rows}

    def number_of(self, circumstances: Circumstances) -> int:
        if circumstances not in self.circumstances:
            self.circumstances.append(circumstances)
        return self.circumstances.index(circumstances)

    # -------------------------------------------------------------------------------- the runs

    def result(self, place: Place) -> float | None:
        return self.of_seeds(self.rows[place.cell].results)[self.seeds.index(place.seed)]

    def add_result(self, place: Place, value: float, made_in: Circumstances) -> None:
        """Add the result of a run, to both views if they make as many updates: then it is the same run."""
        for cell in (place._replace(view=view).cell for view in VIEWS):
            row = self.rows[cell]
            if row.updates == self.rows[place.cell].updates:
                self.rows[cell] = replace(
                    row,
                    results=self.with_value(row.results, place.seed, value),
                    made=self.with_value(row.made, place.seed, self.number_of(made_in)),
                    notes=tuple(note for note in row.notes if not note.startswith(f"seed {place.seed}:")),
                )

    def add_level(self, problem: str, level: float | None) -> None:
        """Add what the baseline reaches, unless it is known."""
        known = self.problems[problem]
        self.problems[problem] = known if known.level is not None else replace(known, level=level)

    def add_int8(self, place: Place, value: float, size: int) -> None:
        row = self.rows[place.cell]
        self.rows[place.cell] = replace(
            row, int8=self.with_value(row.int8, place.seed, value), int8_bytes=size
        )

    def add_note(self, place: Place, note: str) -> None:
        row = self.rows[place.cell]
        self.rows[place.cell] = replace(row, notes=tuple(dict.fromkeys([*row.notes, note])))


def machine_of(circumstances: Circumstances) -> str:
    return f"{circumstances.processor} with torch {circumstances.packages.get('torch')}"
