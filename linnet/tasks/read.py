"""Reading: the answer to a question, as a span of words of a text.

    linnet train read --set squad --data-dir DIR --vectors glove50 --unit sru
    linnet train read --path questions.json --form rnet --unit lrn
    linnet predict runs/squad-sru "Who sang? ||| In the morning a linnet sang."

The best checkpoint is the first one with the highest F1 on the validation set. Differs from DrQA: the third
feature of a word, whether its lemma is in the question, is that of its lower case, and parts of speech and
entities are the most frequent ones of the word in CoNLL-2003, because there is no tagger.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linnet.base.settings import Checked, fingerprint, option
from linnet.data.batches import IGNORE
from linnet.data.characters import count_characters
from linnet.data.conll import Columns, Sentence, WantedTags, conll2003_split
from linnet.data.errors import DataError
from linnet.data.padded import ORDERS, Example, PaddedBatch, Sequences, collate
from linnet.data.sets import WantedFiles
from linnet.data.squad import (
    QUESTIONS,
    Question,
    Splits,
    best_f1,
    exact_match,
    load_questions,
    word_span,
    words_of,
)
from linnet.data.text import parse_json
from linnet.data.vectors import read_vectors
from linnet.data.vocabulary import UNK, Vocabulary, by_frequency
from linnet.layers.context import Context
from linnet.layers.spans import SpanLogits
from linnet.models.reader import DocumentReader, Passage, ReaderConfig, RNet
from linnet.tasks.base import SPLITS, Comparison, unit_options_checked
from linnet.tasks.baselines import Baseline
from linnet.tasks.mistakes import most_confident_mistakes
from linnet.tasks.results import LOSS, AttentionMap, Figure, Metric, Metrics, Section, StepResult
from linnet.tasks.texts import two_texts
from linnet.tasks.words import PAD, WordTask

NO_TAG = "<none>"
TAGS = "tags.json"
KINDS = {"pos": 1, "ner": 3}  # of tags, with their columns in CoNLL-2003
FEATURES = 4
FIRST_OF_ALL = 2**40  # the number of the first question of the split "all"
MOST_WORDS = 30  # of a text, in a plot of attention


@dataclass(frozen=True)
class ReadData(Checked):
    """Questions about texts, their words, and how they are put into batches."""

    set: str = option("own", "own: the file --path; squad: its file is in --data-dir", choices=(*QUESTIONS,))
    path: str | None = option(None, "your own questions in the format of SQuAD 1.1 (.json)")
    valid_path: str | None = option(
        None, "the validation set (default: the last tenth of the texts of --path)"
    )
    test_path: str | None = option(None, "the test set (default: the last tenth of the texts of --path)")
    data_dir: str | None = option(None, "the folder where the files of a set and vectors are searched first")
    target: str = option(
        "first", "the answer that is learned if there are several", choices=("first", "last")
    )
    lowercase: bool = option(True, "look up words in lower case; characters and features keep their case")
    least: int = option(2, "without vectors: words that are rarer in training become <unk>", least=1)
    vectors: str | None = option(None, "pretrained word vectors: a GloVe or word2vec text file, or glove50")
    tags: bool = option(False, "drqa: give words the parts of speech and entities of CoNLL-2003 (--data-dir)")
    word_length: int = option(16, "rnet: the characters of a word that are read", least=1)
    max_length: int = option(0, "leave out longer texts in training (0: none)", least=0)
    longest: int = option(15, "the most words of an answer", least=1)
    batch: int = option(32, "questions in a batch, over all processes", least=1)
    eval_batch: int = option(32, "questions in a batch in evaluation", least=1)
    best_by: str = option(
        "f1",
        "the figure on the validation set that selects the best checkpoint",
        choices=("f1", "em", "loss"),
    )
    order: str = option("buckets", "how questions are put into batches, see docs/classify.md", choices=ORDERS)


F1 = Figure(
    "f1", "F1", "The mean overlap of the words of answers and right answers; higher is better.", ".4f", True
)
EXACT = Figure("em", "exact match", "The share of answers that equal a right answer.", ".4f", True)


class Found(NamedTuple):
    """An answer of an evaluation."""

    probability: float
    exact: float
    f1: float
    answer: str
    question: Question

    def row(self) -> tuple[str, ...]:
        """Return the cells of a table."""
        expected = self.question.answers[0].text
        return (f"{self.probability:.3f}", self.answer, expected, self.question.question)


class Read(WordTask):
    """Questions, the words of their texts, and a reader."""

    name, about = "read", "reading: the answer to a question, as a part of a text"
    Data, Model = ReadData, ReaderConfig
    sets = QUESTIONS
    selects = Metric("f1", higher=True)
    has_attention = True
    asset_files = (*WordTask.asset_files, TAGS)
    defaults = {
        **{"unit": "sru", "optimiser": "adamax", "lr": 2e-3, "clip": 10.0, "epochs": 10},
        **{"embedding_size": 100, "hidden_size": 100, "input_dropout": 0.3, "output_dropout": 0.3},
    }
    comparison = Comparison(budget=1_000_000, settings={"embedding_size": 50, "epochs": 3})
    remedies = "more questions, pretrained vectors (--vectors FILE) or a longer training (--minutes)"
    ranges = {"input_dropout+output_dropout": (0.1, 0.6), "lr": (5e-4, 5e-3)}

    def prepare(self) -> None:
        """Read the data, and find the vocabulary."""
        asked, read = self.counts(SPLITS if self.data.vectors else ("train",))
        wanted = [*by_frequency(asked), *(word for word in by_frequency(read) if word not in asked)]
        if self.data.vectors:
            self.pretrained = read_vectors(self.data.vectors, wanted, self.data.data_dir)
            known = set(self.pretrained.words)
            kept = [word for word in wanted if word in known]
        else:
            kept = [word for word in wanted if asked[word] + read[word] >= self.data.least]
        self.vocabulary = Vocabulary("word", (PAD, UNK, *(word for word in kept if word not in (PAD, UNK))))
        train = (word.text for row in self.questions.train for text in row[:2] for word in words_of(text))
        self.characters = count_characters(train, width=self.data.word_length)
        self.tags = frequent_tags(self.data.data_dir) if self.data.tags else {}

    def counts(self, splits: Iterable[str]) -> tuple[Counter[str], Counter[str]]:
        """Return how often words occur in questions and in texts; each text counts once."""
        rows = [row for split in splits for row in getattr(self.questions, split)]
        asked, read = (
            Counter(self.folded(word.text) for text in texts for word in words_of(text))
            for texts in ([row.question for row in rows], dict.fromkeys(row.text for row in rows))
        )
        return asked, read

    @cached_property
    def questions(self) -> Splits:
        return self.read_splits(self.data)

    def read_splits(self, data: ReadData) -> Splits:
        return load_questions(
            data.set, WantedFiles(data.data_dir, data.path, data.valid_path, data.test_path)
        )

    # ----------------------------------------------------------------------------------------- model

    def build(self) -> Any:
        words = len(self.vocabulary)
        with unit_options_checked():
            if self.model.form == "rnet":
                characters = len(self.characters)
                model: Any = RNet(words, self.model, characters=characters, context=self.context_shape)
            else:
                tags = [len(names) for names in self.tag_names.values()]
                shape = self.context_shape
                model = DocumentReader(words, self.model, features=FEATURES, tags=tags, context=shape)
        # R-Net reads zeros for words without a vector.
        self.use_pretrained(model.embedding, spread=0.0 if self.model.form == "rnet" else None)
        self.start_context(model)
        return model

    @cached_property
    def tag_names(self) -> dict[str, list[str]]:
        """The tags of each kind."""
        return {kind: [NO_TAG, *sorted(set(known.values()))] for kind, known in self.tags.items()}

    # --------------------------------------------------------------------------------------- batches

    @cached_property
    def training_examples(self) -> list[Example]:
        """Answers that begin or end within a word, and long texts, are left out."""
        most = self.data.max_length
        rows = [
            self.example(row, number)
            for number, row in enumerate(self.questions.train)
            if self.span_of(row)[2] and (not most or len(words_of(row.text)) <= most)
        ]
        if not rows:
            raise DataError(
                "no training question is left: all answers end within words or texts are too long"
            )
        return rows

    def examples(self, split: str) -> list[Example]:
        if split == "all":
            return [self.example(row, number) for number, row in enumerate(self.every_row, FIRST_OF_ALL)]
        before = sum(len(getattr(self.questions, each)) for each in SPLITS[: SPLITS.index(split)])
        return [
            self.example(row, number) for number, row in enumerate(getattr(self.questions, split), before)
        ]

    def example(self, row: Question, number: int = 0) -> Example:
        """The label has the first and the last word of the answer, and the number of the question."""
        words, asked = ([word.text for word in words_of(text)] for text in (row.text, row.question))
        label = [*self.span_of(row)[:2], number] if row.answers else None
        # The encoder reads the text without the question: its vectors are those of all questions about it.
        context, its_context = (self.context_numbers(each)[0] for each in (words, asked))
        spelt = {"spelling": self.spellings.numbers(asked), **its_context}
        described = {**self.described(words, asked), **context}
        return Example(self.ids(words), label, self.ids(asked), described, spelt)

    def span_of(self, row: Question) -> tuple[int, int, bool]:
        return word_span(words_of(row.text), row.answers[0 if self.data.target == "first" else -1])

    def described(self, words: Sequence[str], asked: Sequence[str]) -> dict[str, Tensor]:
        """The features, the tags and the spelling of each word of a text."""
        lower = [word.lower() for word in words]
        counts, exact, folded = Counter(lower), set(asked), {word.lower() for word in asked}
        numbers = [
            (word in exact, low in folded, low in folded, counts[low] / len(words))
            for word, low in zip(words, lower, strict=True)
        ]
        tags = {kind: self.tag_ids(kind, words) for kind in self.tags}
        return {"numbers": torch.tensor(numbers), "spelling": self.spellings.numbers(words), **tags}

    def tag_ids(self, kind: str, words: Sequence[str]) -> Tensor:
        return torch.tensor([self.tag_index[kind].get(word, 0) for word in words])

    @cached_property
    def tag_index(self) -> dict[str, dict[str, int]]:
        """The number of the tag of each word; 0 is NO_TAG."""
        numbers = {
            kind: {tag: number for number, tag in enumerate(names)} for kind, names in self.tag_names.items()
        }
        return {
            kind: {word: numbers[kind][tag] for word, tag in self.tags[kind].items()} for kind in self.tags
        }

    # --------------------------------------------------------------------------------------- figures

    def step(self, model: nn.Module, batch: PaddedBatch, carry: Any) -> StepResult:
        assert batch.labels is not None
        logits = self.logits(model, batch)
        first, last, numbers = batch.labels
        total = logits.loss(first, last).sum()
        count = int((numbers != IGNORE).sum())
        outputs = None if model.training else self.found(logits, numbers.tolist())
        return StepResult(total / max(count, 1), total.detach(), count, batch.tokens, outputs=outputs)

    def logits(self, model: nn.Module, batch: PaddedBatch) -> SpanLogits:
        return model(*self.passages(model, batch))

    def passages(self, model: nn.Module, batch: PaddedBatch) -> tuple[Passage, Passage]:
        """The arguments of a model: texts and questions."""
        assert batch.second is not None
        tags = tuple(batch.inputs.features[kind] for kind in self.tags)
        context, its_context = self.context_of(model, batch)
        text = self.passage(batch.inputs, context)
        text = text._replace(features=batch.inputs.features["numbers"], tags=tags)
        return text, self.passage(batch.second, its_context)

    def passage(self, texts: Sequences, context: Context | None) -> Passage:
        reads_characters = self.model.form == "rnet"
        letters = self.spellings.look_up(texts.features["spelling"]) if reads_characters else None
        return Passage(texts.steps, texts.lengths, characters=letters, context=context)

    def found(self, logits: SpanLogits, numbers: list[int]) -> list[Found]:
        """The answers to the questions with these numbers, and how good they are."""
        spans = zip(numbers, *(each.tolist() for each in logits.best(self.data.longest)), strict=True)
        return [self.judged(*span) for span in spans if span[0] != IGNORE]

    def judged(self, number: int, first: int, last: int, probability: float) -> Found:
        row = self.question(number)
        words, right = words_of(row.text), [each.text for each in row.answers]
        answer = row.text[words[first].first : words[last].end]
        return Found(probability, exact_match(answer, right), best_f1(answer, right), answer, row)

    def question(self, number: int) -> Question:
        if number >= FIRST_OF_ALL:
            return self.every_row[number - FIRST_OF_ALL]
        return self.every_question[number]

    @cached_property
    def every_question(self) -> list[Question]:
        return [row for split in SPLITS for row in getattr(self.questions, split)]

    def metrics(self) -> Metrics:
        return SpanMetrics()

    @classmethod
    def selected_by(cls, data: ReadData) -> Metric:
        return Metric(data.best_by, higher=data.best_by != "loss")

    @classmethod
    def figures(cls, data: ReadData) -> tuple[Figure, ...]:
        return (F1, EXACT, LOSS)

    def details(self, split: str, metrics: Any) -> list[Section]:
        wrong = [each for each in metrics.found if not each.exact]
        head = ("probability", "answer", "expected", "question")
        return [most_confident_mistakes(head, wrong, Found.row)]

    def baselines(self, split: str, figures: Mapping[str, float]) -> list[Baseline]:
        rows = getattr(self.questions, split)
        pairs = [(first_name(row), [each.text for each in row.answers]) for row in rows]
        found = {"em": [exact_match(*pair) for pair in pairs], "f1": [best_f1(*pair) for pair in pairs]}
        means = {name: sum(values) / len(values) for name, values in found.items()}
        about = "The first words of the text with capitals or digits that are not in the question."
        return [Baseline("first name", about, means)]

    # ----------------------------------------------------------------------------------- a trained run

    def assets(self) -> dict[str, bytes]:
        return {**super().assets(), TAGS: json.dumps(self.tags).encode()}

    def restore(self, assets: Mapping[str, bytes]) -> None:
        super().restore(assets)
        self.tags = word_tags(assets[TAGS])

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "tags": fingerprint(self.tags)}

    @torch.no_grad()
    def predict(  # type: ignore[override]
        self, model: nn.Module, raw: Sequence[Any], *, batch: int = 0
    ) -> list[dict[str, Any]]:
        """Return the answer to each question, its place in the text and its probability.

        raw     "question ||| text", or objects with "question" and "text"
        batch   questions that are answered at once (0: eval_batch)
        """
        # With padding="read", the answer depends on the longest text of the batch, as in an evaluation.
        batch = batch or self.data.eval_batch
        rows = [two_texts(each, "question", "text") for each in raw]
        answers: list[dict[str, Any]] = []
        for start in range(0, len(rows), batch):
            asked = [Question(text, question, ()) for question, text in rows[start : start + batch]]
            answers += self.apart().answers(model, asked)
        return answers

    def answers(self, model: nn.Module, asked: Sequence[Question]) -> list[dict[str, Any]]:
        examples = collate([self.example(each) for each in asked])
        spans = self.logits(model, examples.to(next(model.parameters()).device)).best(self.data.longest)
        found = zip(asked, *(each.tolist() for each in spans), strict=True)
        return [answer_of(row.text, *span) for row, *span in found]

    def check_input(self, raw: Any) -> None:
        two_texts(raw, "question", "text")

    def show(self, answer: Mapping[str, Any]) -> str:
        """Return the answer, with its place and probability."""
        place = f"characters {answer['start']} to {answer['end']}"
        return f"{answer['answer']}  ({place}, probability {answer['probability']:.3f})"

    @torch.no_grad()
    def attention(self, model: Any, raw: Sequence[Any]) -> list[AttentionMap]:
        """The words of the question that each word of the text reads, near the answer."""
        return [self.apart().attention_map(model, *two_texts(each, "question", "text")) for each in raw]

    def attention_map(self, model: Any, question: str, text: str) -> AttentionMap:
        batch = collate([self.example(Question(text, question, ()))]).to(next(model.parameters()).device)
        found = model.attend(*self.passages(model, batch))
        first, last, probability = (each.item() for each in found.logits.best(self.data.longest))
        near = window(first, last, len(words_of(text)))
        asked, words = ([word.text for word in words_of(each)] for each in (question, text))
        answer = self.show(answer_of(text, first, last, probability))
        weights = found.weights[0, 0].T[:, near]
        return AttentionMap(answer, asked, words[near], weights, "question", "text near the answer")

    def first_inputs(self, split: str, count: int) -> list[Any]:
        return [
            {"question": row.question, "text": row.text} for row in getattr(self.questions, split)[:count]
        ]

    # ------------------------------------------------------------------------------------ in comparisons

    def smaller(self) -> str:
        return f"a smaller embedding_size (now {self.model.embedding_size})"


def first_name(row: Question) -> str:
    """Return the first words of a text in a row with a capital or a digit that the question does not have."""
    words, asked = words_of(row.text), {word.text for word in words_of(row.question)}
    # The first word of a text has a capital anyway.
    stands_out = [word.text[:1] != word.text[:1].lower() or word.text[:1].isdigit() for word in words]
    fits = [out and word.text not in asked for out, word in zip(stands_out, words, strict=True)]
    start = next((place for place, each in enumerate(fits) if place and each), 0)
    end = next((place for place in range(start + 1, len(words)) if not fits[place]), len(words)) - 1
    return row.text[words[start].first : words[end].end]


def window(first: int, last: int, words: int) -> slice:
    """Return at most MOST_WORDS words of a text, with those from first to last in the middle."""
    start = max(min((first + last + 1 - MOST_WORDS) // 2, words - MOST_WORDS), 0)
    return slice(start, start + MOST_WORDS)


def answer_of(text: str, first: int, last: int, probability: float) -> dict[str, Any]:
    words = words_of(text)
    start, end = words[first].first, words[last].end
    return {"answer": text[start:end], "start": start, "end": end, "probability": round(probability, 5)}


class SpanMetrics(Metrics):
    """Loss, exact match and F1, by the rules of SQuAD's official script."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Found] = []

    def update(self, result: StepResult) -> None:
        super().update(result)
        self.found += result.outputs

    def compute(self) -> dict[str, float]:
        answers = max(len(self.found), 1)
        exact, f1 = sum(each.exact for each in self.found), sum(each.f1 for each in self.found)
        return {**super().compute(), "em": exact / answers, "f1": f1 / answers}


# ---------------------------------------------------------------------------------------------- tags


def frequent_tags(data_dir: str | None) -> dict[str, dict[str, str]]:
    """Return the most frequent tag of each word in the training set of CoNLL-2003, for each kind."""
    return {
        kind: most_frequent(conll2003_split("train", WantedTags(data_dir, columns=Columns(0, column))))
        for kind, column in KINDS.items()
    }


def most_frequent(sentences: Sequence[Sentence]) -> dict[str, str]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in sentences:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            counts[word][tag] += 1
    return {word: by_frequency(tags)[0] for word, tags in counts.items()}


def word_tags(content: bytes) -> dict[str, dict[str, str]]:
    found = parse_json(TAGS, content)
    if not isinstance(found, dict) or not all(isinstance(known, dict) for known in found.values()):
        raise DataError(f"{TAGS} must have the tags of words for each kind of tag")
    if not {*found} <= {*KINDS} or not all(
        isinstance(tag, str) for known in found.values() for tag in known.values()
    ):
        raise DataError(f"{TAGS} must have a tag for each word, of the kinds {', '.join(KINDS)}")
    return found
