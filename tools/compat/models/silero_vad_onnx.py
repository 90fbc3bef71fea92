"""silero-vad: the ONNX file of the voice detector that takes a block of frames, over 16 seconds of audio."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import linnet
from tools.compat.models import silero_vad
from tools.compat.models.shared import READ, Convert

CONVERSIONS = READ
own = silero_vad.own


def work(convert: Convert) -> Callable[[], Tensor]:
    model = convert(linnet.read_model(silero_vad.data(silero_vad.FILE)).eval())
    samples, zeros = silero_vad.audio(), torch.zeros(1, 1, 128)
    return lambda: model(silero_vad.frames(samples), zeros, zeros)[0]
