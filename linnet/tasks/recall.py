"""Symbols to remember: copying memory, denoising and selective copying."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from linnet.base.settings import option
from linnet.data.errors import DataError
from linnet.data.memory import Copying, Denoising, Recall, Selective
from linnet.data.vocabulary import Vocabulary
from linnet.tasks.memory import ACCURACY, BASELINE, ENDLESS, EndlessData, Memory, numbers
from linnet.tasks.results import LOSS
from linnet.tasks.typed import TypedText


@dataclass(frozen=True)
class RecallData(EndlessData):
    """Symbols to remember, generated when they are needed."""

    symbols: int = option(8, "n: the number of different symbols", least=2)
    recalled: int = option(10, "k: the number of symbols to remember", least=1)
    random_labels: bool = option(False, "ask for symbols that were not shown: a test of stability")


class Symbols(Memory):
    """Symbols to remember: `predict` takes k symbols, "3 1 4 1 5 2 6 5 3 5", and returns those recalled."""

    Data = RecallData
    defaults = ENDLESS
    source_class: ClassVar[type[Copying] | type[Denoising]]

    @classmethod
    def source_of(cls, data: RecallData) -> Copying | Denoising:
        return cls.source_class(data.span, data.symbols, data.recalled, data.random_labels)

    def encode(self, raw: Any) -> Tensor:
        source: Recall = self.source  # type: ignore[assignment]
        what = f"{source.recalled} symbols, each from 1 to {source.symbols}"
        shown = numbers(raw, int, what)
        if len(shown) != source.recalled or not all(1 <= each <= source.symbols for each in shown):
            raise DataError(f"{self.name} takes {what}; got {raw!r}")
        return self.lay_out(np.array(shown))

    @abstractmethod
    def lay_out(self, shown: np.ndarray) -> Tensor:
        """Return the sequence [T, 1] that shows these symbols."""

    def typed_text(self) -> TypedText | None:
        """_ is a blank, ? asks for the answer, and the symbols are digits, if there are not too many."""
        source: Recall = self.source  # type: ignore[assignment]
        symbols = [str(number) for number in range(1, source.symbols + 1)]
        tokens = ("_", *symbols, "?")
        if source.symbols > 9 or source.input_size != len(tokens):
            return None
        shown = np.resize(np.arange(1, source.symbols + 1)[::-1], source.recalled)
        example = "".join(tokens[number] for number in self.lay_out(shown)[:, 0].tolist())
        labels = tokens[: source.output_size]
        return TypedText(Vocabulary("char", tokens), labels=labels, example=example)

    def guesses(self, split: str) -> dict[str, float]:
        return {"accuracy": 1 / self.source.symbols}  # type: ignore[attr-defined]

    def answer(self, outputs: Tensor) -> list[int]:
        """Return the k symbols; a blank cannot be an answer."""
        recalled = self.source.recalled  # type: ignore[attr-defined]
        return (outputs[-recalled:, 1:].argmax(-1) + 1).tolist()


class Copy(Symbols):
    """See linnet.data.memory.Copying."""

    name, about = "memory.copy", "copying memory: ten symbols, a wait, the ten symbols again"
    source_class = Copying

    def lay_out(self, shown: np.ndarray) -> Tensor:
        source: Copying = self.source  # type: ignore[assignment]
        return source.lay_out((source.span, shown[:, None], shown[:, None]))[0]


class VariableCopy(Copy):
    """See linnet.data.memory.Copying; `predict` waits for the whole span."""

    name, about = "memory.variable", "copying memory after a wait of varying length"

    @classmethod
    def source_of(cls, data: RecallData) -> Copying | Denoising:
        return replace(super().source_of(data), variable=True)  # type: ignore[arg-type]


class Denoise(Symbols):
    """See linnet.data.memory.Denoising; `predict` spreads the symbols evenly over the span."""

    name, about = "memory.denoise", "denoising: ten symbols scattered among blanks"
    source_class = Denoising

    def lay_out(self, shown: np.ndarray) -> Tensor:
        source: Denoising = self.source  # type: ignore[assignment]
        steps = np.linspace(0, source.span - 1, len(shown)).astype(np.int64)
        return source.lay_out((steps[None], shown[None], shown[None]))[0]


class SelectiveCopy(Denoise):
    """See linnet.data.memory.Selective; `predict` spreads the symbols evenly over the span."""

    name, about = "memory.selective", "selective copying: symbols scattered among blanks, asked by markers"
    source_class = Selective
    defaults = {**ENDLESS, "span": 32, "recalled": 4, "batch": 64, "lr": 3e-3}
    judged_by = (ACCURACY, LOSS, BASELINE)
