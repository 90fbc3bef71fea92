"""A training step of a tagger, compared with that of one with nn.LSTM; the CRF, compared with pytorch-crf.

The taggers have the sizes of the LRN authors' (Table 6) with word vectors of 50 dimensions, the same CRF and
the same optimiser. All sentences have the same length, and each word occurs three times on average.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.contestants import Contestant
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Comparison, Race, model_race
from linnet.bench.timing import Call
from linnet.layers.crf import CRF
from linnet.models.tagger import Spelling, Tagger, TaggerConfig

WORDS, CHARACTERS, LETTERS, TAGS = 20_000, 100, 12, 9
EMBEDDED, SPELT, DENSE, DROPOUT = 50, 25, 100, 0.5
RACING = ("sru", "lrn", "atr", "gru", "lstm")
PEER = "pytorch-crf"


def measure(settings: Settings, book: Book) -> list[Row]:
    units = [unit for unit in RACING if unit in settings.units]
    races = [race_of(units, settings.tagged), *(crf_race(mode, settings.chained) for mode in CALLS)]
    return [row for race in races for row in race.run(settings, book)]


# ------------------------------------------------------------------------------------------- taggers


def race_of(units: list[str], shape: Shape) -> Race:
    models = {unit: partial(ours, unit, shape.d) for unit in units}
    theirs = "nn.LSTM", partial(TorchTagger, shape.d)
    return model_race("tagger", shape, "training", models, theirs, call_of)


def ours(unit: str, size: int) -> Tagger:
    config = TaggerConfig(
        unit=unit,
        embedding_size=EMBEDDED,
        hidden_size=size,
        character_size=SPELT,
        character_hidden=SPELT,
        dense_size=DENSE,
        input_dropout=DROPOUT,
    )
    return Tagger(WORDS, TAGS, config, characters=CHARACTERS)


class TorchTagger(nn.Module):
    """The same model with the layers of torch."""

    def __init__(self, size: int):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, EMBEDDED)
        self.characters = nn.Embedding(CHARACTERS, SPELT)
        self.spell = nn.LSTM(SPELT, SPELT, bidirectional=True)
        self.rnn = nn.LSTM(EMBEDDED + 2 * SPELT, size, bidirectional=True)
        self.dense = nn.Linear(2 * size, DENSE)
        self.output = nn.Linear(DENSE, TAGS)
        self.decoder = CRF(TAGS)

    def forward(self, tokens: Tensor, lengths: Tensor, spelling: Spelling) -> Tensor:
        _, (ends, _) = self.spell(self.characters(spelling.characters.T))
        spelt = F.embedding(spelling.rows, torch.cat([*ends], -1))
        y, _ = self.rnn(F.dropout(torch.cat([self.embedding(tokens), spelt], -1), DROPOUT))
        return self.output(torch.tanh(self.dense(y)))


def call_of(model: nn.Module, shape: Shape) -> Call:
    source = torch.Generator().manual_seed(0)

    def draw(most: int, *size: int) -> Tensor:
        return torch.randint(1, most, size, generator=source)

    different = max(1, shape.L * shape.B // 3)
    spelling = Spelling(draw(CHARACTERS, different, LETTERS), draw(different + 1, shape.L, shape.B) - 1)
    tokens, tags = draw(WORDS, shape.L, shape.B), draw(TAGS, shape.L, shape.B)
    lengths = torch.full((shape.B,), shape.L)
    optimiser = torch.optim.Adam(model.parameters(), fused=True)

    def call() -> None:
        scores = model(tokens, lengths, spelling)
        decoder: nn.Module = model.decoder  # type: ignore[assignment]
        (-decoder(scores, tags, reduction="mean")).backward()
        optimiser.step()
        optimiser.zero_grad()

    return call


# ----------------------------------------------------------------------------------------------- CRF


def crf_race(mode: str, shape: Shape) -> Race:
    """Log-likelihood with its gradients ("training"), or Viterbi ("inference"); d is the number of tags."""
    entrants = {
        "crf": Contestant("crf", "torch", lambda: CALLS[mode](CRF(shape.d), shape)),
        PEER: Contestant("crf", PEER, lambda: CALLS[mode](peer(shape.d), shape)),
    }
    return Race("crf", shape, mode, entrants, [Comparison("crf", PEER, PEER)])


def peer(tags: int) -> nn.Module:
    # Imported only when it is used: it is no dependency.
    import torchcrf  # type: ignore[import-untyped]

    return torchcrf.CRF(tags)


def sentences(shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    """Return emissions, tags and the mask of sentences of different lengths."""
    source = torch.Generator().manual_seed(0)
    lengths = torch.randint(1 + shape.L // 2, shape.L + 1, (shape.B,), generator=source)
    tags = torch.randint(shape.d, (shape.L, shape.B), generator=source)
    return torch.randn(shape, generator=source), tags, torch.arange(shape.L)[:, None] < lengths.clamp(min=1)


def likelihood(crf: nn.Module, shape: Shape) -> Call:
    x, tags, mask = sentences(shape)
    leaves = [x.requires_grad_(), *crf.parameters()]
    return lambda: torch.autograd.grad(crf(x, tags, mask), leaves)


def decoding(crf: nn.Module, shape: Shape) -> Call:
    x, _, mask = sentences(shape)
    decode: Callable[[Tensor, Tensor], object] = crf.decode  # type: ignore[assignment]
    return torch.no_grad()(lambda: decode(x, mask))


CALLS: dict[str, Callable[[nn.Module, Shape], Call]] = {"training": likelihood, "inference": decoding}
