"""The memory tasks: the NRU authors' batches number for number, and sequences that are what they say."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from linnet.data.batches import IGNORE
from linnet.data.errors import DataError
from linnet.data.memory import Adding, Copying, Denoising, Endless, Selective, SequenceBatch

GOLDEN = Path(__file__).parent.parent / "golden" / "nru"
THEIRS = {
    "task_copy_T100": Copying(100),
    "task_copy_var_1_100": Copying(100, variable=True),
    "task_denoise_T100": Denoising(100),
}
ALL: list[Endless] = [Copying(7), Copying(9, variable=True), Denoising(12), Selective(12), Adding(8)]


def some(
    problem: Endless, number: int = 3, batch: int = 4, seed: Any = 3, **given: Any
) -> list[SequenceBatch]:
    return list(islice(problem.batches(batch, seed, **given), number))


@pytest.mark.parametrize("name", THEIRS)
def test_the_batches_are_the_authors(name: str):
    theirs = np.load(GOLDEN / f"{name}.npz")
    ours = some(THEIRS[name], sum(key.endswith("_x") for key in theirs.files), batch=10, seed=5)
    assert len(ours) >= 2
    for number, batch in enumerate(ours):
        counted = theirs[f"b{number}_mask"] > 0
        np.testing.assert_array_equal(batch.inputs, theirs[f"b{number}_x"])
        np.testing.assert_array_equal(batch.targets[counted], theirs[f"b{number}_y"][counted])
        assert (batch.targets[~counted] == IGNORE).all()
        assert THEIRS[name].input_size == theirs[f"b{number}_xdim"]  # type: ignore[attr-defined]


def test_copying_is_laid_out_as_its_words_say():
    (batch,) = some(Copying(span=3, symbols=2, recalled=4), 1)
    shown, rest = batch.inputs[:4], batch.inputs[4:]
    assert set(shown.unique().tolist()) == {1, 2}
    assert rest[:, 0].tolist() == [0, 0, 3, 0, 0, 0, 0]
    assert torch.equal(batch.targets[-4:], shown)
    assert (batch.targets[:-4] == 0).all()


def test_a_variable_lag_takes_every_value_up_to_the_span():
    lags = {len(batch.inputs) - 2 for batch in some(Copying(4, recalled=1, variable=True), 60)}
    assert lags == {1, 2, 3, 4}


def test_denoising_shows_the_symbols_in_the_order_in_which_they_are_asked():
    (batch,) = some(Denoising(span=9, symbols=5, recalled=3), 1)
    for x, y in zip(batch.inputs.T, batch.targets.T, strict=True):
        assert x[:9][x[:9] > 0].tolist() == y[-3:].tolist()
        assert x[9:].tolist() == [6, 0, 0, 0]


def test_selective_copying_asks_for_each_symbol_by_a_marker():
    task = Selective(span=9, symbols=5, recalled=3)
    (batch,) = some(task, 1, batch=30)
    assert len(batch.inputs) == task.length == 12
    for x, y in zip(batch.inputs.T, batch.targets.T, strict=True):
        assert x[:9][x[:9] > 0].tolist() == y[-3:].tolist()
        assert (x[:9] <= 5).all()
        assert x[9:].tolist() == [6, 6, 6]
        assert (y[:9] == IGNORE).all()
    starts = {int(x.nonzero()[0]) for x in batch.inputs.T}
    assert len(starts) > 3, "the symbols are at random positions"


def test_selective_copying_of_a_hand_made_sequence():
    places, shown = np.array([[1, 3]]), np.array([[2, 1]])
    inputs, targets = Selective(span=4, symbols=2, recalled=2).lay_out((places, shown, shown))
    assert inputs[:, 0].tolist() == [0, 2, 0, 1, 3, 3]
    assert targets[:, 0].tolist() == [IGNORE] * 4 + [2, 1]


def test_adding_marks_one_number_in_each_half():
    (batch,) = some(Adding(7), 1, batch=50)
    numbers, marks = batch.inputs.unbind(-1)
    assert (marks[:3].sum(0) == 1).all()
    assert (marks[3:].sum(0) == 1).all()
    assert {0, 1} == set(marks.unique().tolist())
    assert torch.equal(batch.targets[0], (numbers * marks).sum(0))
    assert 0 <= float(numbers.min()) < 0.05 < 0.95 < float(numbers.max()) < 1


@pytest.mark.parametrize("problem", ALL, ids=repr)
def test_a_stream_goes_on_where_it_was_left(problem: Endless):
    whole, rest = some(problem, 5), some(problem, 2, first=3)
    assert [batch.index for batch in rest] == [3, 4]
    for a, b in zip(whole[3:], rest, strict=True):
        assert torch.equal(a.inputs, b.inputs)
        assert torch.equal(a.targets, b.targets)
    assert not all(
        torch.equal(a.inputs, b.inputs) for a, b in zip(whole, some(problem, 5, seed=4), strict=True)
    )


@pytest.mark.parametrize("problem", ALL, ids=repr)
def test_an_evaluation_is_the_same_each_time_and_of_its_own(problem: Endless):
    def inputs(split: str) -> list[Tensor]:
        return [batch.inputs for batch in problem.evaluation(split, 4, 3, 10)]

    assert len(inputs("valid")) == 3
    assert all(map(torch.equal, inputs("valid"), inputs("valid")))
    shown = [batch.inputs for batch in some(problem)]
    pairs = [(inputs("valid"), inputs("test")), (inputs("valid"), shown), (inputs("train"), inputs("valid"))]
    for a, b in pairs:
        assert not any(x.shape == y.shape and torch.equal(x, y) for x in a for y in b)


def test_random_labels_have_nothing_to_do_with_what_is_shown():
    (plain,), (batch,) = (some(Copying(50, random_labels=flag), 1, batch=400) for flag in (False, True))
    assert torch.equal(plain.inputs, batch.inputs)
    hits = (batch.targets[-10:] == batch.inputs[:10]).double().mean()
    assert float(hits) == pytest.approx(1 / 8, abs=0.03)
    (noisy,) = some(Denoising(20, random_labels=True), 1, batch=400)
    assert set(noisy.targets[-10:].unique().tolist()) == set(range(1, 9))


def test_processes_share_a_batch():
    (batch,) = some(Denoising(12), 1)
    shares = [batch.columns(rank, 2) for rank in (0, 1)]
    assert torch.equal(torch.cat([share.inputs for share in shares], 1), batch.inputs)
    assert torch.equal(torch.cat([share.targets for share in shares], 1), batch.targets)
    with pytest.raises(DataError, match="a batch of 4 cannot be shared by 5 processes"):
        batch.columns(0, 5)


# -------------------------------------------------------------------------------------- baselines


def guessed(problem: Copying | Denoising, batch: SequenceBatch) -> tuple[float, int]:
    """The summed loss of a blank where one is due, and of all symbols alike where not."""
    counted = batch.targets[batch.targets != IGNORE]
    return float((counted != 0).sum() * math.log(problem.symbols)), len(counted)


@pytest.mark.parametrize(
    "problem", [Copying(30, 5, 4), Copying(30, 5, 4, variable=True), Denoising(30, 5, 4), Selective(30, 5, 4)]
)
def test_the_baseline_is_what_guessing_costs(problem: Copying | Denoising):
    costs, counts = zip(*(guessed(problem, batch) for batch in some(problem, 400)), strict=True)
    assert sum(costs) / sum(counts) == pytest.approx(problem.baseline, rel=0.05)


def test_the_baselines_are_those_of_the_paper():
    """Figure 1: 0.17 and 0.09 (0.0945: the paper cuts)."""
    assert Copying(100).baseline == pytest.approx(0.17, abs=0.005)
    assert Copying(200).baseline == pytest.approx(0.09, abs=0.005)


def test_the_baseline_of_adding_is_the_error_of_the_mean():
    (batch,) = some(Adding(10), 1, batch=20_000)
    assert float((batch.targets - 1).square().mean()) == pytest.approx(Adding().baseline, rel=0.03)


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Copying(0), "span T must be from 1 to 1,000,000; got 0"),
        (lambda: Copying(10**9), "span T must be from 1 to 1,000,000; got 1,000,000,000"),
        (lambda: Copying(5, symbols=1), "symbols, n, must be from 2 to 10,000; got 1"),
        (lambda: Copying(5, recalled=0), "to recall, k, must be from 1"),
        (lambda: Copying(2.5), "span T must be an integer; got 2.5"),
        (lambda: Denoising(9), "span T must be from 10 to"),
        (lambda: Selective(3, recalled=4), "span T must be from 4 to"),
        (lambda: Adding(1), "span T must be from 2 to"),
    ],
)
def test_what_is_out_of_range_is_answered(make: Any, told: str):
    with pytest.raises(DataError, match=told):
        make()
