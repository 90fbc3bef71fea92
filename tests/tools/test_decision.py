"""The tables with which to decide between light units and LSTM."""

from __future__ import annotations

import pytest

from tools import decision
from tools.decision import LINES, NOTHING, Line, Records, cells, decision_table, libraries_table


@pytest.fixture(scope="module")
def records() -> Records:
    return Records.read()


def line(about: str) -> Line:
    (found,) = (each for each in LINES if about in each.about)
    return found


def test_the_best_figure_of_a_line_is_bold():
    low, high = Line("", lambda records: {}), Line("", lambda records: {}, ".1f", higher=True)
    assert cells(low, {"sru": 0.414, "lrn": 0.3412, "lstm": 1.0}) == ["0.41", "**0.34**", "1.00"]
    assert cells(high, {"sru": 9.4, "lstm": 51.41}) == ["9.4", NOTHING, "**51.4**"]
    # Figures that look the same are equally good.
    assert cells(low, {"sru": 0.341, "lrn": 0.3412, "lstm": 1.0})[:2] == ["**0.34**", "**0.34**"]


def test_runs_with_seeds_are_averaged_and_variants_are_other_rows(records: Records):
    row = {"table": "t", "changed": "", "test": "1"}
    found = [
        *({**row, "row": f"sru-seed{seed}", "test": str(seed)} for seed in (1, 2)),
        {**row, "row": "sru-as-lstm", "test": "9"},
        {**row, "row": "sru-seed3", "test": "9", "changed": "epochs=1"},
    ]
    figures = decision.trained("t", sru="sru")(records._replace(experiments=found))
    assert figures == {"sru": 1.5}


def test_the_race_is_against_torch_s_layer(records: Records):
    found = [
        {"unit": unit, "seed": seed, "bits": bits}
        for unit, seed, bits in (
            ("nn.LSTM", "1", "3"),
            ("lstm", "1", "9"),
            ("sru", "1", "2"),
            ("lrn", "1", "2"),
        )
    ]
    found.append({"unit": "sru", "seed": "2", "bits": "1"})
    figures = line("bits per character").figures(records._replace(race=found))
    assert figures == {"sru": 1.5, "lrn": 2.0, "lstm": 3.0}


def test_both_sides_win_somewhere(records: Records):
    """A table in which one side wins everything would not help to decide."""
    winners = {
        max(found, key=lambda unit: found[unit] * (1 if each.higher else -1))
        for each in LINES
        for found in [each.figures(records)]
    }
    assert winners >= {"lstm"}
    assert winners & {"sru", "lrn"}


def test_every_line_has_a_figure_of_lstm_and_of_a_light_unit(records: Records):
    rows = [row.split(" | ") for row in decision_table(records).splitlines() if row.startswith("| ")][2:]
    assert len(rows) == len(LINES)
    for _, sru, _, lstm in rows:
        assert NOTHING not in (sru, lstm.removesuffix(" |"))


def test_times_have_a_date(records: Records):
    said = decision_table(records).splitlines()[0]
    assert all(
        f"{name} (measured on 2026-" in said for name in ("Layers and steps", "sb3-contrib", "the race")
    )


def test_the_libraries_have_a_time_each(records: Records):
    about, _, _, _, *rows = libraries_table(records).splitlines()
    assert about.startswith("Measured on 2026-")
    assert [row.split()[1] for row in rows] == list(decision.LIBRARIES)
    assert not any(f"| {NOTHING} |" in row for row in rows)
