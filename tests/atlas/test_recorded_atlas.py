"""Intervals over seeds, what int8 loses, and the file of an atlas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from linnet.analysis.table import DASH
from linnet.atlas.record import Estimate, T, read_atlas, to_text, write_atlas
from linnet.atlas.table import circumstances, fastest, leaders, matrix, summary
from tests.atlas.example import ATLAS, PROBLEM, row


def test_a_single_seed_has_no_interval():
    assert Estimate.of([0.5, None]) == (0.5, None)
    assert Estimate.of([None]) is None


def test_the_interval_is_that_of_students_t():
    stats = pytest.importorskip("scipy.stats")
    values = [0.8, 0.9, 0.7]
    low, high = stats.t.interval(0.95, 2, loc=0.8, scale=stats.sem(values))
    found = Estimate.of(values)
    assert found is not None
    assert (0.8 - low, high - 0.8) == pytest.approx((found.half, found.half), rel=1e-3)
    expected = [stats.t.ppf(0.975, degrees) for degrees in range(1, len(T) + 1)]
    assert expected == pytest.approx(T, rel=1e-3)


def test_int8_loses_by_the_differences_of_the_same_model():
    """The interval is that of the differences, which vary less than the results."""
    loss = row("sru", (0.5, 0.9), int8=(0.4, 0.8)).int8_loss(higher=True)
    assert loss is not None
    assert (loss.mean, loss.half) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-9))
    worse = row("sru", (2.0,), int8=(2.5,)).int8_loss(higher=False)
    assert worse is not None
    assert worse.mean == 0.5


def test_a_run_without_a_result_is_left_out_of_the_mean():
    assert row("sru", (0.5, None, 0.7)).result == (pytest.approx(0.6), pytest.approx(1.2706))


def test_the_file_has_all_of_it(tmp_path: Path):
    write_atlas(tmp_path / "atlas.json", ATLAS)
    assert read_atlas(tmp_path / "atlas.json") == ATLAS
    lists = (ATLAS.circumstances, ATLAS.problems, ATLAS.rows)
    assert to_text(ATLAS).count("\n  {") == sum(map(len, lists))


def test_a_file_that_was_edited_is_an_error_that_names_it(tmp_path: Path):
    path = tmp_path / "atlas.json"
    path.write_text(to_text(ATLAS).replace('"update_ms"', '"update"'))
    with pytest.raises(ValueError, match=r"atlas\.json is not a record .* update"):
        read_atlas(path)


def test_leaders_are_those_whose_interval_meets_that_of_the_best():
    assert [each.unit for each in leaders(ATLAS, PROBLEM, "parameters")] == ["lstm", "sru"]
    single = replace(ATLAS, rows=tuple(row(each.unit, each.results[:1]) for each in ATLAS.rows[:3]))
    assert leaders(single, PROBLEM, "parameters") == []
    assert fastest(single, PROBLEM, "parameters") == DASH


def test_a_summary_names_the_fastest_of_the_leaders():
    head, (line,) = summary(ATLAS, "parameters")
    assert len(head) == len(line)
    assert line[-1] == "SRU (9.0 µs; 2 in reach)"
    assert line[2] == "0.500 (memoryless)"


def test_without_intervals_nothing_is_in_reach():
    units = ("lstm", "sru", "eurnn", "ran")
    single = replace(ATLAS, seeds=(1,), rows=tuple(row(unit, (0.9,)) for unit in units))
    head, (line,) = summary(single, "parameters")
    assert (head[-1], line[-1]) == ("best", "LSTM 0.900, SRU 0.900, EURNN 0.900 and 1 more")
    assert circumstances(single).endswith("With a single seed there are no intervals.")


def test_all_units_with_the_best_result_are_bold():
    tied = replace(ATLAS, rows=tuple(row(unit, (0.9, 0.8, 0.7)) for unit in ("lstm", "sru")))
    assert [line[1] for line in matrix(tied, "parameters")[1]] == ["**0.800 ± 0.248**"] * 2


def test_runs_of_most_units_were_not_made_yet_and_single_ones_have_failed():
    waiting = tuple(row(unit, (0.9, None, None), "time") for unit in ("lstm", "sru"))
    failed = (row("lstm", (0.9, 0.8, 0.7)), row("sru", (0.9, 0.8, None)), row("ran", (0.9, 0.8, 0.7)))
    text = circumstances(replace(ATLAS, rows=(*failed, *waiting)))
    assert "At equal time, the runs with seed 2 of parity were not made yet." in text
    assert "Without a result: SRU on parity at equal parameters, seed 3." in text
