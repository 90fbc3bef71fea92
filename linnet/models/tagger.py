"""A tagger of any unit: words and their characters, layers in one direction or both, a CRF or a softmax.

    words [T, B] -> [word vector ; final states of a bidirectional layer over its characters] -> dropout
                 -> layers -> dense layer with tanh -> scores of the tags [T, B, K] -> CRF

This is the BiRNN-CRF of Lample et al. (2016) in the form of the LRN authors (Table 6). With
decoder="softmax", the tag of a word does not depend on other tags.

    model = Tagger(words=20_000, tags=9, characters=100, config=TaggerConfig(unit="lrn"))
    scores = model(tokens, lengths, spelling)
    loss = -model.decoder(scores, tags, lengths=lengths, reduction="mean")
    tags = model.decoder.decode(scores, lengths=lengths)

The characters of a word that occurs several times in a batch are read once (`Spelling`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_size, choose
from linnet.layers.context import Context, ContextShape
from linnet.layers.crf import CRF, reduced
from linnet.layers.embedding import check_tokens
from linnet.layers.pooling import last
from linnet.models.config import REFUSED, ContextConfig, EncoderConfig, option
from linnet.models.encoder import StackEncoder, make_context, make_layers
from linnet.recurrent.sequence import mask_of_lengths

DECODERS = ("crf", "softmax")
# Vectors of characters, and of words without pretrained vectors, start in U(-SPREAD, SPREAD), as in Keras.
SPREAD = 0.05


@dataclass(frozen=True)
class TaggerConfig(ContextConfig, EncoderConfig):
    """Words, characters, layers in one direction or both, and the decoder of the tags."""

    noun: ClassVar[str] = "tagger"
    refused: ClassVar[dict[str, str]] = {**REFUSED, "bidirectional": "set its own bidirectional"}

    embedding_size: int = option(100, "the size of a word's vector")
    hidden_size: int = option(100, "the size of each layer, in each direction")
    num_layers: int = option(1, "the number of layers")
    input_dropout: float = option(0.5, "dropout on the vectors of words and of their characters")
    bidirectional: bool = option(True, "read each sentence in both directions")
    character_size: int = option(25, "the size of a character's vector (0: do not read characters)")
    character_hidden: int = option(25, "the size of the layer over characters, in each direction")
    dense_size: int = option(100, "the size of the dense layer with tanh before the scores (0: none)")
    decoder: str = option("crf", "crf: score whole sequences of tags; softmax: each tag independently")
    released_crf: bool = option(
        False,
        "crf: as the LRN authors released it, with a further tag for padding and without scores of last tags",
    )

    def check_choices(self) -> None:
        super().check_choices()
        self.check_context()
        choose("decoder", self.decoder, DECODERS)

    def check_sizes(self) -> None:
        super().check_sizes()
        check_size("embedding_size", self.embedding_size)
        check_size("character_size", self.character_size, least=0)
        check_size("character_hidden", self.character_hidden)
        check_size("dense_size", self.dense_size, least=0)

    def check_fit(self) -> None:
        super().check_fit()
        if self.released_crf and self.decoder != "crf":
            raise ValueError(f"released_crf is an option of the CRF; decoder={self.decoder!r} has none")


class Spelling(NamedTuple):
    """The characters of the words of a batch; each different word occurs once."""

    characters: Tensor  # int64 [U, C]: the characters of U different words, padded with 0
    rows: Tensor  # int64 [T, B]: which of them each word is


class Words(NamedTuple):
    """The input of a tagger."""

    tokens: Tensor
    spelling: Spelling | None
    context: Context | None = None


class Tagger(StackEncoder):
    """Scores of the tags of each word; `decoder` turns them into likelihoods, tags and probabilities.

    words        the words whose vectors are trained; token 0 is any unknown word, and padding
    tags         the number of tags
    characters   the number of ids of characters; 0 is padding
    fixed_words  further words, whose ids follow: their vectors are not trained, because no training sentence
                 has them, so they are not parameters
    context      the shape of the vectors of an encoder, if they are read
    """

    config: TaggerConfig

    def __init__(
        self,
        words: int,
        tags: int,
        config: TaggerConfig,
        *,
        characters: int = 0,
        fixed_words: int = 0,
        context: ContextShape | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("tags", tags)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.config = config
        self.embedding = TrainedAndFixed(words, fixed_words, config.embedding_size, **where)
        self.characters = CharacterReader(characters, config, where) if config.character_size else None
        self.context = make_context(config, context, where)
        parts = (self.characters, self.context)
        size = config.embedding_size + sum(part.output_size for part in parts if part is not None)
        self.add_layers(size, config.bidirectional, where)
        size = self.stack[-1].output_size
        self.dense = nn.Linear(size, config.dense_size, **where) if config.dense_size else None
        states = tags + config.released_crf
        self.output = nn.Linear(config.dense_size or size, states, **where)
        crf = config.decoder == "crf"
        self.decoder = CRF(states, use_end=not config.released_crf, **where) if crf else Independent()
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Dense layers Xavier-uniform with biases 0 (the LRN authors); other parts initialise themselves."""
        for layer in filter(None, (self.dense, self.output)):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def read(self, x: Words) -> Tensor:
        check_tokens("tokens", x.tokens, self.embedding.words)
        vectors = [self.embedding(x.tokens)]
        if self.characters is not None:
            if x.spelling is None:
                raise ValueError("this tagger reads characters: give the spelling of the words")
            vectors.append(self.characters(x.spelling))
        if self.context is not None:
            vectors.append(self.context(x.context))
        return self.input_dropout(vectors[0] if len(vectors) == 1 else torch.cat(vectors, -1))

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor | None = None,
        spelling: Spelling | None = None,
        context: Context | None = None,
    ) -> Tensor:
        """tokens [T, B] -> scores [T, B, K]; padded sentences need `lengths` [B]."""
        return self.scores(self.encode(Words(tokens, spelling, context), lengths=lengths).output)

    def scores(self, y: Tensor) -> Tensor:
        """Return the scores of the tags, given the output of the layers."""
        return self.output(y if self.dense is None else torch.tanh(self.dense(y)))

    def extra_repr(self) -> str:
        return f"unit={self.config.unit!r}"


class TrainedAndFixed(nn.Module):
    """Word vectors: those of words that occur in training are parameters, the others a buffer.

    The result is that of one trained table, because Adam without weight decay does not change rows whose
    gradient is always 0; and updating the small table is faster than updating a hundred thousand rows.
    """

    def __init__(
        self, trained: int, fixed: int, size: int, device: Device = None, dtype: torch.dtype | None = None
    ):
        super().__init__()
        check_size("words", trained)
        check_size("fixed_words", fixed, least=0)
        self.trained = nn.Parameter(torch.empty(trained, size, device=device, dtype=dtype))
        self.fixed: Tensor
        self.register_buffer("fixed", torch.empty(fixed, size, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for rows in (self.trained, self.fixed):
            rows.uniform_(-SPREAD, SPREAD)
        self.trained[0] = 0

    @property
    def words(self) -> int:
        return len(self.trained) + len(self.fixed)

    @torch.no_grad()
    def set_rows(self, vectors: Tensor) -> None:
        """Replace all vectors; `vectors` is [words, size]."""
        shape = (self.words, self.trained.shape[1])
        if vectors.shape != shape:
            raise ValueError(f"vectors must be {list(shape)}, a row for each word; got {list(vectors.shape)}")
        self.trained.copy_(vectors[: len(self.trained)])
        self.fixed.copy_(vectors[len(self.trained) :])

    def forward(self, tokens: Tensor) -> Tensor:
        first = len(self.trained)
        vectors = F.embedding(tokens.clamp(max=first - 1), self.trained)
        if not len(self.fixed):
            return vectors
        fixed = F.embedding((tokens - first).clamp(min=0), self.fixed)
        return torch.where((tokens < first)[..., None], vectors, fixed)

    def extra_repr(self) -> str:
        return f"{len(self.trained)} trained, {len(self.fixed)} fixed, {self.trained.shape[1]}"


class CharacterReader(nn.Module):
    """A vector for each word: the final states of a bidirectional layer over its characters."""

    def __init__(self, characters: int, config: TaggerConfig, where: dict[str, Any]):
        super().__init__()
        check_size("characters", characters)
        self.embedding = nn.Embedding(characters, config.character_size, **where)
        small = replace(config, hidden_size=config.character_hidden, hidden_sizes=None, num_layers=1)
        (self.layer,) = make_layers(small, config.character_size, True, where)
        self.output_size = self.layer.output_size
        nn.init.uniform_(self.embedding.weight, -SPREAD, SPREAD)

    def forward(self, spelling: Spelling) -> Tensor:
        """Return the vectors of the words of a batch, [T, B, output_size]."""
        characters = spelling.characters.T
        lengths = (characters != 0).sum(0).clamp(min=1)
        x = self.embedding(characters)
        y, _ = self.layer(x, mask=mask_of_lengths(lengths, like=x))
        return F.embedding(spelling.rows, last(y, lengths, directions=2))


class Independent(nn.Module):
    """A softmax over the tags of each word, with the methods of a CRF."""

    def forward(
        self,
        emissions: Tensor,
        tags: Tensor,
        lengths: Tensor | Sequence[int],
        reduction: str = "sum",
    ) -> Tensor:
        real = mask_of_lengths(lengths, like=emissions)
        log_p = emissions.log_softmax(-1).gather(2, tags.masked_fill(~real, 0)[..., None])[..., 0]
        return reduced(log_p.masked_fill(~real, 0).sum(0), real.sum(0), reduction)

    def decode(self, emissions: Tensor, lengths: Tensor | Sequence[int]) -> list[list[int]]:
        best = emissions.argmax(-1).T.tolist()
        return [tags[: int(length)] for tags, length in zip(best, lengths, strict=True)]

    def marginals(self, emissions: Tensor, lengths: Tensor | Sequence[int]) -> Tensor:
        real = mask_of_lengths(lengths, like=emissions)
        return emissions.softmax(-1).masked_fill(~real[..., None], 0)
