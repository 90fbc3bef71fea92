"""Natural language inference: the class of a pair of sentences, read with word-by-word attention.

    linnet train nli --set snli --data-dir DIR --unit lrn
    linnet train nli --path pairs.tsv --premise text --hypothesis claim --label verdict
    linnet predict runs/snli-lrn "A bird sings. ||| An animal makes a sound."

It differs from `classify` in its sets, its model and the second sentence of each example.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from linnet.base.settings import option
from linnet.data.padded import PaddedBatch, Sequences, collate
from linnet.data.pairs import HYPOTHESIS, PAIR_SETS, PREMISE
from linnet.layers.context import Context
from linnet.models.encoder import Text
from linnet.models.pair import PairClassifier, PairConfig
from linnet.tasks.base import Comparison, Variant
from linnet.tasks.classify import Classify, LabelledData
from linnet.tasks.results import AttentionMap
from linnet.tasks.texts import two_texts


@dataclass(frozen=True)
class NliData(LabelledData):
    """Labelled pairs of sentences."""

    set: str = option("own", "own: the file --path; snli: its files are in --data-dir", choices=(*PAIR_SETS,))
    premise: str = option(PREMISE, "own: the column with the first sentence")
    hypothesis: str = option(HYPOTHESIS, "own: the column with the second sentence")


class Nli(Classify):
    """Labelled pairs, their words and classes, and a classifier of pairs."""

    name, about = "nli", "natural language inference: whether a sentence follows from another"
    Data, Model, Network = NliData, PairConfig, PairClassifier
    sets = PAIR_SETS
    text_options = (PREMISE, HYPOTHESIS)
    has_attention = True
    defaults = {
        **{"optimiser": "adam", "lr": 1e-3, "clip": 5.0, "fused": True, "epochs": 5},
        **{"unit": "sru", "counts": "bigrams", "strip_markup": True, "best_by": "loss"},
        **{"embedding_size": 100, "hidden_size": 100, "input_dropout": 0.2, "output_dropout": 0.2},
    }
    comparison = Comparison(
        budget=500_000, settings={"embedding_size": 50, "epochs": 2, "counts": "none", "best_by": "accuracy"}
    )
    remedies = "more labelled pairs, pretrained vectors (--vectors FILE) or a longer training (--minutes)"
    ranges = {"input_dropout+output_dropout": (0.05, 0.5), "lr": (3e-4, 3e-3)}

    def logits(self, model: nn.Module, batch: PaddedBatch) -> Tensor:
        return model(*self.pair(model, batch))

    def pair(self, model: nn.Module, batch: PaddedBatch) -> tuple[Any, ...]:
        """The arguments of a model."""
        assert batch.second is not None
        both, contexts = (batch.inputs, batch.second), self.context_of(model, batch)
        premise, hypothesis = (self.text(*each) for each in zip(both, contexts, strict=True))
        return premise, hypothesis, batch.inputs.lengths, batch.second.lengths

    def counted(self, batch: PaddedBatch) -> tuple[Any, ...]:
        assert batch.second is not None
        both = batch.inputs, batch.second
        return (*(each.steps for each in both), *(each.lengths for each in both))

    def text(self, sentences: Sequences, context: Context | None) -> Text:
        return Text(sentences.steps, self.letters(sentences), context)

    def typed_texts(self, raw: Any) -> tuple[str, ...]:
        """Return the two sentences of an input: a string, or an object as in a .jsonl file."""
        return two_texts(raw, PREMISE, HYPOTHESIS)

    def typed_text(self) -> None:
        """The lens shows models of one text."""
        return

    def check_input(self, raw: Any) -> None:
        self.typed_texts(raw)

    @torch.no_grad()
    def attention(self, model: PairClassifier, raw: Sequence[Any]) -> list[AttentionMap]:  # type: ignore[override]
        """The words of the premise that each word of the hypothesis reads."""
        return [self.apart().attention_map(model, each) for each in raw]

    def attention_map(self, model: PairClassifier, raw: Any) -> AttentionMap:
        premise, hypothesis = (self.split_words(text) for text in self.typed_texts(raw))
        batch = collate([self.example([premise, hypothesis])]).to(model.example.device)
        found = model.compare(*self.pair(model, batch))
        answer = self.show(self.target.answers(found.logits[:1])[0])
        return AttentionMap(answer, hypothesis, premise, found.weights[0].mean(0), HYPOTHESIS, PREMISE)

    def first_inputs(self, split: str, count: int) -> list[Any]:
        return [
            dict(zip((PREMISE, HYPOTHESIS), row.texts, strict=True))
            for row in getattr(self.texts, split)[:count]
        ]

    @classmethod
    def variants(cls, data: NliData) -> dict[str, Variant]:
        return {}

    @classmethod
    def resized(cls, model: PairConfig, hidden_size: int) -> PairConfig:
        """The heads share the outputs of both directions, so not every size is possible: the next one is."""
        step = model.heads // math.gcd(model.heads, 2)
        return dataclasses.replace(model, hidden_size=-(-hidden_size // step) * step)
