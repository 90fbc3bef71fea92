"""The deep recurrent translation model of the LRN paper (Zhang and Sennrich 2019, Table 3), with any unit."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linnet.layers.attention import AdditiveAttention, Memory, NormedLinear
from linnet.layers.context import Context
from linnet.layers.matching import Matched, MatchingRecurrence, PairRecurrence
from linnet.layers.pooling import last
from linnet.models.config import find_unit
from linnet.models.translator_base import Decoded, Translator, TranslatorConfig
from linnet.recurrent.cell import Cell
from linnet.recurrent.projection import NORM_EPS, norm_layer
from linnet.recurrent.recurrent import Recurrent
from linnet.recurrent.sequence import mask_for
from linnet.run.linear import linear


class RecurrentState(NamedTuple):
    """The state of the decoder of a RecurrentTranslator."""

    memory: Memory
    layers: tuple[Tensor, ...]  # [B, state_size] of each layer


class RecurrentTranslator(Translator):
    """The deep recurrent model of the LRN paper. Each layer adds its output to x and normalises the sum:

        x = norm(x + dropout(W layer(x) + b))

    The first layer of the encoder runs forward over x, then backward over pairs of x and the output of the
    forward run. The first layer of the decoder attends to the source before each word; the other layers read
    pairs of x and the result c of this attention. The logits are E tanh(norm([x; c] W) + b), where E are the
    word vectors.

    Cells have no bias unless unit_options has bias=True. In the paper, LRN and ATR have
    activation="identity".
    """

    def add_layers(self, where: dict[str, Any]) -> None:
        config, size = self.config, self.config.hidden_size
        self.bias = nn.Parameter(torch.zeros(size, **where))
        self.encoder = SourceEncoder(config, where)
        self.decoder = TargetDecoder(config, where)
        state = self.decoder.matching.state_size
        self.starts = nn.ModuleList(
            NormedLinear(size, state, norm=config.norm, **where) for _ in range(config.depth)
        )
        self.output = NormedLinear(2 * size, size, norm=config.norm, **where)
        self.dropout = nn.Dropout(config.dropout)
        self.reset_words()

    def reset_words(self) -> None:
        """Initialise word vectors with N(0, 1 / size), so that logits are of the order of 1."""
        for table in (self.source, self.target):
            nn.init.normal_(table.weight, 0, self.config.hidden_size**-0.5)

    def start(
        self, source: Tensor, lengths: Tensor | None = None, context: Context | None = None
    ) -> RecurrentState:
        x, final = self.encode(source, lengths, context)
        memory = self.decoder.matching.attention.remember(x, mask_for(lengths, x))
        return RecurrentState(memory, tuple(layer(final) for layer in self.starts))

    def encode(
        self, source: Tensor, lengths: Tensor | None = None, context: Context | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the output of the encoder, [S, B, size], and the last step of its last layer, [B, size]."""
        return self.encoder(self.dropout(self.source_vectors(source, context) + self.bias), lengths)

    def embed(self, previous: Tensor) -> Tensor:
        """Return word vectors; that of token 0, the start of a sentence, is zero."""
        vectors = self.target(previous) + self.bias
        return self.dropout(vectors.masked_fill((previous == 0)[..., None], 0))

    def decode(
        self,
        previous: Tensor,
        state: RecurrentState,
        lengths: Tensor | None = None,
        weights: bool = False,
    ) -> Decoded:
        x, found = self.decoder(self.embed(previous), state, lengths)
        return Decoded(self.logits(x, found.context), found.weights if weights else None)

    def step(self, previous: Tensor, state: RecurrentState) -> Decoded:
        x, found, layers = self.decoder.step(self.embed(previous), state)
        logits = self.logits(x, found.context)
        return Decoded(logits, found.weights, RecurrentState(state.memory, layers))

    def logits(self, x: Tensor, context: Tensor) -> Tensor:
        feature = torch.tanh(self.output(torch.cat([x, context], -1)))
        return linear(self.dropout(feature), self.target.weight)


class SourceEncoder(nn.Module):
    """The layers of the encoder of a RecurrentTranslator."""

    def __init__(self, config: TranslatorConfig, where: dict[str, Any]):
        super().__init__()
        self.layers = nn.ModuleList(make_layer(config, where) for _ in range(config.num_layers))
        self.backward_pair = PairRecurrence(make_cell(config, where), make_cell(config, where))
        self.sums = nn.ModuleList(ResidualSum(config, where) for _ in range(config.num_layers))

    def forward(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """x [S, B, size] -> x [S, B, size] and the last output of the last layer, [B, size]."""
        mask = mask_for(lengths, x)
        y, _ = self.layers[0](x, mask=mask)
        y, _ = self.backward_pair(x, y, None, mask, reverse=True)
        # The backward run ends at the first word.
        x, final = self.sums[0](x, y), y[0]
        for layer, add in zip(self.layers[1:], self.sums[1:], strict=True):
            y, _ = layer(x, mask=mask)
            x, final = add(x, y), last(y, lengths)
        return x, final


class TargetDecoder(nn.Module):
    """The layers of the decoder of a RecurrentTranslator."""

    def __init__(self, config: TranslatorConfig, where: dict[str, Any]):
        super().__init__()
        size = config.hidden_size
        attention = AdditiveAttention(size, size, config.heads, config.norm, **where)
        self.matching = MatchingRecurrence(make_cell(config, where), make_cell(config, where), attention)
        self.pairs = nn.ModuleList(
            PairRecurrence(make_cell(config, where), make_cell(config, where))
            for _ in range(config.depth - 1)
        )
        self.sums = nn.ModuleList(ResidualSum(config, where) for _ in range(config.depth))

    def forward(self, x: Tensor, state: RecurrentState, lengths: Tensor | None) -> tuple[Tensor, Matched]:
        """x [T, B, size] -> x [T, B, size] and the result of the first layer, with its attention."""
        mask = mask_for(lengths, x)
        found = self.matching(x, state.memory, state.layers[0], mask)
        x = self.sums[0](x, found.output)
        for pair, add, start in zip(self.pairs, self.sums[1:], state.layers[1:], strict=True):
            y, _ = pair(x, found.context, start, mask)
            x = add(x, y)
        return x, found

    def step(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, Matched, tuple[Tensor, ...]]:
        """x [B, size] -> x [B, size], the result of the first layer, and the states of all layers."""
        found = self.matching.step(x, state.memory, state.layers[0])
        x, states = self.sums[0](x, found.output), [found.state]
        pairs: list[Any] = list(self.pairs)
        for pair, add, before in zip(pairs, self.sums[1:], state.layers[1:], strict=True):
            y, after = pair.step(x, found.context, before)
            x = add(x, y)
            states.append(after)
        return x, found, tuple(states)


def make_layer(config: TranslatorConfig, where: dict[str, Any]) -> Recurrent:
    unit, size = find_unit(config.unit), config.hidden_size
    options: dict[str, Any] = {"bias": False, "norm": config.norm}
    if "norm_on" in unit.options():
        options["norm_on"] = "all"
    layer = unit(size, size, **{**options, **config.unit_options}, **where)
    if layer.output_size != size:
        raise ValueError(
            f"a layer adds its output to its input, but {config.unit} has an output of "
            f"{layer.output_size} for hidden_size={size}; use another unit"
        )
    return layer


def make_cell(config: TranslatorConfig, where: dict[str, Any]) -> Cell:
    return make_layer(config, where).release_cell()


class ResidualSum(nn.Module):
    """norm(x + dropout(W y + b))"""

    def __init__(self, config: TranslatorConfig, where: dict[str, Any]):
        super().__init__()
        size = config.hidden_size
        self.linear = NormedLinear(size, size, **where)
        self.norm = norm_layer("norm", config.norm, size, NORM_EPS, **where)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.norm(x + self.dropout(self.linear(y)))
