"""DeepFilterNet: its denoiser of speech, convolutions and GRUs, with random weights, over 4 seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from unittest import mock

import torch
from torch import Tensor

from tools.compat.models.shared import Convert

with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in ("torchaudio", "df.enhance", "df.io")}):
    from df.config import config
    from df.deepfilternet3 import init_model

FRAMES = 400


def work(convert: Convert) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    config.use_defaults(allow_reload=True)
    model = init_model().eval()
    convert(model)
    generator = torch.Generator().manual_seed(0)
    spectrum = torch.randn(1, 1, FRAMES, 481, 2, generator=generator)
    bands = torch.randn(1, 1, FRAMES, 32, generator=generator)
    lowest = torch.randn(1, 1, FRAMES, 96, 2, generator=generator)
    return lambda: model(spectrum.clone(), bands, lowest)[0]
