"""Classification of texts: one class for each sentence or document.

    linnet train classify --set mr --data-dir DIR --unit sru
    linnet train classify --path reviews.csv --text review --label stars
    linnet predict runs/reviews-sru "A small bird, and what a voice."

Word 0 is padding, word 1 stands for unknown words. By default, the best checkpoint is the first one with the
lowest loss on the validation set (`--best-by`): the accuracy on a few hundred texts is mostly chance.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from linnet.base.settings import Checked, option
from linnet.data.characters import count_characters
from linnet.data.counts import PAIRS, frequent_pairs, parse_pair_count
from linnet.data.errors import DataError
from linnet.data.labelled import (
    BLANKS,
    CLEANING,
    FOLDS,
    MARKUP,
    SETS,
    WORD_PATTERNS,
    WORD_SPLITS,
    LabelledSet,
    Splits,
    Wanted,
    load_from,
    without_markup,
)
from linnet.data.padded import ORDERS, Example, PaddedBatch, Sequences, collate, padded_batches
from linnet.data.tables import Labelled
from linnet.data.vectors import read_vectors
from linnet.data.vocabulary import EOS, UNK, Vocabulary, by_frequency
from linnet.models.classifier import CNN, Classifier, ClassifierConfig
from linnet.tasks.base import SPLITS, Comparison, Variant, unit_options_checked
from linnet.tasks.baselines import Asked, Baseline
from linnet.tasks.mistakes import class_mistakes, confusion, shortened
from linnet.tasks.results import Figure, Metric, Metrics, Section, StepResult
from linnet.tasks.targets import KINDS, ClassMetrics, Target, kind_of, parse_target, to_bytes
from linnet.tasks.typed import TypedText, first_texts
from linnet.tasks.words import PAD, WordTask

CLASSES, COUNTED = "classes.json", "counts.json"
SPECIAL = (PAD, UNK, EOS)
VOCABULARIES = ("train", "all", "vectors")
SPREAD = 0.25  # words without a pretrained vector start in U(-SPREAD, SPREAD)
Words = list[list[str]]  # of the texts of an example


@dataclass(frozen=True)
class LabelledData(Checked):
    """Labelled texts or pairs, their words, and how they are put into batches."""

    set: str = option("own", "a name of `linnet list sets`; own: the file --path")
    path: str | None = option(None, "your own .csv or .tsv with a header, or .jsonl")
    valid_path: str | None = option(None, "the validation set (default: taken from --path)")
    test_path: str | None = option(None, "the test set (default: taken from --path)")
    label: str | None = option(None, "own: the column with the class (label)")
    separator: str | None = option(
        None, "own: a text has any number of labels, separated by this in the column --label"
    )
    value: str | None = option(None, "own: the column with a number to predict, instead of a class")
    class_weights: tuple[str, ...] = option(
        (),
        "factors of the loss: balanced (rare classes count more), or those of classes, as in spam=5 ham=1",
    )
    data_dir: str | None = option(None, "the folder where the files of a set and vectors are searched first")
    fold: int = option(
        0, "the fold that is the test set (or the validation set, if there is a test file)", least=0
    )
    fold_count: int = option(FOLDS, "own: parts of equal size from which --fold is taken", least=2)
    split_seed: int = option(1, "own: the seed of the folds", least=0)
    words: str | None = option(
        None, "how a text is split into words (as the set needs it)", choices=(*WORD_SPLITS,)
    )
    strip_markup: bool = option(
        False, "own: read texts without the tags and entities of HTML, such as <br /> and &amp;"
    )
    lowercase: bool = option(True, "look up words in lower case; characters keep their case")
    vocabulary: str = option(
        "train",
        "the words that have a vector: those that occur --least times in training, all of the three splits, "
        "or those of the three splits that are in --vectors",
        choices=VOCABULARIES,
    )
    least: int = option(2, "vocabulary train: rarer words become <unk>", least=1)
    vectors: str | None = option(None, "pretrained word vectors: a GloVe or word2vec text file, or glove50")
    unit_norm: bool = option(False, "scale all word vectors to norm 1, as SRU's authors do")
    least_character: int = option(1, "rarer characters become unknown", least=1)
    max_length: int = option(0, "the most words of a text in training (0: all)", least=0)
    batch: int = option(32, "texts in a batch, over all processes", least=1)
    eval_batch: int = option(32, "texts in a batch in evaluation", least=1)
    order: str = option("buckets", "how texts are put into batches, see docs/classify.md", choices=ORDERS)
    best_by: str = option(
        "accuracy",
        "what selects the best checkpoint on the validation set: the loss, or the accuracy (of several "
        "labels: the micro F1, of numbers: the RMSE)",
        choices=("accuracy", "loss"),
    )
    label_smoothing: float = option(
        0.0, "the share of the target that the other classes get", least=0, most=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        own = {"separator": self.separator, "value": self.value}
        for name, given in own.items():
            if given is not None and self.set != "own":
                raise ValueError(
                    f"--{name} is for files of your own (--path); the set {self.set} has classes"
                )
        if self.separator is not None and self.value is not None:
            raise ValueError("--separator is for labels and --value for numbers; give one of them")
        if self.separator == "":
            raise ValueError("--separator is the character between labels, such as ','; it is empty")


@dataclass(frozen=True)
class ClassifyData(LabelledData):
    """Labelled texts."""

    set: str = option("kjv", "a name of `linnet list sets`; own: the file or folder --path", choices=(*SETS,))
    path: str | None = option(
        None, "your own .csv or .tsv with a header, .jsonl, or a folder with one folder per class"
    )
    label: str | None = option(None, "own: the column with the class (label); kjv: testament or book")
    text: str = option("text", "own: the column with the text")


READ = ("path", "valid_path", "test_path", "label", "data_dir", "fold", "fold_count", "split_seed")


class Classify(WordTask):
    """Labelled texts, the words and classes of the training set, and a classifier."""

    name, about = "classify", "classification: the class of a sentence or a document"
    Data: ClassVar[type] = ClassifyData
    Model: ClassVar[type] = ClassifierConfig
    Network: ClassVar[type] = Classifier
    sets: ClassVar[Mapping[str, LabelledSet]] = SETS
    # The options that name the columns with the texts of an example.
    text_options: ClassVar[tuple[str, ...]] = ("text",)
    selects = Metric("accuracy", higher=True)
    asset_files = (*WordTask.asset_files, CLASSES, COUNTED)
    defaults = {
        **{"optimiser": "adam", "lr": 1e-3, "clip": 5.0, "fused": True, "updates": 800},
        **{"unit": "sru", "bidirectional": True, "num_layers": 1, "pooling": "meanmax", "counts": "bigrams"},
        **{"embedding_size": 64, "hidden_size": 64, "input_dropout": 0.3, "pooled_dropout": 0.3},
        **{"init": "uniform", "strip_markup": True, "best_by": "loss"},
    }
    # One direction, which the lens can show; without counts, which would hide the differences of the units.
    comparison = Comparison(
        budget=200_000,
        settings={
            **{"embedding_size": 50, "num_layers": 2, "epochs": 5, "init": "unit", "counts": "none"},
            **{"bidirectional": False, "pooling": "last", "best_by": "accuracy"},
        },
    )
    remedies = "more labelled texts, pretrained vectors (--vectors FILE) or a longer training (--minutes)"
    ranges = {"input_dropout+layer_dropout+pooled_dropout": (0.05, 0.6), "lr": (3e-4, 3e-3)}

    target: Target

    def prepare(self) -> None:
        """Read the data, and find the classes and the vocabulary."""
        self.target = KINDS[kind_of(self.data)].of(self.texts, self.data)
        train = list(self.words_of("train"))
        self.characters = count_characters(train, self.data.least_character)
        counts = Counter(map(self.folded, train))
        every = (self.folded(word) for split in SPLITS for word in self.words_of(split))
        wanted = by_frequency(counts) if self.data.vocabulary == "train" else list(dict.fromkeys(every))
        if self.data.vectors and self.model.reads_words:
            self.pretrained = read_vectors(self.data.vectors, wanted, self.data.data_dir)
        self.vocabulary = Vocabulary("word", (*SPECIAL, *self.kept(wanted, counts)))
        self.pairs = len(self.counted_pairs)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the outputs of a model."""
        return self.target.names

    @cached_property
    def counted_pairs(self) -> np.ndarray:
        """The pairs of adjacent words of the training set that the model counts."""
        if self.model.counts != "bigrams":
            return np.zeros(0, np.int64)
        # Of two texts, the second is counted.
        texts = (self.ids(texts[-1]).numpy() for texts in self.words["train"])
        return frequent_pairs(texts, len(self.vocabulary), len(SPECIAL))

    def kept(self, wanted: list[str], counts: Mapping[str, int]) -> Iterable[str]:
        """Return the words that have a vector of their own."""
        if self.data.vocabulary == "train":
            return [word for word in wanted if counts[word] >= self.data.least and word not in SPECIAL]
        if self.data.vocabulary == "vectors":
            if self.pretrained is None:
                raise DataError("vocabulary='vectors' needs pretrained vectors; give --vectors")
            return [word for word in self.pretrained.words if word not in SPECIAL]
        return [word for word in wanted if word not in SPECIAL]

    @cached_property
    def texts(self) -> Splits:
        return self.read_splits(self.data)

    def read_splits(self, data: Any) -> Splits:
        columns = {name: getattr(data, name) for name in self.text_options}
        given = {name: getattr(data, name) for name in READ}
        given |= {"label": data.value or data.label, "kind": kind_of(data), "separator": data.separator or ""}
        wanted = Wanted(texts=columns, **given)
        return load_from(self.sets, data.set, wanted)

    def rows(self, split: str) -> list[Labelled]:
        return self.every_row if split == "all" else getattr(self.texts, split)

    @cached_property
    def words(self) -> dict[str, list[Words]]:
        """The words of each row of the three splits."""
        return {split: self.words_in(self.rows(split)) for split in SPLITS}

    def words_in(self, rows: Sequence[Labelled]) -> list[Words]:
        """The words of each row; equal words are one object, which saves half the memory."""
        return [[[*map(sys.intern, self.split_words(text))] for text in row.texts] for row in rows]

    def words_of(self, split: str) -> Iterator[str]:
        """All words of a split."""
        return (word for texts in self.words[split] for words in texts for word in words)

    def split_words(self, text: str) -> list[str]:
        return WORD_SPLITS[self.word_split](without_markup(text) if self.strips_markup else text)

    @property
    def strips_markup(self) -> bool:
        return self.data.strip_markup and self.data.set == "own"

    @property
    def word_split(self) -> str:
        return self.data.words or self.sets[self.data.set].words

    def typed_text(self) -> TypedText | None:
        """The texts and the counts of the words are those of the data, if it is there."""
        cleans = self.word_split == "clean"
        known = TypedText(
            replace(self.vocabulary, lowercase=self.data.lowercase or cleans),
            BLANKS if cleans else WORD_PATTERNS[self.word_split],
            (*(MARKUP if self.strips_markup else ()), *(CLEANING if cleans else ())),
            labels=self.classes,
            options="--no-bidirectional --pooling last --inputs words --counts none",
        )
        try:
            example, *passages = first_texts(row.texts[0].split() for row in self.texts.valid)
        except DataError:
            return known
        counts = torch.bincount(self.ids([*self.words_of("train")]), minlength=len(self.vocabulary))
        return known._replace(counts=counts.tolist(), example=example, passages=passages)

    # ----------------------------------------------------------------------------------------- model

    def build(self) -> Any:
        sizes = {"characters": len(self.characters), "context": self.context_shape, "pairs": self.pairs}
        with unit_options_checked():
            model = self.Network(len(self.vocabulary), len(self.classes), self.model, **sizes)
        self.use_pretrained(model.embedding, spread=SPREAD, unit_norm=self.data.unit_norm)
        self.start_context(model)
        self.use_counts(model)
        return model

    def use_counts(self, model: Any) -> None:
        """Set what a new model counts; the weights of a trained run have it."""
        if self.is_new and model.counts is not None and not model.counts.idf.is_meta:
            batches = map(self.counted, padded_batches(self.training_examples, self.eval_plan))
            model.counts.learn(torch.from_numpy(self.counted_pairs), batches, len(SPECIAL))

    def counted(self, batch: PaddedBatch) -> tuple[Any, ...]:
        """The arguments of `model.counts`."""
        return batch.inputs.steps, batch.inputs.lengths

    # --------------------------------------------------------------------------------------- batches

    @cached_property
    def training_examples(self) -> list[Example]:
        return self.examples("train", self.data.max_length or None)

    def examples(self, split: str, longest: int | None = None) -> list[Example]:
        rows = self.rows(split)
        labels = [self.target.encode(split, row) for row in rows]
        words_of_rows = self.words_in(rows) if split == "all" else self.words[split]
        return [
            self.example([words[:longest] for words in texts], label)
            for texts, label in zip(words_of_rows, labels, strict=True)
        ]

    def example(self, texts: Words, label: Any = None) -> Example:
        ids = [self.ids(words) for words in texts]
        contexts = self.context_numbers(*texts)
        features = [{**self.features(words), **more} for words, more in zip(texts, contexts, strict=True)]
        if len(texts) == 1:
            return Example(ids[0], label, features=features[0])
        return Example(ids[0], label, ids[1], features[0], features[1])

    def features(self, words: Sequence[str]) -> dict[str, Tensor]:
        return {"spelling": self.spellings.numbers(words)} if self.model.reads_characters else {}

    # --------------------------------------------------------------------------------------- figures

    def step(self, model: nn.Module, batch: PaddedBatch, carry: Any) -> StepResult:
        assert batch.labels is not None
        logits = self.logits(model, batch)
        smoothing = self.data.label_smoothing if model.training else 0.0
        total, count = self.target.losses(logits, batch.labels, smoothing)
        outputs = None if model.training else (logits, batch.labels, batch.rows)
        return StepResult(total / max(count, 1), total.detach(), count, batch.tokens, outputs=outputs)

    def logits(self, model: nn.Module, batch: PaddedBatch) -> Tensor:
        (context,) = self.context_of(model, batch)
        return model(batch.inputs.steps, batch.inputs.lengths, self.letters(batch.inputs), context)

    def letters(self, texts: Sequences) -> Tensor | None:
        """The characters of each word, [T, B, C], if the model reads them."""
        spelling = texts.features.get("spelling")
        return None if spelling is None else self.spellings.look_up(spelling)

    def metrics(self) -> Metrics:
        return self.target.metrics()

    @classmethod
    def selected_by(cls, data: Any) -> Metric:
        main = KINDS[kind_of(data)].figures[0]
        return Metric() if data.best_by == "loss" else Metric(main.name, main.higher)

    @classmethod
    def figures(cls, data: Any) -> tuple[Figure, ...]:
        return KINDS[kind_of(data)].figures

    def details(self, split: str, metrics: Any) -> list[Section]:
        if not isinstance(metrics, ClassMetrics):
            return []
        return [confusion(self.classes, metrics.confusion), self.mistakes(split, metrics.mistakes)]

    def baselines(self, split: str, figures: Mapping[str, float]) -> list[Baseline]:
        return [*filter(None, self.target.baselines(self.asked("train"), self.asked(split)))]

    def asked(self, split: str) -> Asked:
        return Asked([*map(self.bag, self.words[split])], [row.label for row in self.rows(split)])

    def bag(self, texts: Words) -> list[str]:
        """The words of an example; the same word in another text of a pair is another one."""
        return [f"{number} {self.folded(word)}" for number, words in enumerate(texts) for word in words]

    def mistakes(self, split: str, found: Sequence[tuple[float, int, int, int]]) -> Section:
        examples = self.rows(split)

        def texts(number: int) -> tuple[str, ...]:
            return tuple(map(shortened, examples[number].texts))

        return class_mistakes(self.classes, found, self.text_options, texts)

    # ----------------------------------------------------------------------------------- a trained run

    def assets(self) -> dict[str, bytes]:
        counted = json.dumps({PAIRS: self.pairs}).encode()
        return {**super().assets(), CLASSES: to_bytes(self.target), COUNTED: counted}

    def restore(self, assets: Mapping[str, bytes]) -> None:
        super().restore(assets)
        self.target = parse_target(CLASSES, assets[CLASSES], self.data)
        self.pairs = parse_pair_count(COUNTED, assets[COUNTED])

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "classes": list(self.classes), "pairs": self.pairs}

    @torch.no_grad()
    def predict(  # type: ignore[override]
        self, model: Any, raw: Sequence[Any], *, batch: int = 64
    ) -> list[dict[str, Any]]:
        """Return the class of each input, with the probabilities of all classes; or its labels or its number.

        batch   texts that are answered at once
        """
        answers: list[dict[str, Any]] = []
        for start in range(0, len(raw), batch):
            answers += self.apart().answers(model, raw[start : start + batch])
        return answers

    def answers(self, model: Any, raw: Sequence[Any]) -> list[dict[str, Any]]:
        typed = [self.typed_texts(each) for each in raw]
        examples = [self.example([*map(self.split_words, texts)]) for texts in typed]
        logits = self.logits(model, collate(examples).to(model.example.device))
        return self.target.answers(logits)

    def typed_texts(self, raw: Any) -> tuple[str, ...]:
        """Return the texts of an input as a user types it."""
        return (raw,)

    def show(self, answer: Mapping[str, Any]) -> str:
        return self.target.show(answer)

    # ------------------------------------------------------------------------------------ in comparisons

    def with_model(self, model: Any) -> Classify:
        """The examples of a model that reads other inputs are others, and so is what another model counts."""
        if (model.inputs, model.counts) != (self.model.inputs, self.model.counts):
            return type(self)(self.data, model, self.seed)
        return super().with_model(model)

    @classmethod
    def variants(cls, data: Any) -> dict[str, Variant]:
        return {CNN: Variant(CNN, {})}

    @classmethod
    def fold_settings(cls, data: Any, folds: int) -> list[dict[str, Any]]:
        """The first folds of the authors' own, or `folds` equal parts of other data."""
        known = cls.sets[data.set].folds
        if data.set == "kjv" or folds > (known or folds):
            raise ValueError(f"the set {data.set} has {known or 'no'} folds; got --folds {folds}")
        parts = {} if known else {"fold_count": max(folds, 2)}
        return [{**parts, "fold": fold} for fold in range(folds)]
