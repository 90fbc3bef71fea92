"""Language modelling: predict each token of a text from all tokens before it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from linnet.base.settings import Checked, option
from linnet.data.batches import TAILS, Window, epoch_generator, varied_windows, window_count, windows
from linnet.data.corpora import ORDERS, Corpus, load_corpus, load_whole
from linnet.data.errors import DataError
from linnet.data.sources import CORPORA
from linnet.data.vocabulary import LEVELS, Vocabulary
from linnet.models.generate import generate_texts
from linnet.models.language import LanguageModel, LanguageModelConfig, with_hidden_size
from linnet.tasks.base import SPLITS, Comparison, unit_options_checked
from linnet.tasks.baselines import Baseline, ngram_losses, text_baselines
from linnet.tasks.examples import file_name
from linnet.tasks.results import LOSS, Figure, Metrics, StepResult
from linnet.tasks.texts import VocabularyTask
from linnet.tasks.typed import PASSAGE_TOKENS, TypedText

CORPUS_SETTINGS = ("corpus", "path", "data_dir", "level", "vocabulary_size", "lowercase", "order")
"""The settings on which the corpus depends; the others say how it is divided into batches."""
UNBOUNDED = ("nru", "eurnn")
"""Units whose state is not bounded: carried through a text, it grows until training fails."""
LEARNING_RATES = {"rnn": 0.001}
"""For units that the usual learning rate is too high for: an RNN has no gates that keep its state calm."""
WARMUP, PROMPT = 200, 6
"""For a sample, a model reads 200 tokens of the validation text and continues the next 6 words."""
EXAMPLE = 32
"""The tokens of the validation text with which a lens begins."""
PASSAGES = 5
"""The further parts of the validation text in which a lens searches."""


@dataclass(frozen=True)
class LanguageData(Checked):
    """A corpus, and how it is divided into batches."""

    corpus: str = option("kjv", "a name of `linnet list corpora`")
    path: str | None = option(None, "your own text: a UTF-8 file, or a folder of *.txt")
    data_dir: str | None = option(None, "the folder where the files of a corpus are searched first")
    level: str | None = option(
        None, "tokens: word, char, byte or bpe (the first that the corpus has)", choices=LEVELS
    )
    vocabulary_size: int | None = option(None, "the most tokens to keep; others become <unk>", least=2)
    lowercase: bool = option(False, "convert the text to lower case")
    order: str = option(
        "frequency", "how the vocabulary is sorted; appearance: as in the three splits", choices=ORDERS
    )
    batch: int = option(
        20,
        "columns of text that are read in parallel, over all processes (fewer if the text is short)",
        least=1,
    )
    length: int = option(35, "time steps of a window: gradients go back this far", least=1)
    varied: bool = option(False, "draw the length of each window around --length, as in AWD-LSTM")
    delta: int = option(40, "varied: how much longer than --length a window may be", least=0)
    carry: bool = option(
        True,
        "start each window from the last state of the window before; no: zeros, the default of nru and eurnn",
    )
    tail: str | None = option(None, "tokens that do not fill a window: keep, trim or drop", choices=TAILS)
    eval_batch: int = option(10, "columns in evaluation", least=1)
    eval_length: int | None = option(None, "time steps of a window in evaluation (--length)", least=1)
    eval_tail: str = option(
        "keep", "keep: every token counts; trim, drop: as some authors evaluate", choices=TAILS
    )
    test_batch: int | None = option(None, "columns in the test (--eval-batch)", least=1)
    test_tail: str | None = option(None, "--eval-tail of the test (--eval-tail)", choices=TAILS)

    @property
    def window(self) -> int | None:
        """The most tokens that a state reads in training; None: no limit."""
        return None if self.carry else self.length


COMPARISON = Comparison(
    units=("lstm", "sru", "lrn", "ran", "scrn", "nru"),
    budget=2_500_000,
    # A few minutes on two cores for six units; too few updates for a deep LSTM.
    settings={
        **{"corpus": "kjv", "tied": True, "num_layers": 1, "input_dropout": 0.1, "output_dropout": 0.1},
        **{"steps": 160, "evaluate_every": 40, "log_every": 10},
    },
)
PERPLEXITY = Figure(
    "perplexity",
    "perplexity",
    "The model is as uncertain about the next token as if it chose among this many equally likely ones; "
    "lower is better.",
    ".2f",
)
BITS = {
    level: Figure(
        "bpc",
        f"bits per {unit}",
        f"How many bits the model needs to encode each {unit} of the text; lower is better.",
        ".3f",
    )
    for level, unit in (("char", "character"), ("byte", "byte"))
}


BY_LETTERS: dict[str, Any] = {
    **{"unit": "ran", "embedding_size": 64, "hidden_size": 256},
    **{"layer_dropout": 0.05, "output_dropout": 0.05, "optimiser": "adamw", "lr": 0.006, "fused": True},
    **{"batch": 16, "length": 64, "eval_batch": 20, "updates": 4000},
}
"""The defaults of models of characters or bytes where they differ from those of words; see docs/log.md."""


def shown(settings: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


class Language(VocabularyTask):
    """A corpus, a vocabulary and a model of it."""

    name, about = "lm", "language modelling: predict the next word, character or byte of a text"
    Data, Model = LanguageData, LanguageModelConfig
    is_language_model = True
    defaults = {"unit": "sru"}
    defaults_note = f"For characters and bytes (--level), they are {shown(BY_LETTERS)}."
    comparison = COMPARISON
    remedies = "a longer training (--minutes), a larger --hidden-size, or more text"
    splits = (*SPLITS, "all")
    ranges = {
        "input_dropout": (0.01, 0.6),
        "layer_dropout+output_dropout": (0.01, 0.6),
        "lr": (0.001, 0.01),
    }
    vocabulary: Vocabulary

    def prepare(self) -> None:
        self.vocabulary = self.corpus.vocabulary

    @cached_property
    def corpus(self) -> Corpus:
        """The text as tokens; words that are not in the vocabulary of a trained model become <unk>."""
        options = {name: getattr(self.data, name) for name in CORPUS_SETTINGS[1:]}
        return load_corpus(self.data.corpus, **options, vocabulary=vars(self).get("vocabulary"))

    def with_settings(self, data: LanguageData, model: LanguageModelConfig, seed: int) -> Language:
        if any(getattr(data, name) != getattr(self.data, name) for name in CORPUS_SETTINGS):
            return type(self)(data, model, seed)
        other = self.with_model(model)
        other.data, other.seed = data, seed
        return other

    def build(self) -> LanguageModel:
        with unit_options_checked():
            return LanguageModel(len(self.vocabulary), self.model)

    # --------------------------------------------------------------------------------------- windows

    def batches(self, split: str, epoch: int = 0, first: int = 0) -> Iterator[Window]:
        return self.training(epoch, first) if epoch else self.evaluation(split, first)

    def training(self, epoch: int, first: int) -> Iterator[Window]:
        data, tokens = self.data, self.corpus.train
        shape = (fitting(data.batch, tokens, data.length), data.length)
        if not data.varied:
            return windows(tokens, *shape, tail=self.tail, first=first)
        drawn = epoch_generator(self.seed, epoch)
        return varied_windows(tokens, *shape, generator=drawn, delta=data.delta, tail=self.tail, first=first)

    def evaluation(self, split: str, first: int) -> Iterator[Window]:
        data, batch, tail = self.data, self.data.eval_batch, self.data.eval_tail
        if split == "test":
            batch, tail = data.test_batch or batch, data.test_tail or tail
        length, tokens = data.eval_length or data.length, self.tokens(split)
        return windows(tokens, fitting(batch, tokens, length), length, tail=tail, first=first)

    def tokens(self, split: str) -> Tensor:
        """Return the tokens of a split; "all" is the whole text."""
        if split == "all" and self.data.path is not None:
            return load_whole(self.data.path, self.vocabulary)
        if split == "all":
            return torch.cat([getattr(self.corpus, name) for name in SPLITS])
        return getattr(self.corpus, split)

    @property
    def tail(self) -> str:
        return self.data.tail or ("trim" if self.data.varied else "drop")

    def batches_per_epoch(self, epoch: int) -> int:
        if self.data.varied:
            return sum(1 for _ in self.training(epoch, 0))
        tokens, length = self.corpus.train, self.data.length
        return window_count(tokens, fitting(self.data.batch, tokens, length), length, tail=self.tail)

    # --------------------------------------------------------------------------------------- figures

    def step(self, model: nn.Module, batch: Window, carry: Any) -> StepResult:
        parts = model.loss(batch.inputs, batch.targets, carry if self.data.carry else None)  # type: ignore[operator]
        return StepResult(
            objective=parts.objective,
            total=parts.nll,
            count=parts.count,
            tokens=batch.inputs.numel(),
            extra=dict(parts.penalties),
            carry=parts.state,
        )

    def metrics(self) -> Metrics:
        return TextMetrics(self.vocabulary.level)

    @classmethod
    def figures(cls, data: LanguageData) -> tuple[Figure, ...]:
        level = data.level or CORPORA[data.corpus].levels[0]
        return (BITS.get(level, PERPLEXITY), LOSS)

    def baselines(self, split: str, figures: Mapping[str, float]) -> list[Baseline]:
        losses = ngram_losses(self.corpus.train, self.tokens(split), len(self.vocabulary))
        return text_baselines(losses, BITS_NAMES[self.vocabulary.level])

    # ----------------------------------------------------------------------------------- a trained run

    def describe(self) -> dict[str, Any]:
        return {
            "task": self.name,
            "corpus": self.data.corpus,
            "level": self.vocabulary.level,
            "vocabulary": self.vocabulary.fingerprint,
            "vocabulary_size": len(self.vocabulary),
        }

    def predict(  # type: ignore[override]
        self,
        model: LanguageModel,
        raw: Sequence[str],
        *,
        tokens: int = 100,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 1,
        warm: int = 0,
    ) -> list[str]:
        """Continue the prompts by `tokens` tokens; see `linnet.models.generate` for how they are drawn.

        warm   read this many tokens of the validation text before each prompt
        """
        return generate_texts(
            model,
            self.vocabulary,
            raw,
            tokens=tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            window=self.data.window,
            warmup=self.corpus.valid[:warm].tolist() if warm else "",
        )

    def typed_text(self) -> TypedText:
        """The text to begin with and the counts of the tokens are those of the corpus, if it is there."""
        try:
            corpus = self.corpus
        except DataError:
            return TypedText(self.vocabulary)
        counts = torch.bincount(corpus.train, minlength=len(self.vocabulary)).tolist()
        first, *others = (self.vocabulary.decode(each).strip() for each in self.excerpts(corpus.valid))
        return TypedText(self.vocabulary, counts=counts, example=first, passages=[*filter(None, others)])

    def excerpts(self, tokens: Tensor) -> Iterator[Tensor]:
        """Yield the beginning of a text, and some further parts that are spread over it."""
        yield tokens[:EXAMPLE]
        apart = max(1, (len(tokens) - EXAMPLE) // PASSAGES)
        for number in range(PASSAGES):
            start = EXAMPLE + number * apart
            yield tokens[start : start + min(apart, PASSAGE_TOKENS // PASSAGES)]

    def sample(self, model: nn.Module, tokens: int) -> str:
        start = self.word_start(WARMUP)
        following = self.vocabulary.decode(self.corpus.valid[start : start + 64])
        prompt = " ".join(following.split()[:PROMPT])
        how = {"tokens": tokens, "temperature": 0.8, "top_p": 0.95, "warm": start}
        return self.predict(model, [prompt], **how)[0]  # type: ignore[arg-type]

    def word_start(self, position: int) -> int:
        """Return where the next word of the validation text starts; a word is one token or several."""
        if self.vocabulary.level not in BITS:
            return position
        before = self.vocabulary.decode(self.corpus.valid[position - 1 : position + 64])
        blank = next((number for number, letter in enumerate(before) if letter.isspace()), 0)
        return position + blank

    # ------------------------------------------------------------------------------------ in comparisons

    @classmethod
    def defaults_with(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Letters are few and their windows long: models of characters and bytes have other defaults."""
        corpus = "text" if given.get("path") is not None else given.get("corpus", LanguageData.corpus)
        level = given.get("level") or (CORPORA[corpus].levels[0] if corpus in CORPORA else "")
        return {**cls.defaults, **(BY_LETTERS if level in BITS else {})}

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """A path means the corpus "text", another corpus has no path; some units have other defaults."""
        unit = given.get("unit")
        follows: dict[str, Any] = {"carry": False} if unit in UNBOUNDED else {}
        if unit in LEARNING_RATES:
            follows["lr"] = LEARNING_RATES[unit]
        if given.get("path") is not None:
            follows["corpus"] = "text"
        elif "corpus" in given:
            follows["path"] = None
        return {**follows, **given}

    @classmethod
    def data_name(cls, data: LanguageData) -> str:
        """The name of a user's file or folder without its extensions, or that of the corpus."""
        return file_name(data.path) if data.path else data.corpus

    @classmethod
    def carry_option(cls, data: LanguageData) -> str:
        return "--no-carry" if data.carry else ""

    @classmethod
    def resized(cls, model: LanguageModelConfig, hidden_size: int) -> LanguageModelConfig:
        return with_hidden_size(model, hidden_size)

    def smaller(self) -> str:
        size = self.model.embedding_size
        return f"a smaller embedding_size (now {size}), tied=True or a smaller vocabulary"


def fitting(batch: int, tokens: Tensor, length: int) -> int:
    """Return the columns of a text: `batch`, or fewer if the text is too short for a window in each."""
    return max(1, min(batch, (len(tokens) - 1) // length))


BITS_NAMES = {"char": "bpc", "byte": "bpc", "word": "bits_per_word", "bpe": "bits_per_token"}
"""The loss in bits by the level of tokens. Results on bytes, such as those on enwik8, are called bpc too."""


class TextMetrics(Metrics):
    """loss: the mean of -log p in nats; perplexity: its exponential; and the loss in bits per token."""

    def __init__(self, level: str):
        super().__init__()
        self.level = level

    def merge(self, other: TextMetrics) -> None:
        super().merge(other)
        self.level = other.level

    def compute(self) -> dict[str, float]:
        loss = self.total / self.count
        return {
            "loss": loss,
            "perplexity": perplexity_of(loss),
            BITS_NAMES[self.level]: loss / math.log(2),
            "tokens": self.count,
        }


def perplexity_of(loss: float) -> float:
    # exp overflows above 709.
    return math.exp(loss) if loss < 700 else math.inf
