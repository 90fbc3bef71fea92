"""The Transformer in the form of OpenNMT-py; its feed-forward layers can be recurrent (Lei et al. 2018)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from torch import Tensor, nn

from linnet.layers.attention import Memory, NormedLinear
from linnet.layers.context import Context
from linnet.layers.transformer import (
    DecoderLayerState,
    FeedForward,
    RecurrentFeedForward,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    UnbiasedLayerNorm,
    sinusoids,
)
from linnet.models.config import find_unit
from linnet.models.translator_base import Decoded, Translator
from linnet.recurrent.sequence import mask_for


class TransformerState(NamedTuple):
    """The state of the decoder of a TransformerTranslator."""

    memories: tuple[Memory, ...]  # the source as the attention of each layer reads it
    layers: tuple[DecoderLayerState, ...] | None = None  # None before the first word


class TransformerTranslator(Translator):
    """The Transformer with the norm before each part and a final norm after both stacks."""

    def add_layers(self, where: dict[str, Any]) -> None:
        config, size = self.config, self.config.hidden_size
        self.encoder = nn.ModuleList(
            TransformerEncoderLayer(
                size, config.heads, self.feed_forward(config.bidirectional, where), config.dropout, **where
            )
            for _ in range(config.num_layers)
        )
        self.decoder = nn.ModuleList(
            TransformerDecoderLayer(
                size, config.heads, self.feed_forward(False, where), config.dropout, **where
            )
            for _ in range(config.depth)
        )
        self.encoder_norm, self.decoder_norm = (UnbiasedLayerNorm(size, **where) for _ in range(2))
        self.output = NormedLinear(size, self.target_words, **where)
        self.dropout = nn.Dropout(config.dropout)
        self.reset_matrices()

    def feed_forward(self, bidirectional: bool, where: dict[str, Any]) -> nn.Module:
        config = self.config
        if config.feed_forward == "relu":
            return FeedForward(config.hidden_size, config.inner_size, config.dropout, **where)
        unit, inner = find_unit(config.unit), config.inner_size // (2 if bidirectional else 1)
        # As in the paper: the layer adds x to the output of this part anyway.
        no_skip = {"highway": False} if "highway" in unit.options() else {}
        options: dict[str, Any] = {**no_skip, **config.unit_options}
        rnn = unit(config.hidden_size, inner, bidirectional=bidirectional, **options, **where)
        return RecurrentFeedForward(rnn, config.hidden_size, config.padding == "read", **where)

    def reset_matrices(self) -> None:
        """Xavier-uniform for all matrices, word vectors and units included (OpenNMT-py)."""
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)

    def start(
        self, source: Tensor, lengths: Tensor | None = None, context: Context | None = None
    ) -> TransformerState:
        x = self.encode(source, lengths, context)
        mask = mask_for(lengths, x)
        return TransformerState(tuple(layer.attention.remember(x, mask) for layer in self.decoder_layers))

    @property
    def decoder_layers(self) -> list[TransformerDecoderLayer]:
        return list(self.decoder)  # type: ignore[arg-type]

    def encode(self, source: Tensor, lengths: Tensor | None = None, context: Context | None = None) -> Tensor:
        """The output of the encoder, [S, B, size]."""
        x = self.place(self.source_vectors(source, context))
        mask = mask_for(lengths, x)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x)

    def place(self, vectors: Tensor, first: int = 0) -> Tensor:
        """Return the sum of scaled word vectors and encodings of their positions, which start at `first`."""
        vectors = vectors * math.sqrt(self.config.hidden_size)
        return self.dropout(vectors + sinusoids(len(vectors), vectors.shape[-1], first, vectors)[:, None])

    def decode(
        self,
        previous: Tensor,
        state: TransformerState,
        lengths: Tensor | None = None,
        weights: bool = False,
    ) -> Decoded:
        x = self.place(self.target(previous))
        mask, found = mask_for(lengths, x), None
        for layer, memory in zip(self.decoder_layers, state.memories, strict=True):
            if weights:
                found = layer.weights(x, memory, mask)
            x, _ = layer(x, memory, None, mask)
        return Decoded(self.output(self.decoder_norm(x)), found)

    def step(self, previous: Tensor, state: TransformerState) -> Decoded:
        before = state.layers or (None,) * len(self.decoder)
        first = 0 if state.layers is None else state.layers[0].keys.shape[2]
        x, after = self.place(self.target(previous[None]), first), []
        for layer, memory, kept in zip(self.decoder, state.memories, before, strict=True):
            x, new = layer(x, memory, kept)
            after.append(new)
        logits = self.output(self.decoder_norm(x))[0]
        return Decoded(logits, None, TransformerState(state.memories, tuple(after)))
