"""Images of digits: the authors' orders, the files and what can be wrong with them."""

from __future__ import annotations

import gzip
import logging
import os
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from linnet.data import digits as module
from linnet.data.digits import (
    Digits,
    Part,
    Rows,
    load_digits,
    parse_idx,
    pixel_order,
    read_file,
    read_order,
)
from linnet.data.errors import DataError, MissingDataError

GOLDEN = Path(__file__).parent.parent / "golden" / "nru" / "task_psmnist_perm.npz"


def part(number: int, pixels: int = 6, seed: int = 0) -> Part:
    random = np.random.RandomState(seed)
    return Part(
        random.randint(0, 256, (number, pixels)).astype(np.uint8), (np.arange(number) % 10).astype(np.uint8)
    )


def small(order: Any = range(6)) -> Digits:
    return Digits("made", part(23), part(7, seed=1), part(5, seed=2), 255, np.asarray(order))


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


# ------------------------------------------------------------------------------------------ order


def test_the_orders_are_the_authors():
    theirs = np.load(GOLDEN)
    images, pixels = pixel_order(784, 50, 60_000)
    np.testing.assert_array_equal(pixels, theirs["seq_perm_nru_repo"])
    np.testing.assert_array_equal(images[:100], theirs["train_perm_first100"])
    np.testing.assert_array_equal(images[-100:], theirs["train_perm_last100"])
    np.testing.assert_array_equal(pixel_order(784, 50)[1], theirs["seq_perm_mytorch"])


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (range(5), "the permutation has 5 entries, but the images have 6 pixels"),
        ([0, 1, 2, 3, 4, 4], r"each of 0 \.\.\. 5 once"),
        ([1, 2, 3, 4, 5, 6], r"each of 0 \.\.\. 5 once"),
    ],
)
def test_a_wrong_permutation_is_answered(order: Any, told: str):
    with pytest.raises(DataError, match=told):
        small(order)


def test_an_order_can_be_read_from_a_file(tmp_path: Path):
    np.save(tmp_path / "order.npy", np.array([2, 0, 1]))
    (tmp_path / "order.txt").write_text("2 0\n1 3\n")
    (tmp_path / "words.txt").write_text("two zero one\n")
    assert read_order(tmp_path / "order.npy").tolist() == [2, 0, 1]
    assert read_order(tmp_path / "order.txt").tolist() == [2, 0, 1, 3]
    with pytest.raises(DataError, match=r"words\.txt is not a permutation"):
        read_order(tmp_path / "words.txt")
    with pytest.raises(ValueError, match="/dev/zero is not a file"):
        read_order("/dev/zero")
    with pytest.raises(MissingDataError, match=r"no permutation file .*nothing\.npy"):
        read_order(tmp_path / "nothing.npy")


# --------------------------------------------------------------------------------------- sequences


def test_a_sequence_is_the_pixels_in_order_and_then_nothing():
    made = small([5, 4, 3, 2, 1, 0])
    (batch, *_) = made.evaluation("valid", 3)
    assert batch.inputs.shape == (7, 3, 1)
    expected = torch.tensor(made.valid.pixels[:3, ::-1].copy()).T / 255
    torch.testing.assert_close(batch.inputs[:6, :, 0], expected.float())
    assert (batch.inputs[6] == 0).all()
    assert batch.targets.tolist() == [[0, 1, 2]]
    assert made.length == 7


def test_row_by_row_a_step_is_a_row_and_the_last_one_is_answered():
    images = part(4, pixels=9)
    made = Rows("made", images, images, images, 255, np.arange(9))
    (batch,) = made.evaluation("valid", 4)
    assert (made.length, made.input_size) == (3, 3)
    assert batch.inputs.shape == (3, 4, 3)
    for row, image in np.ndindex(3, 4):
        expected = torch.from_numpy(images.pixels[image, 3 * row : 3 * row + 3]) / 255
        torch.testing.assert_close(batch.inputs[row, image], expected)
    assert batch.targets.tolist() == [[0, 1, 2, 3]]


def test_an_epoch_shows_each_image_at_most_once_and_can_go_on():
    made = small()

    def shown(**given: Any) -> torch.Tensor:
        return torch.cat([batch.inputs for batch in made.training(5, seed=1, **given)], 1)

    whole = shown(epoch=1)
    assert whole.shape[1] == 20
    assert len(whole.unique(dim=1)[0]) == 20
    assert torch.equal(shown(epoch=1, first=2), whole[:, 10:])
    assert not torch.equal(shown(epoch=2), whole)
    assert made.batches_per_epoch(5) == 4
    with pytest.raises(DataError, match="a batch of 24 is larger than the training set of 23 images"):
        made.batches_per_epoch(24)


def test_an_evaluation_shows_each_image_or_the_first_ones():
    made = small()
    assert [batch.targets.shape[1] for batch in made.evaluation("valid", 3)] == [3, 3, 1]
    assert [batch.targets.shape[1] for batch in made.evaluation("valid", 3, examples=4)] == [3, 1]


def test_the_baseline_is_the_entropy_of_the_labels():
    even = Digits("made", part(20), part(1), part(1), 255, np.arange(6))
    assert even.baseline == pytest.approx(np.log(10))
    assert small().baseline < np.log(10)


# ------------------------------------------------------------------------------------------- files


def test_idx_files_are_read_and_what_is_wrong_is_said():
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    good = idx(array)
    np.testing.assert_array_equal(parse_idx("a", good, 3), array)
    with pytest.raises(DataError, match="a is incomplete: for 2 x 3 x 4 it should have 40 bytes and has 39"):
        parse_idx("a", good[:-1], 3)
    with pytest.raises(DataError, match="should have 40 bytes and has 41"):
        parse_idx("a", good + b"0", 3)
    with pytest.raises(DataError, match="should begin with 00 00 08 01 and begins with 00 00 08 03"):
        parse_idx("a", good, 1)
    with pytest.raises(DataError, match="its header has 16 bytes and the file has 10"):
        parse_idx("a", good[:10], 3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory in which nothing is yet, and no other and no network beside it."""
    monkeypatch.delenv("LINNET_DATA", raising=False)
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "cache"))

    def refuse(*_: Any) -> None:
        raise MissingDataError("no network here")

    monkeypatch.setattr("linnet.data.files.download", refuse)
    (tmp_path / "mnist").mkdir()
    return tmp_path


LABELS = "t10k-labels-idx1-ubyte"


def test_a_file_that_is_cut_off_is_named_with_what_was_expected(folder: Path):
    path = folder / "mnist" / f"{LABELS}.gz"
    contents = idx(np.zeros(10_000, np.uint8))
    path.write_bytes(gzip.compress(contents[:-5]))
    with pytest.raises(DataError, match=rf"{LABELS}.gz is incomplete: .* have 10,008 bytes and has 10,003"):
        read_file(LABELS, folder, 1)
    path.write_bytes(gzip.compress(contents)[:-9])
    with pytest.raises(DataError, match=rf"{LABELS}.gz cannot be unpacked as .gz"):
        read_file(LABELS, folder, 1)


def test_a_file_with_other_contents_is_refused_by_its_checksum(folder: Path):
    (folder / "mnist" / LABELS).write_bytes(idx(np.zeros(10_000, np.uint8)))
    with pytest.raises(DataError, match=r"not the published file: .* Download it again$"):
        read_file(LABELS, folder, 1)


def few(return_X_y: bool) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(0)
    return random.randint(0, 17, (1000, 64)).astype(float), np.arange(1000) % 10


@pytest.fixture
def scikit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much of scikit-learn as is asked for."""
    package, datasets = ModuleType("sklearn"), ModuleType("sklearn.datasets")
    datasets.load_digits = few  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sklearn", package)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", datasets)


@pytest.mark.usefixtures("scikit")
def test_the_small_digits_stand_in_and_say_so(folder: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, "linnet"):
        made = load_digits("auto", permuted=True, data_dir=folder)
    assert "instead of MNIST" in caplog.text
    assert (made.source, made.length, made.brightest) == ("digits", 65, 16)
    assert (len(made.train), len(made.valid), len(made.test)) == (400, 300, 300)
    rows = np.concatenate([made.train.pixels, made.valid.pixels, made.test.pixels])
    assert len(np.unique(rows, axis=0)) == 1000
    assert made.order.tolist() != list(range(64))
    assert load_digits("digits").order.tolist() == list(range(64))


def test_the_small_digits_themselves():
    """Those of scikit-learn, where it is installed: 8 by 8 pixels of 0 to 16, ten kinds of them."""
    pytest.importorskip("sklearn")
    made = load_digits("digits", permuted=True)
    assert (len(made.train), len(made.valid), len(made.test)) == (1197, 300, 300)
    assert (made.train.pixels.min(), made.train.pixels.max()) == (0, 16)
    assert set(made.test.labels.tolist()) == set(range(10))
    batch = next(made.training(20, 1))
    assert batch.inputs.shape == (65, 20, 1)
    assert (float(batch.inputs.max()), float(batch.inputs[-1].max())) == (1.0, 0.0)
    assert 2.3 < made.baseline <= np.log(10)
    rows = load_digits("digits", rows=True)
    assert next(rows.training(20, 1)).inputs.shape == (8, 20, 8)
    np.testing.assert_array_equal(rows.test.pixels, made.test.pixels)


def test_whoever_wants_mnist_gets_nothing_else(folder: Path):
    with pytest.raises(MissingDataError, match="no network here"):
        load_digits("mnist", data_dir=folder)
    with pytest.raises(DataError, match="did you mean 'mnist'"):
        load_digits("mnits")


def test_without_the_package_its_name_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingDataError, match=r"no network here Instead of MNIST, .*\[digits\]"):
        load_digits("auto", data_dir=folder)
    with pytest.raises(ImportError, match=r"\[digits\]"):
        load_digits("digits")


@pytest.mark.skipif("LINNET_DATA" not in os.environ, reason="needs LINNET_DATA, a folder with mnist/")
def test_mnist_itself():
    made = load_digits("mnist", permuted=True)
    assert (len(made.train), len(made.valid), len(made.test), made.length) == (50_000, 10_000, 10_000, 785)
    assert len(made.valid) == module.MNIST_HELD_OUT
    (batch, *_) = made.training(100, 1)
    assert batch.inputs.shape == (785, 100, 1)
    assert 2.29 < made.baseline < np.log(10)
    (batch, *_) = load_digits("mnist", rows=True).training(100, 1)
    assert batch.inputs.shape == (28, 100, 28)
