"""The settings and the base class of translation models; see linnet.models.translator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_rate, check_size, choose
from linnet.layers.attention import NormedLinear
from linnet.layers.beam import Hypotheses, beam_search
from linnet.layers.context import Context, ContextShape
from linnet.layers.embedding import check_tokens
from linnet.layers.nested import repeat_rows
from linnet.models.config import MOST_LAYERS, REFUSED, ContextConfig, find_unit, option
from linnet.models.encoder import make_context
from linnet.models.pair import NOT_OF_CELLS
from linnet.recurrent.pretrained import Pretrained
from linnet.run.linear import kept_matrices

FORMS = ("recurrent", "transformer")
STACK_DROPOUTS = ("dropout", "variational", "state_dropout", "weight_drop", "weight_drop_on")


@dataclass(frozen=True)
class TranslatorConfig(ContextConfig):
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
        self.check_context()
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
    context                      the shape of the vectors of an encoder, if they are read: a linear map of
                                 them is added to the vectors of the source
    """

    def __init__(
        self,
        source_words: int,
        target_words: int,
        config: TranslatorConfig,
        *,
        context: ContextShape | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
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
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.add_tables(where)
        self.context = make_context(config, context, where)
        size = 0 if self.context is None else self.context.output_size
        self.from_context = NormedLinear(size, config.hidden_size, **where) if size else None
        self.add_layers(where)

    def add_tables(self, where: dict[str, Any]) -> None:
        """Add the word vectors of both sides, which may be one table."""
        size = self.config.hidden_size
        self.target = nn.Embedding(self.target_words, size, **where)
        self.source = self.target if self.config.shared else nn.Embedding(self.source_words, size, **where)

    def add_layers(self, where: dict[str, Any]) -> None:
        """Add the encoder, the decoder and the output layer, and initialise the parameters."""
        raise NotImplementedError

    def start(self, source: Tensor, lengths: Tensor | None = None, context: Context | None = None) -> Any:
        """Return the state of the decoder before its first word; each tensor has the batch first."""
        raise NotImplementedError

    def source_vectors(self, source: Tensor, context: Context | None) -> Tensor:
        """Return the vectors of the words of the source, [S, B, size]."""
        vectors = self.source(source)
        if self.context is None or self.from_context is None:
            return vectors
        return vectors + self.from_context(self.context(context))

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
        context: Context | None = None,
    ) -> Tensor:
        """source [S, B], target [T, B] -> logits of each word of the target, [T, B, words]."""
        return self.run(source, source_lengths, target, target_lengths, context).logits

    def attend(
        self,
        source: Tensor,
        source_lengths: Tensor | None,
        target: Tensor,
        target_lengths: Tensor | None = None,
        context: Context | None = None,
    ) -> Decoded:
        """Return the logits and the attention to the source (transformer: that of the last layer)."""
        return self.run(source, source_lengths, target, target_lengths, context, weights=True)

    def run(
        self,
        source: Tensor,
        source_lengths: Tensor | None,
        target: Tensor,
        target_lengths: Tensor | None,
        context: Context | None,
        weights: bool = False,
    ) -> Decoded:
        check_tokens("source", source, self.source_words)
        check_tokens("target", target, self.target_words)
        previous = F.pad(target[:-1], (0, 0, 1, 0))
        return self.decode(previous, self.start(source, source_lengths, context), target_lengths, weights)

    @torch.no_grad()
    def translate(
        self,
        source: Tensor,
        lengths: Tensor | None = None,
        beam: int = 4,
        alpha: float = 0.6,
        extra: int = 50,
        context: Context | None = None,
    ) -> Hypotheses:
        """Return the best translations by beam search, of at most `extra` words more than their sources."""
        check_tokens("source", source, self.source_words)
        check_size("beam", beam)
        steps, batch = source.shape
        limits = torch.full((batch,), steps, device=source.device) if lengths is None else lengths
        with kept_matrices():
            state = repeat_rows(self.start(source, lengths, context), beam)
            return beam_search(self.next_word, state, limits.to(source.device) + extra, beam, alpha)

    def next_word(self, previous: Tensor, state: Any) -> tuple[Tensor, Any]:
        found = self.step(previous, state)
        return found.logits, found.state

    def count(self) -> int:
        """The number of parameters; a tied matrix counts once."""
        return sum(weight.numel() for weight in self.parameters())
