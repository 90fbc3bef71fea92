"""silero-vad: the voice detector with its weights, over 16 seconds of audio.

The package's fastest way is its ONNX model of a block of frames (`SileroVADSequence`). Here the network is
rebuilt in torch and runs over all frames of a block at once, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import resources
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from tools.compat.models.shared import Convert

with mock.patch.dict(sys.modules, {"torchaudio": mock.MagicMock()}):
    import silero_vad
    from silero_vad.sequence_vad import SileroVADSequence, frame_blocks

RATE, SECONDS, FRAME, CONTEXT = 16000, 16, 512, 64
FILE = "silero_vad_16k_sequence.onnx"
# The names of its modules in the package's TorchScript, and here.
NAMES = {
    "stft.forward_basis_buffer": "stft_conv.weight",
    "decoder.decoder.2.": "final_conv.",
    **{f"encoder.{number}.reparam_conv.": f"conv{number + 1}." for number in range(4)},
    **{f"decoder.rnn.{name}": f"lstm.{name}_l0" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")},
}


class Detector(nn.Module):
    """frames [frames, CONTEXT + FRAME] -> the probability of speech of each."""

    def __init__(self, weights: dict[str, Tensor]):
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.conv1 = nn.Conv1d(129, 128, 3, padding=1)
        self.conv2 = nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(64, 128, 3, padding=1)
        self.lstm = nn.LSTM(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)
        self.load_state_dict(weights)

    def forward(self, frames: Tensor) -> Tensor:
        x = self.stft_conv(nn.functional.pad(frames, (0, 64), "reflect")[:, None])
        x = (x[:, :129] ** 2 + x[:, 129:] ** 2).sqrt()
        for convolution in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = convolution(x).relu()
        y, _ = self.lstm(x[:, None, :, 0])
        return self.final_conv(y.relu().transpose(1, 2)).sigmoid()[:, 0, 0]


def audio() -> Any:
    """Noise whose loudness changes."""
    noise = torch.randn(RATE * SECONDS, generator=torch.Generator().manual_seed(0))
    return (noise * torch.linspace(0, 30, len(noise)).sin().abs() * 0.1).numpy()


def data(name: str) -> str:
    return str(resources.files(silero_vad) / "data" / name)


def weights() -> dict[str, Tensor]:
    """The weights of the network for 16 kHz."""
    prefix, found = "_model.", silero_vad.load_silero_vad().state_dict()
    ours = {name.removeprefix(prefix): weight for name, weight in found.items() if name.startswith(prefix)}
    for theirs, here in NAMES.items():
        ours = {name.replace(theirs, here): weight for name, weight in ours.items()}
    return ours


def own() -> Callable[[], Any]:
    detector, samples = SileroVADSequence(data(FILE)), audio()
    return lambda: detector.audio_forward(samples, RATE)


def work(convert: Convert) -> Callable[[], Tensor]:
    model = Detector(weights()).eval()
    convert(model)
    samples = audio()
    return lambda: model(frames(samples))


def frames(samples: Any) -> Tensor:
    """The audio as one block, [frames, CONTEXT + FRAME]."""
    (block,) = frame_blocks(samples, FRAME, CONTEXT, max_frames=512)
    return torch.from_numpy(block)
