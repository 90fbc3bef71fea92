"""The adding problem."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linnet.data.errors import DataError
from linnet.data.memory import Adding
from linnet.tasks.memory import CLOSE, ENDLESS, EndlessData, Memory, numbers


class Add(Memory):
    """See linnet.data.memory.Adding.

    `predict` takes numbers of which two are marked by a star, "0.5* 0.1 0.9 0.25*", and returns their sum.
    """

    name, about = "memory.adding", "the adding problem: the sum of the two marked numbers of a sequence"
    Data = EndlessData
    defaults = ENDLESS

    @classmethod
    def source_of(cls, data: EndlessData) -> Adding:
        return Adding(data.span)

    def guesses(self, split: str) -> dict[str, float]:
        """The share of sums that are close to 1, the mean of all."""
        return {"accuracy": float(((self.answers(split) - 1).abs() < CLOSE).float().mean())}

    def encode(self, raw: Any) -> Tensor:
        what = 'numbers of which two are marked, like "0.5* 0.1 0.9 0.25*"'
        words = raw.replace(",", " ").split() if isinstance(raw, str) else [str(each) for each in raw]
        marks = [float(word.endswith("*")) for word in words]
        if sum(marks) != 2:
            raise DataError(f"{self.name} takes {what}; got {raw!r}")
        values = numbers([word.rstrip("*") for word in words], float, what)
        return torch.tensor([values, marks]).T[:, None]

    def answer(self, outputs: Tensor) -> float:
        return float(outputs[-1, 0])
