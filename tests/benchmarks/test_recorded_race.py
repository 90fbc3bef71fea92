"""`python -m benchmarks.race`: races of several seeds as rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import race
from linnet.analysis.race_page import Entrant
from linnet.train.race import TORCH, Point, Spread


def entrants(held: race.race.Race) -> list[Entrant]:
    """A race that is over at once; its bits are its seed."""
    measured = {"bits": float(held.config.loop.seed), "step": 20.5, "int8": 1000}
    return [
        Entrant(name, name, 10, [Point(1.0, 3.0)], Spread(1.0, 1.5, 2.0), 5.0, **measured)
        for name in (TORCH, *held.units)
    ]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(race.race.Race, "entrants", entrants)
    return tmp_path / "race.csv"


def test_every_model_of_every_seed_has_a_row(path: Path):
    race.main(["--results", str(path), "--seeds", "2", "1", "--", "--units", "sru", "--seconds", "3"])
    rows = race.RECORD.read(path)
    assert [(row["unit"], row["seed"], row["bits"]) for row in rows] == [
        *(("nn.LSTM", "1", "1.0000"), ("sru", "1", "1.0000")),
        *(("nn.LSTM", "2", "2.0000"), ("sru", "2", "2.0000")),
    ]
    assert [rows[1][name] for name in ("seconds", "speed", "step_us", "int8")] == [
        "3",
        "1.500",
        "20.50",
        "1000",
    ]


def test_a_seed_that_is_raced_again_replaces_its_rows(path: Path):
    race.main(["--results", str(path), "--seeds", "1", "2", "--", "--units", "sru", "lrn"])
    race.main(["--results", str(path), "--seeds", "1", "--note", "again", "--", "--units", "sru"])
    found = [(row["unit"], row["seed"], row["note"]) for row in race.RECORD.read(path)]
    assert found == [
        *(("nn.LSTM", "1", "again"), ("sru", "1", "again")),
        *(("nn.LSTM", "2", ""), ("sru", "2", ""), ("lrn", "2", "")),
    ]
