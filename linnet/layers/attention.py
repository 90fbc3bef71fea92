"""Attention: each query reads a weighted mean of a memory, a sequence [T, B, F] that may be padded.

AdditiveAttention    scores w . tanh(Q + K), for one query at a time (Zhang and Sennrich 2019)
MultiHeadAttention   scores Q . K, for one query or many (Vaswani et al. 2017)
AlignedAttention     scores of one layer on both sides; the memory itself is read (DrQA, Chen et al. 2017)
GatedAttention       what is read is joined to the query, and a gate weights both (R-Net, Wang et al. 2017)

Weights are returned batch first, [B, heads, queries, steps of the memory], as plots need them.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_rate, check_size
from linnet.cpu.attend_inputs import Keys
from linnet.program.trace import Traced
from linnet.recurrent.dropout import Dropout
from linnet.recurrent.projection import Projection
from linnet.run.attend import Reading, attend, can_attend, trace_score, wants_gradients


class NormedLinear(Projection):
    """norm(x W) + b, with the norms of the units: None, "layer" or "rms"."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        bias: bool = True,
        norm: str | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(input_size, {"y": output_size}, bias, norm=norm, device=device, dtype=dtype)
        self.output_size = output_size
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform weights, bias 0."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.joint(x)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last dimension; weights are 0 where `mask` is False."""
    return (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1)


def clear_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return x [T, B, F] with zeros at padded steps. A product with 0 would be NaN for infinite values."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0)


def batch_mask(mask: Tensor | None) -> Tensor | None:
    """[T, B] -> [B, 1, T], for scores [B, queries or heads, T]."""
    return None if mask is None else mask.T[:, None]


def check_heads(size: int, heads: int) -> None:
    check_size("heads", heads)
    if size % heads:
        raise ValueError(f"the size of the memory must be a multiple of heads; got {size} and heads={heads}")


def split_heads(heads: int, x: Tensor) -> Tensor:
    """[T, B, size] -> [B, heads, T, size / heads]."""
    return x.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)


class Memory(NamedTuple):
    """What attention reads, prepared once for all queries; each tensor has the sequences first.

    A batch of queries may have several rows for each sequence, one after the other, as beam search has.
    """

    keys: Tensor  # [B, heads, T, size / heads]
    values: Tensor  # [B, heads, T, size / heads]
    mask: Tensor | None = None  # bool [B, 1, T], True at real steps
    reading: Reading | None = None  # of a sequence of queries, by kernels that know its gradients

    @property
    def is_shared(self) -> bool:
        """The hypotheses of an input share it, so beam search neither repeats nor reorders it."""
        return True


def by_sequence(queries: Tensor, memory: Memory) -> Tensor:
    """[N, heads, Q, size] -> [B, heads, N / B * Q, size]: all queries of a sequence together."""
    count = len(queries) // len(memory.keys)
    return queries if count == 1 else queries.unflatten(0, (-1, count)).transpose(1, 2).flatten(2, 3)


def by_query(read: Tensor, queries: int) -> Tensor:
    """[B, heads, N / B * Q, size] -> [N, heads, Q, size], for Q queries of each row."""
    count = read.shape[2] // queries
    return read if count == 1 else read.unflatten(2, (count, queries)).transpose(1, 2).flatten(0, 1)


def hidden_layer(q: Tensor, k: Tensor) -> Tensor:
    """The layer that the vector w of additive attention scores; kernels are traced from it."""
    return torch.tanh(q + k)


@cache
def score_graph() -> Traced:
    return trace_score(hidden_layer)


class AdditiveAttention(nn.Module):
    """Additive attention in several heads, as in the LRN authors' models:

        K = norm(M W_m)        Q = norm(q W_q) + b        each cut into heads
        a = softmax over real steps of w . tanh(Q + K) + b_w
        context = sum of a M, head by head: each reads its own slice of M

    heads   all heads share w
    norm    None, "layer" or "rms"

    b_w shifts all scores alike, so it has no effect and its gradient is 0; the authors' counts have it.
    """

    def __init__(
        self,
        query_size: int,
        memory_size: int,
        heads: int = 1,
        norm: str | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_heads(memory_size, heads)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.heads, self.output_size = heads, memory_size
        self.key = NormedLinear(memory_size, memory_size, bias=False, norm=norm, **where)
        self.query = NormedLinear(query_size, memory_size, norm=norm, **where)
        self.score = nn.Linear(memory_size // heads, 1, **where)

    def remember(self, memory: Tensor, mask: Tensor | None = None) -> Memory:
        """memory [T, B, memory_size], mask [T, B]: the keys of all steps at once."""
        memory = clear_padding(memory, mask)
        # Each query reads them: in order, once, instead of at each step.
        keys, values = (split_heads(self.heads, x).contiguous() for x in (self.key(memory), memory))
        return Memory(keys, values, batch_mask(mask))

    def prepare(self, memory: Memory, steps: int) -> Memory:
        """The same memory for `steps` queries of each sequence, one after another, which may be faster."""
        read = self.keys_of(memory)
        by_kernels = can_attend(memory.keys, read) and wants_gradients(memory.keys, read)
        return (
            memory._replace(reading=Reading(score_graph(), read, self.score.bias, steps))
            if by_kernels
            else memory
        )

    def forward(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """query [N, query_size] -> context [N, memory_size], weights [N, heads, T]; N is a multiple of B."""
        query, read = self.query(query), self.keys_of(memory)
        if memory.reading is not None:
            return memory.reading.attend(query)
        if can_attend(query, read) and not wants_gradients(query, read):
            return attend(score_graph(), query, read)
        return self.read(query, memory)

    def keys_of(self, memory: Memory) -> Keys:
        return Keys(memory.keys, memory.values, self.score.weight[0], memory.mask)

    def read(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """The definition: kernels are compared with it."""
        # [B, heads, queries, 1, size] and [B, heads, 1, T, size].
        queries = by_sequence(query.unflatten(-1, (self.heads, 1, -1)), memory)
        hidden = hidden_layer(queries[..., None, :], memory.keys[:, :, None])
        # The gradient of a product with a vector is cheaper than that of a matrix with one column.
        scores = hidden @ self.score.weight[0] + self.score.bias
        weights = masked_softmax(scores, None if memory.mask is None else memory.mask[:, None])
        context = by_query(weights @ memory.values, queries=1)
        return context.flatten(1), by_query(weights, queries=1)[:, :, 0]

    def extra_repr(self) -> str:
        return f"heads={self.heads}"


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in several heads; query, keys, values and output have biases.

    dropout   on the weights
    """

    def __init__(
        self,
        size: int,
        heads: int = 8,
        dropout: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_heads(size, heads)
        check_rate("dropout", dropout)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.heads, self.dropout = heads, dropout
        self.query = NormedLinear(size, size, **where)
        self.key = NormedLinear(size, size, **where)
        self.value = NormedLinear(size, size, **where)
        self.output = NormedLinear(size, size, **where)

    def remember(self, memory: Tensor, mask: Tensor | None = None) -> Memory:
        """memory [T, B, size], mask [T, B]: the keys and values of all steps at once."""
        memory = clear_padding(memory, mask)
        return Memory(
            split_heads(self.heads, self.key(memory)),
            split_heads(self.heads, self.value(memory)),
            batch_mask(mask),
        )

    def forward(self, query: Tensor, memory: Memory, causal: bool = False) -> Tensor:
        """query [Q, N, size] -> [Q, N, size]; `causal`: a query reads no step after its own.

        N is the batch of the memory, or a multiple of it unless `causal`.
        """
        queries = by_sequence(split_heads(self.heads, self.query(query)), memory)
        read = F.scaled_dot_product_attention(
            queries,
            memory.keys,
            memory.values,
            attn_mask=self.visible(memory, len(query), causal),
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.output(by_query(read, len(query)).permute(2, 0, 1, 3).flatten(2))

    def weights(self, query: Tensor, memory: Memory, causal: bool = False) -> Tensor:
        """The weights without dropout, [B, heads, Q, T]."""
        queries = split_heads(self.heads, self.query(query))
        scores = queries @ memory.keys.transpose(-1, -2) / math.sqrt(queries.shape[-1])
        return masked_softmax(scores, self.visible(memory, len(query), causal))

    def visible(self, memory: Memory, queries: int, causal: bool) -> Tensor | None:
        """Return which steps a query may read, [B or 1, 1, Q or 1, T]. The last query is at the last step."""
        mask = None if memory.mask is None else memory.mask[:, None]
        if not causal:
            return mask
        steps = memory.keys.shape[2]
        past = torch.ones(queries, steps, dtype=torch.bool, device=memory.keys.device).tril(steps - queries)
        return past[None, None] if mask is None else past & mask

    def extra_repr(self) -> str:
        return f"heads={self.heads}, dropout={self.dropout}"


class AlignedAttention(nn.Module):
    """Attention of each step of x to a memory, whose result is in the space of the memory (DrQA):

    a = softmax over real steps of relu(x W + b) . relu(M W + b)        result = sum of a M
    """

    def __init__(self, size: int, device: Device = None, dtype: torch.dtype | None = None):
        super().__init__()
        check_size("size", size)
        self.linear = nn.Linear(size, size, device=device, dtype=dtype)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x [Q, B, size], memory [T, B, size] -> [Q, B, size], weights [B, 1, Q, T]."""
        memory = clear_padding(memory, mask)
        query, keys = torch.relu(self.linear(x)), torch.relu(self.linear(memory))
        return read_by_product(query, keys, memory, mask)


class GatedAttention(nn.Module):
    """Attention of R-Net, in the form of HKUST's code, without biases:

        a = softmax over real steps of relu(x W_x) . relu(M W_m) / sqrt(hidden_size)
        r = [x; sum of a M]        result = r sigmoid(r W_g)

    dropout   one mask over time on what the three matrices read; values are never dropped
    """

    def __init__(
        self,
        input_size: int,
        memory_size: int,
        hidden_size: int,
        dropout: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.hidden_size, self.output_size = hidden_size, input_size + memory_size
        self.query = NormedLinear(input_size, hidden_size, bias=False, **where)
        self.key = NormedLinear(memory_size, hidden_size, bias=False, **where)
        self.gate = NormedLinear(self.output_size, self.output_size, bias=False, **where)
        self.query_dropout = Dropout(dropout, "sequence")
        self.key_dropout = Dropout(dropout, "sequence")
        self.gate_dropout = Dropout(dropout, "sequence")

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x [Q, B, input_size], memory [T, B, memory_size] -> [Q, B, output_size], weights [B, 1, Q, T]."""
        memory = clear_padding(memory, mask)
        query = torch.relu(self.query(self.query_dropout(x))) / math.sqrt(self.hidden_size)
        keys = torch.relu(self.key(self.key_dropout(memory)))
        read, weights = read_by_product(query, keys, memory, mask)
        joined = torch.cat([x, read], -1)
        return joined * torch.sigmoid(self.gate(self.gate_dropout(joined))), weights


def read_by_product(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """query [Q, B, K], keys [T, B, K], values [T, B, F] -> [Q, B, F] and weights [B, 1, Q, T]."""
    scores = query.transpose(0, 1) @ keys.permute(1, 2, 0)
    weights = masked_softmax(scores, batch_mask(mask))
    return (weights @ values.transpose(0, 1)).transpose(0, 1), weights[:, None]
