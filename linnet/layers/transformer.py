"""Transformer layers whose feed-forward part is a perceptron or a recurrent unit.

    x = x + attention(norm(x))        x = x + feed_forward(norm(x))

as in OpenNMT-py: the norm comes first, with the unbiased standard deviation. Lei et al. (2018, Table 3)
replace the hidden ReLU layer by a layer of SRU without a skip:

    ff = RecurrentFeedForward(linnet.SRU(512, 2048, highway=False), 512)
    layer = TransformerEncoderLayer(512, heads=8, feed_forward=ff, dropout=0.1)

Sequences are [T, B, size]. A decoder layer runs over whole sequences, or continues from the state that it
returned; one step is a sequence of length 1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_rate, check_size
from linnet.layers.attention import Memory, MultiHeadAttention, NormedLinear
from linnet.layers.nested import map_tensors
from linnet.recurrent.recurrent import Recurrent


class UnbiasedLayerNorm(nn.Module):
    """a (x - mean) / (std + 1e-6) + b, with the unbiased standard deviation (OpenNMT-py)."""

    def __init__(self, size: int, eps: float = 1e-6, device: Device = None, dtype: torch.dtype | None = None):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(size, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        std, mean = torch.std_mean(x, -1, keepdim=True)
        return self.weight * (x - mean) / (std + self.eps) + self.bias


class FeedForward(nn.Module):
    """W_2 relu(W_1 x + b_1) + b_2, with dropout after the ReLU."""

    def __init__(
        self,
        size: int,
        inner_size: int,
        dropout: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.inner = NormedLinear(size, inner_size, device=device, dtype=dtype)
        self.output = NormedLinear(inner_size, size, device=device, dtype=dtype)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, state: Any = None, mask: Tensor | None = None) -> tuple[Tensor, None]:
        """x [T, B, size]; a perceptron has no state, and a mask does not matter to it."""
        return self.output(self.dropout(torch.relu(self.inner(x)))), None


class RecurrentFeedForward(nn.Module):
    """W rnn(x) + b.

    rnn             a layer of any unit; in a decoder, in one direction
    reads_padding   run over padding too, as the paper's formula does: the backward direction starts there
    """

    def __init__(
        self,
        rnn: Recurrent,
        size: int,
        reads_padding: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.rnn, self.reads_padding = rnn, reads_padding
        self.output = NormedLinear(rnn.output_size, size, device=device, dtype=dtype)

    def forward(self, x: Tensor, state: Any = None, mask: Tensor | None = None) -> tuple[Tensor, Any]:
        """x [T, B, size], mask [T, B]: True at real steps; `state` has the batch first."""
        start = None if state is None else map_tensors(lambda s: s[None], state)
        y, final = self.rnn(x, start, mask=None if self.reads_padding else mask)
        return self.output(y), map_tensors(lambda s: s[0], final)


class TransformerEncoderLayer(nn.Module):
    """Self-attention and a feed-forward part; dropout on attention weights and on the output of each part."""

    def __init__(
        self,
        size: int,
        heads: int,
        feed_forward: nn.Module,
        dropout: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_rate("dropout", dropout)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.attention_norm = UnbiasedLayerNorm(size, **where)
        self.attention = MultiHeadAttention(size, heads, dropout, **where)
        self.feed_forward_norm = UnbiasedLayerNorm(size, **where)
        self.feed_forward = feed_forward
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x [T, B, size], mask [T, B]: True at real steps."""
        normed = self.attention_norm(x)
        x = x + self.dropout(self.attention(normed, self.attention.remember(normed, mask)))
        y, _ = self.feed_forward(self.feed_forward_norm(x), None, mask)
        return x + self.dropout(y)


class DecoderLayerState(NamedTuple):
    """What a decoder layer keeps of the steps before; each tensor has the batch first."""

    keys: Tensor  # [B, heads, T, size / heads]
    values: Tensor
    recurrent: Any  # of the feed-forward part; None for a perceptron


class TransformerDecoderLayer(nn.Module):
    """Self-attention to the past, attention to a memory and a feed-forward part."""

    def __init__(
        self,
        size: int,
        heads: int,
        feed_forward: nn.Module,
        dropout: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_rate("dropout", dropout)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.past_norm = UnbiasedLayerNorm(size, **where)
        self.past = MultiHeadAttention(size, heads, dropout, **where)
        self.attention_norm = UnbiasedLayerNorm(size, **where)
        self.attention = MultiHeadAttention(size, heads, dropout, **where)
        self.feed_forward_norm = UnbiasedLayerNorm(size, **where)
        self.feed_forward = feed_forward
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        memory: Memory,
        state: DecoderLayerState | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, DecoderLayerState]:
        """x [T, B, size]; `memory` of `self.attention`; `state` of the steps before x.

        mask   [T, B]: True at real steps of x; only without `state`
        """
        normed = self.past_norm(x)
        past = self.extend(state, self.past.remember(normed, mask))
        x = x + self.dropout(self.past(normed, past, causal=True))
        x = x + self.dropout(self.attention(self.attention_norm(x), memory))
        before = None if state is None else state.recurrent
        y, recurrent = self.feed_forward(self.feed_forward_norm(x), before, mask)
        return x + self.dropout(y), DecoderLayerState(past.keys, past.values, recurrent)

    def extend(self, state: DecoderLayerState | None, new: Memory) -> Memory:
        if state is None:
            return new
        keys, values = torch.cat([state.keys, new.keys], 2), torch.cat([state.values, new.values], 2)
        return Memory(keys, values)

    def weights(self, x: Tensor, memory: Memory, mask: Tensor | None = None) -> Tensor:
        """The weights of the memory for whole sequences x, [B, heads, T, steps of the memory]."""
        normed = self.past_norm(x)
        x = x + self.past(normed, self.past.remember(normed, mask), causal=True)
        return self.attention.weights(self.attention_norm(x), memory)


def sinusoids(steps: int, size: int, first: int = 0, like: Tensor | None = None) -> Tensor:
    """Vectors [steps, size] of the positions from `first` on: sines at even channels, cosines at odd ones."""
    check_size("size", size)
    device = None if like is None else like.device
    positions = torch.arange(first, first + steps, dtype=torch.float64, device=device)
    rates = torch.exp(torch.arange(0, size, 2, dtype=torch.float64, device=device) * -(math.log(1e4) / size))
    angles = positions[:, None] * rates
    both = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :size]
    return both.to(torch.get_default_dtype() if like is None else like.dtype)
