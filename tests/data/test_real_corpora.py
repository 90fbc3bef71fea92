"""Truth: the papers' corpora have the published sizes. Needs the files: LINNET_DATA names their folder."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from helpers import data_folder

from linnet.data import CORPORA, MissingDataError, load_corpus, window_count, windows
from linnet.data.corpora import Corpus


@cache
def loaded(name: str, **how) -> Corpus:
    """From LINNET_DATA alone: a test downloads nothing."""
    data_folder(name, CORPORA[name].files, CORPORA[name].folders)
    return load_corpus(name, **how)


@pytest.mark.parametrize(
    ("name", "sizes", "vocabulary"),
    [
        ("ptb", (929_589, 73_760, 82_430), 10_000),
        ("ptb-char", (5_017_482, 393_042, 442_423), 50),
        ("wikitext2", (2_088_628, 217_646, 245_569), 33_278),
        ("wmt13-fr-small", (84_989, 36_225, 45_822), 7_574),
        ("wmt13-es-small", (82_700, None, None), None),
        ("wmt13-de-small", (76_766, None, None), None),
        ("wmt13-cs-small", (68_864, None, None), None),
        ("wmt13-ru-small", (74_885, None, None), None),
        ("bwb", (128_033, 15_627, 15_998), 7_695),
    ],
)
def test_sizes_are_the_published_ones(name: str, sizes: tuple[int | None, ...], vocabulary: int | None):
    corpus = loaded(name)
    found = [len(part) for part in (corpus.train, corpus.valid, corpus.test)]
    assert [size for size, expected in zip(found, sizes, strict=True) if expected] == [s for s in sizes if s]
    assert vocabulary in (None, len(corpus.vocabulary))


@pytest.mark.parametrize(
    ("name", "total"),
    [("fr", 82_047), ("es", 81_928), ("de", 76_407), ("cs", 68_373), ("ru", 68_492)],
)
def test_the_halves_of_a_test_file_are_the_whole(name: str, total: int):
    corpus = loaded(f"wmt13-{name}-small")
    assert len(corpus.valid) + len(corpus.test) == total


def test_one_shard_is_the_published_test_set():
    corpus = loaded("bwb")
    assert len(corpus.train) + len(corpus.valid) + len(corpus.test) == 159_658


def test_penn_treebank_is_numbered_as_by_the_authors():
    corpus = loaded("ptb")
    assert corpus.vocabulary.tokens[:5] == ("the", "<unk>", "<eos>", "N", "of")
    assert window_count(corpus.train, 20, 35, tail="drop") == 1327
    counted = sum(int((window.targets >= 0).sum()) for window in windows(corpus.test, 20, 35))
    assert counted == 82_429
    by_appearance = loaded("ptb", order="appearance").vocabulary
    assert by_appearance.tokens[:2] == ("aer", "banknote")
    assert set(by_appearance.tokens) == set(corpus.vocabulary.tokens)


def test_penn_characters_are_those_of_the_words():
    words, characters = loaded("ptb"), loaded("ptb-char")
    assert characters.vocabulary.decode(characters.valid) == words.vocabulary.decode(words.valid)


def test_wikipedia_by_bytes():
    corpus = loaded("enwik8")
    assert (len(corpus.train), len(corpus.valid), len(corpus.test)) == (90_000_000, 5_000_000, 5_000_000)
    assert len(corpus.vocabulary) == 205
    counts = torch.bincount(corpus.test, minlength=205)
    assert corpus.vocabulary.tokens[int(counts.argmax())] == " "


def test_wikipedia_by_letters():
    corpus = loaded("text8")
    assert (len(corpus.valid), len(corpus.test), len(corpus.vocabulary)) == (5_000_000, 5_000_000, 27)
    assert len(corpus.train) in (64_000_000, 90_000_000)
    assert corpus.vocabulary.decode(corpus.train[:30]) == " anarchism originated as a ter"


def test_wmt13_asks_for_its_training_file(monkeypatch: pytest.MonkeyPatch):
    loaded("wmt13-fr-small")
    monkeypatch.setattr("linnet.data.files.download", unreachable)
    with pytest.raises(MissingDataError, match="wmt13-fr-small does not need"):
        load_corpus("wmt13-fr")


def unreachable(*_: object) -> None:
    raise MissingDataError("no network in tests")
