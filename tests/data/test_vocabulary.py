"""Vocabularies: order, what is unknown, there and back again, and on disk."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.data.vocabulary import (
    EOS,
    UNK,
    Vocabulary,
    bpe_vocabulary,
    byte_vocabulary,
    char_vocabulary,
    split_words,
    word_vocabulary,
    words_as_they_appear,
)

TEXT = "the cat saw the dog\nthe dog ran\n"


def test_words_are_numbered_by_frequency_then_by_the_alphabet():
    vocabulary = word_vocabulary(TEXT)
    assert vocabulary.tokens == ("the", EOS, "dog", "cat", "ran", "saw", UNK)
    assert vocabulary.encode(TEXT).tolist() == [0, 3, 5, 0, 2, 1, 0, 2, 4, 1]
    assert vocabulary.encode("the bird ran").tolist() == [0, 6, 4]
    assert vocabulary.encode(TEXT).dtype == torch.int64


def test_words_can_be_numbered_as_they_appear():
    vocabulary = words_as_they_appear([TEXT, "a bird\n"])
    assert vocabulary.tokens == ("the", "cat", "saw", "dog", EOS, "ran", "a", "bird")
    assert vocabulary.unk is None


def test_a_line_end_is_a_word_even_without_a_blank_before_it():
    assert split_words("a b\nc", "blanks") == split_words(" a b \n c", "blanks") == ["a", "b", EOS, "c"]


def test_a_smaller_vocabulary_calls_the_rest_unknown():
    vocabulary = word_vocabulary(TEXT, size=4)
    # Of ten words cat, ran and saw are left out: as many as there are of the most frequent.
    assert vocabulary.tokens == (UNK, "the", EOS, "dog")
    assert vocabulary.encode(TEXT).tolist() == [1, 0, 0, 1, 3, 2, 1, 3, 0, 2]
    assert word_vocabulary(TEXT, least=2).tokens == (UNK, "the", EOS, "dog")


def test_a_text_that_has_unknown_words_marked_keeps_its_count():
    vocabulary = word_vocabulary("a <unk> <unk> b\n")
    assert vocabulary.tokens == (UNK, EOS, "a", "b")


def test_punctuation_marks_can_be_words():
    text = "And God said, Let Tubal-cain's light (so) be: “light”!\n<unk> don’t\n"  # noqa: RUF001
    words = split_words(text, "punctuation")
    assert words[:12] == ["And", "God", "said", ",", "Let", "Tubal-cain", "'s", "light", "(", "so", ")", "be"]
    assert words[12:] == [":", "“", "light", "”", "!", EOS, UNK, "don", "’t", EOS]  # noqa: RUF001


def test_decoding_puts_punctuation_back():
    text = "And he said, the king’s men (so) be: it is good!\nIs it? Yes.\n"  # noqa: RUF001
    vocabulary = word_vocabulary(text, words="punctuation")
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert word_vocabulary(TEXT).decode([0, 3, 1, 0]) == "the cat\nthe"


def test_capitals_can_be_read_as_small_letters():
    vocabulary = word_vocabulary("The the THE\n", lowercase=True)
    assert vocabulary.tokens == ("the", EOS, UNK)
    assert vocabulary.encode("tHe").tolist() == [0]
    assert char_vocabulary(["aAb"], lowercase=True).tokens == ("a", "b")


def test_characters_are_numbered_by_frequency():
    vocabulary = char_vocabulary(["naïve\n", "aa"])
    assert vocabulary.tokens == ("a", "\n", "e", "n", "v", "ï")
    assert vocabulary.encode("naïve").tolist() == [3, 0, 5, 4, 2]
    capped = char_vocabulary(["aaabbc日"], size=3)
    assert capped.tokens == ("a", UNK, "b")
    assert capped.encode("ab日x😀").tolist() == [0, 2, 1, 1, 1]


def test_bytes_are_numbered_by_value():
    whole = byte_vocabulary()
    assert len(whole) == 256
    assert whole.encode("aé").tolist() == [97, 0xC3, 0xA9]
    assert whole.decode([97, 0xC3, 0xA9, 0xFF]) == "aé\N{REPLACEMENT CHARACTER}"
    some = byte_vocabulary([b"\xff\x00", b"a"])
    assert some.tokens == ("\x00", "a", "\xff")
    assert some.encode(b"a\xff\xff\x00").tolist() == [1, 2, 2, 0]


@settings(deadline=None, max_examples=50)
@given(st.text(min_size=1, alphabet=st.characters(exclude_categories=["Cs"])))
def test_characters_bytes_and_pieces_lose_nothing(text: str):
    assert char_vocabulary([text]).decode(char_vocabulary([text]).encode(text)) == text
    assert byte_vocabulary().decode(byte_vocabulary().encode(text)) == text
    assert PIECES.decode(PIECES.encode(text)) == text


PIECES = bpe_vocabulary("low lower lowest\nnewer wider\n" * 30, size=266)


def test_pieces_are_learnt():
    assert len(PIECES) == 266
    assert len(PIECES.encode("lower\n")) < 6
    assert PIECES.encode("lower\nlow\n").tolist() == [
        *PIECES.encode("lower\n").tolist(),
        *PIECES.encode("low\n").tolist(),
    ]


def everything() -> list[Vocabulary]:
    return [
        word_vocabulary(TEXT, words="punctuation", lowercase=True),
        char_vocabulary(["naïve\n"]),
        byte_vocabulary(),
        PIECES,
    ]


@pytest.mark.parametrize("vocabulary", everything(), ids=lambda v: v.level)
def test_a_vocabulary_is_the_same_after_saving(vocabulary: Vocabulary, tmp_path: Path):
    vocabulary.save(tmp_path / "vocabulary.json")
    again = Vocabulary.load(tmp_path / "vocabulary.json")
    assert again == vocabulary
    assert again.fingerprint == vocabulary.fingerprint
    assert torch.equal(again.encode("naïve\n" * 2), vocabulary.encode("naïve\n" * 2))
    assert [path.name for path in tmp_path.iterdir()] == ["vocabulary.json"]


def test_fingerprints_tell_vocabularies_apart():
    given = [
        Vocabulary("word", ("a", "b")),
        Vocabulary("word", ("b", "a")),
        Vocabulary("char", ("a", "b")),
        Vocabulary("word", ("a", "b"), lowercase=True),
        Vocabulary("word", ("a", "b"), words="punctuation"),
        *everything(),
    ]
    assert len({vocabulary.fingerprint for vocabulary in given}) == len(given)
    # Written into checkpoints, so it must not change.
    assert given[0].fingerprint == "5688e0f6b607edbd"


@pytest.mark.parametrize(
    ("vocabulary", "text", "answer"),
    [
        (Vocabulary("word", ("a", "b")), "a b cat", r"of 2 words has no 'cat', which is word 2 of the text"),
        (Vocabulary("char", ("a", "b")), "abé", r"of 2 characters has no 'é', which is character 2"),
        (Vocabulary("char", ("a", "c")), "ab", r"of 2 characters has no 'b', which is character 1"),
        (byte_vocabulary([b"ab"]), "a\n", r"of 2 bytes has no 0x0a, which is byte 1 of the text"),
        (Vocabulary("word", ("a", "b")), b"a", "a vocabulary of level 'word' encodes str; got bytes"),
    ],
)
def test_what_cannot_be_encoded_is_named(vocabulary: Vocabulary, text: str, answer: str):
    with pytest.raises(ValueError, match=answer):
        vocabulary.encode(text)


def test_wrong_vocabularies_are_answered(tmp_path: Path):
    with pytest.raises(ValueError, match="no level 'wrod'; did you mean 'word'"):
        Vocabulary("wrod", ("a",))
    with pytest.raises(ValueError, match="'a' occurs twice"):
        Vocabulary("word", ("a", "b", "a"))
    with pytest.raises(ValueError, match="the numbers of 2 tokens are 0 to 1; got 2"):
        Vocabulary("word", ("a", "b")).decode([0, 2])
    for size in (1, 0, 2.5, True):
        with pytest.raises(ValueError, match="vocabulary_size must be an integer of at least 2"):
            word_vocabulary(TEXT, size=size)
    with pytest.raises(ValueError, match="vocabulary_size must be an integer of at least 257; got 256"):
        bpe_vocabulary(TEXT, size=256)
    for contents in ("[]", "{", '{"level": "word"}', "3"):
        (tmp_path / "bad.json").write_text(contents)
        with pytest.raises(ValueError, match=r"bad\.json is not a vocabulary saved by Linnet"):
            Vocabulary.load(tmp_path / "bad.json")


def test_nothing_is_no_tokens():
    assert [len(vocabulary.encode("")) for vocabulary in everything()] == [0, 0, 0, 0]
    assert [vocabulary.decode([]) for vocabulary in everything()] == ["", "", "", ""]


def test_encoding_is_fast():
    """A tenth of Penn Treebank and of enwik8, with room for a slow machine: ten times what it takes."""
    words = " ".join(f"w{number % 9999}" for number in range(93_000))
    vocabulary = word_vocabulary(words)
    contents = bytes(range(256)) * 40_000
    start = time.perf_counter()
    vocabulary.encode(words)
    byte_vocabulary([contents]).encode(contents)
    char_vocabulary([words]).encode(words)
    assert time.perf_counter() - start < 2
