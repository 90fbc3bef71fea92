"""State tracking: answers worked out by hand, by counting and by Python; lengths; errors."""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from linnet.data.errors import DataError
from linnet.data.memory import SequenceBatch
from linnet.data.tracking import Cycle, EvenPairs, Modular, Parity, Tracking

ALL = (Parity, EvenPairs, Cycle, Modular)
KINDS = pytest.mark.parametrize("kind", ALL)


def state_after(source: Tracking, text: str) -> str:
    inputs = np.array([[source.symbols.index(each)] for each in text])
    return source.answers[int(source.final_states(inputs)[0])]


def texts(source: Tracking, batch: SequenceBatch) -> list[str]:
    return ["".join(source.symbols[each] for each in column) for column in batch.inputs.T.tolist()]


def some(source: Tracking, number: int = 40) -> list[SequenceBatch]:
    return list(islice(source.batches(6, 3), number))


@pytest.mark.parametrize(
    ("kind", "text", "state"),
    [
        *((Parity, "0", "even"), (Parity, "1", "odd"), (Parity, "1101", "odd"), (Parity, "11011", "even")),
        # 001110: 01 and 10; 0101001: 01, 10, 01, 10, 01; a single bit has no pair.
        *((EvenPairs, "001110", "even"), (EvenPairs, "0101001", "odd"), (EvenPairs, "1", "even")),
        # 1 - 1 + 0 - 1 - 1 = -2; five steps forward are once around.
        *((Cycle, "+-0--", "3"), (Cycle, "+++-", "2"), (Cycle, "+++++", "0"), (Cycle, "0", "0")),
        *((Modular, "1+2*3", "2"), (Modular, "1-1-1", "4"), (Modular, "0*1+4*3-2", "0"), (Modular, "4", "4")),
        # A minus belongs to the whole product: 1 - 24 = -23.
        (Modular, "1-2*3*4", "2"),
    ],
)
def test_states_worked_out_by_hand(kind: Any, text: str, state: str):
    assert state_after(kind(), text) == state


EXPECTED = {
    Parity: lambda text: text.count("1") % 2,
    # The number of changes is even if the last bit is the first.
    EvenPairs: lambda text: int(text[0] != text[-1]),
    Cycle: lambda text: (text.count("+") - text.count("-")) % 5,
    Modular: lambda text: eval(text) % 5,
}


@KINDS
def test_targets_are_the_states_after_the_inputs(kind: Any):
    source = kind()
    for batch in some(source):
        assert batch.targets.shape == (1, 6)
        assert batch.targets[0].tolist() == [EXPECTED[kind](text) for text in texts(source, batch)]


@KINDS
def test_all_inputs_and_states_occur(kind: Any):
    source = kind()
    batches = some(source, 100)
    inputs = Counter(character for batch in batches for text in texts(source, batch) for character in text)
    assert set(inputs) == set(source.symbols)
    states = torch.cat([batch.targets.flatten() for batch in batches]).bincount(minlength=source.output_size)
    assert len(states) == source.output_size
    assert int(states.min()) > 0


@KINDS
def test_lengths_of_training_are_short_and_those_of_the_test_long(kind: Any):
    source = kind(shortest=3, longest=9, test_longest=29)
    assert {len(batch.inputs) for batch in some(source, 200)} == set(lengths(kind, range(3, 10)))
    valid, test = (
        [len(batch.inputs) for batch in source.evaluation(split, 6, 3, 6 * 7)] for split in ("valid", "test")
    )
    assert valid == lengths(kind, range(3, 10))
    assert test == lengths(kind, (9, 12, 16, 19, 22, 26, 29))


def lengths(kind: Any, drawn: Any) -> list[int]:
    """An expression has an odd length."""
    return [length - (kind is Modular and length % 2 == 0) for length in drawn]


@KINDS
def test_a_stream_goes_on_where_it_was_left(kind: Any):
    whole, rest = some(kind(), 5), list(islice(kind().batches(6, 3, first=3), 2))
    for a, b in zip(whole[3:], rest, strict=True):
        assert torch.equal(a.inputs, b.inputs)
        assert torch.equal(a.targets, b.targets)
        assert a.index == b.index


@KINDS
def test_an_evaluation_is_the_same_each_time_and_of_its_own(kind: Any):
    def inputs(split: str) -> list[Any]:
        return [batch.inputs for batch in kind(20, 20, 20).evaluation(split, 6, 3, 18)]

    shown = [batch.inputs for batch in islice(kind(20, 20, 20).batches(6, 3), 3)]
    assert all(map(torch.equal, inputs("valid"), inputs("valid")))
    for a, b in (
        (inputs("valid"), inputs("test")),
        (inputs("train"), inputs("valid")),
        (shown, inputs("test")),
    ):
        assert not any(torch.equal(x, y) for x in a for y in b)


@KINDS
def test_the_baseline_takes_all_states_for_equally_likely(kind: Any):
    source = kind()
    assert source.baseline == pytest.approx(math.log(len(source.answers)))
    (batch,) = some(source, 1)
    assert source.guessed(batch.targets) == pytest.approx(6 * source.baseline)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"shortest": 0}, "the shortest length must be from 1 to 1,000,000; got 0"),
        ({"shortest": 50}, "the longest length of training must be from 50 to 1,000,000; got 40"),
        ({"test_longest": 39}, "the longest length of the test must be from 40 to 1,000,000; got 39"),
        ({"longest": 4.5}, "the longest length of training must be an integer; got 4.5"),
    ],
)
def test_lengths_are_checked(given: dict[str, Any], told: str):
    with pytest.raises(DataError, match=told):
        Parity(**given)
