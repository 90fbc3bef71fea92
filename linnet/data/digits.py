"""Images of digits, by pixels or by rows: MNIST from its own files, or the small digits of scikit-learn.

A sequence contains the pixels of an image in a fixed order and then an empty step, at which the digit is
predicted: 785 steps for MNIST. The order is row by row, or a permutation that depends on a seed (Le et al.
2015).

Like the NRU authors, we draw twice from one random generator, seed 50: first the order of the 60,000 images,
of which the last 10,000 are for validation, then the order of the pixels.

Row by row, each time step is a row of the image, and the digit is predicted at the last one: 28 steps of 28
features for MNIST (Kusupati et al. 2018 read the images of USPS in this way, 16 steps of 16).
"""

from __future__ import annotations

import hashlib
import logging
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from linnet.base.project import advice
from linnet.data.batches import epoch_generator
from linnet.data.errors import DataError, MissingDataError, unknown
from linnet.data.files import File, read_any
from linnet.data.memory import SequenceBatch

log = logging.getLogger("linnet")

CLASSES = 10
SOURCES = ("mnist", "digits", "auto")
HOME = "https://ossci-datasets.s3.amazonaws.com/mnist"
MNIST = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
MNIST_HELD_OUT = 10_000
DIGITS_HELD_OUT = 300


@dataclass(frozen=True, eq=False)
class Part:
    pixels: np.ndarray  # uint8 [N, pixels]
    labels: np.ndarray  # uint8 [N]

    def __len__(self) -> int:
        return len(self.labels)

    def chosen(self, which: np.ndarray) -> Part:
        return Part(self.pixels[which], self.labels[which])


@dataclass(frozen=True, eq=False)
class Digits:
    """Images in three parts, and the order in which their pixels are read."""

    source: str
    train: Part
    valid: Part
    test: Part
    brightest: int  # the value of a white pixel
    order: np.ndarray  # int64 [pixels]

    one_hot = False
    last = True
    real = False
    output_size = CLASSES

    def __post_init__(self) -> None:
        check_order(self.order, self.train.pixels.shape[1])

    @property
    def input_size(self) -> int:
        return 1

    @property
    def length(self) -> int:
        return len(self.order) + 1

    @property
    def baseline(self) -> float:
        """The memoryless baseline: the entropy of the labels."""
        frequencies = np.bincount(self.train.labels, minlength=CLASSES) / len(self.train)
        seen = frequencies[frequencies > 0]
        return float(-(seen * np.log(seen)).sum())

    def guessed(self, targets: Tensor) -> float:
        return targets.numel() * self.baseline

    def describe(self) -> dict[str, Any]:
        """Return the images and the order of their pixels: a model works for one order only."""
        order = hashlib.sha256(self.order.astype("<i8").tobytes()).hexdigest()[:12]
        return {"images": self.source, "pixels": len(self.order), "order": order}

    def batch(self, part: Part, which: np.ndarray, index: int) -> SequenceBatch:
        labels = torch.from_numpy(part.labels[which].astype(np.int64))
        return SequenceBatch(self.steps(part.pixels[which]), labels[None], index)

    def steps(self, pixels: np.ndarray) -> Tensor:
        """Return the images [N, pixels] as sequences [T, N, 1]: the ordered pixels, then an empty step."""
        ordered = torch.from_numpy(pixels[:, self.order]).T.float() / self.brightest
        return torch.cat([ordered, ordered.new_zeros(1, len(pixels))])[..., None]

    def batches_per_epoch(self, batch: int) -> int:
        """Return the number of full batches; an epoch leaves out the remainder, each epoch another one."""
        if batch > len(self.train):
            raise DataError(
                f"a batch of {batch} is larger than the training set of {len(self.train):,} images"
            )
        return len(self.train) // batch

    def training(self, batch: int, seed: int, epoch: int = 1, first: int = 0) -> Iterator[SequenceBatch]:
        """Yield every image once, in an order that depends on the seed and the epoch only."""
        drawn = torch.randperm(len(self.train), generator=epoch_generator(seed, epoch)).numpy()
        for index in range(first, self.batches_per_epoch(batch)):
            yield self.batch(self.train, drawn[index * batch : (index + 1) * batch], index)

    def evaluation(self, split: str, batch: int, seed: int = 0, examples: int = 0) -> Iterator[SequenceBatch]:
        """Yield the images of a part in file order, or the first `examples` of them, for any seed."""
        part = getattr(self, split)
        places = np.arange(min(examples, len(part)) if examples else len(part))
        for index, start in enumerate(range(0, len(places), batch)):
            yield self.batch(part, places[start : start + batch], index)


class Rows(Digits):
    """Square images, read row by row."""

    @property
    def input_size(self) -> int:
        return self.length

    @property
    def length(self) -> int:
        return math.isqrt(len(self.order))

    def steps(self, pixels: np.ndarray) -> Tensor:
        """Return the images [N, pixels] as sequences [rows, N, columns]."""
        rows = torch.from_numpy(pixels).reshape(len(pixels), self.length, self.input_size)
        return rows.transpose(0, 1).float() / self.brightest


# ------------------------------------------------------------------------------------------- order


def pixel_order(pixels: int, seed: int, images: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the order of the images and that of the pixels, both from one seed.

    images=0 draws only the order of the pixels, as a later program of the NRU authors does.
    """
    random = np.random.RandomState(seed)
    return random.permutation(images), random.permutation(pixels)


def read_order(path: str | Path) -> np.ndarray:
    """Read the user's own order: a .npy file, or integers in a text file."""
    if Path(path).exists() and not Path(path).is_file():
        raise DataError(f"the permutation {path} is not a file")
    try:
        numbers = np.load(path) if str(path).endswith(".npy") else np.loadtxt(path, dtype=np.int64)
    except FileNotFoundError:
        raise MissingDataError(f"there is no permutation file {path}") from None
    except (ValueError, EOFError) as error:
        raise DataError(f"{path} is not a permutation: {error}; expected integers, as .npy or text") from None
    return numbers.reshape(-1)


def check_order(order: np.ndarray, pixels: int) -> None:
    if len(order) != pixels:
        raise DataError(f"the permutation has {len(order)} entries, but the images have {pixels} pixels")
    if not np.array_equal(np.sort(order), np.arange(pixels)):
        raise DataError(f"a permutation must have each of 0 ... {pixels - 1} once")


# ----------------------------------------------------------------------------------------- loading


def load_digits(
    source: str = "auto",
    *,
    permuted: bool = False,
    rows: bool = False,
    seed: int = 50,
    order: Sequence[int] | np.ndarray | None = None,
    data_dir: str | Path | None = None,
) -> Digits:
    """Load the images in three parts, with their pixels row by row, permuted by `seed`, or in `order`.

    source    "mnist", the small "digits" of scikit-learn, or "auto": the small ones if MNIST is neither
              found nor can be downloaded
    rows      a time step is a row of an image instead of a pixel
    """
    if source not in SOURCES:
        raise unknown("images", source, SOURCES)
    whole, test, name, brightest, held_out = read_images(source, data_dir)
    images, pixels = pixel_order(whole.pixels.shape[1], seed, len(whole))
    chosen = np.asarray(order) if order is not None else pixels if permuted else np.arange(len(pixels))
    valid = whole.chosen(images[-held_out:])
    train = whole.chosen(images[:-held_out])
    if test is None:
        test, train = train.chosen(np.arange(held_out)), train.chosen(np.arange(held_out, len(train)))
    return (Rows if rows else Digits)(name, train, valid, test, brightest, chosen)


def read_images(source: str, data_dir: str | Path | None) -> tuple[Part, Part | None, str, int, int]:
    """Return the images, separate test images, the name, the value of white, and the number to hold out."""
    if source == "digits":
        return read_small(), None, "digits", 16, DIGITS_HELD_OUT
    try:
        train, test = (read_mnist(part, data_dir) for part in ("train", "t10k"))
    except MissingDataError as error:
        if source == "mnist":
            raise
        small = read_instead(error)
        log.warning("using the small digits of scikit-learn instead of MNIST: %s", error)
        return small, None, "digits", 16, DIGITS_HELD_OUT
    return train, test, "mnist", 255, MNIST_HELD_OUT


def read_instead(missing: MissingDataError) -> Part:
    try:
        return read_small()
    except ImportError as error:
        raise MissingDataError(f"{missing} Instead of MNIST, {error}") from error


def read_small() -> Part:
    """Return 1797 images of 8 by 8 pixels."""
    try:
        from sklearn.datasets import load_digits as small
    except ImportError as error:
        raise ImportError(f"the small digits are in a package: {advice('digits')}") from error
    pixels, labels = small(return_X_y=True)
    return Part(pixels.astype(np.uint8), labels.astype(np.uint8))


def read_mnist(part: str, data_dir: str | Path | None = None) -> Part:
    images = read_file(f"{part}-images-idx3-ubyte", data_dir, 3)
    labels = read_file(f"{part}-labels-idx1-ubyte", data_dir, 1)
    return Part(images.reshape(len(images), -1), labels)


def read_file(name: str, data_dir: str | Path | None, dimensions: int) -> np.ndarray:
    file = File(name, f"sha256:{MNIST[name]}", f"{HOME}/{name}.gz", instead="")
    # Errors about the format say more than a wrong checksum, so they come first.
    found = read_any(
        [file],
        ["mnist", "MNIST/raw"],
        data_dir,
        examine=lambda where, data: parse_idx(where, data, dimensions),
    )
    return parse_idx(str(found.path), found.contents, dimensions)


def parse_idx(where: str, contents: bytes, dimensions: int) -> np.ndarray:
    """Parse an idx file: 0, 0, the type (8 is a byte), the number of dimensions, each size, the data."""
    head = 4 + 4 * dimensions
    if len(contents) < head:
        raise DataError(f"{where} is truncated: its header has {head} bytes and the file has {len(contents)}")
    expected = bytes((0, 0, 8, dimensions))
    if contents[:4] != expected:
        raise DataError(
            f"{where} is not an idx file of bytes in {dimensions} dimensions: it should begin with "
            f"{expected.hex(' ')} and begins with {contents[:4].hex(' ')}. Download it again"
        )
    sizes = struct.unpack(f">{dimensions}I", contents[4:head])
    size = head + int(np.prod(sizes, dtype=object))
    if len(contents) != size:
        raise DataError(
            f"{where} is incomplete: for {' x '.join(map(str, sizes))} it should have {size:,} bytes and "
            f"has {len(contents):,}. Download it again"
        )
    return np.frombuffer(contents, np.uint8, offset=head).reshape(sizes)
