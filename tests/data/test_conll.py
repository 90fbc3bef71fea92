"""Tagged sentences: CoNLL columns, their errors, the splits, and the verses without capitals."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from linnet.data.conll import (
    Columns,
    Sentence,
    TagVocabulary,
    WantedTags,
    load_tagged,
    read_conll,
    restored,
    stripped,
    tag_vocabulary,
)
from linnet.data.errors import DataError, MissingDataError

TEXT = """-DOCSTART- -X- O

EU NNP B-ORG
rejects VBZ O

Peter\tNNP\tB-PER
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "train.txt"


def test_columns_become_sentences_that_know_their_lines(path: Path):
    path.write_text(TEXT, encoding="utf-8")
    first, second = read_conll(path)
    assert first == Sentence(("EU", "rejects"), ("B-ORG", "O"), str(path), 3)
    assert second == Sentence(("Peter",), ("B-PER",), str(path), 6)
    assert [each.tags for each in read_conll(path, Columns(tag=1))] == [("NNP", "VBZ"), ("NNP",)]


def test_a_compressed_file_is_the_same(path: Path):
    path.write_text(TEXT, encoding="utf-8")
    packed = path.with_suffix(".gz")
    packed.write_bytes(gzip.compress(TEXT.encode()))
    assert [each.words for each in read_conll(packed)] == [each.words for each in read_conll(path)]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"EU NNP B-ORG\nrejects\n", r"train.txt, line 2 has 1 column \('rejects'\); expected 3"),
        (b"EU\nrejects\n", r"train.txt, line 1 has 1 column \('EU'\); expected 2, with a word and its tag"),
        (b"EU B-ORG\nrejects VBZ O\n", r"train.txt, line 2 has 3 columns \('rejects VBZ O'\); expected 2"),
        (b"", "train.txt has no sentences; expected a word and its tag on each line"),
        (b"-DOCSTART- O\n\n", "train.txt has no sentences"),
        (b"EU B-ORG\nM\xfcnchen B-LOC\n", "train.txt, line 2 is not UTF-8: its byte 1 is 0xfc"),
    ],
)
def test_errors_name_the_file_the_line_and_what_was_expected(path: Path, content: bytes, text: str):
    path.write_bytes(content)
    with pytest.raises(DataError, match=text):
        read_conll(path)


def test_a_column_that_is_not_there(path: Path):
    path.write_text("EU B-ORG\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"line 1 has 2 columns \('EU B-ORG'\); expected 4"):
        read_conll(path, Columns(tag=3))


def test_splits_without_a_file_are_cut_from_the_end(path: Path):
    path.write_text("".join(f"w{number} O\n\n" for number in range(30)), encoding="utf-8")
    splits = load_tagged("own", WantedTags(path=path))
    assert [len(split) for split in splits] == [25, 2, 3]
    words = [sentence.words[0] for split in (splits.train, splits.valid, splits.test) for sentence in split]
    assert words == [f"w{number}" for number in range(30)]
    assert [len(split) for split in load_tagged("own", WantedTags(path=path, test_path=path))] == [27, 3, 30]


def test_what_is_missing_is_named(path: Path):
    with pytest.raises(MissingDataError, match=r"there is no file .*train.txt"):
        load_tagged("own", WantedTags(path=path))
    with pytest.raises(DataError, match="give that of the training set"):
        load_tagged("own", WantedTags())
    with pytest.raises(DataError, match="are for the set 'own', not for 'kjv'"):
        load_tagged("kjv", WantedTags(path=path))
    with pytest.raises(DataError, match="no set of tagged sentences 'conl2003'; did you mean 'conll2003'"):
        load_tagged("conl2003", WantedTags())
    path.write_text("one O\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"too few sentences to cut off a test set \(1\); .* --test-path"):
        load_tagged("own", WantedTags(path=path))


# ---------------------------------------------------------------------------------------- vocabulary


def test_a_vocabulary_has_the_words_of_training_first():
    train = [Sentence(("Peter", "sang"), ("B-PER", "O")), Sentence(("The", "peter"), ("O", "O"))]
    known = tag_vocabulary(train, known=["the", "of", "a"])
    assert (known.trained, known.fixed, known.tags) == (("peter", "sang", "the"), ("of", "a"), ("O", "B-PER"))
    assert known.encode(["Sang", "of", "unheard"]) == [2, 4, 0]
    assert TagVocabulary.parse("file", known.to_json().encode()) == known
    cased = tag_vocabulary(train, lowercase=False)
    assert cased.trained == ("Peter", "sang", "The", "peter")


def test_a_tag_that_training_has_not_is_named_with_its_line():
    known = tag_vocabulary([Sentence(("a", "b"), ("O", "B-PER"))])
    with pytest.raises(
        DataError, match=r"valid.txt, line 8 has the tag 'B-LOC', .* expected one of O, B-PER"
    ):
        known.encode_tags(Sentence(("c", "d"), ("O", "B-LOC"), "valid.txt", 7))


@pytest.mark.parametrize("content", [b"", b"[]", b'{"trained": 3}', b'{"trained": [], "fixed": []}', b"\xff"])
def test_a_damaged_vocabulary_is_an_error(content: bytes):
    with pytest.raises(DataError, match=r"vocabulary.json is not the vocabulary of a tagger"):
        TagVocabulary.parse("vocabulary.json", content)


# ----------------------------------------------------------------------------------- King James Bible


def test_the_tags_of_a_verse_restore_it():
    verse = "And the LORD God said, Where art thou?"
    sentence = stripped(verse)
    assert sentence.words == ("and", "the", "lord", "god", "said", "where", "art", "thou")
    assert sentence.tags == ("Aa", "O", "AA", "Aa", "+comma", "Aa", "O", "+question")
    assert restored(sentence.words, sentence.tags) == verse


def test_every_tag_of_the_verses_is_in_the_training_set():
    splits = load_tagged("kjv", WantedTags())
    known = tag_vocabulary(splits.train)
    assert sum(len(split) for split in splits) == 31_102
    for sentence in (*splits.valid, *splits.test):
        known.encode_tags(sentence)
