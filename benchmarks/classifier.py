"""A training step of a sentence classifier, compared with the same classifier with nn.LSTM.

Both have the dropouts of the SRU authors' classifier (Table 1), frozen word vectors and Adam. A step is
forward, backward and update; all sentences have the same length.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Race, model_race
from linnet.bench.timing import Call
from linnet.models.classifier import Classifier, ClassifierConfig

WORDS, CLASSES, EMBEDDED, LAYERS, DROPOUT = 10_000, 2, 50, 2, 0.5
RACING = ("sru", "lrn", "ran", "lstm")


def measure(settings: Settings, book: Book) -> list[Row]:
    units = [unit for unit in RACING if unit in settings.units]
    return race_of(units, settings.classified).run(settings, book)


def race_of(units: list[str], shape: Shape) -> Race:
    models = {unit: partial(ours, unit, shape) for unit in units}
    theirs = "nn.LSTM", partial(TorchClassifier, shape.d)
    return model_race("classifier", shape, "training", models, theirs, call_of)


def ours(unit: str, shape: Shape) -> Classifier:
    """SRU drops its state between layers, as its authors do; other units drop their output."""
    own = {"unit_options": {"cell_dropout": DROPOUT}} if unit == "sru" else {"layer_dropout": DROPOUT}
    config = ClassifierConfig(
        unit=unit,
        tuned="none",
        embedding_size=EMBEDDED,
        hidden_size=shape.d,
        num_layers=LAYERS,
        input_dropout=DROPOUT,
        pooled_dropout=DROPOUT,
        **own,
    )
    return Classifier(WORDS, CLASSES, config)


class TorchClassifier(nn.Module):
    """The same model with the layers of torch."""

    def __init__(self, size: int):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(torch.randn(WORDS, EMBEDDED))
        self.rnn = nn.LSTM(EMBEDDED, size, LAYERS, dropout=DROPOUT)
        self.output = nn.Linear(size, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        y, _ = self.rnn(F.dropout(self.embedding(tokens), DROPOUT))
        return self.output(F.dropout(y[-1], DROPOUT))


def call_of(model: nn.Module, shape: Shape) -> Call:
    source = torch.Generator().manual_seed(0)
    tokens = torch.randint(WORDS, (shape.L, shape.B), generator=source)
    labels = torch.randint(CLASSES, (shape.B,), generator=source)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimiser = torch.optim.Adam(trained)

    def call() -> None:
        F.cross_entropy(model(tokens), labels).backward()
        optimiser.step()
        optimiser.zero_grad()

    return call
