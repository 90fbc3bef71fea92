"""Open-Unmix: its separator of music, three bidirectional layers of LSTM, with random weights; 6 seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from unittest import mock

import torch
from torch import Tensor

from tools.compat.models.shared import Convert

with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in ("torchaudio", "tqdm")}):
    from openunmix.model import OpenUnmix


def work(convert: Convert) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    model = OpenUnmix(nb_bins=2049, max_bin=1487, hidden_size=512).eval()
    convert(model)
    spectrogram = torch.rand(1, 2, 2049, 256, generator=torch.Generator().manual_seed(0))
    return lambda: model(spectrogram)
