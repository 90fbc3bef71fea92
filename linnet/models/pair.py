"""A classifier of pairs of sentences: the second is read with word-by-word attention to the first.

    premise -> layers, both directions -> P
    hypothesis -> matching recurrence, with attention to P, from the final states of the premise -> H
    P, H -> separate layers, both directions -> attentive pooling -> [p; h] -> logits [B, C]

This is the model of Zhang and Sennrich (2019) for natural language inference (Table 1), after Rocktäschel et
al. (2016). Their "+LN" is norm="rms": a norm on every projection except those of the poolings. With `counts`,
which they do not have, the scores of counted words are added to the logits (linnet.layers.counts). Their
"+BERT" is `context`: the vectors of an encoder join the words and the inputs of the separate layers, and the
vector of the pair, which the encoder reads as one text, joins [p; h].

    config = PairConfig(unit="lrn", inputs="both", tuned="special", embedding_size=300, hidden_size=300)
    model = PairClassifier(30_000, 3, config, characters=80)
    logits = model(Text(premise, letters), Text(hypothesis, its_letters), lengths, its_lengths)

Differs from the authors' code: there, the dropout of the poolings stays on at test time; `dropout_at_test`
does the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.types import Device

from linnet.base.options import check_size, choose
from linnet.layers.attention import AdditiveAttention, NormedLinear
from linnet.layers.context import ContextShape
from linnet.layers.counts import COUNTS, PairCountScores
from linnet.layers.matching import MatchingRecurrence, state_size
from linnet.layers.pooling import AttentivePooling, last
from linnet.models.bidirectional import BidirectionalEncoder
from linnet.models.config import REFUSED, TextConfig, find_unit, option
from linnet.models.encoder import Text, TextEncoder
from linnet.recurrent.sequence import mask_for

# Options of layers, which the matching recurrence would ignore, as it runs cells.
NOT_OF_CELLS = dict.fromkeys(("zoneout", "proj_size", "residual"), "word-by-word attention has none")


@dataclass(frozen=True)
class PairConfig(TextConfig):
    """The encoder of both sentences, the attention between them and the poolings."""

    noun: ClassVar[str] = "pair classifier"
    refused: ClassVar[dict[str, str]] = {
        **REFUSED,
        **NOT_OF_CELLS,
        "bidirectional": "it reads in both directions",
    }
    bidirectional: ClassVar[bool] = True

    hidden_size: int = option(300, "the size of each layer, in each direction")
    num_layers: int = option(1, "the number of layers before and after the attention")
    heads: int = option(4, "the number of heads of the attention")
    norm: str | None = option(None, "norm of all projections: None, rms (the LRN authors' LN) or layer")
    attention_size: int = option(0, "the size of the hidden layer of the poolings (0: hidden_size)")
    counts: str = option(
        "none",
        "add the scores of counted words of the hypothesis, and of those that the premise does not have: of "
        "words, of words and pairs of adjacent words (bigrams), or none",
    )
    dropout_at_test: bool = option(
        False, "as the LRN authors released it: output_dropout, before the poolings, stays on at test time"
    )

    def check_choices(self) -> None:
        super().check_choices()
        choose("norm", self.norm, (None, "layer", "rms"))
        choose("counts", self.counts, COUNTS)

    def check_sizes(self) -> None:
        super().check_sizes()
        check_size("heads", self.heads)
        check_size("attention_size", self.attention_size, least=0)


class Comparison(NamedTuple):
    """The logits of a pair classifier and the tensors that they are computed from."""

    logits: Tensor  # [B, C]
    features: Tensor  # [B, F], the input of the output layer
    premise: Tensor  # [T, B, 2 hidden_size], before the attention
    hypothesis: Tensor  # [T, B, hidden_size], with the attention
    weights: Tensor  # [B, heads, hypothesis, premise]: the attention of each word


class PairClassifier(TextEncoder):
    """Logits of the classes of pairs of sentences. The layers of the encoder read the premise.

    pairs   counts="bigrams": the number of pairs of words; `model.counts.learn` sets them
    """

    config: PairConfig

    def __init__(
        self,
        vocabulary_size: int,
        classes: int,
        config: PairConfig,
        *,
        characters: int = 0,
        context: ContextShape | None = None,
        pairs: int = 0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        inputs: dict[str, Any] = {"characters": characters, "context": context}
        super().__init__(vocabulary_size, with_norm(config), bidirectional=True, **inputs, **where)
        check_size("classes", classes)
        premise = self.stack[-1].output_size
        lower, higher = (self.make_cell(size, where) for size in (self.input_size, premise))
        hypothesis = lower.output_size
        attention = AdditiveAttention(hypothesis, premise, config.heads, config.norm, **where)
        self.matching = MatchingRecurrence(lower, higher, attention)
        self.start = NormedLinear(premise, state_size(lower), norm=config.norm, **where)
        extra = 0 if self.context is None else self.context.output_size
        self.after_premise = BidirectionalEncoder(premise + extra, self.config, where)
        self.after_hypothesis = BidirectionalEncoder(hypothesis + extra, self.config, where)
        size, pool = self.after_premise.output_size, config.attention_size or config.hidden_size
        self.pool_premise = AttentivePooling(size, pool, **where)
        self.pool_hypothesis = AttentivePooling(size, pool, **where)
        self.output = NormedLinear(2 * size + extra, classes, norm=config.norm, **where)
        self.start_uniformly()
        # After the weights of the network, which are drawn in the same order with and without counts.
        self.counts = (
            None if config.counts == "none" else PairCountScores(vocabulary_size, pairs, classes, **where)
        )

    def make_cell(self, input_size: int, where: dict[str, Any]) -> Any:
        unit = find_unit(self.config.unit)
        layer = unit(input_size, self.config.hidden_size, **self.config.unit_options, **where)
        return layer.release_cell()

    def forward(
        self,
        premise: Text,
        hypothesis: Text,
        premise_lengths: Tensor | None = None,
        hypothesis_lengths: Tensor | None = None,
    ) -> Tensor:
        """Tokens [T, B] and, if they are read, characters [T, B, C]; logits [B, C]."""
        return self.compare(premise, hypothesis, premise_lengths, hypothesis_lengths).logits

    def compare(
        self,
        premise: Text,
        hypothesis: Text,
        premise_lengths: Tensor | None = None,
        hypothesis_lengths: Tensor | None = None,
    ) -> Comparison:
        """Return the logits with the tensors that they are computed from, such as attention weights."""
        contexts = self.contexts(premise, hypothesis)
        x = self.join(premise, contexts[0])
        first = self.run_layers(x, lengths=premise_lengths).raw
        start = torch.tanh(self.start(last(first, premise_lengths, directions=2)))
        memory = self.matching.attention.remember(first, mask_for(premise_lengths, first))
        x = self.join(hypothesis, contexts[1])
        second = self.matching(x, memory, start, mask_for(hypothesis_lengths, x))
        after = self.after_premise.encode(joined(first, contexts[0]), lengths=premise_lengths).output
        p = self.pool_premise(after, premise_lengths)
        after = self.after_hypothesis.encode(
            joined(second.output, contexts[1]), lengths=hypothesis_lengths
        ).output
        h = self.pool_hypothesis(after, hypothesis_lengths)
        features = torch.cat([p, h, *self.pooled_contexts(premise)], -1)
        logits = self.output(features)
        if self.counts is not None:
            tokens = premise.tokens, hypothesis.tokens
            logits = logits + self.counts(*tokens, premise_lengths, hypothesis_lengths)
        return Comparison(logits, features, first, second.output, second.weights)

    def contexts(self, *texts: Text) -> list[Tensor | None]:
        """The vectors of the words in their context; the layers before and after the attention read them."""
        return [None if self.context is None else self.context(text.context) for text in texts]

    def pooled_contexts(self, premise: Text) -> list[Tensor]:
        """The vector of the whole pair, which the encoder reads at once."""
        return [] if premise.context is None else [premise.context.pooled]

    def train(self, mode: bool = True) -> PairClassifier:
        super().train(mode)
        if self.config.dropout_at_test:
            for encoder in (self.after_premise, self.after_hypothesis):
                encoder.layer_dropouts[-1].train()
        return self


def joined(y: Tensor, context: Tensor | None) -> Tensor:
    return y if context is None else torch.cat([y, context], -1)


def with_norm(config: PairConfig) -> PairConfig:
    """Return the settings with `norm` as an option of the unit too."""
    if config.norm is None:
        return config
    everywhere = {"norm_on": "all"} if "norm_on" in find_unit(config.unit).options() else {}
    return replace(config, unit_options={"norm": config.norm, **everywhere, **config.unit_options})
