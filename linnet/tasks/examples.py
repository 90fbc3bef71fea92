"""What the tasks over examples share: padded batches, and the files of the user.

Their data has set, path, valid_path, test_path, batch, eval_batch and order.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from linnet.data.batches import epoch_generator
from linnet.data.padded import FIXED_ORDERS, BatchPlan, Example, PaddedBatch, batch_count, padded_batches
from linnet.tasks.base import SPLITS, Task


class ExampleTask(Task):
    """A task whose splits are lists of examples."""

    splits: ClassVar[tuple[str, ...]] = (*SPLITS, "all")

    def read_splits(self, data: Any) -> Any:
        """Read the rows of training, validation and test."""
        raise NotImplementedError(f"{type(self).__name__} does not read files of its user")

    @cached_property
    def every_row(self) -> list[Any]:
        """The rows of the split "all": those of the file --path, or of every split of a set."""
        if self.data.set == "own":
            # With a file for each split, nothing is cut off.
            path = self.data.path
            return self.read_splits(replace(self.data, valid_path=path, test_path=path)).train
        # The test set may be the validation set, too.
        parts = {id(part): part for part in self.read_splits(self.data)}
        return [row for part in parts.values() for row in part]

    @abstractmethod
    def examples(self, split: str) -> Sequence[Example]:
        """Return the examples of a split."""

    @cached_property
    def training_examples(self) -> Sequence[Example]:
        """The examples of the training set as training reads them."""
        return self.examples("train")

    def batches(self, split: str, epoch: int = 0, first: int = 0) -> Iterator[PaddedBatch]:
        """Batches whose order never changes are made once."""
        if epoch and self.data.order not in FIXED_ORDERS:
            return self.new_batches(split, epoch, first)
        name = "training" if epoch else split
        if name not in self.made:
            self.made[name] = list(self.new_batches(split, epoch, 0))
        return iter(self.made[name][first:])

    @cached_property
    def made(self) -> dict[str, list[PaddedBatch]]:
        return {}

    def new_batches(self, split: str, epoch: int, first: int) -> Iterator[PaddedBatch]:
        if epoch:
            generator = epoch_generator(self.seed, epoch)
            return padded_batches(self.training_examples, self.plan, generator, first)
        return padded_batches(self.examples(split), self.eval_plan, None, first)

    @property
    def plan(self) -> BatchPlan:
        return BatchPlan(self.data.batch, order=self.data.order)

    @property
    def eval_plan(self) -> BatchPlan:
        return BatchPlan(self.data.eval_batch, order="sorted")

    def batches_per_epoch(self, epoch: int) -> int:
        return batch_count(self.training_examples, self.plan, epoch_generator(self.seed, epoch))

    def describe(self) -> dict[str, Any]:
        return {"task": self.name, "set": self.data.set}

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """A path means the set "own" and no other files, and another set has no path."""
        follows: dict[str, Any] = {}
        if given.get("path") is not None:
            # Not the other files of a run or a recipe, which belong to its own path.
            follows = {"set": "own", "valid_path": None, "test_path": None}
        elif "set" in given:
            follows = {"path": None, "valid_path": None, "test_path": None}
        return {**follows, **given}

    @classmethod
    def data_name(cls, data: Any) -> str:
        return file_name(data.path) if data.set == "own" else data.set


def file_name(path: str | None) -> str:
    """Return the name of a user's file or folder without its extensions: reviews for data/reviews.csv.gz."""
    # "." and "data/.." are folders with names, too.
    name = os.path.basename(os.path.abspath(path)) if path else ""
    return name.lstrip(".").partition(".")[0] or "own"
