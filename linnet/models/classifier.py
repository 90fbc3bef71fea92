"""A classifier of sequences: an encoder of any unit or Kim's convolutions, pooling, and a linear layer.

    tokens [T, B], lengths [B] -> embedding -> layers, one direction or both -> one vector -> logits [B, C]

With `counts`, the scores of the counted words, or words and pairs of words, are added to the logits
(linnet.layers.counts).

    model = Classifier(10_000, 2, ClassifierConfig(unit="sru", bidirectional=True, pooling="max"))
    logits = model(batch.inputs.steps, batch.inputs.lengths)

`unit="cnn"` is the convolutional network of Kim (2014): `hidden_size` feature maps of each width, and the
maximum over time instead of layers and pooling; its unit_options are those of MaxConvolution. The SRU
authors' form has no further options; Kim's own has

    ClassifierConfig(unit="cnn", unit_options={"zero_pads": 4, "init_scale": 0.01}, max_norm=3.0)

`use_vectors(model.embedding, ...)` of linnet.layers.embedding starts from pretrained vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_number, check_rate, check_size, choose
from linnet.base.suggest import no_such
from linnet.layers.class_output import LimitedLinear
from linnet.layers.context import Context, ContextShape
from linnet.layers.convolution import MaxConvolution
from linnet.layers.counts import COUNTS, CountScores
from linnet.layers.pooling import POOLINGS, AttentivePooling, last, pooled_size
from linnet.models.config import CNN, REFUSED, TextConfig, default_options, option
from linnet.models.encoder import Encoded, Text, TextEncoder
from linnet.recurrent.dropout import Dropout

# The SRU authors pad each batch to at least this many steps, the widest filter of their CNN.
FEWEST_STEPS = 5


@dataclass(frozen=True)
class ClassifierConfig(TextConfig):
    """An encoder, in one direction or both, and the pooling of its output."""

    noun: ClassVar[str] = "classifier"
    refused: ClassVar[dict[str, str]] = {**REFUSED, "bidirectional": "set its own bidirectional"}

    unit: str = option("lstm", "the recurrent unit, a name of linnet.UNITS, or cnn (Kim 2014)")
    bidirectional: bool = option(False, "read each sequence in both directions")
    pooling: str = option(
        "last",
        "the vector of a sequence: the last state, or the max, mean, both (meanmax) or attentive mean over "
        "steps",
    )
    counts: str = option(
        "none",
        "add the scores of counted words to those of the network: of words, of words and pairs of adjacent "
        "words (bigrams), or none",
    )
    attention_size: int = option(0, "attentive pooling: the size of its hidden layer (0: hidden_size)")
    query: bool = option(True, "attentive pooling: compare each step with the final states")
    padding: str = option(
        "masked",
        "masked: padding never changes a result; left: as the SRU authors do, padding comes before the "
        "sequence, fills it to at least 5 steps, and is read like a word",
    )
    pooled_dropout: float = option(0.0, "dropout on the vector of the sequence")
    max_norm: float = option(0.0, "the largest norm of the output weights of a class (0: no limit)")

    def check_unit(self) -> None:
        if self.unit != CNN:
            super().check_unit()

    def check_unit_options(self) -> None:
        if self.unit != CNN:
            super().check_unit_options()
            return
        known = default_options(CNN)
        for name in self.unit_options:
            if name not in known:
                raise ValueError(f"{CNN} has {no_such('option', name, known)}")

    def check_choices(self) -> None:
        super().check_choices()
        choose("pooling", self.pooling, (*POOLINGS, "attentive"))
        choose("counts", self.counts, COUNTS)
        choose("padding", self.padding, ("masked", "left"))
        check_rate("pooled_dropout", self.pooled_dropout)
        check_number("max_norm", self.max_norm, least=0)

    def check_sizes(self) -> None:
        super().check_sizes()
        check_size("attention_size", self.attention_size, least=0)

    @property
    def sizes(self) -> tuple[int, ...]:
        return () if self.unit == CNN else super().sizes


class Classifier(TextEncoder):
    """Logits of the classes of whole sequences.

    pairs   counts="bigrams": the number of pairs of words; `model.counts.learn` sets them
    """

    config: ClassifierConfig

    def __init__(
        self,
        vocabulary_size: int,
        classes: int,
        config: ClassifierConfig,
        *,
        characters: int = 0,
        context: ContextShape | None = None,
        pairs: int = 0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        inputs: dict[str, Any] = {"characters": characters, "context": context}
        super().__init__(vocabulary_size, config, bidirectional=config.bidirectional, **inputs, **where)
        check_size("classes", classes)
        self.pooling = self.make_pooling(where)
        self.pooled_dropout = Dropout(config.pooled_dropout)
        self.output = self.make_output(classes, where)
        self.start_uniformly()
        # After the weights of the network, which are drawn in the same order with and without counts.
        self.counts = (
            None if config.counts == "none" else CountScores(vocabulary_size, pairs, classes, **where)
        )

    def make_pooling(self, where: dict[str, Any]) -> MaxConvolution | AttentivePooling | None:
        """Return the pooling if it has parameters, else None."""
        config = self.config
        if config.unit == CNN:
            return MaxConvolution(self.input_size, config.hidden_size, **config.unit_options, **where)
        if config.pooling != "attentive":
            return None
        size = self.stack[-1].output_size
        return AttentivePooling(
            size,
            config.attention_size or config.hidden_size,
            query_size=size if config.query else 0,
            query_dropout=config.output_dropout,
            **where,
        )

    def make_output(self, classes: int, where: dict[str, Any]) -> nn.Linear:
        pooling = self.pooling
        if isinstance(pooling, MaxConvolution):
            size = pooling.output_size
        else:
            size = pooled_size(self.config.pooling, self.stack[-1].output_size)
        if self.config.max_norm:
            return LimitedLinear(size, classes, self.config.max_norm, **where)
        return nn.Linear(size, classes, **where)

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor | None = None,
        characters: Tensor | None = None,
        context: Context | None = None,
    ) -> Tensor:
        """tokens [T, B], characters [T, B, C] -> logits [B, classes]; padded sequences need `lengths` [B]."""
        features = self.features(tokens, lengths, characters, context)
        logits = self.output(self.pooled_dropout(features[None])[0])
        return logits if self.counts is None else logits + self.counts(tokens, lengths)

    def features(
        self,
        tokens: Tensor,
        lengths: Tensor | None = None,
        characters: Tensor | None = None,
        context: Context | None = None,
    ) -> Tensor:
        """Return the vector of each sequence, [B, F], the input of the output layer."""
        text = Text(tokens, characters, context)
        if self.config.padding == "left":
            text, lengths = pad_left(text, lengths), None
        encoded = self.encode(text, lengths=lengths)
        return self.pool(encoded, lengths)

    def pool(self, encoded: Encoded, lengths: Tensor | None) -> Tensor:
        if isinstance(self.pooling, MaxConvolution):
            return self.pooling(encoded.output, lengths)
        directions = self.stack[-1].num_directions
        if self.pooling is None:
            return POOLINGS[self.config.pooling](encoded.output, lengths, directions)
        query = last(encoded.raw, lengths, directions) if self.config.query else None
        return self.pooling(encoded.output, lengths, query)


def pad_left(text: Text, lengths: Tensor | None, fewest: int = FEWEST_STEPS) -> Text:
    """Move the padding of each sequence to its beginning, so that there are at least `fewest` steps."""
    steps, batch = text.tokens.shape
    device = text.tokens.device
    ends = torch.full((batch,), steps, device=device) if lengths is None else lengths.to(device)
    total = max(steps, fewest)
    # The step that is moved to each step of the result; negative before the sequence.
    source = torch.arange(total, device=device)[:, None] - (total - ends)
    characters = None if text.characters is None else take_steps(text.characters, source)
    context = text.context
    if context is not None:
        context = context._replace(words=take_steps(context.words, source))
    return Text(take_steps(text.tokens, source), characters, context)


def take_steps(steps: Tensor, source: Tensor) -> Tensor:
    """Return the steps `source` [S, B] of steps [T, B, ...]; 0 where `source` is negative."""
    columns = torch.arange(steps.shape[1], device=steps.device)
    before = (source < 0).reshape(*source.shape, *[1] * (steps.dim() - 2))
    return steps[source.clamp(min=0), columns].masked_fill(before, 0)
