"""Sequences of different lengths as padded batches, grouped so that little is padding.

An `Example` is what one line of a data set becomes: a sequence, perhaps a second one (hypothesis, passage,
translation) and a label (one number, or one for each step). A split is a list of them:

    for batch in padded_batches(examples, BatchPlan(batch=32), epoch_generator(seed, epoch), first=0):
        output, state = rnn(embedding(batch.inputs.steps), lengths=batch.inputs.lengths)

The same examples, plan and generator give the same batches, so a run that was killed continues at batch
`first`. Batches are time-first, [T, B], like everything in Linnet; padding is always at the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from linnet.data.batches import IGNORE
from linnet.data.errors import DataError, unknown

Steps = Sequence[int] | Tensor


@dataclass(frozen=True, eq=False)
class Example:
    """One sequence, or a pair of them, with its label.

    inputs            the token ids of each step, or numbers [T, D]
    label             None, a class, a number (float), or a list of classes: one for each step, the two ends
                      of an answer, or 0 or 1 for each label that a text may have. Numbers of each step are a
                      tensor of floats
    second            the other sequence of a pair
    features          further values of each step by name, [T, ...]: characters of a word, its tag, ...
    second_features   the same for `second`
    """

    inputs: Steps
    label: float | Sequence[int] | Tensor | None = None
    second: Steps | None = None
    features: Mapping[str, Any] = field(default_factory=dict)
    second_features: Mapping[str, Any] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Steps of the longer sequence: what the example costs in a batch."""
        return max(len(self.inputs), 0 if self.second is None else len(self.second), 1)


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences padded to the longest of them."""

    steps: Tensor  # int64 [T, B], or numbers [T, B, D]; 0 at padded steps
    lengths: Tensor  # int64 [B], each at least 1: an empty sequence is one padded step
    features: Mapping[str, Tensor] = field(default_factory=dict)  # [T, B, ...]

    @property
    def mask(self) -> Tensor:
        """[T, B]: True at real steps."""
        return torch.arange(len(self.steps), device=self.lengths.device)[:, None] < self.lengths

    def map(self, change: Callable[[Tensor, int], Tensor]) -> Sequences:
        """Apply `change(tensor, batch_dimension)` to every tensor."""
        features = {name: change(feature, 1) for name, feature in self.features.items()}
        return Sequences(change(self.steps, 1), change(self.lengths, 0), features)


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """A batch of examples."""

    inputs: Sequences
    # int64 [B], or [steps, B] with IGNORE where none counts; numbers: float32, with NaN there
    labels: Tensor | None
    second: Sequences | None
    rows: Tensor  # int64 [B]: the numbers of the examples in the split
    index: int  # the number of this batch in its epoch

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def tokens(self) -> int:
        """Real steps of all sequences."""
        both = (self.inputs, self.second) if self.second else (self.inputs,)
        return sum(int(each.lengths.sum()) for each in both)

    def map(self, change: Callable[[Tensor, int], Tensor]) -> PaddedBatch:
        return replace(
            self,
            inputs=self.inputs.map(change),
            labels=None if self.labels is None else change(self.labels, self.labels.dim() - 1),
            second=None if self.second is None else self.second.map(change),
            rows=change(self.rows, 0),
        )

    def to(self, device: Any, **options: Any) -> PaddedBatch:
        """The batch on another device; `fabric.to_device(batch)` calls this."""
        return self.map(lambda tensor, _: tensor.to(device, **options))

    def columns(self, rank: int, world: int) -> PaddedBatch:
        """The share of one of `world` processes; shares differ by at most one example.

        A process that would get nothing reads the first example with all labels IGNORE (NaN for numbers),
        because every process must take part in a step. A loss that divides by max(count, 1) then adds
        nothing.
        """
        if not 0 <= rank < world:
            raise DataError(f"rank must be from 0 to {world - 1}; got {rank}")
        start, stop = (len(self) * each // world for each in (rank, rank + 1))
        if start < stop:
            return self.map(lambda tensor, dim: tensor.narrow(dim, start, stop - start).contiguous())
        if self.labels is None:
            raise DataError(
                f"a batch of {len(self)} examples without labels cannot be shared by {world} processes"
            )
        idle = self.map(lambda tensor, dim: tensor.narrow(dim, 0, 1).contiguous())
        assert idle.labels is not None
        none = torch.nan if idle.labels.is_floating_point() else IGNORE
        return replace(idle, labels=torch.full_like(idle.labels, none))


# ---------------------------------------------------------------------------------------- grouping


@dataclass(frozen=True)
class BatchPlan:
    """Which examples share a batch.

    batch    examples of a batch
    tokens   instead of `batch`: the most steps of a batch, padding included; a longer example is alone
    order    buckets    shuffle, sort by length within pools of `pool` batches, shuffle the batches
             shuffled   shuffle only
             chunks     consecutive examples; shuffle the batches (LRN's tagger)
             file       consecutive examples in their own order (SRU's classifier)
             sorted     sort all by length, shuffle the batches once: the same in each epoch (SRU on SST)
    pool     buckets: batches whose examples are sorted together; more pad less and mix less
    """

    batch: int = 32
    tokens: int = 0
    order: str = "buckets"
    pool: int = 50

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise unknown("order of batches", self.order, ORDERS)
        for name, least in (("batch", 1), ("tokens", 0), ("pool", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise DataError(f"{name} must be an integer of at least {least}; got {value!r}")


def group(lengths: Sequence[int], plan: BatchPlan, generator: torch.Generator | None) -> list[list[int]]:
    """The examples of each batch of an epoch; without a generator nothing is shuffled."""
    rows = list(range(len(lengths)))
    if plan.order in ("buckets", "shuffled"):
        rows = shuffled(rows, generator)
    if plan.order in ("buckets", "sorted"):
        size = pool_size(lengths, plan) if plan.order == "buckets" else len(rows)
        rows = sorted_in_pools(rows, lengths, size)
    batches = cut_by_tokens(rows, lengths, plan.tokens) if plan.tokens else cut_by_count(rows, plan.batch)
    if plan.order == "sorted" and generator is not None:
        random.Random(1234).shuffle(batches)
    return shuffled(batches, generator) if plan.order in ("buckets", "chunks") else batches


ORDERS = ("buckets", "shuffled", "chunks", "file", "sorted")
FIXED_ORDERS = ("file", "sorted")
"""Orders that are the same in each epoch, so that batches can be made once."""


def shuffled(items: list, generator: torch.Generator | None) -> list:
    if generator is None:
        return items
    return [items[i] for i in torch.randperm(len(items), generator=generator).tolist()]


def pool_size(lengths: Sequence[int], plan: BatchPlan) -> int:
    """Examples that are sorted together."""
    mean = max(sum(lengths) // max(len(lengths), 1), 1)
    return plan.pool * max(plan.tokens // mean if plan.tokens else plan.batch, 1)


def sorted_in_pools(rows: list[int], lengths: Sequence[int], size: int) -> list[int]:
    pools = cut_by_count(rows, max(size, 1))
    return [row for pool in pools for row in sorted(pool, key=lengths.__getitem__)]


def cut_by_count(rows: list[int], size: int) -> list[list[int]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def cut_by_tokens(rows: list[int], lengths: Sequence[int], most: int) -> list[list[int]]:
    """Batches whose examples times their longest length is at most `most`."""
    batches: list[list[int]] = []
    longest = 0
    for row in rows:
        longest = max(longest, lengths[row])
        if not batches or (len(batches[-1]) + 1) * longest > most:
            batches.append([])
            longest = lengths[row]
        batches[-1].append(row)
    return batches


# --------------------------------------------------------------------------------------- batches


def padded_batches(
    examples: Sequence[Example],
    plan: BatchPlan | None = None,
    generator: torch.Generator | None = None,
    first: int = 0,
) -> Iterator[PaddedBatch]:
    """The batches of an epoch from number `first` on; without a generator, those of an evaluation."""
    groups = group([example.length for example in examples], plan or BatchPlan(), generator)
    if not 0 <= first <= len(groups):
        raise DataError(f"an epoch has {len(groups)} batches; it cannot start at batch {first}")
    return (
        collate([examples[row] for row in groups[index]], groups[index], index)
        for index in range(first, len(groups))
    )


def batch_count(
    examples: Sequence[Example], plan: BatchPlan | None = None, generator: torch.Generator | None = None
) -> int:
    """How many batches `padded_batches` gives; with a token budget this differs from epoch to epoch."""
    return len(group([example.length for example in examples], plan or BatchPlan(), generator))


def collate(examples: Sequence[Example], rows: Sequence[int] | None = None, index: int = 0) -> PaddedBatch:
    """Examples as one batch; `rows` are their numbers in the split (default: 0, 1, 2, ...)."""
    if not examples:
        raise DataError("a batch needs at least one example; got none")
    return PaddedBatch(
        inputs=pad([example.inputs for example in examples], [example.features for example in examples]),
        labels=pad_labels(all_or_none("label", [example.label for example in examples])),
        second=pad_second(examples),
        rows=torch.as_tensor(range(len(examples)) if rows is None else rows),
        index=index,
    )


def pad(sequences: Sequence[Steps], features: Sequence[Mapping[str, Any]] | None = None) -> Sequences:
    """Sequences, with further values of their steps, padded to the longest."""
    lengths = [len(sequence) for sequence in sequences]
    names = features[0] if features else {}
    padded = {name: pad_feature(name, [each[name] for each in features], lengths) for name in names}  # type: ignore[union-attr]
    return Sequences(pad_steps(sequences), torch.tensor(lengths).clamp(min=1), padded)


def pad_second(examples: Sequence[Example]) -> Sequences | None:
    second = all_or_none("second sequence", [example.second for example in examples])
    return None if second is None else pad(second, [example.second_features for example in examples])


def pad_feature(name: str, values: list[Any], lengths: list[int]) -> Tensor:
    for value, length in zip(values, lengths, strict=True):
        if len(value) != length:
            raise DataError(
                f"the feature {name!r} has one value for each step; a sequence of {length} has {len(value)}"
            )
    return pad_steps(values)


def pad_steps(values: Sequence[Any], fill: float = 0) -> Tensor:
    """[T, B, ...], with at least one step."""
    tensors = [torch.as_tensor(value) for value in values]
    # An empty list says neither its type nor the shape of its steps: another one of the batch does.
    like = max(tensors, key=len)
    like = like if len(like) else torch.zeros(1, dtype=torch.int64)
    tensors = [each if len(each) else torch.full_like(like[:1], fill) for each in tensors]
    return pad_sequence(tensors, padding_value=fill)


def pad_labels(labels: list[Any] | None) -> Tensor | None:
    """[B], or [steps, B] padded with IGNORE; numbers are padded with NaN."""
    if labels is None:
        return None
    if all(isinstance(label, Tensor) and label.dim() == 1 and label.is_floating_point() for label in labels):
        return pad_steps(labels, torch.nan).float()
    if all(isinstance(label, float) for label in labels):
        return torch.tensor(labels, dtype=torch.float32)
    if all(torch.as_tensor(label).dim() == 0 for label in labels):
        return whole_numbers(torch.as_tensor(labels))
    return whole_numbers(pad_steps(labels, IGNORE))


def whole_numbers(labels: Tensor) -> Tensor:
    if labels.is_floating_point():
        raise DataError(f"labels are class numbers; got {labels.dtype}")
    return labels.long()


def all_or_none(what: str, values: list[Any]) -> list[Any] | None:
    missing = sum(value is None for value in values)
    if missing == len(values):
        return None
    if missing:
        raise DataError(f"either every example of a batch has a {what} or none; {missing} have none")
    return values
