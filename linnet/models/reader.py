"""Readers find where the answer to a question starts and ends in a passage. They take any unit.

    passage, question -> encoders, both directions -> scores of each word as the first and the last word

`DocumentReader` is the reader of DrQA (Chen et al. 2017) as in the SRU paper (Table 2): the question becomes
one vector, which is compared with each word of the passage. `RNet` is R-Net (Wang et al. 2017) in the form of
the LRN paper (Table 4): the passage attends to the question and to itself, with gates, and a pointer network
selects the first and the last word.

    reader = DocumentReader(90_000, ReaderConfig(unit="sru", embedding_size=300), features=4, tags=(56, 19))
    logits = reader(Passage(tokens, lengths, features, (pos, ner)), Passage(question, its_lengths))
    first, last, probability = logits.best(longest=15)

With `context`, both read the vectors of an encoder, too; R-Net as the LRN authors' code reads ELMo's.
Padding never changes a result. Differs from the SRU authors' code, whose units read the padding in training;
padding="read" does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_rate, check_size, choose
from linnet.layers.attention import AlignedAttention, GatedAttention, clear_padding
from linnet.layers.context import Context, ContextShape
from linnet.layers.embedding import TUNED, WordEmbedding, check_tokens
from linnet.layers.pooling import AttentivePooling, LinearPooling, mean
from linnet.layers.spans import BilinearSpans, PointerNetwork, SpanLogits
from linnet.models.bidirectional import BidirectionalEncoder
from linnet.models.config import MOST_LAYERS, REFUSED, ContextConfig, EncoderConfig, option
from linnet.models.encoder import Encoded, State, make_context
from linnet.recurrent.dropout import Dropout
from linnet.recurrent.masks import with_same_masks
from linnet.recurrent.pretrained import Pretrained
from linnet.recurrent.sequence import mask_for
from linnet.units.gru import GRU, GRUCell

# y [T, B, F], lengths [B] -> [B, F].
Pooling = Callable[[Tensor, Tensor | None], Tensor]
# The options that only one form has.
OWN_OPTIONS = {
    "drqa": ("joined", "question_layers", "question_merge", "tag_sizes"),
    "rnet": ("character_size", "character_hidden", "read_dropout", "released_start"),
}


@dataclass(frozen=True)
class ReaderConfig(ContextConfig, EncoderConfig):
    """The encoders of both texts, which run in both directions."""

    noun: ClassVar[str] = "reader"
    refused: ClassVar[dict[str, str]] = {**REFUSED, "bidirectional": "it reads in both directions"}
    bidirectional: ClassVar[bool] = True

    form: str = option("drqa", "drqa (DrQA's reader) or rnet (R-Net)")
    embedding_size: int = option(300, "the size of a word's vector")
    hidden_size: int = option(128, "the size of each layer, in each direction")
    num_layers: int = option(3, "the number of layers of the encoders")
    tuned: str = option(
        "special", "word vectors that are trained: all, special (the first tuned_words) or none"
    )
    tuned_words: int = option(1002, "the number of words whose vectors tuned=special trains")
    padding: str = option(
        "masked",
        "masked: padding never changes a result; read: as the SRU authors do in training, the layers read "
        "the padding too",
    )
    joined: bool = option(False, "drqa: an encoder's output is that of all its layers, instead of the last")
    question_layers: int = option(0, "drqa: the number of layers of the question's encoder (0: num_layers)")
    question_merge: str = option(
        "attention",
        "drqa: the question as one vector: attention (a mean whose weights are learned) or avg (the mean)",
    )
    tag_sizes: tuple[int, ...] = option(
        (), "drqa: the size of the vectors of each kind of tag (0: one-hot; empty: the number of tags)"
    )
    character_size: int = option(8, "rnet: the size of a character's vector")
    character_hidden: int = option(100, "rnet: the size of the GRU over characters, in each direction")
    read_dropout: float = option(
        0.0, "rnet: dropout on the inputs of layers, attention and pointers, one mask for all words"
    )
    released_start: bool = option(
        False,
        "rnet with a context: as the LRN authors released it, the pointer starts from the last 2 hidden_size "
        "numbers of the context's vectors, instead of the question's last layer and its context",
    )

    def __post_init__(self) -> None:
        # JSON has no tuples.
        object.__setattr__(self, "tag_sizes", tuple(self.tag_sizes))
        super().__post_init__()

    def check_choices(self) -> None:
        super().check_choices()
        self.check_context()
        choose("form", self.form, ("drqa", "rnet"))
        choose("tuned", self.tuned, TUNED)
        choose("padding", self.padding, ("masked", "read"))
        choose("question_merge", self.question_merge, ("attention", "avg"))
        check_rate("read_dropout", self.read_dropout)

    def check_sizes(self) -> None:
        super().check_sizes()
        for name in ("embedding_size", "tuned_words", "character_size", "character_hidden"):
            check_size(name, getattr(self, name))
        for size in self.tag_sizes:
            check_size("each of tag_sizes", size, least=0)
        check_size("question_layers", self.question_layers, least=0, most=MOST_LAYERS)

    def check_fit(self) -> None:
        super().check_fit()
        for form, names in OWN_OPTIONS.items():
            for name in names if form != self.form else ():
                self.check_default(name, form)
        if self.question_layers and self.hidden_sizes is not None:
            raise ValueError(
                "question_layers counts layers of hidden_size channels, but hidden_sizes gives both encoders "
                "a layer for each size; set num_layers and hidden_size in place of hidden_sizes, or "
                "question_layers=0"
            )
        if self.released_start and self.context is None:
            raise ValueError(
                "released_start is about the vectors of an encoder; give context, or leave it False"
            )

    def check_default(self, name: str, form: str) -> None:
        default, given = getattr(type(self), name), getattr(self, name)
        if given != default:
            raise ValueError(
                f"{name} is an option of form={form!r}; form={self.form!r} has none, leave it at {default!r} "
                f"(got {given!r})"
            )

    @property
    def question_encoder(self) -> ReaderConfig:
        """The settings of the question's encoder in DrQA's reader."""
        return replace(self, num_layers=self.question_layers or self.num_layers)


class Passage(NamedTuple):
    """A batch of passages or of questions, time first."""

    tokens: Tensor  # int64 [T, B]; 0 is padding
    lengths: Tensor | None = None  # [B]; needed if texts are padded
    features: Tensor | None = None  # numbers of each word, [T, B, F]; passages for DocumentReader
    tags: tuple[Tensor, ...] = ()  # int64 [T, B] for each kind of tag; passages for DocumentReader
    characters: Tensor | None = None  # int64 [T, B, C], 0 is padding; for RNet
    context: Context | None = None  # the vectors of an encoder


class Aligned(NamedTuple):
    """The logits of a reader and the attention to the question."""

    logits: SpanLogits
    weights: Tensor  # [B, 1, T, Q]: the words of the question for each word of the passage


class DocumentReader(Pretrained):
    """DrQA's reader. The input of the passage's encoder is, for each word,

        [its vector; its features; the result of its attention to the question; the vectors of its tags]

    vocabulary_size   words; word 0 is padding
    features          the number of features of each word of a passage
    tags              for each kind of tag, the number of tags
    context           the shape of the vectors of an encoder, if they are read; they join the input of both
                      encoders
    """

    def __init__(
        self,
        vocabulary_size: int,
        config: ReaderConfig,
        *,
        features: int = 0,
        tags: Sequence[int] = (),
        context: ContextShape | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("features", features, least=0)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.config, self.features = config, features
        size = config.embedding_size
        self.embedding = WordEmbedding(vocabulary_size, size, config.tuned, config.tuned_words, **where)
        self.align = AlignedAttention(size, **where)
        sizes = config.tag_sizes or tuple(tags)
        if len(sizes) != len(tags):
            raise ValueError(
                f"tag_sizes has {len(sizes)} sizes for {len(tags)} kinds of tags; give one for each"
            )
        self.tags = nn.ModuleList(TagEmbedding(*each, **where) for each in zip(tags, sizes, strict=True))
        tag_size = sum(tag.size for tag in self.tags)  # type: ignore[misc]
        self.context = make_context(config, context, where)
        extra = 0 if self.context is None else self.context.output_size
        self.passage_encoder = WordEncoder(2 * size + features + tag_size + extra, config, where)
        self.question_encoder = WordEncoder(size + extra, config.question_encoder, where)
        passage_size, question_size = self.passage_encoder.output_size, self.question_encoder.output_size
        attends = config.question_merge == "attention"
        self.merge: Pooling = LinearPooling(question_size, **where) if attends else mean
        self.spans = BilinearSpans(passage_size, question_size, **where)
        self.passage_dropout, self.question_dropout = (Dropout(config.input_dropout) for _ in range(2))
        self.tag_dropouts = nn.ModuleList(Dropout(config.input_dropout) for _ in tags)

    def forward(self, passage: Passage, question: Passage) -> SpanLogits:
        return self.attend(passage, question).logits

    def attend(self, passage: Passage, question: Passage) -> Aligned:
        """Return the logits, and the attention of each word to the words of the question."""
        x, asked = self.passage_dropout(self.embed(passage)), self.question_dropout(self.embed(question))
        aligned, weights = self.align(x, asked, mask_for(question.lengths, asked))
        parts = [x, *self.features_of(passage), aligned, *self.tags_of(passage)]
        joined = torch.cat([*parts, *self.context_of(passage)], -1)
        y = self.encode(self.passage_encoder, joined, passage)
        asked = torch.cat([asked, *self.context_of(question)], -1)
        query = self.merge(self.encode(self.question_encoder, asked, question), question.lengths)
        return Aligned(self.spans(y, query, mask_for(passage.lengths, y)), weights)

    def embed(self, text: Passage) -> Tensor:
        """Word vectors, zeros at padding."""
        check_tokens("tokens", text.tokens, self.embedding.words)
        vectors = self.embedding(text.tokens)
        return clear_padding(vectors, mask_for(text.lengths, vectors))

    def context_of(self, text: Passage) -> list[Tensor]:
        return [] if self.context is None else [self.context(text.context)]

    def features_of(self, passage: Passage) -> list[Tensor]:
        found = 0 if passage.features is None else passage.features.shape[-1]
        if found != self.features:
            raise ValueError(f"this reader was built with features={self.features}; a passage has {found}")
        return [] if passage.features is None else [passage.features.to(self.embedding.weight.dtype)]

    def tags_of(self, passage: Passage) -> list[Tensor]:
        if len(passage.tags) != len(self.tags):
            raise ValueError(
                f"this reader was built for {len(self.tags)} kinds of tags; a passage has {len(passage.tags)}"
            )
        triples = zip(self.tags, self.tag_dropouts, passage.tags, strict=True)
        return [dropout(embed(tags).to(self.embedding.weight.dtype)) for embed, dropout, tags in triples]

    def encode(self, encoder: WordEncoder, x: Tensor, text: Passage) -> Tensor:
        return encoder.encode(x, lengths=None if self.config.padding == "read" else text.lengths).output


class WordEncoder(BidirectionalEncoder):
    """An encoder of DrQA's reader: with joined=True, its output is that of all its layers."""

    config: ReaderConfig

    @property
    def output_size(self) -> int:
        sizes = [layer.output_size for layer in self.stack]
        return sum(sizes) if self.config.joined else sizes[-1]

    def after(self, number: int, y: Tensor) -> Tensor:
        # The dropout of the last layer is that of the joined outputs.
        is_joined = self.config.joined and number == len(self.layers) - 1
        return y if is_joined else super().after(number, y)

    def run_layers(self, x: Tensor, state: State | None = None, lengths: Tensor | None = None) -> Encoded:
        encoded = super().run_layers(x, state, lengths)
        if not self.config.joined:
            return encoded
        return encoded._replace(output=self.layer_dropouts[-1](torch.cat(encoded.layers, -1)))


class TagEmbedding(nn.Module):
    """Ids of `count` tags -> vectors of `size`, initialised with N(0, 1); one-hot vectors if size is 0."""

    def __init__(self, count: int, size: int, device: Device = None, dtype: torch.dtype | None = None):
        super().__init__()
        check_size("the number of tags", count)
        self.count, self.size = count, size or count
        self.table = nn.Embedding(count, size, device=device, dtype=dtype) if size else None

    def forward(self, tags: Tensor) -> Tensor:
        return F.one_hot(tags, self.count) if self.table is None else self.table(tags)


# --------------------------------------------------------------------------------------------- R-Net


class RNetReading(NamedTuple):
    """The logits of R-Net and the tensors that they are computed from, which are time first."""

    logits: SpanLogits
    passage: Tensor  # [T, B, F], the concatenated outputs of the layers of the encoder
    question: Tensor  # [Q, B, F]
    attended: Tensor  # [T, B, 2 hidden_size], after the attention to the question
    matched: Tensor  # [T, B, 2 hidden_size], after the attention to the passage itself
    start: Tensor  # [B, 2 hidden_size], the question as one vector
    weights: Tensor  # [B, 1, T, Q]: the attention of each word of the passage to the question
    self_weights: Tensor  # [B, 1, T, T]: its attention to the passage


class RNet(Pretrained):
    """R-Net. The encoder and the layers after each attention have the unit of the settings; the characters
    and the pointer network have a GRU.

    vocabulary_size   words; word 0 is padding
    characters        the size of the alphabet; character 0 is padding
    context           the shape of the vectors of an encoder, if they are read: one mix of its layers joins
                      the words, another one the passage before the pointer, and the question where it starts

    While training, the encoder draws its dropout masks once for passage and question, as in HKUST's code.
    """

    def __init__(
        self,
        vocabulary_size: int,
        config: ReaderConfig,
        *,
        characters: int,
        context: ContextShape | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.config = config
        hidden, rate = config.hidden_size, config.read_dropout
        self.context = make_context(config, context, where)
        # The encoder itself is a part of the first one.
        late = None if context is None else replace(context, settings=None)
        self.late_context = make_context(config, late, where)
        extra = 0 if self.context is None else self.context.output_size
        self.embedding = WordEmbedding(
            vocabulary_size, config.embedding_size, config.tuned, config.tuned_words, **where
        )
        self.characters = CharacterGRU(characters, config, where)
        dropped = replace(config, unit_options={"input_dropout": rate, **config.unit_options})
        one = replace(dropped, num_layers=1, hidden_sizes=None)
        self.encoder = BidirectionalEncoder(
            config.embedding_size + self.characters.output_size + extra, dropped, where
        )
        size = sum(layer.output_size for layer in self.encoder.stack)
        self.attention = GatedAttention(size, size, hidden, rate, **where)
        self.after_attention = BidirectionalEncoder(2 * size, one, where)
        size = self.after_attention.output_size
        self.match = GatedAttention(size, size, hidden, rate, **where)
        self.after_match = BidirectionalEncoder(2 * size, one, where)
        question = 2 * hidden if config.released_start else self.encoder.output_size + extra
        self.merge = AttentivePooling(question, hidden, score_dropout=rate, **where)
        self.pointer = PointerNetwork(tensorflow_gru(size + extra, question, where), hidden, rate, **where)

    def forward(self, passage: Passage, question: Passage) -> SpanLogits:
        return self.attend(passage, question).logits

    def attend(self, passage: Passage, question: Passage) -> RNetReading:
        """Return the logits with the tensors that they are computed from."""
        read, asked = self.encode(passage, question)
        x, q = (torch.cat(encoded.layers, -1) for encoded in (read, asked))
        mask, q_mask = mask_for(passage.lengths, x), mask_for(question.lengths, q)
        attended, weights = self.attention(x, q, q_mask)
        attended = self.after_attention.encode(attended, lengths=passage.lengths).output
        matched, self_weights = self.match(attended, attended, mask)
        matched = self.after_match.encode(matched, lengths=passage.lengths).output
        start = self.merge(self.start_of(asked.raw, question), question.lengths)
        logits = self.pointer(self.with_late_context(matched, passage), start, mask)
        return RNetReading(logits, x, q, attended, matched, start, weights, self_weights)

    def with_late_context(self, y: Tensor, text: Passage) -> Tensor:
        return y if self.late_context is None else torch.cat([y, self.late_context(text.context)], -1)

    def start_of(self, asked: Tensor, question: Passage) -> Tensor:
        """Return what the pointer starts from, for each word of the question."""
        both = self.with_late_context(asked, question)
        return both[..., -2 * self.config.hidden_size :] if self.config.released_start else both

    def encode(self, *texts: Passage) -> list[Encoded]:
        vectors = [self.embed(text) for text in texts]
        calls = [
            partial(self.encoder.encode, x, lengths=text.lengths)
            for x, text in zip(vectors, texts, strict=True)
        ]
        if self.training and self.config.read_dropout:
            return with_same_masks(vectors[0].device, *calls)
        return [call() for call in calls]

    def embed(self, text: Passage) -> Tensor:
        check_tokens("tokens", text.tokens, self.embedding.words)
        if text.characters is None:
            raise ValueError(
                "this reader reads the characters of words; expected Passage.characters, "
                "[time, batch, characters of a word], got None"
            )
        vectors = [self.embedding(text.tokens), self.characters(text.characters)]
        return torch.cat([*vectors, *([] if self.context is None else [self.context(text.context)])], -1)


class CharacterGRU(nn.Module):
    """Characters of words [T, B, C] -> the final states of a bidirectional GRU over each word, [T, B, F].

    A word without characters, such as padding, gets zeros.
    """

    def __init__(self, characters: int, config: ReaderConfig, where: dict[str, Any]):
        super().__init__()
        self.embedding = nn.Embedding(characters, config.character_size, **where)
        self.layer = GRU(
            config.character_size,
            config.character_hidden,
            bidirectional=True,
            form="before",
            init="xavier",
            **where,
        )
        self.output_size = self.layer.output_size
        self.dropout = Dropout(config.read_dropout, "sequence")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.embedding.weight, 0, 0.01)
        self.layer.reset_parameters()
        for cell in self.layer.cells:
            open_gates(cell)

    def forward(self, characters: Tensor) -> Tensor:
        steps = characters.flatten(0, 1).T
        _, state = self.layer(self.dropout(self.embedding(steps)), mask=steps != 0)
        return torch.cat(state.unbind(0), -1).unflatten(0, characters.shape[:2])


def tensorflow_gru(input_size: int, hidden_size: int, where: dict[str, Any]) -> GRUCell:
    """The cell of TensorFlow's GRU, whose gates start with a bias of 1."""
    cell = GRUCell(input_size, hidden_size, form="before", init="xavier", **where)
    open_gates(cell)
    return cell


@torch.no_grad()
def open_gates(cell: GRUCell) -> None:
    for gate in ("r", "z"):
        cell.input.bias_of(gate).fill_(1.0)
