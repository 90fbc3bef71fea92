"""Translation: a sentence of one language for each sentence of another.

    linnet train translate --set multi30k --data-dir DIR --direction en-de --unit sru
    linnet train translate --source train.en --target train.de --form transformer
    linnet predict runs/multi30k-sru "A man rides a horse." --beam 5

Source and target share one vocabulary: pieces of words (BPE) that the run learns from both sides of the
training set. Token 0 is padding, token 1 is not used, token 2 ends a sentence, and the pieces follow.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from linnet.base.options import check_size
from linnet.base.project import advice
from linnet.base.settings import Checked, option
from linnet.data.batches import IGNORE
from linnet.data.errors import DataError
from linnet.data.padded import ORDERS, BatchPlan, Example, PaddedBatch, collate, group
from linnet.data.parallel import PARALLEL, Pair, ParallelSplits, WantedPairs, load_parallel, own_split
from linnet.data.vocabulary import Vocabulary, bpe_vocabulary
from linnet.layers.beam import EOS, PAD
from linnet.layers.class_output import smoothed_cross_entropy
from linnet.layers.context import Context
from linnet.models.translator import Translator, TranslatorConfig, make_translator
from linnet.tasks.base import SPLITS, Comparison, Variant, unit_options_checked
from linnet.tasks.baselines import Baseline
from linnet.tasks.examples import file_name
from linnet.tasks.language import PERPLEXITY, perplexity_of
from linnet.tasks.results import LOSS, AttentionMap, Figure, Metric, Metrics, Section, StepResult
from linnet.tasks.texts import TextTask

log = logging.getLogger("linnet")

FIRST_PIECE = 3  # the token of piece 0 of the vocabulary
BLEU_TOKENS = ("13a", "intl", "zh", "char", "none")
MOST_SHOWN = 5  # translations that `linnet eval` prints


@dataclass(frozen=True)
class TranslateData(Checked):
    """Sentences with their translations, their pieces of words, and how they are put into batches."""

    set: str = option(
        "bible", "a name of `linnet list sets`; own: the files --source and --target", choices=(*PARALLEL,)
    )
    direction: str | None = option(
        None, "from which language to which: en-de, de-fr, ... of multi30k; kjv-web or web-kjv of bible"
    )
    source: str | None = option(None, "your own training set: a file with one sentence per line")
    target: str | None = option(None, "the file whose line n is the translation of line n of --source")
    valid_source: str | None = option(
        None, "the validation set (default: that of the set, or the last tenth)"
    )
    valid_target: str | None = option(None, "its translations")
    test_source: str | None = option(None, "the test set (default: that of the set, or the last tenth)")
    test_target: str | None = option(None, "its translations")
    data_dir: str | None = option(None, "the folder where the files of a set are searched first")
    pieces: int = option(4000, "pieces of words (BPE) that both languages share", least=257)
    max_length: int = option(
        100, "leave out training pairs with a side of more pieces than this (0: keep all)", least=0
    )
    tokens: int = option(
        1024, "the most tokens of a batch on either side, padding included, over all processes", least=1
    )
    order: str = option("buckets", "which sentences share a batch, see docs/classify.md", choices=ORDERS)
    label_smoothing: float = option(
        0.1, "training: the share of the target that other pieces get", least=0, most=1
    )
    bleu: bool = option(True, "evaluation: also translate, for BLEU and chrF; no: the loss only")
    bleu_tokens: str = option(
        "13a", "what BLEU counts, by sacrebleu's names: 13a for languages with spaces", choices=BLEU_TOKENS
    )
    best_by: str = option(
        "loss", "the figure on the validation set that selects the best checkpoint", choices=("loss", "bleu")
    )
    beam: int = option(1, "evaluation: the hypotheses of beam search (1: greedy search)", least=1)
    length_penalty: float = option(0.6, "evaluation: the exponent of beam search's length penalty", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.best_by == "bleu" and not self.bleu:
            raise ValueError("best_by='bleu' needs BLEU on the validation set; leave out --no-bleu")


ACCURACY = Figure(
    "accuracy",
    "accuracy",
    "The share of pieces that are the most likely ones after the right beginning; higher is better.",
    ".4f",
    True,
)
BLEU = Figure("bleu", "BLEU", "BLEU in %, with case, by sacrebleu; higher is better.", ".2f", True)
UNCASED = Figure("bleu_uncased", "uncased BLEU", "BLEU of lower-cased text; higher is better.", ".2f", True)
CHRF = Figure("chrf", "chrF", "chrF2 in %, by sacrebleu; higher is better.", ".2f", True)


class Translate(TextTask):
    """Parallel sentences, their joint pieces of words, and a translator."""

    name, about = "translate", "translation: a sentence of another language"
    Data, Model = TranslateData, TranslatorConfig
    sets = PARALLEL
    splits = (*SPLITS, "all")
    has_attention = True
    defaults = {
        # A few thousand sentences in four minutes on one core; see docs/log.md.
        **{"optimiser": "adam", "lr": 4e-3, "clip": 1.0, "fused": True, "updates": 3000, "patience": 10},
        **{"hidden_size": 128, "num_layers": 1, "heads": 4, "inner_size": 512, "dropout": 0.3},
        **{"pieces": 2000, "tokens": 512, "ema": 0.99, "ema_warmup": True},
    }
    comparison = Comparison(budget=2_000_000, settings={"epochs": 1})
    remedies = "more sentence pairs or a longer training (--minutes)"
    ranges = {"dropout": (0.05, 0.4), "lr": (3e-4, 3e-3)}
    vocabulary: Vocabulary

    def prepare(self) -> None:
        """Read the data, and find the pieces of words of both sides of the training set."""
        lines = (prepared(text) for pair in self.pairs("train") for text in pair)
        self.vocabulary = bpe_vocabulary("\n".join(lines), size=self.data.pieces)

    @property
    def wanted(self) -> WantedPairs:
        return WantedPairs(**{each.name: getattr(self.data, each.name) for each in fields(WantedPairs)})

    @cached_property
    def parallel(self) -> ParallelSplits:
        return load_parallel(self.wanted)

    def pairs(self, split: str) -> list[Pair]:
        """The pairs of a split; "all" is the files --source and --target, or every split of a set."""
        if split != "all":
            return getattr(self.parallel, split)
        own = own_split("train", self.wanted)
        return own or [pair for part in self.parallel for pair in part]

    # ----------------------------------------------------------------------------------------- model

    def build(self) -> Translator:
        words = len(self.vocabulary) + FIRST_PIECE
        with unit_options_checked():
            model = make_translator(words, words, self.model, context=self.context_shape)
        self.start_context(model)
        return model

    # --------------------------------------------------------------------------------------- batches

    @cached_property
    def training_examples(self) -> list[Example]:
        """Pairs with a longer side than max_length are left out."""
        found, most = self.examples("train"), self.data.max_length
        # The end of a sentence does not count.
        kept = [example for example in found if not most or example.length <= most + 1]
        if not kept:
            raise DataError(
                f"all {len(found):,} training pairs have a side of more than max_length={most} pieces; "
                "choose a larger --max-length"
            )
        if len(kept) < len(found):
            left_out = len(found) - len(kept)
            log.info("%d training pairs have a side of more than %d pieces; left out", left_out, most)
        return kept

    def examples(self, split: str) -> list[Example]:
        return [self.example(pair) for pair in self.pairs(split)]

    def example(self, pair: Pair) -> Example:
        target = self.encode(pair.target)
        return Example(self.encode(pair.source), target, target, self.features(pair.source))

    def features(self, text: str) -> dict[str, Tensor]:
        """Each piece has the number of its word; the end of the sentence has 0, that of padding."""
        (context,) = self.context_numbers(text.split())
        words = [*words_of_pieces(self.vocabulary, prepared(text)), -1]
        return {name: torch.cat([numbers, numbers.new_zeros(1)])[words] for name, numbers in context.items()}

    @property
    def plan(self) -> BatchPlan:
        return BatchPlan(tokens=self.data.tokens, order=self.data.order)

    @property
    def eval_plan(self) -> BatchPlan:
        return BatchPlan(tokens=self.data.tokens, order="sorted")

    # ------------------------------------------------------------------------------- text and tokens

    def encode(self, text: str) -> Tensor:
        """Return the tokens of a sentence, with its end."""
        pieces = self.vocabulary.encode(prepared(text)) + FIRST_PIECE
        return torch.cat([pieces, torch.tensor([EOS])])

    def decode(self, tokens: Tensor) -> str:
        """Return the text of the tokens before the first end; other special tokens are left out."""
        ends = (tokens == EOS).nonzero()
        tokens = tokens[: int(ends[0])] if len(ends) else tokens
        text = self.vocabulary.decode(tokens[tokens >= FIRST_PIECE] - FIRST_PIECE)
        # Bytes of a piece may be the end of a line, and a translation is one line.
        return " ".join(text.split())

    # --------------------------------------------------------------------------------------- figures

    def step(self, model: nn.Module, batch: PaddedBatch, carry: Any) -> StepResult:
        assert batch.labels is not None
        assert batch.second is not None
        inputs, target = batch.inputs, batch.second
        context, _ = self.context_of(model, batch)
        logits = model(inputs.steps, inputs.lengths, target.steps, target.lengths, context)
        smoothing = self.data.label_smoothing if model.training else 0.0
        losses = smoothed_cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), smoothing, PAD)
        total, count = losses.sum(), int((batch.labels != IGNORE).sum())
        outputs = None if model.training else self.outputs(model, batch, logits, context)
        return StepResult(total / max(count, 1), total.detach(), count, batch.tokens, outputs=outputs)

    def outputs(
        self, model: Any, batch: PaddedBatch, logits: Tensor, context: Context | None
    ) -> tuple[int, list[Translated]]:
        """Return the number of right pieces, and the translation of each sentence."""
        assert batch.labels is not None
        right = int((logits.argmax(-1) == batch.labels).sum())
        if not self.data.bleu:
            return right, []
        inputs = batch.inputs
        how = {"beam": self.data.beam, "alpha": self.data.length_penalty, "context": context}
        found = model.translate(inputs.steps, inputs.lengths, **how).tokens[:, 0]
        texts = map(self.decode, found.cpu())
        references = map(self.decode, batch.labels.T.cpu())
        return right, [*zip(batch.rows.tolist(), texts, references, strict=True)]

    def metrics(self) -> Metrics:
        return TranslationMetrics(self.data.bleu_tokens)

    @classmethod
    def selected_by(cls, data: TranslateData) -> Metric:
        return Metric(data.best_by, higher=data.best_by == "bleu")

    @classmethod
    def figures(cls, data: TranslateData) -> tuple[Figure, ...]:
        scores = (BLEU, UNCASED, CHRF) if data.bleu else ()
        return (*scores, LOSS, PERPLEXITY, ACCURACY)

    def details(self, split: str, metrics: Any) -> list[Section]:
        if not self.data.bleu:
            return []
        return [scores_section(metrics.scores()), self.shown(split, metrics.translated)]

    def shown(self, split: str, translated: Sequence[Translated]) -> Section:
        first, pairs = sorted(translated)[:MOST_SHOWN], self.pairs(split)
        rows = tuple((pairs[row].source, reference, text) for row, text, reference in first)
        about = f"The first {len(rows)} sentences of the split."
        return Section("Translations", about, ("source", "reference", "translation"), rows)

    def baselines(self, split: str, figures: Mapping[str, float]) -> list[Baseline]:
        if not self.data.bleu:
            return []
        metrics = TranslationMetrics(self.data.bleu_tokens)
        metrics.translated = [(row, *pair) for row, pair in enumerate(self.pairs(split))]
        found = {name: score for name, (score, _) in metrics.scores().items()}
        return [Baseline("copying", "The source itself as its translation.", found)]

    # ----------------------------------------------------------------------------------- a trained run

    def describe(self) -> dict[str, Any]:
        return {
            **super().describe(),
            "direction": self.data.direction,
            "vocabulary": self.vocabulary.fingerprint,
        }

    @torch.no_grad()
    def predict(  # type: ignore[override]
        self,
        model: Translator,
        raw: Sequence[str],
        *,
        beam: int = 4,
        length_penalty: float = 0.6,
        hypotheses: int = 1,
        batch: int = 32,
    ) -> list[dict[str, Any]]:
        """Return the best translations of each sentence, with their scores.

        beam             the hypotheses of beam search (1: greedy search)
        length_penalty   the exponent of the length penalty; more prefers longer translations (0: none)
        hypotheses       the best translations of each sentence, at most as many as the beam
        batch            sentences of similar length that are translated at once
        """
        check_size("beam", beam)
        check_size("hypotheses", hypotheses)
        if hypotheses > beam:
            raise ValueError(
                f"hypotheses={hypotheses} needs a beam of at least {hypotheses}; got beam={beam}"
            )
        apart = self.apart()
        sentences = [Example(self.encode(text), features=apart.features(text)) for text in raw]
        answers: list[dict[str, Any]] = [{}] * len(raw)
        for rows in group([each.length for each in sentences], BatchPlan(batch, order="sorted"), None):
            examples = collate([sentences[row] for row in rows]).to(next(model.parameters()).device)
            inputs, (context,) = examples.inputs, apart.context_of(model, examples)
            found = model.translate(inputs.steps, inputs.lengths, beam, length_penalty, context=context)
            for row, tokens, scores in zip(rows, found.tokens.cpu(), found.scores.tolist(), strict=True):
                best = zip(tokens, scores[:hypotheses], strict=False)
                answers[row] = self.answer(raw[row], [*best])
        return answers

    def answer(self, source: str, found: Sequence[tuple[Tensor, float]]) -> dict[str, Any]:
        """An empty line has an empty translation."""
        if not source.strip():
            return {"translation": "", "hypotheses": []}
        # Batches of other sizes differ in the last digits.
        texts = [
            {"text": self.decode(tokens), "score": round(score, 4)}
            for tokens, score in found
            if score > -torch.inf
        ]
        return {"translation": texts[0]["text"], "hypotheses": texts}

    def show(self, answer: Mapping[str, Any]) -> str:
        """The translation; if there are several, one per line, after its score."""
        found = answer["hypotheses"]
        if len(found) < 2:
            return answer["translation"]
        return "\n".join(f"{each['score']:.4f}  {each['text']}" for each in found)

    @torch.no_grad()
    def attention(self, model: Translator, raw: Sequence[str]) -> list[AttentionMap]:  # type: ignore[override]
        """The pieces of the source that the decoder reads before each piece of the translation."""
        return [self.apart().attention_map(model, text) for text in raw]

    def attention_map(self, model: Translator, text: str) -> AttentionMap:
        batch = collate([Example(self.encode(text), features=self.features(text))])
        batch = batch.to(next(model.parameters()).device)
        source, (context,) = batch.inputs.steps, self.context_of(model, batch)
        target = model.translate(source, extra=10, context=context).tokens[0, 0]
        target = target[target != PAD][:, None]
        weights = model.attend(source, None, target, None, context).weights
        assert weights is not None
        rows, columns = (self.piece_names(each[:, 0].tolist()) for each in (target, source))
        text = self.decode(target[:, 0].cpu())
        return AttentionMap(text, rows, columns, weights[0].mean(0), "translation", "source")

    def piece_names(self, tokens: Sequence[int]) -> list[str]:
        """Return the pieces; those within a word begin with a hyphen."""
        pieces = [self.vocabulary.decode(torch.tensor([token - FIRST_PIECE])) for token in tokens[:-1]]
        ends = "(end)" if tokens[-1] == EOS else self.decode(torch.tensor(tokens[-1:]))
        return [*(piece.strip() if piece.startswith(" ") else f"-{piece}" for piece in pieces), ends]

    def first_inputs(self, split: str, count: int) -> list[str]:
        return [pair.source for pair in self.pairs(split)[:count]]

    # ------------------------------------------------------------------------------------ in comparisons

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Files mean the set "own"; another set has no files and a direction of its own."""
        if given.get("source") is not None:
            return {"set": "own", "direction": None, **given}
        if "set" in given:
            return {"source": None, "target": None, "direction": None, **given}
        return dict(given)

    @classmethod
    def data_name(cls, data: TranslateData) -> str:
        if data.set == "own":
            return file_name(data.source)
        return "-".join(filter(None, (data.set, data.direction)))

    @classmethod
    def variants(cls, data: TranslateData) -> dict[str, Variant]:
        """A Transformer has feed-forward layers in place of a unit."""
        plain = {"form": "transformer", "feed_forward": "relu"}
        return {"transformer": Variant(TranslatorConfig().unit, {}, plain)}

    @classmethod
    def unit_name(cls, model: TranslatorConfig) -> str:
        if model.form == "recurrent":
            return model.unit
        return "transformer" if model.feed_forward == "relu" else f"transformer-{model.unit}"

    @classmethod
    def resized(cls, model: TranslatorConfig, hidden_size: int) -> TranslatorConfig:
        """The next multiple of the number of heads."""
        return super().resized(model, -(-hidden_size // model.heads) * model.heads)

    def smaller(self) -> str:
        return f"fewer pieces (now {self.data.pieces}) or layers"


def prepared(text: str) -> str:
    """Return a text as it is cut into pieces: the first word has a space before it, like all others."""
    return f" {' '.join(text.split())}"


def words_of_pieces(vocabulary: Vocabulary, text: str) -> list[int]:
    """Return, for each piece of a prepared text, the number of the word between blanks that it ends in."""
    ends = [end for _, end in vocabulary.tokenizer.encode(text).offsets]
    return [text.count(" ", 0, end) - 1 for end in ends]


# ----------------------------------------------------------------------------------------- metrics

Translated = tuple[int, str, str]  # the number of the pair in its split, the translation, the reference


class TranslationMetrics(Metrics):
    """Loss, perplexity and accuracy of pieces; BLEU and chrF of whole sentences."""

    def __init__(self, bleu_tokens: str = "13a") -> None:
        super().__init__()
        self.bleu_tokens = bleu_tokens
        self.right = 0
        self.translated: list[Translated] = []

    def update(self, result: StepResult) -> None:
        super().update(result)
        right, translated = result.outputs
        self.right += right
        self.translated += translated

    def merge(self, other: TranslationMetrics) -> None:
        super().merge(other)
        self.bleu_tokens = other.bleu_tokens

    def compute(self) -> dict[str, float]:
        figures = super().compute()
        return {
            **figures,
            "perplexity": perplexity_of(figures["loss"]),
            "accuracy": self.right / max(self.count, 1),
            **{name: score for name, (score, _) in self.scores().items()},
        }

    def scores(self) -> dict[str, tuple[float, str]]:
        """Return BLEU, BLEU of lower-cased text and chrF, each with the signature of sacrebleu.

        Nothing if nothing was translated (bleu=False).
        """
        if not self.translated:
            return {}
        _, texts, references = zip(*self.translated, strict=True)
        found = {}
        for name, make in scorers(self.bleu_tokens).items():
            metric = make()
            score = metric.corpus_score(texts, [references]).score
            found[name] = score, str(metric.get_signature())
        return found


def scorers(tokens: str) -> dict[str, Any]:
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError as error:
        raise ImportError(f"BLEU needs the package sacrebleu: {advice('lm')}") from error
    # Forced: it would warn that a text seems to be tokenised already.
    cased = partial(BLEU, tokenize=tokens, force=True)
    return {"bleu": cased, "bleu_uncased": partial(cased, lowercase=True), "chrf": CHRF}


def scores_section(scores: Mapping[str, tuple[float, str]]) -> Section:
    rows = tuple((name, f"{score:.2f}", signature) for name, (score, signature) in scores.items())
    return Section("Scores", "By sacrebleu, with its signatures.", ("figure", "score", "signature"), rows)
