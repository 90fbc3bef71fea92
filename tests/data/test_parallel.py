"""Parallel lines: files of one's own with every mistake, the set of the packages, Multi30k."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from linnet.data.errors import DataError, MissingDataError
from linnet.data.files import File
from linnet.data.parallel import Pair, WantedPairs, load_parallel, read_pairs


def write(folder: Path, source: str, target: str, name: str = "a") -> tuple[str, str]:
    for language, text in (("en", source), ("de", target)):
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    return str(folder / f"{name}.en"), str(folder / f"{name}.de")


def numbered(folder: Path, count: int, name: str = "a") -> tuple[str, str]:
    return write(folder, *("".join(f"{word} {n}\n" for n in range(count)) for word in ("one", "eins")), name)


# ------------------------------------------------------------------------------------------- files


def test_lines_are_paired(tmp_path: Path):
    files = write(tmp_path, "a  bird \n\ntwo\tbirds", "ein Vogel\n\n zwei Vögel\n")
    assert read_pairs(*files) == [Pair("a bird", "ein Vogel"), Pair("two birds", "zwei Vögel")]


def test_only_line_feeds_end_a_line(tmp_path: Path):
    """Python's splitlines would cut here, and shift all later pairs."""
    files = write(tmp_path, "a\x0bb\u2028c\r\nd\n", "A\nD\n")
    assert read_pairs(*files) == [Pair("a b c", "A"), Pair("d", "D")]


def test_packed_files_are_read(tmp_path: Path):
    source, target = write(tmp_path, "a\n", "b\n")
    packed = tmp_path / "c.en.gz"
    packed.write_bytes(gzip.compress(Path(source).read_bytes()))
    assert read_pairs(packed, target) == [Pair("a", "b")]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\n", "A\n", r"a\.en has 2 lines and .*a\.de has 1; .* the same number of lines"),
        ("a\n\nc\n", "A\nB\nC\n", r"a\.en, line 2 is empty, and .*a\.de has a sentence in this line"),
        ("a\nb\n", "A\n \n", r"a\.de, line 2 is empty, and .*a\.en has a sentence"),
        ("\n", "\n", "have no lines with text"),
        ("", "", "have no lines with text"),
    ],
)
def test_wrong_files_are_explained(tmp_path: Path, source: str, target: str, message: str):
    with pytest.raises(DataError, match=message):
        read_pairs(*write(tmp_path, source, target))


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(MissingDataError, match=r"there is no file .*nothing\.en"):
        read_pairs(tmp_path / "nothing.en", tmp_path / "nothing.de")


# ------------------------------------------------------------------------------------------ splits


def own(files: tuple[str, str], **more: str) -> WantedPairs:
    return WantedPairs("own", source=files[0], target=files[1], **more)


def test_missing_splits_are_cut_from_the_end(tmp_path: Path):
    found = load_parallel(own(numbered(tmp_path, 30)))
    assert [len(part) for part in found] == [24, 3, 3]
    joined = [*found.train, *found.valid, *found.test]
    assert joined == [Pair(f"one {n}", f"eins {n}") for n in range(30)]


def test_splits_may_have_files_of_their_own(tmp_path: Path):
    source, target = numbered(tmp_path, 5, "test")
    found = load_parallel(own(numbered(tmp_path, 30), test_source=source, test_target=target))
    assert [len(part) for part in found] == [27, 3, 5]


def test_too_few_pairs_cannot_be_cut(tmp_path: Path):
    assert [len(part) for part in load_parallel(own(numbered(tmp_path, 3)))] == [1, 1, 1]
    with pytest.raises(DataError, match="2 pairs of sentences cannot be cut"):
        load_parallel(own(numbered(tmp_path, 2)))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (WantedPairs("own"), "give them with --source and --target"),
        (WantedPairs("own", source="a.en"), "--source needs --target"),
        (WantedPairs("own", target="a.de"), "--target needs --source"),
        (WantedPairs("bible", test_source="a.en"), "--test-source needs --test-target"),
        (WantedPairs("own", direction="en-de"), "'own' has no direction"),
        (WantedPairs("bible", "kjv-asv"), "two of kjv, web, such as kjv-web; got 'kjv-asv'"),
        (WantedPairs("multi30k", "de-de"), "two of en, de, fr, cs, such as en-de; got 'de-de'"),
        (WantedPairs("bibel"), "bible"),
    ],
)
def test_wrong_settings_are_explained(wanted: WantedPairs, message: str):
    with pytest.raises(DataError, match=message):
        load_parallel(wanted)


# -------------------------------------------------------------------------------------------- sets


def test_verses_of_two_bibles_are_paired():
    """31,099 of 31,102: at the end of Romans the two count three verses differently."""
    found = load_parallel(WantedPairs())
    assert [len(part) for part in found] == [28042, 1484, 1573]
    verse = Pair(
        "And God said, Let there be light: and there was light.",
        'God said, "Let there be light," and there was light.',
    )
    assert verse in found.train
    assert all(pair.source and pair.target for part in found for pair in part)
    assert Pair(*verse[::-1]) in load_parallel(WantedPairs(direction="web-kjv")).train


@pytest.mark.skipif("LINNET_DATA" not in os.environ, reason="the files are in LINNET_DATA")
def test_multi30k_has_its_published_sizes():
    found = load_parallel(WantedPairs("multi30k", "de-en"))
    assert [len(part) for part in found] == [29000, 1014, 1000]
    assert found.train[0].target == "Two young, White males are outside near many bushes."


@pytest.mark.skipif("LINNET_DATA" not in os.environ, reason="the files are in LINNET_DATA")
def test_newstest_has_its_published_sizes():
    found = load_parallel(WantedPairs("newstest"))
    assert [len(part) for part in found] == [2700, 300, 3003]
    assert found.test[0] == Pair(
        "Gutach: Increased safety for pedestrians", "Gutach: Noch mehr Sicherheit für Fußgänger"
    )


def test_newstest_validates_and_tests_a_model_of_ones_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    unchecked = {
        year: {language: File(f"newstest{year}.{language}") for language in ("en", "de")}
        for year in (2013, 2014)
    }
    monkeypatch.setattr("linnet.data.parallel.NEWSTEST", unchecked)
    for year in unchecked:
        write(tmp_path, f"one {year}\n" * 10, f"eins {year}\n" * 10, f"newstest{year}")
    source, target = numbered(tmp_path, 5)
    wanted = {"set": "newstest", "data_dir": str(tmp_path)}
    own = load_parallel(WantedPairs(**wanted, source=source, target=target))
    assert [len(part) for part in own] == [5, 10, 10]
    assert (own.valid[0].source, own.test[0].source) == ("one 2013", "one 2014")
    without = load_parallel(WantedPairs(**wanted, direction="de-en"))
    assert [len(part) for part in without] == [9, 1, 10]
    assert (without.valid[0].source, without.test[0].source) == ("eins 2013", "eins 2014")
