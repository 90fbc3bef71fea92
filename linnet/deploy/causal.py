"""A convolution over time that runs frame by frame, with the inputs that it still needs as its state."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Causal(nn.Module):
    """A Conv1d over time, [B, C, T], or a Conv2d over time and frequency, [B, C, T, F], in steps.

        step = linnet.deploy.Causal(nn.Conv1d(40, 64, kernel_size=3, dilation=2))
        buffer = step.start()                       # [1, 40, 4]
        y_t, buffer = step(x_t, buffer)             # x_t [1, 40], or frames [1, 40, n] of n time steps

    An output reads the time steps up to its own and none after it. Stepping equals `step.sequence(x)`, the
    convolution over the whole sequence with zeros before it. With a stride, a frame has a multiple of
    `stride` time steps, and each `stride` of them make one output.
    """

    def __init__(self, conv: nn.Conv1d | nn.Conv2d):
        super().__init__()
        check_convolution(conv)
        self.conv = conv
        reach = conv.dilation[0] * (conv.kernel_size[0] - 1) + 1
        self.context = reach - conv.stride[0]
        if self.context < 0:
            raise ValueError(
                f"a kernel that reaches over {reach} time steps with a stride of {conv.stride[0]} skips "
                "inputs; expected a stride of at most its reach"
            )

    def start(self, batch: int = 1, frequencies: int | None = None) -> Tensor:
        """Zeros: the buffer before the first frame. `frequencies`: those of the input of a Conv2d."""
        sizes = () if frequencies is None else (frequencies,)
        return self.conv.weight.new_zeros(batch, self.conv.in_channels, self.context, *sizes)

    def forward(self, x: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
        if x.dim() == buffer.dim() - 1:
            y, buffer = self(x.unsqueeze(2), buffer)
            return y.squeeze(2), buffer
        if x.dim() != buffer.dim() or x.shape[2] % self.conv.stride[0]:
            raise ValueError(
                "a frame is [batch, channels, time, ...] with a multiple of "
                f"{self.conv.stride[0]} time steps, "
                f"and the buffer likewise; got the shapes {tuple(x.shape)} and {tuple(buffer.shape)}"
            )
        known = torch.cat([buffer, x], 2)
        return self.conv(known), known[:, :, known.shape[2] - self.context :]

    def sequence(self, x: Tensor) -> Tensor:
        """The outputs of all frames of x [B, C, T] or [B, C, T, F] at once."""
        return self.conv(F.pad(x, (*[0, 0] * (x.dim() - 3), self.context, 0)))


def check_convolution(conv: nn.Module) -> None:
    if not isinstance(conv, nn.Conv1d | nn.Conv2d):
        raise TypeError(f"Causal steps an nn.Conv1d or nn.Conv2d; got {type(conv).__name__}")
    if conv.padding in ("same", "valid") or conv.padding[0]:
        raise ValueError(
            "Causal puts the inputs of earlier frames before a frame; build the convolution with padding=0 "
            f"over time; got padding={conv.padding!r}"
        )
