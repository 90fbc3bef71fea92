"""Padded batches: what is padded, which examples share a batch, and that an epoch continues anywhere."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from lightning_fabric import Fabric

from linnet.data.batches import IGNORE, epoch_generator
from linnet.data.errors import DataError
from linnet.data.padded import BatchPlan, Example, batch_count, collate, group, padded_batches


def examples(count: int = 37) -> list[Example]:
    drawn = torch.Generator().manual_seed(0)
    lengths = torch.randint(0, 12, (count,), generator=drawn).tolist()
    return [Example(list(range(1, length + 1)), label=row) for row, length in enumerate(lengths)]


def test_a_batch_worked_out_by_hand():
    batch = collate([Example([5, 6], label=1), Example([], label=0), Example([7, 8, 9], label=2)])
    assert batch.inputs.steps.tolist() == [[5, 0, 7], [6, 0, 8], [0, 0, 9]]
    assert batch.inputs.lengths.tolist() == [2, 1, 3]
    assert batch.inputs.mask.tolist() == [[True, True, True], [True, False, True], [False, False, True]]
    assert batch.labels.tolist() == [1, 0, 2]
    assert batch.second is None
    assert (len(batch), batch.tokens) == (3, 6)


def test_pairs_step_labels_and_features_are_padded_too():
    batch = collate(
        [
            Example([1, 2], [3, 4], second=[5], features={"chars": [[1, 2], [3, 0]]}),
            Example([1], [3], second=[5, 6, 7], features={"chars": [[9, 9]]}),
        ]
    )
    assert batch.labels.tolist() == [[3, 3], [4, IGNORE]]
    assert batch.second.steps.tolist() == [[5, 5], [0, 6], [0, 7]]
    assert batch.second.lengths.tolist() == [1, 3]
    assert batch.inputs.features["chars"].tolist() == [[[1, 2], [9, 9]], [[3, 0], [0, 0]]]


@pytest.mark.parametrize("order", ["buckets", "shuffled", "chunks", "file"])
@pytest.mark.parametrize("sizes", [{"batch": 5}, {"tokens": 24}], ids=["count", "tokens"])
def test_an_epoch_has_every_example_once_and_is_the_same_again(order: str, sizes: dict):
    plan = BatchPlan(order=order, pool=2, **sizes)

    def epoch(number: int) -> list[list[int]]:
        return [b.rows.tolist() for b in padded_batches(examples(), plan, epoch_generator(1, number))]

    assert sorted(chain.from_iterable(epoch(1))) == list(range(37))
    assert epoch(1) == epoch(1)
    assert (epoch(1) == epoch(2)) is (order == "file")
    assert len(epoch(1)) == batch_count(examples(), plan, epoch_generator(1, 1))


def test_an_epoch_continues_at_any_batch():
    plan = BatchPlan(batch=5)
    whole = list(padded_batches(examples(), plan, epoch_generator(3, 2)))
    rest = list(padded_batches(examples(), plan, epoch_generator(3, 2), first=4))
    assert [b.index for b in rest] == [4, 5, 6, 7]
    for a, b in zip(whole[4:], rest, strict=True):
        assert torch.equal(a.inputs.steps, b.inputs.steps)
        assert torch.equal(a.labels, b.labels)
    with pytest.raises(DataError, match="an epoch has 8 batches; it cannot start at batch 9"):
        padded_batches(examples(), plan, first=9)


def test_buckets_pad_less_than_shuffled_batches():
    def padding(order: str) -> int:
        found = padded_batches(examples(400), BatchPlan(8, order=order), epoch_generator(1, 1))
        return sum(b.inputs.steps.numel() - b.tokens for b in found)

    assert padding("buckets") < padding("shuffled") / 4


def test_a_token_budget_counts_padding_and_the_longer_side():
    pairs = [Example([1] * n, second=[1] * (9 - n)) for n in (1, 8, 3, 4)] + [Example([1] * 50, second=[1])]
    found = group([pair.length for pair in pairs], BatchPlan(tokens=16, order="file"), None)
    assert found == [[0, 1], [2, 3], [4]]


def test_without_a_generator_nothing_is_shuffled():
    rows = [b.rows.tolist() for b in padded_batches(examples(), BatchPlan(10, order="chunks"))]
    assert list(chain.from_iterable(rows)) == list(range(37))


@pytest.mark.parametrize("world", [2, 3])
def test_shares_add_up_to_the_batch(world: int):
    batch = collate(examples(7))
    shares = [batch.columns(rank, world) for rank in range(world)]
    assert torch.equal(torch.cat([s.inputs.steps for s in shares], 1), batch.inputs.steps)
    assert torch.equal(torch.cat([s.inputs.lengths for s in shares]), batch.inputs.lengths)
    assert torch.equal(torch.cat([s.labels for s in shares]), batch.labels)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_a_process_without_an_example_counts_nothing():
    batch = collate([Example([1, 2], [0, 1], second=[4])])
    counted = [int((batch.columns(rank, 3).labels != IGNORE).sum()) for rank in range(3)]
    assert sum(counted) == 2
    assert {len(batch.columns(rank, 3)) for rank in range(3)} == {1}
    with pytest.raises(DataError, match="1 examples without labels cannot be shared by 2 processes"):
        collate([Example([1])]).columns(0, 2)


def test_fabric_moves_every_tensor_of_a_batch():
    batch = collate([Example([1], 0, second=[2], features={"tag": [3]}, second_features={"tag": [4]})])
    assert torch.equal(Fabric(accelerator="cpu").to_device(batch).inputs.steps, batch.inputs.steps)
    there = batch.to("meta")
    both = (there.inputs, there.second)
    moved = [there.labels, there.rows, *(t for s in both for t in (s.steps, s.lengths, s.features["tag"]))]
    assert {tensor.device.type for tensor in moved} == {"meta"}


def test_errors_say_what_is_wrong():
    with pytest.raises(DataError, match="either every example of a batch has a label or none; 1 have none"):
        collate([Example([1], 0), Example([2])])
    with pytest.raises(
        DataError, match="the feature 'tag' has one value for each step; a sequence of 2 has 1"
    ):
        collate([Example([1, 2], features={"tag": [1]})])
    with pytest.raises(DataError, match="labels are class numbers; got torch"):
        collate([Example([1], [0.5])])
    with pytest.raises(DataError, match="labels are class numbers; got torch"):
        collate([Example([1], 0.5), Example([1], 2)])
    with pytest.raises(DataError, match="no order of batches 'bucket'; did you mean 'buckets'"):
        BatchPlan(order="bucket")
    with pytest.raises(DataError, match="batch must be an integer of at least 1; got 0"):
        BatchPlan(batch=0)
