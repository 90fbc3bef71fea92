"""The advice of docs/which_unit.md: the recorded atlas must not contradict it."""

from __future__ import annotations

import re

import pytest

from linnet.atlas.plan import PARAMETERS
from linnet.atlas.record import Atlas, read_atlas
from linnet.atlas.table import ranked, unit_label
from tests.atlas.example import ATLAS
from tools import pages
from tools.unit_advice import ADVICE, advice_table, rank


@pytest.fixture(scope="module")
def recorded() -> Atlas:
    return read_atlas(pages.ATLAS_RECORD)


@pytest.mark.parametrize("wanted", ADVICE)
def test_advised_units_are_in_the_best_third(wanted: str, recorded: Atlas):
    """If this fails after a new record, the advice is to be changed, and not the limit."""
    tasks, units = ADVICE[wanted]
    for task in tasks:
        rows = ranked(recorded, recorded.problem(task), PARAMETERS)
        ranks = {row.unit: rank(row, rows) for row in rows}
        assert all(ranks[unit] <= len(rows) / 3 for unit in units), ranks


@pytest.mark.parametrize("wanted", ADVICE)
def test_the_page_gives_the_same_advice(wanted: str):
    text = pages.WHICH_UNIT.read_text(encoding="utf-8")
    (units,) = re.findall(rf"^\| {re.escape(wanted)} \| (.*?) \|.*#atlas", text, re.MULTILINE)
    assert re.findall(r"\[(\w+)\]", units) == [unit_label(unit) for unit in ADVICE[wanted][1]]


def test_units_with_the_same_result_share_a_rank(recorded: Atlas):
    rows = ranked(recorded, recorded.problem("parity"), PARAMETERS)
    assert [rank(row, rows) for row in rows[:3]] == [1, 1, 1]
    assert rank(rows[-1], rows) == len(rows)


def test_tasks_that_the_record_has_not_are_left_out():
    assert len(advice_table(ATLAS).splitlines()) == 2
