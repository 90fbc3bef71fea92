"""Translation models: a source sentence is encoded, and a target sentence is generated word by word.

`RecurrentTranslator` is the deep model of Zhang and Sennrich (2019, Table 3), after GNMT (Wu et al. 2016),
with any unit. `TransformerTranslator` is the Transformer in the form of OpenNMT-py; with feed_forward="unit"
its feed-forward layers are recurrent, as in Lei et al. (2018, Table 3).

    model = make_translator(8000, 8000, TranslatorConfig(form="transformer", feed_forward="unit", unit="sru"))
    logits = model(source, lengths, target, target_lengths)        # training: [T, B, words]
    found = model.translate(source, lengths, beam=4)               # found.tokens[:, 0] are the best

Sentences are [T, B] with their lengths. Token 0 is padding and, as an input of the decoder, the start of a
sentence; token 2 ends each sentence, on both sides. Padding never changes a result, unless padding="read".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.base.options import check_rate, check_size, choose
from linnet.fuse.linear import kept_matrices, linear
from linnet.layers.attention import AdditiveAttention, Memory, NormedLinear
from linnet.layers.beam import Hypotheses, beam_search
from linnet.layers.cell import Cell
from linnet.layers.embedding import check_tokens
from linnet.layers.matching import Matched, MatchingRecurrence, PairRecurrence
from linnet.layers.nested import repeat_rows
from linnet.layers.pooling import last
from linnet.layers.pretrained import Pretrained
from linnet.layers.projection import NORM_EPS, norm_layer
from linnet.layers.recurrent import Recurrent
from linnet.layers.sequence import mask_for
from linnet.layers.transformer import (
    DecoderLayerState,
    FeedForward,
    RecurrentFeedForward,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    UnbiasedLayerNorm,
    sinusoids,
)
from linnet.models.config import MOST_LAYERS, REFUSED, find_unit, option
from linnet.models.pair import NOT_OF_CELLS

FORMS = ("recurrent", "transformer")
STACK_DROPOUTS = ("dropout", "variational", "state_dropout", "weight_drop", "weight_drop_on")


@dataclass(frozen=True)
class TranslatorConfig:
    """The encoder, the decoder and the attention between them."""

    form: str = option("recurrent", "recurrent (deep layers of a unit) or transformer")
    unit: str = option("lrn", "the recurrent unit, a name of linnet.UNITS")
    unit_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "options of the unit's paper, and norm, input_dropout, ..."}
    )
    hidden_size: int = option(512, "the size of words, layers and attention")
    num_layers: int = option(6, "the number of layers of the encoder")
    decoder_layers: int = option(0, "the number of layers of the decoder (0: num_layers)")
    heads: int = option(8, "the number of heads of the attention")
    dropout: float = option(0.1, "dropout on embeddings, on the output of each layer and before the softmax")
    norm: str | None = option("layer", "recurrent: norm of all projections: None, layer or rms")
    feed_forward: str = option("relu", "transformer: relu, or unit for a recurrent unit")
    inner_size: int = option(2048, "transformer: the size of the feed-forward layers")
    bidirectional: bool = option(
        False, "transformer: units of the encoder run in both directions, with half of inner_size each"
    )
    shared: bool = option(True, "source and target have one table of word vectors")
    padding: str = option(
        "masked",
        "transformer: masked: padding never changes a result; read: as in the paper's formula, units read it",
    )

    def __post_init__(self) -> None:
        find_unit(self.unit)
        choose("form", self.form, FORMS)
        choose("norm", self.norm, (None, "layer", "rms"))
        choose("feed_forward", self.feed_forward, ("relu", "unit"))
        choose("padding", self.padding, ("masked", "read"))
        check_rate("dropout", self.dropout)
        for name in ("hidden_size", "heads", "inner_size"):
            check_size(name, getattr(self, name))
        check_size("num_layers", self.num_layers, most=MOST_LAYERS)
        check_size("decoder_layers", self.decoder_layers, least=0, most=MOST_LAYERS)
        self.check_unit_options()
        if self.bidirectional and self.inner_size % 2:
            raise ValueError(f"bidirectional=True needs an even inner_size; got {self.inner_size}")

    def check_unit_options(self) -> None:
        refused = {
            **REFUSED,
            "num_layers": "set its num_layers",
            "bidirectional": "set its own bidirectional",
        }
        if self.form == "recurrent":
            refused |= NOT_OF_CELLS | dict.fromkeys(STACK_DROPOUTS, "set its dropout")
        for name in self.unit_options:
            if name in refused:
                raise ValueError(f"{name} is not a unit option of a translator: {refused[name]}")

    @property
    def depth(self) -> int:
        """The number of layers of the decoder."""
        return self.decoder_layers or self.num_layers


class Decoded(NamedTuple):
    """The result of a decoder for whole target sentences, or of one step without the time dimension."""

    logits: Tensor  # [T, B, words]
    weights: Tensor | None = None  # [B, heads, T, source]: the attention to the source
    state: Any = None  # after one step


class Translator(Pretrained):
    """The base class of both forms. Subclasses define `add_layers`, `start`, `decode` and `step`.

    source_words, target_words   the sizes of the vocabularies
    """

    def __init__(
        self, source_words: int, target_words: int, config: TranslatorConfig, *, device=None, dtype=None
    ):
        super().__init__()
        check_size("source_words", source_words)
        check_size("target_words", target_words)
        if config.shared and source_words != target_words:
            raise ValueError(
                "shared=True needs one vocabulary for source and target; got "
                f"{source_words} and {target_words} words: set shared=False"
            )
        self.source_words, self.target_words, self.config = source_words, target_words, config
        where = {"device": device, "dtype": dtype}
        self.add_tables(where)
        self.add_layers(where)

    def add_tables(self, where: dict[str, Any]) -> None:
        """Add the word vectors of both sides, which may be one table."""
        size = self.config.hidden_size
        self.target = nn.Embedding(self.target_words, size, **where)
        self.source = self.target if self.config.shared else nn.Embedding(self.source_words, size, **where)

    def add_layers(self, where: dict[str, Any]) -> None:
        """Add the encoder, the decoder and the output layer, and initialise the parameters."""
        raise NotImplementedError

    def start(self, source: Tensor, lengths: Tensor | None = None) -> Any:
        """Return the state of the decoder before its first word; each tensor has the batch first."""
        raise NotImplementedError

    def decode(
        self, previous: Tensor, state: Any, lengths: Tensor | None = None, weights: bool = False
    ) -> Decoded:
        """Decode whole sentences at once.

        previous   [T, B]: the word before each word; the first one is token 0
        weights    return the weights of the attention too
        """
        raise NotImplementedError

    def step(self, previous: Tensor, state: Any) -> Decoded:
        """Return the logits of the next word, [B, words]; `previous` [B] is the word before it."""
        raise NotImplementedError

    def forward(
        self,
        source: Tensor,
        source_lengths: Tensor | None,
        target: Tensor,
        target_lengths: Tensor | None = None,
    ) -> Tensor:
        """source [S, B], target [T, B] -> logits of each word of the target, [T, B, words]."""
        return self.run(source, source_lengths, target, target_lengths).logits

    def attend(
        self,
        source: Tensor,
        source_lengths: Tensor | None,
        target: Tensor,
        target_lengths: Tensor | None = None,
    ) -> Decoded:
        """Return the logits and the attention to the source (transformer: that of the last layer)."""
        return self.run(source, source_lengths, target, target_lengths, weights=True)

    def run(
        self,
        source: Tensor,
        source_lengths: Tensor | None,
        target: Tensor,
        target_lengths: Tensor | None,
        weights: bool = False,
    ) -> Decoded:
        check_tokens("source", source, self.source_words)
        check_tokens("target", target, self.target_words)
        previous = F.pad(target[:-1], (0, 0, 1, 0))
        return self.decode(previous, self.start(source, source_lengths), target_lengths, weights)

    @torch.no_grad()
    def translate(
        self,
        source: Tensor,
        lengths: Tensor | None = None,
        beam: int = 4,
        alpha: float = 0.6,
        extra: int = 50,
    ) -> Hypotheses:
        """Return the best translations by beam search, of at most `extra` words more than their sources."""
        check_tokens("source", source, self.source_words)
        check_size("beam", beam)
        steps, batch = source.shape
        limits = torch.full((batch,), steps, device=source.device) if lengths is None else lengths
        with kept_matrices():
            state = repeat_rows(self.start(source, lengths), beam)
            return beam_search(self.next_word, state, limits.to(source.device) + extra, beam, alpha)

    def next_word(self, previous: Tensor, state: Any) -> tuple[Tensor, Any]:
        found = self.step(previous, state)
        return found.logits, found.state

    def count(self) -> int:
        """The number of parameters; a tied matrix counts once."""
        return sum(weight.numel() for weight in self.parameters())


# ------------------------------------------------------------------------------------------ recurrent


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

    def start(self, source: Tensor, lengths: Tensor | None = None) -> RecurrentState:
        x, final = self.encode(source, lengths)
        memory = self.decoder.matching.attention.remember(x, mask_for(lengths, x))
        return RecurrentState(memory, tuple(layer(final) for layer in self.starts))

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the output of the encoder, [S, B, size], and the last step of its last layer, [B, size]."""
        return self.encoder(self.dropout(self.source(source) + self.bias), lengths)

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
    return make_layer(config, where).first_cell


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


# ---------------------------------------------------------------------------------------- transformer


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

    def start(self, source: Tensor, lengths: Tensor | None = None) -> TransformerState:
        x = self.encode(source, lengths)
        mask = mask_for(lengths, x)
        return TransformerState(tuple(layer.attention.remember(x, mask) for layer in self.decoder_layers))

    @property
    def decoder_layers(self) -> list[TransformerDecoderLayer]:
        return list(self.decoder)  # type: ignore[arg-type]

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The output of the encoder, [S, B, size]."""
        x = self.embed(self.source, source)
        mask = mask_for(lengths, x)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x)

    def embed(self, table: nn.Embedding, tokens: Tensor, first: int = 0) -> Tensor:
        """Return the sum of word vectors and encodings of their positions, which start at `first`."""
        vectors = table(tokens) * math.sqrt(self.config.hidden_size)
        return self.dropout(vectors + sinusoids(len(tokens), vectors.shape[-1], first, vectors)[:, None])

    def decode(
        self,
        previous: Tensor,
        state: TransformerState,
        lengths: Tensor | None = None,
        weights: bool = False,
    ) -> Decoded:
        x = self.embed(self.target, previous)
        mask, found = mask_for(lengths, x), None
        for layer, memory in zip(self.decoder_layers, state.memories, strict=True):
            if weights:
                found = layer.weights(x, memory, mask)
            x, _ = layer(x, memory, None, mask)
        return Decoded(self.output(self.decoder_norm(x)), found)

    def step(self, previous: Tensor, state: TransformerState) -> Decoded:
        before = state.layers or (None,) * len(self.decoder)
        first = 0 if state.layers is None else state.layers[0].keys.shape[2]
        x, after = self.embed(self.target, previous[None], first), []
        for layer, memory, kept in zip(self.decoder, state.memories, before, strict=True):
            x, new = layer(x, memory, kept)
            after.append(new)
        logits = self.output(self.decoder_norm(x))[0]
        return Decoded(logits, None, TransformerState(state.memories, tuple(after)))


def make_translator(
    source_words: int, target_words: int, config: TranslatorConfig, *, device=None, dtype=None
) -> Translator:
    kind = RecurrentTranslator if config.form == "recurrent" else TransformerTranslator
    return kind(source_words, target_words, config, device=device, dtype=dtype)
