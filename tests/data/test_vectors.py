"""Word vectors from files: every format, and the errors of damaged ones. Characters of words."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import data_folder

from linnet.data.characters import Characters, Spellings, count_characters
from linnet.data.errors import DataError, MissingDataError
from linnet.data.vectors import VECTORS, read_vectors

LINES = "the 1 2.5 -3\nbird 0 0 1e-1\n. . . 7 8 9\nthe 4 4 4\n"


def written(folder: Path, text: str | bytes, name: str = "vectors.txt") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
@pytest.mark.parametrize("header", ["", "4 3\n"])
def test_text_vectors(tmp_path: Path, ending: str, header: str):
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[ending]
    path = written(tmp_path, pack((header + LINES).encode()), f"vectors.txt{ending}")
    found = read_vectors(path)
    assert found.words == ("the", "bird", ". . .")
    expected = torch.tensor([[1, 2.5, -3], [0, 0, 0.1], [7, 8, 9]])
    assert torch.equal(found.matrix, expected)


def test_only_wanted_words_are_kept(tmp_path: Path):
    found = read_vectors(written(tmp_path, LINES), words=["bird", "linnet"])
    assert found.words == ("bird",)
    assert found.matrix.shape == (1, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1\n", r"line 2 has 1 numbers; expected a word and 2 numbers"),
        ("a 1 2\nb 1 2 3\n", r"line 2 has 3 numbers; expected a word and 2 numbers"),
        ("2 3\na 1 2 3\nb 1 2\n", r"line 3 has 2 numbers; expected a word and 3 numbers"),
        ("a 1 2\nb 1 x\n", r"line 2 has 'x'; expected a number"),
        ("a 1 2\nb 1 nan\n", r"line 2 has a number that is not finite"),
        ("a 1 2\nb 1 1e39\n", r"line 2 has a number that is not finite"),
        (b"a 1 2\n\xff 1 2\n", r"line 2 is not UTF-8: its byte 0 is 0xff"),
        ("3 2\na 1 2\n", r"has 1 vectors, but its first line says 3"),
        ("a,1,2\n", r"line 1 has 0 numbers; expected a word and its numbers, separated by spaces"),
        ("", r"has no vectors"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(tmp_path: Path, text: str | bytes, message: str):
    path = written(tmp_path, text)
    with pytest.raises(DataError, match=message) as error:
        read_vectors(path)
    assert str(path) in str(error.value)


def test_none_of_the_words(tmp_path: Path):
    with pytest.raises(DataError, match="none of the 1 wanted words"):
        read_vectors(written(tmp_path, LINES), words=["linnet"])


def test_a_truncated_archive(tmp_path: Path):
    path = written(tmp_path, gzip.compress(LINES.encode() * 100)[:-20], "vectors.txt.gz")
    with pytest.raises(DataError, match="cannot be unpacked"):
        read_vectors(path)


def test_names_of_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LINNET_DATA", raising=False)
    with pytest.raises(DataError, match="did you mean 'glove50'"):
        read_vectors("glove5")
    with pytest.raises(MissingDataError, match="there is no file"):
        read_vectors(tmp_path / "vectors.txt")
    with pytest.raises(MissingDataError, match=r"glove\.6B\.50d\.subset\.npy"):
        read_vectors("glove50", data_dir=tmp_path)


def test_an_array_with_its_words(tmp_path: Path):
    folder = tmp_path / "glove50"
    folder.mkdir()
    np.save(folder / VECTORS["glove50"].file.name, np.arange(6, dtype=np.float32).reshape(3, 2))
    (folder / "vocab.txt").write_text("the\nof\nbird\n")
    found = read_vectors("glove50", words={"bird", "the"}, data_dir=tmp_path)
    assert found.words == ("the", "bird")
    assert torch.equal(found.matrix, torch.tensor([[0.0, 1], [4, 5]]))
    (folder / "vocab.txt").write_text("the\nof\n")
    with pytest.raises(DataError, match=r"expected float \[2, D\], a row for each word"):
        read_vectors("glove50", data_dir=tmp_path)
    (folder / "vocab.txt").unlink()
    with pytest.raises(MissingDataError, match=r"needs vocab\.txt"):
        read_vectors("glove50", data_dir=tmp_path)


def test_the_published_vectors():
    source = VECTORS["glove50"]
    place = data_folder("glove50", [[source.file]], source.folders)
    found = read_vectors("glove50", words=["the"], data_dir=place)
    np.testing.assert_allclose(found.matrix[0, :3], [0.418, 0.24968, -0.41242], rtol=1e-6)


# -------------------------------------------------------------------------------------- characters


def test_characters_of_words():
    characters = count_characters(["tit", "it", "i"], least=2, width=4)
    assert characters == Characters("it", 4)
    assert len(characters) == 4
    assert characters.encode(["tit", "xi", "", "ttttt"]).tolist() == [
        [3, 2, 3, 0],
        [1, 2, 0, 0],
        [0, 0, 0, 0],
        [3, 3, 3, 3],
    ]


def test_spellings_are_the_characters_of_each_word():
    characters = Characters("it", 4)
    spellings = Spellings(characters)
    numbers = spellings.numbers(["tit", "it", "tit", ""])
    assert numbers.tolist() == [1, 2, 1, 0]
    found = spellings.look_up(numbers)
    assert torch.equal(found, characters.encode(["tit", "it", "tit", ""])[:, :3])
    # Words that come later, and padding alone.
    assert spellings.look_up(spellings.numbers(["titi", "it"])).tolist() == [[3, 2, 3, 2], [2, 3, 0, 0]]
    assert spellings.look_up(torch.zeros(2, 3, dtype=torch.int64)).shape == (2, 3, 1)


def test_characters_are_kept_as_json():
    characters = Characters("äb\n", 7)
    assert Characters.from_json(characters.to_json()) == characters
    for text in ("[]", "{", '{"known": "a"}', '{"known": 1, "width": 2}', '{"known": "a", "width": 0}'):
        with pytest.raises(DataError):
            Characters.from_json(text)
