"""Labelled texts: tables and folders of one's own, sets by name, folds and words."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from pathlib import Path

import pytest
from helpers import data_folder

from linnet.data.errors import DataError, MissingDataError
from linnet.data.labelled import (
    SETS,
    WORD_SPLITS,
    Wanted,
    authors_folds,
    authors_validation,
    hold_out,
    load_from,
    load_labelled,
)
from linnet.data.pairs import PAIR_SETS
from linnet.data.tables import Labelled, read_labelled

GOLDEN = Path(__file__).parent.parent / "golden" / "tasks_sru"


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def pairs(rows: list[Labelled]) -> list[tuple[str, str]]:
    return [(row.text, row.label) for row in rows]


# ------------------------------------------------------------------------------------------ tables


def test_long_fields_are_read(tmp_path: Path):
    """The csv module has a limit of 131,072 characters, which is not changed for others."""
    before, text = csv.field_size_limit(), "bird " * 40_000
    for name, between in (("a.csv", ","), ("a.tsv", "\t")):
        path = written(tmp_path, name, f"text{between}label\n{text}{between}long\n")
        assert pairs(read_labelled(path)) == [(text, "long")]
    assert csv.field_size_limit() == before


def test_columns_of_one_name_that_are_not_read_do_not_matter(tmp_path: Path):
    path = written(tmp_path, "a.csv", "id,text,id,label\n1,x,2,y\n")
    assert pairs(read_labelled(path)) == [("x", "y")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", 'stars,review\n5,"good, very\ngood"\n1,bad\n'),
        ("a.jsonl", '{"review": "good, very\\ngood", "stars": 5}\n\n{"stars": "1", "review": "bad"}\n'),
        ("a.csv", '\ufeffstars,review\r\n5,"good, very\r\ngood"\r\n1,bad\r\n'),
    ],
)
def test_tables_with_named_columns(tmp_path: Path, name: str, text: str):
    path = written(tmp_path, name, text)
    packed = written(tmp_path, f"{name}.gz", gzip.compress(text.encode()))
    for each in (path, packed):
        assert pairs(read_labelled(each, "review", "stars")) == [("good, very\ngood", "5"), ("bad", "1")]


def test_quotation_marks_of_tsv_are_text(tmp_path: Path):
    path = written(tmp_path, "a.tsv", 'text\tlabel\n"so to say\tx\na "b"\ty\n')
    assert pairs(read_labelled(path)) == [('"so to say', "x"), ('a "b"', "y")]


def test_a_folder_with_one_folder_per_class(tmp_path: Path):
    written(tmp_path, "good/1.txt", "one\n")
    written(tmp_path, "good/more/2.txt.gz", gzip.compress(b"two"))
    written(tmp_path, "bad/1.txt", "")
    written(tmp_path, "README.md", "no text")
    assert pairs(read_labelled(tmp_path)) == [("", "bad"), ("one", "good"), ("two", "good")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.csv",
            "review,label\nx,y\n",
            r"line 1 \(the header\) has no column 'text'; it has 'review', 'label'\. Name .* --text",
        ),
        (
            "a.csv",
            "text,stars\nx,y\n",
            r"line 1 \(the header\) has no column 'label'.*Name the column of the label with",
        ),
        ("a.csv", "", r"line 1 \(the header\) has no column 'text'; it has none"),
        ("a.csv", "text,label,text\nx,y,z\n", r"has the column 'text' 2 times \(columns 1, 3\).*with --text"),
        ("a.tsv", "label\ttext\tlabel\nx\ty\tz\n", r"has the column 'label' 2 times \(columns 1, 3\)"),
        (
            "a.jsonl",
            '{"text": "x", "label": "y", "text": "z"}\n',
            r"line 1 is not JSON: an object has the name 'text' twice",
        ),
        ("a.csv", "text,label\n", r"a\.csv has no rows; expected a text and a label"),
        ("a.csv", "text,label\nx,y\nx\n", r"line 3 has 1 columns; expected 2"),
        ("a.csv", "text,label\nx,y,z\n", r"line 2 has 3 columns; expected 2"),
        ("a.csv", "text,label\nx, \n", r"line 2 has an empty 'label'; expected a class"),
        ("a.csv", 'text,label\n"x"y,z\n', r"line 2 is not a row of a table"),
        ("a.csv", b"text,label\nx,y\n\xe9,y\n", r"is not UTF-8: byte 15 is 0xe9, in line 3"),
        ("a.jsonl", '{"text": "x", "label": 1}\n{"text":\n', r"line 2 is not JSON"),
        ("a.jsonl", "[1]\n", r"line 1 is a JSON list; expected an object"),
        ("a.jsonl", '{"text": "x"}\n', r"line 1 has no column 'label'"),
        ("a.jsonl", '{"text": 1, "label": 1}\n', r"line 1: 'text' is 1; expected a string"),
        ("a.jsonl", '{"text": "", "label": 1.5}\n', r"line 1: 'label' is 1\.5; expected a string or an int"),
        ("a.txt", "x", r"ends with '\.txt'; expected a table \(\.csv, \.tsv, \.jsonl"),
    ],
)
def test_a_table_that_cannot_be_used(tmp_path: Path, name: str, text: str | bytes, message: str):
    path = written(tmp_path, name, text)
    with pytest.raises(DataError, match=message) as error:
        read_labelled(path)
    assert str(path) in str(error.value)


def test_what_is_no_table(tmp_path: Path):
    with pytest.raises(MissingDataError, match="there is no file or folder"):
        read_labelled(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"has no class; expected files such as .*CLASS"):
        read_labelled(tmp_path)


# ------------------------------------------------------------------------------------------- folds


def digests(parts: tuple[list[int], ...]) -> list[str]:
    return [hashlib.sha256(",".join(map(str, part)).encode()).hexdigest()[:16] for part in parts]


def test_folds_are_those_of_the_authors():
    known = json.loads((GOLDEN / "clf_folds.json").read_text())
    for name, count in (("mr", 10_662), ("subj", 10_000), ("cr", 3_775), ("mpqa", 10_606)):
        for fold, expected in known[name].items():
            found = authors_folds(count, int(fold))
            assert [len(part) for part in found] == expected["sizes"]
            assert digests(found) == expected["sha16"]
    for fold, expected in known["trec_train"].items():
        assert digests(authors_validation(5_452, int(fold))) == expected["sha16"]


def test_sentences_of_sst_are_in_the_order_of_the_authors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    known = json.loads((GOLDEN / "clf_folds.json").read_text())["sst_sentences_train"]
    lines = "".join(f"{number % 2} {number}\n" for number in range(6_920))
    monkeypatch.setattr("linnet.data.files.check", lambda *_: None)
    for file in SETS["sst"].files:
        written(tmp_path, file.name, lines)
    train = [int(row.text) for row in load_labelled("sst", data_dir=str(tmp_path)).train]
    assert train[:6] == known["head"]
    assert digests((train,)) == [known["sha16"]]


def test_seeded_folds_have_every_row_once_and_every_class():
    rows = [Labelled(str(number), "rare" if number % 10 == 0 else "common") for number in range(100)]
    held = [hold_out(rows, 5, fold, seed=1)[1] for fold in range(5)]
    assert sorted(int(row.text) for part in held for row in part) == list(range(100))
    assert all(sum(row.label == "rare" for row in part) == 2 and len(part) == 20 for part in held)
    rest, part = hold_out(rows, 5, 2, seed=1)
    assert part == held[2]
    assert sorted([*rest, *part]) == sorted(rows)
    assert hold_out(rows, 5, 2, seed=2)[1] != part


def test_the_only_text_of_a_class_is_for_training():
    rows = [*(Labelled(str(number), "many") for number in range(9)), Labelled("x", "single")]
    for fold in range(3):
        rest, held = hold_out(rows, 3, fold, seed=1)
        assert "single" in {row.label for row in rest}
        assert len(held) == 3


def test_own_files(tmp_path: Path):
    table = "text,label\n" + "".join(f"{number},{number % 2}\n" for number in range(40))
    path = str(written(tmp_path, "train.csv", table))
    other = str(written(tmp_path, "other.csv", "text,label\nx,1\n"))
    assert [len(part) for part in load_labelled("own", path=path)] == [32, 4, 4]
    assert [len(part) for part in load_labelled("own", path=path, fold_count=4)] == [27, 3, 10]
    assert [len(part) for part in load_labelled("own", path=path, test_path=other)] == [36, 4, 1]
    assert [len(part) for part in load_labelled("own", path=path, valid_path=other)] == [36, 1, 4]
    both = load_labelled("own", path=path, valid_path=other, test_path=other)
    assert [len(part) for part in both] == [40, 1, 1]
    assert load_labelled("own", path=path, fold=3).test != load_labelled("own", path=path).test


def test_questions_about_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LINNET_DATA", raising=False)
    with pytest.raises(DataError, match="no set 'mrr'; did you mean 'mr'"):
        load_labelled("mrr")
    with pytest.raises(DataError, match="fold must be from 0 to 9; got 10"):
        load_labelled("mr", fold=10)
    with pytest.raises(DataError, match=r"give its path \(path=, --path\)"):
        load_labelled("own")
    with pytest.raises(MissingDataError, match=r"rt-polarity\.all .*was not found in .*--data-dir"):
        load_labelled("mr", data_dir=str(tmp_path))
    with pytest.raises(DataError, match="labelled by 'testament' or 'book'; got 'stars'"):
        load_labelled("kjv", label="stars")


def test_verses_by_testament_and_by_book():
    splits = load_labelled("kjv")
    assert [len(part) for part in splits] == [28_045, 1_484, 1_573]
    assert splits.train[0] == Labelled("In the beginning God created the heaven and the earth.", "Old")
    books = load_labelled("kjv", label="book").train
    assert (books[0].label, books[-1].label) == ("Genesis", "Revelation")
    assert len({row.label for row in books}) == 66


# ------------------------------------------------------------------------------------------- words


def test_words_are_cleaned_as_by_the_authors():
    for known in json.loads((GOLDEN / "clf_clean.json").read_text()):
        assert WORD_SPLITS["clean"](known["text"]) == known["tokens"]


def test_ways_to_split_a_text():
    text = "It's well-known (1984)."
    assert WORD_SPLITS["blanks"](text) == ["It's", "well-known", "(1984)."]
    assert WORD_SPLITS["punctuation"](text) == ["It", "'s", "well-known", "(", "1984", ")", "."]
    assert WORD_SPLITS["marks"](text) == ["It", "'", "s", "well", "-", "known", "(", "1984", ")", "."]


# ----------------------------------------------------------------------------------- the real sets


@pytest.mark.parametrize(
    ("name", "sizes", "classes"),
    [
        ("cr", (3_057, 340, 378), 2),
        ("subj", (8_100, 900, 1_000), 2),
        ("mr", (8_635, 960, 1_067), 2),
        ("trec", (4_906, 546, 500), 6),
        ("mpqa", (8_590, 955, 1_061), 2),
        ("sst", (6_920, 872, 1_821), 2),
        ("imdb", (22_500, 2_500, 25_000), 2),
        ("agnews", (9_000, 1_000, 7_600), 4),
        ("snli", (116_130, 9_842, 9_824), 3),
    ],
)
def test_splits_have_the_published_sizes(name: str, sizes: tuple[int, ...], classes: int):
    sets = {**PAIR_SETS, **SETS}
    source = sets[name]
    place = data_folder(name, [[file] for file in source.files], source.folders)
    splits = load_from(sets, name, Wanted(data_dir=place))
    assert tuple(len(part) for part in splits) == sizes
    for part in splits:
        assert {row.label for row in part} == set(source.names.values())
        assert len(set(source.names)) == classes
