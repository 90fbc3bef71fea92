"""A training step of a reader's document encoder, compared with the same layers of nn.LSTM.

The encoder is that of the SRU paper's reader (Table 2): three layers in both directions, 128 channels each.
In the rows, d is the size of its input: of each word two vectors, four features and one-hot tags. That is 679
numbers with the paper's vectors of 300 dimensions, and 179 with those of 50. A step is forward and backward
with the gradients of the input and of all parameters, without dropout.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Race, model_race
from linnet.bench.timing import Call
from linnet.models.bidirectional import BidirectionalEncoder
from linnet.models.reader import ReaderConfig

HIDDEN, LAYERS = 128, 3
RACING = ("sru", "lrn", "lstm")


def measure(settings: Settings, book: Book) -> list[Row]:
    units = [unit for unit in RACING if unit in settings.units]
    return [row for shape in settings.read for row in race_of(units, shape).run(settings, book)]


def race_of(units: list[str], shape: Shape) -> Race:
    models = {unit: partial(Encoder, unit, shape.d) for unit in units}
    theirs = "nn.LSTM", partial(TorchEncoder, shape.d)
    return model_race("encoder", shape, "training", models, theirs, call_of)


class Encoder(BidirectionalEncoder):
    """The encoder of DocumentReader."""

    def __init__(self, unit: str, input_size: int):
        super().__init__(input_size, ReaderConfig(unit=unit, hidden_size=HIDDEN, num_layers=LAYERS), {})

    def forward(self, x: Tensor) -> Tensor:
        return self.encode(x).output


class TorchEncoder(nn.LSTM):
    def __init__(self, input_size: int):
        super().__init__(input_size, HIDDEN, LAYERS, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x)[0]


def call_of(model: nn.Module, shape: Shape) -> Call:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    leaves, above = [x, *model.parameters()], torch.ones(shape.L, shape.B, 2 * HIDDEN)
    return lambda: torch.autograd.grad(model(x), leaves, above)
