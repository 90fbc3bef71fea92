"""A classifier of sequences of any unit: encoder, pooling, a linear layer.

    tokens [T, B], lengths [B] -> embedding -> layers, one direction or both -> one vector -> logits [B, C]

    model = Classifier(10_000, 2, ClassifierConfig(unit="sru", bidirectional=True, pooling="max"))
    logits = model(batch.inputs.steps, batch.inputs.lengths)

The linear layer and the embedding start as torch starts them; `use_vectors(model.embedding, ...)` of
linnet.layers.embedding puts pretrained vectors in their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from linnet.base.options import check_size, choose
from linnet.layers.pooling import POOLINGS
from linnet.models.config import REFUSED, EncoderConfig, option
from linnet.models.encoder import TokenEncoder


@dataclass(frozen=True)
class ClassifierConfig(EncoderConfig):
    """An encoder, in one direction or both, and how its output becomes one vector."""

    noun: ClassVar[str] = "classifier"
    refused: ClassVar[dict[str, str]] = {**REFUSED, "bidirectional": "set its own bidirectional"}

    bidirectional: bool = option(False, "read each sequence in both directions")
    pooling: str = option("last", "the vector of a sequence: the last state, or the max or mean over steps")

    def check_choices(self) -> None:
        super().check_choices()
        choose("pooling", self.pooling, POOLINGS)


class Classifier(TokenEncoder):
    """Logits of the classes of whole sequences."""

    config: ClassifierConfig

    def __init__(
        self, vocabulary_size: int, classes: int, config: ClassifierConfig, *, device=None, dtype=None
    ):
        where = {"device": device, "dtype": dtype}
        super().__init__(vocabulary_size, config, bidirectional=config.bidirectional, **where)
        check_size("classes", classes)
        self.output = nn.Linear(self.stack[-1].output_size, classes, **where)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """tokens [T, B]; `lengths` [B] are needed where sequences are padded."""
        encoded = self.encode(tokens, lengths=lengths)
        directions = self.stack[-1].num_directions
        return self.output(POOLINGS[self.config.pooling](encoded.output, lengths, directions))
