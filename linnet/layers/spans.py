"""Where an answer starts and ends in a passage: scores of each step, and the best span.

BilinearSpans    start and end independently of each other: x_t . (W q + b) (DrQA, Chen et al. 2017)
PointerNetwork   the end after what the start has read (R-Net, Wang et al. 2017)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_size
from linnet.layers.attention import NormedLinear, clear_padding, masked_softmax
from linnet.layers.softmax import IGNORE
from linnet.recurrent.cell import Cell
from linnet.recurrent.dropout import Dropout


class SpanLogits(NamedTuple):
    """Scores of each step to be the first and the last of the answer; -inf at padded steps."""

    start: Tensor  # [B, T]
    end: Tensor  # [B, T]

    def loss(self, first: Tensor, last: Tensor) -> Tensor:
        """The cross entropy of both ends of each answer, [B]; 0 for an answer at -100."""
        return span_loss(self.start, first) + span_loss(self.end, last)

    def best(self, longest: int) -> tuple[Tensor, Tensor, Tensor]:
        """The most likely spans of at most `longest` steps; see `best_spans`."""
        return best_spans(self.start.softmax(-1), self.end.softmax(-1), longest)


def span_loss(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits, target, reduction="none", ignore_index=IGNORE)


def best_spans(start: Tensor, end: Tensor, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """The spans [i, j] with the largest start[i] end[j], where i <= j < i + longest.

    start, end   probabilities [B, T]
    longest      the number of steps of the longest span (DrQA: 15, R-Net: 16)

    Returns i, j and the product, each [B]. Time and memory grow with T times `longest`.
    """
    check_size("longest", longest)
    longest = min(longest, start.shape[1])
    # ends[b, i, k] is end[b, i + k]; there is no span beyond the last step.
    ends = F.pad(end, (0, longest - 1), value=-1.0).unfold(1, longest, 1)
    scores, places = (start[..., None] * ends).flatten(1).max(1)
    first = places // longest
    return first, first + places % longest, scores


class BilinearSpans(nn.Module):
    """Start and end scores of each step x_t [B, input_size] for a query q: x_t . (W q + b)."""

    def __init__(
        self, input_size: int, query_size: int, device: Device = None, dtype: torch.dtype | None = None
    ):
        super().__init__()
        self.start = nn.Linear(query_size, input_size, device=device, dtype=dtype)
        self.end = nn.Linear(query_size, input_size, device=device, dtype=dtype)

    def forward(self, x: Tensor, query: Tensor, mask: Tensor | None = None) -> SpanLogits:
        """x [T, B, input_size], query [B, query_size], mask [T, B]."""
        x = clear_padding(x, mask).transpose(0, 1)
        start, end = (hide_padding((x @ side(query)[..., None])[..., 0], mask) for side in self.children())
        return SpanLogits(start, end)


class PointerNetwork(nn.Module):
    """Two pointers into a passage, as in HKUST's code of R-Net:

        scores(s) = v . tanh([s; x_t] W)        start = scores(s_0)
        s_1 = cell(sum of softmax(start) x, s_0)        end = scores(s_1)

    cell      x of `input_size` -> a state of `query_size`; R-Net has a GRU
    dropout   on the passage, in the scores and in the sum; on the state and on what the cell reads
    """

    def __init__(
        self,
        cell: Cell,
        hidden_size: int,
        dropout: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.cell = cell
        self.hidden = NormedLinear(cell.hidden_size + cell.input_size, hidden_size, bias=False, **where)
        self.score = NormedLinear(hidden_size, 1, bias=False, **where)
        self.passage_dropout = Dropout(dropout, "sequence")
        self.state_dropout = Dropout(dropout)
        self.read_dropout = Dropout(dropout)

    def forward(self, x: Tensor, query: Tensor, mask: Tensor | None = None) -> SpanLogits:
        """x [T, B, input_size], query [B, query_size]: the state to start from."""
        x = self.passage_dropout(clear_padding(x, mask))
        (kept,) = self.state_dropout(torch.ones_like(query)[None])
        start = self.scores(x, query * kept, mask)
        read = (masked_softmax(start, None).T[..., None] * x).sum(0)
        state, _ = self.cell.run_step(self.read_dropout(read[None])[0], query)
        return SpanLogits(start, self.scores(x, state * kept, mask))

    def scores(self, x: Tensor, state: Tensor, mask: Tensor | None) -> Tensor:
        joined = torch.cat([state.expand(len(x), -1, -1), x], -1)
        return hide_padding(self.score(torch.tanh(self.hidden(joined)))[..., 0].T, mask)


def hide_padding(scores: Tensor, mask: Tensor | None) -> Tensor:
    """scores [B, T] with -inf where mask [T, B] is False."""
    return scores if mask is None else scores.masked_fill(~mask.T, -torch.inf)
