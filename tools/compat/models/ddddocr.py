"""ddddocr: its reader of a line of text, convolutions and a bidirectional LSTM in an ONNX file.

The package has two such files: one of float32, which it takes with `beta=True` and which is compared here,
and the same network in int8. Pillow draws the line in its own font. ONNX Runtime gets one thread, as Linnet.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

import linnet
from tools.compat.models.shared import READ, Convert

CONVERSIONS = READ
TEXT, HEIGHT, WIDTH = "linnet 2019", 64, 320


def file() -> Path:
    """The file of float32; importing the package would need OpenCV, which prepares pictures."""
    (folder,) = find_spec("ddddocr").submodule_search_locations  # type: ignore[union-attr, misc]
    return Path(folder) / "common.onnx"


def picture() -> Any:
    """A line of text, as the package gives it to its network."""
    drawn = Image.new("L", (WIDTH, HEIGHT), 255)
    ImageDraw.Draw(drawn).text((8, 4), TEXT, fill=0, font=ImageFont.load_default(size=44))
    return np.asarray(drawn, dtype=np.float32)[None, None] / 255


def own() -> Callable[[], Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # its file declares a wrong shape, of which each call would warn
    session, x = onnxruntime.InferenceSession(file(), options), picture()
    return lambda: with_answer(torch.as_tensor(session.run(None, {"input1": x})[0]))


def work(convert: Convert) -> Callable[[], Any]:
    model = convert(linnet.read_model(file()).eval())
    x = torch.as_tensor(picture())
    return lambda: with_answer(model(x))


def with_answer(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The scores [steps, 1, characters], and the best character of each step as one answer."""
    return scores, scores[:, 0].argmax(1)[None]
