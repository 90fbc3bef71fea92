"""Windows over streams: what is a target, what is left out, and that an epoch can be taken up anywhere."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from linnet.data.batches import (
    IGNORE,
    Window,
    epoch_generator,
    streams,
    varied_lengths,
    varied_windows,
    window_count,
    windows,
)


def joined(found: list[Window]) -> tuple[Tensor, Tensor]:
    return torch.cat([w.inputs for w in found]), torch.cat([w.targets for w in found])


def test_a_text_worked_out_by_hand():
    """Ten tokens, two columns, windows of two: nine targets, of five and four."""
    first, second, third = windows(torch.arange(10, 20), 2, 2)
    assert first.inputs.tolist() == [[10, 15], [11, 16]]
    assert first.targets.tolist() == [[11, 16], [12, 17]]
    assert second.inputs.tolist() == [[12, 17], [13, 18]]
    assert second.targets.tolist() == [[13, 18], [14, 19]]
    assert third.inputs.tolist() == [[14, 19]]
    assert third.targets.tolist() == [[15, IGNORE]]
    assert [(w.start, w.index) for w in (first, second, third)] == [(0, 0), (2, 1), (4, 2)]


def test_the_authors_batching_worked_out_by_hand():
    """Columns of 11 // 2 = 5 tokens have four predictions: one window of three, the rest is dropped."""
    (window,) = windows(torch.arange(11), 2, 3, tail="drop")
    assert window.inputs.tolist() == [[0, 5], [1, 6], [2, 7]]
    assert window.targets.tolist() == [[1, 6], [2, 7], [3, 8]]
    trimmed = list(windows(torch.arange(11), 2, 3, tail="trim"))
    assert trimmed[1].inputs.tolist() == [[3, 8]]
    assert trimmed[1].targets.tolist() == [[4, 9]]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 7), st.integers(1, 9), st.integers(0, 60))
def test_keep_makes_every_token_but_the_first_a_target_once(batch: int, length: int, more: int):
    tokens = torch.arange(batch + 1 + more)
    inputs, targets = joined(list(windows(tokens, batch, length)))
    counted = targets != IGNORE
    assert targets.T[counted.T].tolist() == tokens[1:].tolist()
    # Where there is a target, the input is the token before it; where there is none, it is still a token.
    assert torch.equal(inputs[counted], targets[counted] - 1)
    assert int(inputs.min()) >= 0


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 7), st.integers(1, 9), st.integers(0, 60))
def test_drop_is_the_batching_of_the_tutorial(batch: int, length: int, more: int):
    """Cut into rows, then into blocks, as RAN's and SCRN's readers do."""
    tokens = torch.arange(batch * (length + 1) + more)
    rows = tokens[: len(tokens) // batch * batch].view(batch, -1)
    found = list(windows(tokens, batch, length, tail="drop"))
    assert len(found) == (rows.shape[1] - 1) // length
    for i, window in enumerate(found):
        assert torch.equal(window.inputs, rows[:, i * length : (i + 1) * length].T)
        assert torch.equal(window.targets, rows[:, i * length + 1 : (i + 1) * length + 1].T)


def test_penn_treebank_has_the_authors_number_of_windows():
    """The tutorial's epoch: (929589 // 20 - 1) // 35 = 1327 windows; one column of one step takes all."""
    tokens = torch.zeros(929_589, dtype=torch.uint8)
    assert window_count(tokens, 20, 35, tail="drop") == 1327
    assert window_count(tokens[:82_430], 20, 35, tail="drop") * 20 * 35 == 82_430 - 530
    assert window_count(tokens[:82_430], 1, 1, tail="drop") == 82_429
    assert window_count(tokens[:82_430], 1, 1) == 82_429


@pytest.mark.parametrize("tail", ["keep", "trim", "drop"])
def test_windows_can_be_counted_and_taken_up_anywhere(tail: str):
    tokens = torch.arange(100)
    whole = list(windows(tokens, 3, 4, tail=tail))
    assert window_count(tokens, 3, 4, tail=tail) == len(whole)
    for first in range(len(whole) + 1):
        rest = list(windows(tokens, 3, 4, tail=tail, first=first))
        assert [(w.start, w.index) for w in rest] == [(w.start, w.index) for w in whole[first:]]
        assert all(torch.equal(a.targets, b.targets) for a, b in zip(rest, whole[first:], strict=True))


@pytest.mark.parametrize("tail", ["keep", "trim"])
def test_streams_are_the_windows_in_one(tail: str):
    tokens = torch.arange(23)
    columns = streams(tokens, 4, tail)
    inputs, targets = joined(list(windows(tokens, 4, 2, tail=tail)))
    assert torch.equal(columns[1:], targets)
    assert torch.equal(columns[:-1].clamp(min=0), inputs)


def test_small_integers_come_out_as_indices():
    (window,) = windows(torch.arange(6, dtype=torch.uint8), 1, 9)
    assert window.inputs.dtype == window.targets.dtype == torch.int64


def test_processes_share_a_batch_by_columns():
    (window,) = windows(torch.arange(25), 6, 9)
    parts = [window.columns(rank, 3) for rank in range(3)]
    assert torch.equal(torch.cat([part.inputs for part in parts], 1), window.inputs)
    assert torch.equal(torch.cat([part.targets for part in parts], 1), window.targets)
    assert all(part.inputs.is_contiguous() and part.index == window.index for part in parts)
    assert [len(window.columns(rank, 4)) for rank in range(4)] == [1, 2, 1, 2]
    with pytest.raises(ValueError, match="a batch of 6 cannot be shared by 7 processes; use a larger batch"):
        window.columns(0, 7)
    with pytest.raises(ValueError, match="rank must be from 0 to 1; got 2"):
        window.columns(2, 2)


# ---------------------------------------------------------------------------------- varied lengths


def epoch(seed: int, number: int, first: int = 0, **how) -> list[Window]:
    generator = epoch_generator(seed, number)
    return list(varied_windows(torch.arange(5000), 3, 20, generator=generator, first=first, **how))


def test_varied_windows_cover_the_text_in_order():
    inputs, targets = joined(epoch(1, 0))
    assert torch.equal(inputs, torch.arange(4998).view(3, -1).T[:-1])
    assert torch.equal(targets, inputs + 1)
    inputs, targets = joined(epoch(1, 0, tail="keep"))
    assert targets.T[targets.T != IGNORE].tolist() == list(range(1, 5000))


def test_an_epoch_is_a_function_of_seed_and_number():
    starts = {pair: [w.start for w in epoch(*pair)] for pair in [(1, 0), (1, 1), (2, 0), (0, 1)]}
    assert starts[1, 0] == [w.start for w in epoch(1, 0)]
    assert len({tuple(found) for found in starts.values()}) == 4
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    assert [w.start for w in epoch(1, 0)] == starts[1, 0]
    assert torch.equal(torch.random.get_rng_state(), before)


def test_varied_windows_can_be_taken_up_anywhere():
    whole = epoch(4, 2)
    for first in (0, 1, len(whole) // 2, len(whole)):
        rest = epoch(4, 2, first=first)
        assert [(w.start, w.index) for w in rest] == [(w.start, w.index) for w in whole[first:]]


def test_lengths_are_drawn_as_in_awd_lstm():
    lengths = varied_lengths(2_000_000, 70, epoch_generator(0, 0))
    assert sum(lengths) == 2_000_000
    drawn = torch.tensor(lengths[:-1], dtype=torch.float)
    halved = drawn < 52
    assert float(halved.float().mean()) == pytest.approx(0.05, abs=0.005)
    # whole numbers by cutting off, hence half a step below the mean
    assert float(drawn[~halved].mean()) == pytest.approx(69.5, abs=0.2)
    assert float(drawn[~halved].std()) == pytest.approx(5, abs=0.2)
    assert float(drawn[halved].mean()) == pytest.approx(34.5, abs=0.6)


def test_lengths_keep_within_their_bounds():
    lengths = varied_lengths(50_000, 8, epoch_generator(0, 0), spread=20, delta=6, least=4)
    assert (min(lengths[:-1]), max(lengths)) == (4, 14)


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("how", "answer"),
    [
        ({"batch": 10}, r"a batch of 10 with tail='keep' needs at least 11 tokens; the text has 10"),
        ({"batch": 6, "tail": "trim"}, r"needs at least 12 tokens; the text has 10"),
        (
            {"batch": 2, "length": 5, "tail": "drop"},
            r"a batch of 2 of windows of 5 steps with tail='drop' needs at least 12 tokens; the text has 10",
        ),
        ({"batch": 0}, "batch must be an integer of at least 1; got 0"),
        ({"length": 2.5}, r"length must be an integer of at least 1; got 2\.5"),
        ({"tail": "dorp"}, "no tail 'dorp'; did you mean 'drop'?"),
        ({"first": 99}, "an epoch has 5 windows; it cannot start at window 99"),
        (
            {"tokens": torch.zeros(3, 2)},
            r"must be a tensor \[n\] of integers; got shape \(3, 2\) of torch.float32",
        ),
    ],
)
def test_wrong_requests_are_answered(how: dict, answer: str):
    request = {"tokens": torch.arange(10), "batch": 2, "length": 1} | how
    with pytest.raises(ValueError, match=answer):
        windows(**request)


def test_just_enough_tokens_are_enough():
    assert len(list(windows(torch.arange(11), 10, 5))) == 1
    assert len(list(windows(torch.arange(12), 2, 5, tail="drop"))) == 1
    assert len(list(windows(torch.arange(12), 6, 5, tail="trim"))) == 1


def test_varied_windows_refuse_what_they_cannot_do():
    with pytest.raises(ValueError, match="tail='drop' is not possible with windows of varied length"):
        varied_windows(torch.arange(99), 2, 5, generator=epoch_generator(0, 0), tail="drop")
    with pytest.raises(ValueError, match="length must be an integer of at least 1; got 0"):
        varied_windows(torch.arange(99), 2, 0, generator=epoch_generator(0, 0))
