"""Silero's voice detector for 16 kHz as a module whose call is forward(x, state) -> probability, state.

The package `silero-vad` (MIT licence) has the weights, in a file of TorchScript.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

RATE, FRAME, CONTEXT, HIDDEN = 16000, 512, 64, 128
WEIGHTS = "data/silero_vad.jit"
NAMES = {"lstm_cell": "decoder.rnn", "final_conv": "decoder.decoder.2"}


class Detector(nn.Module):
    """The probability of speech in a frame of 512 samples."""

    def __init__(self) -> None:
        super().__init__()
        # The real and the imaginary parts of a Fourier transform of 256 samples, with a window.
        self.stft_conv = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        self.conv1 = nn.Conv1d(129, 128, 3, padding=1)
        self.conv2 = nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell = nn.LSTMCell(128, HIDDEN)
        self.final_conv = nn.Conv1d(HIDDEN, 1, 1)

    def start(self) -> dict[str, Tensor]:
        sizes = {"context": CONTEXT, "h": HIDDEN, "c": HIDDEN}
        return {name: torch.zeros(1, size) for name, size in sizes.items()}

    def forward(self, x: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """x [1, 512] -> the probability [1, 1]."""
        samples = torch.cat([state["context"], x], 1)
        y = self.magnitude(F.pad(samples, (0, 64), "reflect"))
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            y = F.relu(conv(y))
        h, c = self.lstm_cell(y[:, :, 0], (state["h"], state["c"]))
        y = torch.sigmoid(self.final_conv(F.relu(h)[:, :, None]))
        return y[:, :, 0], {"context": samples[:, -CONTEXT:], "h": h, "c": c}

    def magnitude(self, samples: Tensor) -> Tensor:
        real, imaginary = self.stft_conv(samples[:, None]).chunk(2, 1)
        return torch.sqrt(real**2 + imaginary**2)


def trained() -> Detector:
    """The detector with the weights of the installed package."""
    found = find_spec("silero_vad")
    if found is None or found.origin is None:
        raise ImportError("the weights are in the package silero-vad: pip install silero-vad")
    # Not its file silero_vad_16k.safetensors, which has the weights of another training (silero-vad 6.2.3).
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript, which the package has chosen
        given = torch.jit.load(Path(found.origin).parent / WEIGHTS).state_dict()
    detector = Detector()
    detector.load_state_dict({name: given[f"_model.{theirs(name)}"] for name in detector.state_dict()})
    return detector.eval()


def theirs(name: str) -> str:
    """The name of a weight in the package."""
    module, _, kind = name.rpartition(".")
    if module == "stft_conv":
        return "stft.forward_basis_buffer"
    number = module.removeprefix("conv")
    block = f"encoder.{int(number) - 1}.reparam_conv" if number.isdigit() else ""
    return f"{block or NAMES[module]}.{kind}"
