"""EasyOCR: its reader of a line of text, convolutions and two bidirectional LSTMs, with random weights."""

from __future__ import annotations

import sys
from collections.abc import Callable
from unittest import mock

import torch
from torch import Tensor

from tools.compat.models.shared import Convert

# Its package imports what finds and shows texts in pictures.
FOR_PICTURES = (
    *(
        "cv2",
        "torchvision",
        "torchvision.transforms",
        "torchvision.models",
        "PIL",
        "PIL.Image",
        "skimage",
        "bidi",
    ),
    *("bidi.algorithm", "shapely", "shapely.geometry", "pyclipper", "scipy", "scipy.ndimage", "yaml"),
    *("easyocr.easyocr",),
)
with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in FOR_PICTURES}):
    from easyocr.model.vgg_model import Model


def work(convert: Convert) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    model = Model(input_channel=1, output_channel=256, hidden_size=256, num_class=97).eval()
    convert(model)
    picture = torch.rand(1, 1, 64, 600, generator=torch.Generator().manual_seed(0))
    return lambda: model(picture, text="")
