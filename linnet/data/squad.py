"""Questions about texts in the format of SQuAD 1.1, where the words of an answer are, and the official score.

    {"data": [{"paragraphs": [{"context": "...", "qas": [
        {"question": "...", "id": "...", "answers": [{"text": "...", "answer_start": 29}]}]}]}]}

`load_questions` returns the three splits of a set of `QUESTIONS`; an error names the file and the question.
Questions that have no answer, as SQuAD 2.0 has them, are left out.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from linnet.data.errors import DataError, MissingDataError, unknown
from linnet.data.files import LARGEST_OF_YOURS, File, read_any, unpacked
from linnet.data.labelled import MARK
from linnet.data.sets import Described, WantedFiles
from linnet.data.text import parse_json

HELD_OUT = 10  # one of this many texts, for validation and for the test, if they have no file
TRAINING_ARTICLES = 38  # of the 48 of SQuAD's development set


class Answer(NamedTuple):
    text: str
    start: int  # its first character in the text


class Question(NamedTuple):
    """A question, the text that answers it, and one or several right answers."""

    text: str
    question: str
    answers: tuple[Answer, ...]
    where: str = ""  # the file and the question, for messages


Texts = list[list[Question]]  # the questions of each text


class Splits(NamedTuple):
    train: list[Question]
    valid: list[Question]
    test: list[Question]


# --------------------------------------------------------------------------------------------- files


def read_squad(path: str | Path) -> Texts:
    """Read a file, plain or compressed with gzip or xz."""
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(f"there is no file {path} with questions")
    return [text for article in articles(str(path), unpacked(path, LARGEST_OF_YOURS)) for text in article]


def articles(where: str, contents: bytes) -> list[Texts]:
    """Return the texts of each article."""
    found = parse_json(where, contents)
    return [
        [list(questions(where, paragraph)) for paragraph in value(where, article, "paragraphs", list)]
        for article in value(where, found, "data", list)
    ]


def value(where: str, found: Any, name: str, kind: type) -> Any:
    """Return found[name], which must be there and of this kind."""
    if not isinstance(found, Mapping) or not isinstance(found.get(name), kind):
        got = f"{found[name]!r:.60}" if isinstance(found, Mapping) and name in found else "none"
        raise DataError(f"{where}: expected {name!r}, a {kind.__name__}, as in SQuAD 1.1; got {got}")
    return found[name]


def questions(where: str, paragraph: Any) -> Iterator[Question]:
    text = value(where, paragraph, "context", str)
    for number, each in enumerate(value(where, paragraph, "qas", list), 1):
        if isinstance(each, Mapping) and each.get("is_impossible") is True:
            continue
        name = each.get("id", number) if isinstance(each, Mapping) else number
        place = f"{where}, question {name}"
        asked = value(place, each, "question", str).strip()
        if not asked:
            raise DataError(f"{place} is empty; expected a question")
        answers = tuple(answer(place, text, one) for one in value(place, each, "answers", list))
        if not answers:
            raise DataError(f'{place} has no answers; expected at least one, or "is_impossible": true')
        yield Question(text, asked, answers, place)


def answer(where: str, text: str, found: Any) -> Answer:
    words, start = value(where, found, "text", str), value(where, found, "answer_start", int)
    if not words.strip() or start < 0 or text[start : start + len(words)] != words:
        at = text[max(start, 0) :][:40]
        raise DataError(f"{where}: the answer {words!r} is not at character {start} of its text: {at!r}")
    return Answer(words, start)


# ---------------------------------------------------------------------------------------------- sets


@dataclass(frozen=True)
class QuestionSet(Described):
    read: Callable[[WantedFiles], Splits]


def load_questions(name: str, wanted: WantedFiles) -> Splits:
    """Return the questions of a set of `QUESTIONS`."""
    if name not in QUESTIONS:
        raise unknown("set of questions", name, QUESTIONS)
    splits = QUESTIONS[name].read(wanted)
    for split, found in splits._asdict().items():
        if not found:
            raise DataError(f"the {split} set has no questions; give more texts or a file of its own")
    return splits


def own(wanted: WantedFiles) -> Splits:
    """Splits without a file are cut from the end of the training file, by texts."""
    if wanted.path is None:
        raise DataError(
            "there are no questions to read: give a file of yours in the format of SQuAD (--path FILE), or "
            "--set squad and the folder of its file (--data-dir DIR)"
        )
    train = read_squad(wanted.path)
    held, others = max(len(train) // HELD_OUT, 1), []
    for path in (wanted.test_path, wanted.valid_path):
        others.append(read_squad(path) if path else train[-held:])
        train = train if path else train[:-held]
    test, valid = others
    return Splits(joined(train), joined(valid), joined(test))


def joined(texts: Texts) -> list[Question]:
    return [question for text in texts for question in text]


def squad(wanted: WantedFiles) -> Splits:
    """The first articles of the development set for training, the others for validation and the test."""
    found = read_any([DEVELOPMENT], ("squad",), wanted.data_dir)
    parts = articles(str(found.path), found.contents)
    train, held = (
        [question for article in part for question in joined(article)]
        for part in (parts[:TRAINING_ARTICLES], parts[TRAINING_ARTICLES:])
    )
    return Splits(train, held, held)


DEVELOPMENT = File(
    "dev-v1.1.reconstructed.json",
    "sha256:af733c4bfe87a9a2d647af0a049b1152bde733f416c88051568c1435e448a4be",
    instead=", or read it as a file of your own (--path)",
)
QUESTIONS = {
    "own": QuestionSet("your own questions in the format of SQuAD 1.1 (--path)", "yours", own),
    "squad": QuestionSet(
        "SQuAD 1.1 (Rajpurkar et al. 2016), its development set: 38 articles for training (7,836 questions), "
        "10 for validation and the test (2,734). Not comparable with published figures",
        "Creative Commons Attribution-ShareAlike 4.0",
        squad,
    ),
}


# --------------------------------------------------------------------------------------------- words


class Word(NamedTuple):
    """A word and its place in a text: text[first:end]."""

    text: str
    first: int
    end: int


@lru_cache(maxsize=4096)  # a text has several questions
def words_of(text: str) -> tuple[Word, ...]:
    """Return the words and the punctuation marks of a text."""
    return tuple(Word(found[0], *found.span()) for found in MARK.finditer(text))


def word_span(words: Sequence[Word], answer: Answer) -> tuple[int, int, bool]:
    """Return the first and the last word of an answer, and whether it begins and ends where they do."""
    end = answer.start + len(answer.text)
    inside = [number for number, word in enumerate(words) if word.first < end and word.end > answer.start]
    first, last = (inside[0], inside[-1]) if inside else (0, 0)
    return first, last, bool(inside) and (words[first].first, words[last].end) == (answer.start, end)


# ---------------------------------------------------------------------------------------------- score

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_MARKS = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> str:
    """Return an answer as the official script compares it: lower case, no ASCII marks, no articles."""
    return " ".join(ARTICLES.sub(" ", answer.lower().translate(NO_MARKS)).split())


def exact_match(answer: str, right: Sequence[str]) -> float:
    return float(any(normalised(answer) == normalised(each) for each in right))


def best_f1(answer: str, right: Sequence[str]) -> float:
    """Return the largest F1 of the words of the answer and of a right one."""
    return max(word_f1(normalised(answer).split(), normalised(each).split()) for each in right)


def word_f1(answer: list[str], right: list[str]) -> float:
    common = sum((Counter(answer) & Counter(right)).values())
    return 2 * common / (len(answer) + len(right)) if common else 0.0
