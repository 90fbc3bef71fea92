"""A corpus as tokens: `load_corpus`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from linnet.data.errors import DataError, unknown
from linnet.data.sources import CORPORA, Parts, Source, Wanted
from linnet.data.text import read_bytes, read_text
from linnet.data.vocabulary import (
    LEVELS,
    UNK,
    WORDS,
    Vocabulary,
    bpe_vocabulary,
    byte_vocabulary,
    char_vocabulary,
    word_vocabulary,
    words_as_they_appear,
)

ORDERS = ("frequency", "appearance")
PARTS = ("train", "valid", "test")
PIECES = 10_000  # the default number of BPE pieces


@dataclass(frozen=True, eq=False)
class Corpus:
    """A corpus as three sequences of tokens, with its vocabulary."""

    name: str
    level: str
    vocabulary: Vocabulary
    train: Tensor  # int64 [n]
    valid: Tensor
    test: Tensor
    about: str = ""  # a description, with any difference from the published corpus

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(getattr(self, name)):,}" for name in PARTS)
        return f"Corpus({self.name!r}, tokens by {self.level}: {sizes}; {self.vocabulary!r})"


class Options(NamedTuple):
    """The user's choices for a vocabulary."""

    words: str
    lowercase: bool
    size: int | None
    order: str


def load_corpus(
    name: str,
    *,
    level: str | None = None,
    data_dir: str | Path | None = None,
    path: str | Path | None = None,
    vocabulary_size: int | None = None,
    lowercase: bool = False,
    words: str | None = None,
    order: str = "frequency",
    vocabulary: Vocabulary | None = None,
) -> Corpus:
    """Load a corpus of `CORPORA` as tokens.

    level            word, char, byte or bpe, of those that the corpus has; by default its first
    data_dir         a folder to search for its files, before LINNET_DATA, the cache and a download
    path             for the corpus "text": the file or the folder
    vocabulary_size  the maximum number of tokens; rarer ones become <unk>; for BPE, the number of pieces
    lowercase        convert the text to lower case
    words            split words at "blanks" or also at "punctuation"; the default depends on the corpus
    order            of a word vocabulary: "frequency" in the training text, or "appearance" in all three
    vocabulary       encode with this vocabulary, of a trained model, instead of building one from the text
    """
    source = known_source(name)
    level = check_level(name, source, level if vocabulary is None else vocabulary.level)
    options = Options(source.words if words is None else words, lowercase, vocabulary_size, order)
    check_path(name, path)
    check_options(level, options)
    parts = source.read(Wanted(name, source, level, data_dir, path))
    vocabulary = vocabulary or VOCABULARIES[level](source, parts, options)
    tensors = {label: encoded(name, label, getattr(parts, label), vocabulary) for label in PARTS}
    return Corpus(name, level, vocabulary, **tensors, about=f"{source.about} {parts.note}".strip())


def load_whole(path: str | Path, vocabulary: Vocabulary) -> Tensor:
    """Load all of a text of the user's, which may be too short to be split, with a known vocabulary."""
    text = read_bytes(path) if vocabulary.level == "byte" else read_text(path)
    return encoded(str(path), "whole", text, vocabulary)


def encoded(name: str, label: str, text: str | bytes, vocabulary: Vocabulary) -> Tensor:
    tokens = vocabulary.encode(text)
    if not len(tokens):
        raise DataError(f"the {label} part of {name!r} has no tokens; a longer text is needed")
    return tokens


def known_source(name: str) -> Source:
    if name in CORPORA:
        return CORPORA[name]
    if Path(name).exists():
        raise DataError(f"{name!r} is a path; load the corpus 'text' with path={name!r}")
    raise unknown("corpus", name, CORPORA)


def check_level(name: str, source: Source, level: str | None) -> str:
    if level is None:
        return source.levels[0]
    if level not in LEVELS:
        raise unknown("level", level, LEVELS)
    if level not in source.levels:
        other = "; for characters, load 'ptb-char'" if (name, level) == ("ptb", "char") else ""
        raise DataError(f"the corpus {name!r} is read by {' or '.join(source.levels)}, not by {level}{other}")
    return level


def check_path(name: str, path: str | Path | None) -> None:
    if path is not None and name != "text":
        raise DataError(
            f"path is for the corpus 'text'; for the folder that holds {name!r} give data_dir={str(path)!r}"
        )


def check_options(level: str, options: Options) -> None:
    if options.words not in WORDS:
        raise unknown("way to split words", options.words, WORDS)
    if options.order not in ORDERS:
        raise unknown("order", options.order, ORDERS)
    if options.order == "appearance" and (level != "word" or options.size is not None):
        raise DataError(
            "order 'appearance' uses every word of all parts; it needs level 'word' and no vocabulary_size"
        )
    if level == "byte" and (options.lowercase or options.size is not None):
        raise DataError("level 'byte' supports neither lowercase nor vocabulary_size")


def words_of(source: Source, parts: Parts, options: Options) -> Vocabulary:
    words, lowercase, size, order = options
    train, valid, test = map(as_text, parts[:3])
    if order == "appearance":
        return words_as_they_appear([train, valid, test], words=words, lowercase=lowercase)
    size = source.vocabulary_size if size is None else size
    # Some corpora contain <unk>. In others, words that occur once become <unk>: otherwise the training text
    # would contain no <unk>, and the model would learn nothing about it.
    prepared = any(UNK in part for part in (train, valid, test))
    least = 1 if prepared or size is not None else 2
    return word_vocabulary(train, words=words, lowercase=lowercase, size=size, least=least)


def characters_of(source: Source, parts: Parts, options: Options) -> Vocabulary:
    return char_vocabulary(map(as_text, parts[:3]), lowercase=options.lowercase, size=options.size)


def bytes_of(source: Source, parts: Parts, options: Options) -> Vocabulary:
    """Return all 256 bytes, so that any text can be encoded; only those that occur if the papers do so."""
    return byte_vocabulary(map(as_bytes, parts[:3]) if source.bytes_that_occur else None)


def pieces_of(source: Source, parts: Parts, options: Options) -> Vocabulary:
    size = PIECES if options.size is None else options.size
    return bpe_vocabulary(as_text(parts.train), lowercase=options.lowercase, size=size)


def as_text(part: str | bytes) -> str:
    assert isinstance(part, str)
    return part


def as_bytes(part: str | bytes) -> bytes:
    assert isinstance(part, bytes)
    return part


VOCABULARIES: dict[str, Callable[[Source, Parts, Options], Vocabulary]] = {
    "word": words_of,
    "char": characters_of,
    "byte": bytes_of,
    "bpe": pieces_of,
}
