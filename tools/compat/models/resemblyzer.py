"""Resemblyzer: the voice encoder with its weights, three layers of LSTM, over 20 partial utterances."""

from __future__ import annotations

import sys
from collections.abc import Callable
from unittest import mock

import torch
from torch import Tensor

from tools.compat.models.shared import Convert

# They read and cut audio; here the spectrograms are given.
with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in ("librosa", "webrtcvad")}):
    from resemblyzer.voice_encoder import VoiceEncoder


def work(convert: Convert) -> Callable[[], Tensor]:
    encoder = VoiceEncoder("cpu", verbose=False).eval()
    convert(encoder)
    spectrograms = torch.rand(20, 160, 40, generator=torch.Generator().manual_seed(0))
    return lambda: encoder(spectrograms)
