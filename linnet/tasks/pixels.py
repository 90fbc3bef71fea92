"""Digits of MNIST, one pixel or one row at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from linnet.base.settings import Checked, option
from linnet.data.digits import SOURCES, Digits, load_digits, read_order
from linnet.data.errors import DataError
from linnet.tasks.base import Comparison
from linnet.tasks.memory import ACCURACY, ADAM, BASELINE, UNITS, Memory, numbers
from linnet.tasks.results import LOSS


@dataclass(frozen=True)
class ImageData(Checked):
    """Images of digits."""

    images: str = option(
        "auto", "mnist, the small digits, or auto: the small ones if MNIST is not found", choices=SOURCES
    )
    data_dir: str | None = option(None, "the folder where the files of MNIST are searched first")
    batch: int = option(100, "images in a batch, over all processes", least=1)
    data_seed: int | None = option(None, "seed of the order of the images in each epoch (--seed)", least=0)
    cut_seed: int = option(50, "seed of the validation set, and of the permutation", least=0)
    eval_batch: int = option(500, "images in a batch of an evaluation", least=1)
    eval_examples: int = option(0, "images of an evaluation (0: all of them)", least=0)


@dataclass(frozen=True)
class PixelData(ImageData):
    """Images of digits, pixel by pixel."""

    permutation: str | None = option(None, "psmnist: a file with the order of the pixels, .npy or text")


class Pixels(Memory):
    """See linnet.data.digits.

    `predict` takes the pixels of an image row by row, numbers from 0 to the value of white (255 for MNIST, 16
    for the small digits), and returns the digit.
    """

    name, about = "memory.smnist", "the digits of MNIST, one pixel at a time"
    Data: ClassVar[type[ImageData]] = PixelData
    defaults = ADAM
    comparison = Comparison(UNITS, budget=165_000)
    judged_by = (ACCURACY, LOSS, BASELINE)

    @classmethod
    def source_of(cls, data: Any) -> Digits:
        if data.permutation is not None:
            raise ValueError(
                "memory.smnist reads the pixels in their own order; --permutation is for memory.psmnist"
            )
        return load_digits(data.images, seed=data.cut_seed, data_dir=data.data_dir)

    @classmethod
    def title(cls, data: ImageData) -> str:
        return cls.name if data.images == "auto" else f"{cls.name}, {data.images}"

    def guesses(self, split: str) -> dict[str, float]:
        return {"accuracy": self.most_frequent(split)}

    def encode(self, raw: Any) -> Tensor:
        source: Digits = self.source  # type: ignore[assignment]
        what = f"{len(source.order)} pixels from 0 to {source.brightest}"
        pixels = numbers(raw, float, what)
        if len(pixels) != len(source.order) or not all(0 <= each <= source.brightest for each in pixels):
            raise DataError(f"{self.name} takes {what}; got {len(pixels)} numbers")
        return source.steps(np.array(pixels, dtype=np.float32)[None])

    def answer(self, outputs: Tensor) -> int:
        return int(outputs[-1].argmax())


class PermutedPixels(Pixels):
    """The same with the pixels in a fixed random order."""

    name, about = "memory.psmnist", "the digits of MNIST, one pixel at a time in a fixed random order"

    @classmethod
    def source_of(cls, data: Any) -> Digits:
        order = None if data.permutation is None else read_order(data.permutation)
        return load_digits(
            data.images, permuted=True, seed=data.cut_seed, order=order, data_dir=data.data_dir
        )


class Rows(Pixels):
    """The same, one row at a time."""

    name, about = "memory.rows", "the digits of MNIST, one row of the image at a time"
    Data = ImageData
    defaults = {**ADAM, "unit": "fastgrnn", "hidden_size": 32, "lr": 0.01}
    comparison = Comparison(("fastgrnn", "fastrnn", "lem", "lstm", "gru", "sru", "lrn"), budget=2_500)
    remedies = "a longer training (--epochs, --minutes), or a larger network (--hidden-size)"

    @classmethod
    def source_of(cls, data: Any) -> Digits:
        return load_digits(data.images, rows=True, seed=data.cut_seed, data_dir=data.data_dir)
