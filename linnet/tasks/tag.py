"""Tagging: a tag for each word of a sentence, such as the names in a news text.

    linnet train tag --set conll2003 --data-dir DIR --vectors glove50 --unit lrn
    linnet train tag --path train.txt --valid-path valid.txt --test-path test.txt
    linnet predict runs/conll2003-lrn "Peter Blackburn reports from Brussels"

The loss is the mean over sentences of -log p(tags) / words, as the LRN authors have it. The best checkpoint
is the first one with the highest F1 of entities on the validation set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linnet.base.project import advice
from linnet.base.settings import Checked, fingerprint, option
from linnet.data.batches import IGNORE
from linnet.data.characters import Spellings
from linnet.data.conll import (
    OUTSIDE,
    TAGGED,
    VERSE_WORD,
    Columns,
    Sentence,
    Splits,
    TagVocabulary,
    WantedTags,
    load_tagged,
    restored,
    stripped,
    tag_vocabulary,
)
from linnet.data.errors import DataError
from linnet.data.padded import ORDERS, Example, PaddedBatch, collate
from linnet.data.vectors import Vectors, read_vectors
from linnet.data.vocabulary import UNK, WORD, Vocabulary, split_words
from linnet.models.tagger import Spelling, Tagger, TaggerConfig
from linnet.tasks.base import Comparison, unit_options_checked
from linnet.tasks.baselines import Baseline, frequent_tags
from linnet.tasks.results import LOSS, Figure, Metric, Metrics, Section, StepResult
from linnet.tasks.texts import TextTask
from linnet.tasks.typed import TypedText, first_texts

PREFIXES = ("B-", "I-", "E-", "S-")


@dataclass(frozen=True)
class TagData(Checked):
    """Tagged sentences, and how they are put into batches."""

    set: str = option("kjv", "a name of `linnet list sets`; own: the file --path", choices=(*TAGGED,))
    path: str | None = option(None, "your own training set in CoNLL columns: a word and its tag on each line")
    valid_path: str | None = option(None, "the validation set (default: the last tenth of --path)")
    test_path: str | None = option(None, "the test set (default: the last tenth of --path)")
    word_column: int = option(0, "the column of the word (0: the first, -1: the last)")
    tag_column: int = option(-1, "the column of its tag")
    data_dir: str | None = option(None, "the folder where the files of a set and vectors are searched first")
    vectors: str | None = option(None, "pretrained word vectors: a GloVe or word2vec text file, or glove50")
    lowercase: bool = option(True, "look up words in lower case; characters keep their case")
    word_length: int = option(64, "the characters of a word that are read", least=1)
    rare_dropout: float = option(
        0.0,
        "training: read a word that occurs n times as an unknown word with probability "
        "rare_dropout / (rare_dropout + n)",
        least=0,
    )
    batch: int = option(32, "sentences in a batch, over all processes", least=1)
    eval_batch: int = option(64, "sentences in a batch in evaluation", least=1)
    order: str = option(
        "buckets", "which sentences share a batch, see docs/tag.md; chunks: LRN's", choices=ORDERS
    )


F1 = Figure(
    "f1",
    "entity F1",
    "The harmonic mean of precision and recall of whole entities: type, first and last word must be right.",
    ".4f",
    True,
)
ACCURACY = Figure("accuracy", "accuracy", "The share of words with the right tag.", ".4f", True)


class Answers(NamedTuple):
    """The tags of the sentences of a batch, as numbers."""

    right: list[list[int]]
    predicted: list[list[int]]


class Tag(TextTask):
    """Tagged sentences, the words and tags of the training set, and a tagger."""

    name, about = "tag", "tagging: a tag for each word, such as named entities"
    Data, Model = TagData, TaggerConfig
    sets = TAGGED
    selects = Metric("f1", higher=True)
    defaults = {
        # The table of words has most of the weights, so updates are fused. See docs/log.md for the others.
        **{"optimiser": "adam", "lr": 3e-3, "fused": True, "updates": 3000, "patience": 10},
        **{"unit": "lrn", "character_size": 50, "character_hidden": 50, "rare_dropout": 2.0, "batch": 16},
    }
    comparison = Comparison(budget=800_000, settings={"embedding_size": 50, "epochs": 2})
    remedies = "more tagged sentences, pretrained vectors (--vectors FILE) or a longer training (--minutes)"
    ranges = {"input_dropout": (0.1, 0.7), "lr": (3e-4, 1e-2)}
    vocabulary: TagVocabulary
    parse_vocabulary = staticmethod(TagVocabulary.parse)
    pretrained: Vectors | None = None

    def prepare(self) -> None:
        """Read the data, and find the words, the characters and the tags."""
        data = self.data
        if data.vectors is not None:
            self.pretrained = read_vectors(data.vectors, data_dir=data.data_dir)
        known = self.pretrained.words if self.pretrained else ()
        self.vocabulary = tag_vocabulary(self.sentences.train, known, data.lowercase, data.word_length)
        self.check_tags()

    @cached_property
    def sentences(self) -> Splits:
        return self.read_splits(self.data)

    def read_splits(self, data: TagData) -> Splits:
        columns = Columns(data.word_column, data.tag_column)
        return load_tagged(
            data.set, WantedTags(data.data_dir, data.path, data.valid_path, data.test_path, columns)
        )

    def check_tags(self) -> None:
        """Raise if there are fewer than two tags, or if a split has a tag that the training set lacks."""
        if len(self.vocabulary.tags) < 2:
            only = ", ".join(self.vocabulary.tags)
            raise DataError(
                f"all words of the training set have the tag {only!r}; expected at least two tags"
            )
        for split in (self.sentences.valid, self.sentences.test):
            for sentence in split:
                self.vocabulary.encode_tags(sentence)

    # ----------------------------------------------------------------------------------------- model

    def build(self) -> Tagger:
        known = self.vocabulary
        with unit_options_checked():
            model = Tagger(
                known.rows,
                len(known.tags),
                self.model,
                characters=len(known.characters),
                fixed_words=len(known.fixed),
                context=self.context_shape,
            )
        self.start_context(model)
        if self.pretrained is not None and not model.example.is_meta:
            model.embedding.set_rows(self.vectors_of_words())
        return model

    def vectors_of_words(self) -> Tensor:
        """Return the pretrained vectors in the order of the vocabulary; 0 for words that have none."""
        assert self.pretrained is not None
        words, matrix = self.pretrained
        table = matrix.new_zeros(self.vocabulary.rows + len(self.vocabulary.fixed), matrix.shape[1])
        rows = torch.tensor([self.vocabulary.index.get(word, 0) for word in words])
        table[rows[rows > 0]] = matrix[rows > 0]
        return table

    # --------------------------------------------------------------------------------------- batches

    def examples(self, split: str) -> list[Example]:
        if split not in self.encoded:
            rows = self.every_row if split == "all" else getattr(self.sentences, split)
            self.encoded[split] = [*map(self.example, rows)]
        return self.encoded[split]

    @cached_property
    def encoded(self) -> dict[str, list[Example]]:
        return {}

    def example(self, sentence: Sentence) -> Example:
        return Example(
            torch.tensor(self.vocabulary.encode(sentence.words)),
            torch.tensor(self.vocabulary.encode_tags(sentence)),
            features=self.features(sentence.words),
        )

    def features(self, words: Sequence[str]) -> dict[str, Tensor]:
        return {"spelling": self.spellings.numbers(words), **self.context_numbers(words)[0]}

    @cached_property
    def spellings(self) -> Spellings:
        """The characters of the words of the three splits."""
        return Spellings(self.vocabulary.characters)

    def apart(self) -> Tag:
        other = super().apart()
        other.spellings = Spellings(self.vocabulary.characters)
        return other

    # --------------------------------------------------------------------------------------- figures

    def step(self, model: nn.Module, batch: PaddedBatch, carry: Any) -> StepResult:
        assert batch.labels is not None
        lengths, counted = batch.inputs.lengths, (batch.labels != IGNORE).any(0)
        spelling = spelling_of(self.spellings, batch.inputs.features["spelling"])
        words = self.drop_rare(batch.inputs.steps) if model.training else batch.inputs.steps
        scores = model(words, lengths, spelling, *self.context_of(model, batch))
        decoder: Any = model.decoder
        likelihood = decoder(scores, batch.labels.clamp(min=0), lengths=lengths, reduction="none")
        total = -(likelihood / lengths * counted).sum()
        count = int(counted.sum())
        return StepResult(
            objective=total / max(count, 1),
            total=total.detach(),
            count=count,
            tokens=batch.tokens,
            outputs=None if model.training else answers(decoder, scores, batch, counted),
        )

    def drop_rare(self, words: Tensor) -> Tensor:
        """Return the words of a batch, some rare ones as word 0: so its vector is learned."""
        rate = self.data.rare_dropout
        if not rate:
            return words
        chances = rate / (rate + self.counts.to(words.device)[words])
        return words.masked_fill(torch.rand_like(chances) < chances, 0)

    @cached_property
    def counts(self) -> Tensor:
        """How often each word, by its number, occurs in the training set; 0 for words that it lacks."""
        words = torch.cat([torch.as_tensor(example.inputs) for example in self.training_examples])
        return words.bincount(minlength=self.vocabulary.rows + len(self.vocabulary.fixed)).float()

    def metrics(self) -> Metrics:
        return TagMetrics(self.vocabulary.tags)

    @classmethod
    def figures(cls, data: TagData) -> tuple[Figure, ...]:
        return (F1, ACCURACY, LOSS)

    def details(self, split: str, metrics: Any) -> list[Section]:
        about = "Precision, recall and F1 of each type, and how many entities the data and the answers have."
        head = ("type", "precision", "recall", "F1", "in the data", "in the answers")
        return [Section("Entities by type", about, head, tuple(metrics.by_type()))]

    def baselines(self, split: str, figures: Mapping[str, float]) -> list[Baseline]:
        """The most frequent tag of each word; of words that training does not have, that of all words."""
        train, asked = self.sentences.train, getattr(self.sentences, split)
        known, usual = frequent_tags([each.words for each in train], [each.tags for each in train])
        metrics = TagMetrics(self.vocabulary.tags)
        for sentence in asked:
            answers = [known.get(word, usual) for word in sentence.words]
            metrics.add_sentence(sentence.tags, answers)
        found = {name: value for name, value in metrics.compute().items() if name != "loss"}
        return [Baseline("most frequent tag", "The most frequent tag of each word in training.", found)]

    # ----------------------------------------------------------------------------------- a trained run

    def describe(self) -> dict[str, Any]:
        known = self.vocabulary
        return {
            **super().describe(),
            "tags": list(known.tags),
            "vocabulary": fingerprint(known.to_json()),
        }

    def typed_text(self) -> TypedText:
        """The texts and the counts of the words are those of the data, if it is there."""
        known = self.vocabulary
        words = Vocabulary("word", (UNK, *known.trained, *known.fixed), lowercase=known.lowercase)
        # The released CRF has one more tag.
        labels = (*known.tags, "padding") if self.model.released_crf else known.tags
        pattern = VERSE_WORD if self.data.set == "kjv" else WORD
        options = "--no-bidirectional --character-size 0"
        typed = TypedText(words, pattern, labels=labels, options=options)
        try:
            example, *passages = first_texts(sentence.words for sentence in self.sentences.valid)
        except DataError:
            return typed
        train = [number for sentence in self.sentences.train for number in known.encode(sentence.words)]
        counts = torch.bincount(torch.tensor(train), minlength=len(words)).tolist()
        return typed._replace(counts=counts, example=example, passages=passages)

    @torch.no_grad()
    def predict(  # type: ignore[override]
        self, model: Tagger, raw: Sequence[str | Sequence[str]], *, batch: int = 64
    ) -> list[dict[str, Any]]:
        """Return the words, their tags and the entities of each sentence.

        raw     sentences, or lists of words
        batch   sentences that are tagged at once
        """
        answers: list[dict[str, Any]] = []
        for start in range(0, len(raw), batch):
            answers += self.apart().tagged(model, [self.words(each) for each in raw[start : start + batch]])
        return answers

    def words(self, raw: str | Sequence[str]) -> list[str]:
        """Split a sentence at blanks and punctuation; words that are given as a list stay as they are."""
        if not isinstance(raw, str):
            return list(raw)
        # The words of this set have neither capitals nor punctuation: to restore them is the task.
        if self.data.set == "kjv":
            return list(stripped(raw).words)
        return split_words(" ".join(raw.split()), "punctuation")

    def tagged(self, model: Tagger, sentences: list[list[str]]) -> list[dict[str, Any]]:
        # An empty sentence is one padded step, which is an empty word.
        steps = [words or [""] for words in sentences]
        examples = [Example(self.vocabulary.encode(words), features=self.features(words)) for words in steps]
        batch = collate(examples).to(model.example.device)
        inputs = batch.inputs
        spelling = spelling_of(self.spellings, inputs.features["spelling"])
        scores = model(inputs.steps, inputs.lengths, spelling, *self.context_of(model, batch))
        predicted = model.decoder.decode(scores, lengths=inputs.lengths)
        return [
            self.answer(words, names(self.vocabulary.tags, tags[: len(words)]))
            for words, tags in zip(sentences, predicted, strict=True)
        ]

    def answer(self, words: list[str], tags: list[str]) -> dict[str, Any]:
        if self.data.set == "kjv":
            return {"words": words, "tags": tags, "text": restored(words, tags)}
        found = [
            {"type": kind, "text": " ".join(words[first : last + 1]), "first": first, "last": last}
            for kind, first, last in entities(tags)
        ]
        return {"words": words, "tags": tags, "entities": found}

    def show(self, answer: Mapping[str, Any]) -> str:
        """Return the restored text, or the words with their tags: Anna/B-PER sang New/B-LOC York/I-LOC."""
        if "text" in answer:
            return answer["text"]
        pairs = zip(answer["words"], answer["tags"], strict=True)
        return " ".join(word if tag == OUTSIDE else f"{word}/{tag}" for word, tag in pairs)

    # ------------------------------------------------------------------------------------ in comparisons

    def smaller(self) -> str:
        return f"a smaller embedding_size (now {self.model.embedding_size})"


def spelling_of(spellings: Spellings, numbers: Tensor) -> Spelling:
    """Return the characters of the words of a batch, each word once; `numbers` [T, B] are theirs."""
    used, rows = numbers.unique(return_inverse=True)
    return Spelling(spellings.look_up(used), rows)


def answers(decoder: Any, scores: Tensor, batch: PaddedBatch, counted: Tensor) -> Answers:
    """Return the right and the predicted tags of the sentences that count."""
    assert batch.labels is not None
    lengths = batch.inputs.lengths
    predicted = decoder.decode(scores, lengths=lengths)
    right = [tags[:length] for tags, length in zip(batch.labels.T.tolist(), lengths.tolist(), strict=True)]
    both = [pair for *pair, counts in zip(right, predicted, counted.tolist(), strict=True) if counts]
    return Answers([pair[0] for pair in both], [pair[1] for pair in both])


# ---------------------------------------------------------------------------------------- entities


def names(tags: Sequence[str], numbers: Iterable[int]) -> list[str]:
    """Return the tags of these numbers; the released CRF has one more, for padding, which is outside."""
    return [tags[number] if number < len(tags) else OUTSIDE for number in numbers]


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the type, the first and the last word of each entity, by the rules of seqeval and conlleval.

    IOB1, IOB2 and IOBES are understood: an entity starts at B or S, or where the type changes. Tags without
    such a prefix are entities of one word each.
    """
    if any(tag != OUTSIDE and not tag.startswith(PREFIXES) for tag in tags):
        return [(tag, place, place) for place, tag in enumerate(tags) if tag != OUTSIDE]
    # Imported here, not above: it imports scikit-learn, which takes a second.
    try:
        from seqeval.metrics.sequence_labeling import get_entities  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(f"entities are found by a package: {advice('lm')}") from error
    return get_entities(list(tags))


class TagMetrics(Metrics):
    """Loss, accuracy of words, and precision, recall and F1 of entities.

    right, predicted, found   how many entities of each type are in the data, in the answers, and in both
    """

    def __init__(self, tags: Sequence[str]):
        super().__init__()
        self.tags = tags
        self.words, self.right_words = 0, 0
        self.right: Counter[str] = Counter()
        self.predicted: Counter[str] = Counter()
        self.found: Counter[str] = Counter()

    def update(self, result: StepResult) -> None:
        super().update(result)
        for right, predicted in zip(*result.outputs, strict=True):
            self.add_sentence(names(self.tags, right), names(self.tags, predicted))

    def add_sentence(self, right: Sequence[str], predicted: Sequence[str]) -> None:
        self.words += len(right)
        self.right_words += sum(map(str.__eq__, right, predicted))
        self.add(right, predicted)

    def add(self, right: Sequence[str], predicted: Sequence[str]) -> None:
        one, other = set(entities(right)), set(entities(predicted))
        for counter, group in ((self.right, one), (self.predicted, other), (self.found, one & other)):
            counter.update(kind for kind, _, _ in group)

    def merge(self, other: TagMetrics) -> None:
        tags = self.tags
        super().merge(other)
        self.tags = tags

    def compute(self) -> dict[str, float]:
        found, predicted, right = (sum(each.values()) for each in (self.found, self.predicted, self.right))
        accuracy = self.right_words / max(self.words, 1)
        return {**super().compute(), **rates(found, predicted, right), "accuracy": accuracy}

    def by_type(self) -> Iterator[tuple[str, ...]]:
        """Yield a row for each type of entity."""
        for kind in sorted({*self.right, *self.predicted}):
            predicted, right = self.predicted[kind], self.right[kind]
            shares = rates(self.found[kind], predicted, right)
            shown = (f"{shares[name]:.4f}" for name in ("precision", "recall", "f1"))
            yield (kind, *shown, f"{right:,}", f"{predicted:,}")


def rates(found: int, predicted: int, right: int) -> dict[str, float]:
    """Return precision, recall and F1 from the numbers of entities that are in both, or in one."""
    return {
        "f1": 2 * found / max(predicted + right, 1),
        "precision": found / max(predicted, 1),
        "recall": found / max(right, 1),
    }
