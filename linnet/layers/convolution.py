"""Convolutions over time.

MaxConvolution, the encoder of Kim's (2014) sentence classifier, keeps the largest values:

    z_t = W_k [x_t; ...; x_{t+k-1}]          for each width k
    feature = relu(max over t of z_t + b)    [B, maps] for each width, side by side

As the bias and relu keep the order of values, they come after the maximum. Of equal values the first one gets
the gradient.

CausalConvolution reads the last steps of each channel, and of the same sequence:

    y_t = sum over k of w_k x_{t-width+1+k} + b
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_number, check_size
from linnet.recurrent.sequence import mask_of_lengths


class MaxConvolution(nn.Module):
    """x [T, B, input_size] -> [B, maps * len(widths)].

    maps         feature maps of each width
    widths       steps that a filter reads
    zero_pads    steps of zeros before and after each sequence (Kim: 4)
    init_scale   start filters in U(-init_scale, init_scale) and biases at 0 (Kim: 0.01); None: as nn.Conv1d

    A sequence shorter than a filter is extended by zeros. Padding beyond that never changes a result.
    """

    def __init__(
        self,
        input_size: int,
        maps: int,
        widths: Sequence[int] = (3, 4, 5),
        zero_pads: int = 0,
        init_scale: float | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("input_size", input_size)
        check_size("maps", maps)
        check_size("zero_pads", zero_pads, least=0)
        check_widths(widths)
        if init_scale is not None:
            check_number("init_scale", init_scale, least=0)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input_size, self.widths, self.zero_pads = input_size, tuple(widths), zero_pads
        self.init_scale, self.output_size = init_scale, maps * len(self.widths)
        self.filters = nn.ParameterList(torch.empty(maps, width * input_size, **where) for width in widths)
        self.bias = nn.Parameter(torch.empty(self.output_size, **where))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        maps = len(self.filters[0])
        for weight, bias in zip(self.filters, self.bias.split(maps), strict=True):
            bound = 1 / math.sqrt(weight.shape[1]) if self.init_scale is None else self.init_scale
            weight.uniform_(-bound, bound)
            bias.uniform_(-bound, bound) if self.init_scale is None else bias.zero_()

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """lengths [B]: how many steps of each sequence are real."""
        if lengths is not None:
            x = x.masked_fill(~mask_of_lengths(lengths, like=x)[..., None], 0)
            lengths = lengths.to(x.device) + 2 * self.zero_pads
        if self.zero_pads:
            x = F.pad(x, (0, 0, 0, 0, self.zero_pads, self.zero_pads))
        filters = zip(self.filters, self.widths, strict=True)
        largest = [self.largest(x, weight, width, lengths) for weight, width in filters]
        return torch.relu(torch.cat(largest, 1) + self.bias)

    def largest(self, x: Tensor, weight: Tensor, width: int, lengths: Tensor | None) -> Tensor:
        """The largest value of each map over the windows of a sequence, [B, maps]."""
        if len(x) < width:
            x = F.pad(x, (0, 0, 0, 0, 0, width - len(x)))
        count = len(x) - width + 1
        # One product with copied windows: several times as fast as torch's convolutions at these sizes.
        windows = torch.cat([x[first : first + count] for first in range(width)], -1)
        values = F.linear(windows, weight)
        if lengths is not None:
            real = (lengths - width + 1).clamp(min=1)
            outside = torch.arange(count, device=x.device)[:, None] >= real
            values = values.masked_fill(outside[..., None], -torch.inf)
        return first_maximum(values)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {len(self.filters[0])}, widths={self.widths}, zero_pads={self.zero_pads}"


def first_maximum(values: Tensor) -> Tensor:
    """The largest value over time [T, B, maps] -> [B, maps]; its gradient is that of the first such value.

    torch's max_pool1d does so, and with it the SRU authors' code. The gradient of amax is shared by all equal
    values, and repeated words make equal windows.
    """
    # Without gradients the step is not needed, and amax is several times as fast as max.
    return values.max(0).values if values.requires_grad else values.amax(0)


class CausalConvolution(nn.Module):
    """x [T, B, channels], the steps before it -> y [T, B, channels], the last steps.

    width   steps that each output reads, with its own; a weight for each of them and each channel
    """

    def __init__(
        self, channels: int, width: int = 4, device: Device = None, dtype: torch.dtype | None = None
    ):
        super().__init__()
        check_size("channels", channels)
        check_size("width", width)
        # The last row is that of the present step.
        self.weight = nn.Parameter(torch.empty(width, channels, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(channels, device=device, dtype=dtype))
        self.reset_parameters()

    @property
    def width(self) -> int:
        return len(self.weight)

    def reset_parameters(self) -> None:
        """As nn.Conv1d with a group for each channel."""
        bound = self.width**-0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor, window: Tensor, resets: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """window [width - 1, B, channels]: the steps before x; resets [T, B]: where new sequences start."""
        steps, rows = len(x), torch.cat([window, x])
        # The number of the sequence in its row of the batch that each step belongs to.
        number = None if resets is None else F.pad(resets.cumsum(0), (0, 0, self.width - 1, 0))
        y = self.bias
        for first, weight in enumerate(self.weight):
            read = rows[first : first + steps]
            if number is not None:
                read = only_where(number[first : first + steps] == number[self.width - 1 :], read)
            y = y + weight * read
        last = rows[steps:]
        return y, last if number is None else only_where(number[steps:] == number[-1], last)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, width={self.width}"


def only_where(flags: Tensor, x: Tensor) -> Tensor:
    """x [T, B, D] where the flags [T, B] are True, else 0."""
    return x.masked_fill(~flags[..., None], 0)


def check_widths(widths: Sequence[int]) -> None:
    if not isinstance(widths, (list, tuple)) or not widths:
        raise ValueError(
            f"widths must be a list of the steps that filters read, such as (3, 4, 5); got {widths!r}"
        )
    for width in widths:
        check_size("each of widths", width)
