"""A training step of a language model, relative to the same model with nn.LSTM and nn.CrossEntropyLoss.

The sizes are those of the small model of Zaremba et al. (2014) for Penn Treebank; the tokens are random. The
softmax alone is in the race too: what part of a step it is.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.contestants import Contestant
from benchmarks.loss import call_of as softmax_call
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Words
from benchmarks.speed import Comparison, Race
from linnet.bench.timing import Call
from linnet.layers.softmax import mixture_nll
from linnet.models.config import LanguageModelConfig
from linnet.models.language import LanguageModel

TO = "language model with nn.LSTM"
UNITS_HERE: tuple[str, ...] = ("sru", "lrn", "ran", "gru", "lstm")


class TorchModel(nn.Module):
    """An embedding, two layers of nn.LSTM and a softmax."""

    def __init__(self, words: int, size: int):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(words, size), nn.LSTM(size, size, 2)
        self.output, self.criterion = nn.Linear(size, words), nn.CrossEntropyLoss()

    def objective(self, tokens: Tensor, targets: Tensor) -> Tensor:
        y, _ = self.lstm(self.embedding(tokens))
        return self.criterion(self.output(y).flatten(0, 1), targets.flatten())


class OurModel(LanguageModel):
    def objective(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return self.loss(tokens, targets).objective


def measure(settings: Settings, book: Book) -> list[Row]:
    shape, words = settings.written, settings.vocabulary
    units: list[str] = [unit for unit in UNITS_HERE if unit in settings.units]
    builders = {unit: partial(ours, unit, words, shape.d) for unit in units}
    entrants = {unit: Contestant(unit, "cpu", partial(updates, builders[unit], settings)) for unit in units}
    torchs = partial(updates, partial(TorchModel, words, shape.d), settings)
    entrants[TO] = Contestant("nn.LSTM", "torch", torchs)
    softmax = Words(shape.d, words)
    loss = partial(softmax_call, mixture_nll, shape.L * shape.B, softmax)
    entrants[str(softmax)] = Contestant(str(softmax), "in pieces", loss)
    comparisons = [Comparison(unit, TO, TO) for unit in units]
    comparisons += [Comparison(str(softmax), unit, f"language model with {unit}") for unit in units]
    return Race("language", shape, "training", entrants, comparisons).run(settings, book)


def ours(unit: str, words: int, size: int) -> OurModel:
    return OurModel(
        words, LanguageModelConfig(unit=unit, embedding_size=size, hidden_size=size, num_layers=2)
    )


def updates(build: Any, settings: Settings) -> Call:
    """Return an update: forward, backward, clipping and a step of SGD."""
    shape, model = settings.written, build()
    tokens, targets = (torch.randint(settings.vocabulary, (shape.L, shape.B)) for _ in range(2))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

    def call() -> None:
        optimiser.zero_grad()
        model.objective(tokens, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()

    return call
