"""Beam search: the most likely sequences of a decoder, for a batch of inputs at once.

    step(previous [N], state) -> logits [N, V], state        N = batch times beam

The state is any nesting of tuples of tensors with N as their first dimension. Each hypothesis has its own
row; rows are reordered as hypotheses are dropped and split.

    found = beam_search(step, repeat_rows(state, 4), limits, beam=4)
    found.tokens[:, 0]        # the best of each input, with its end of sequence, then zeros
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.base.options import check_number, check_size
from linnet.layers.nested import take_rows

Step = Callable[[Tensor, Any], tuple[Tensor, Any]]
# The ids of all sequences in this file: padding, which also comes before the first token, and the end.
PAD, EOS = 0, 2


class Hypotheses(NamedTuple):
    """The sequences that were found for each input, best first."""

    tokens: Tensor  # int64 [B, beam, T]: each ends with EOS, unless it reached its limit; then PAD
    scores: Tensor  # [B, beam]: log probability over length penalty; -inf where fewer were found


def length_penalty(length: Tensor | int, alpha: float) -> Any:
    """((5 + length) / 6)^alpha; the length counts the end of the sequence (Wu et al. 2016)."""
    return ((5 + length) / 6) ** alpha


class Search(NamedTuple):
    """The state of a search: hypotheses that may grow, and the best that have ended."""

    alive: Tensor  # int64 [B, K, t]
    log_p: Tensor  # [B, K], -inf for a place that is not taken
    ended: Tensor  # int64 [B, K, t]
    scores: Tensor  # [B, K]


@torch.no_grad()
def beam_search(step: Step, state: Any, limits: Tensor, beam: int = 4, alpha: float = 0.6) -> Hypotheses:
    """Search for the `beam` best sequences of each input.

    step     the logits of the next token; the first `previous` is PAD
    state    before the first token, with `beam` equal rows for each input (`nested.repeat_rows`)
    limits   int64 [B]: the most tokens of a sequence, its end included
    beam     the number of hypotheses; 1 is greedy search
    alpha    the exponent of the length penalty; 0: none

    In each step the best 2 beam continuations are considered: those that end compete for `beam` places by
    their scores, the others for `beam` places by their probability. A search ends when no hypothesis that
    may grow can beat the worst that has ended. A sequence does not end before its first token. (The LRN
    authors, after tensor2tensor.)
    """
    check_size("beam", beam)
    check_number("alpha", alpha, least=0)
    batch, longest = len(limits), int(limits.max())
    search, previous = begin(batch, beam, limits), limits.new_full((batch * beam,), PAD)
    for length in range(1, longest + 1):
        logits, state = step(previous, state)
        found = likely_words(logits.unflatten(0, (batch, beam)), may_end=length > 1)
        search, rows = grow(search, *found, length, alpha)
        search = stop(search, limits, length, alpha)
        if not search.log_p.isfinite().any():
            break
        previous, state = search.alive[..., -1].flatten(), take_rows(state, rows)
    missing = search.scores == -torch.inf
    return Hypotheses(search.ended.masked_fill(missing[..., None], PAD), search.scores)


def begin(batch: int, beam: int, like: Tensor) -> Search:
    """All hypotheses are equal at first, so that only one of them counts."""
    none = torch.full((batch, beam), -torch.inf, device=like.device, dtype=torch.float64)
    log_p = none.clone()
    log_p[:, 0] = 0
    empty = like.new_zeros(batch, beam, 0)
    return Search(empty, log_p, empty, none)


def continuations(beam: int) -> int:
    """How many are considered. Greedy search has one: the most likely one, which may be the end."""
    return 1 if beam == 1 else 2 * beam


def likely_words(logits: Tensor, may_end: bool) -> tuple[Tensor, Tensor]:
    """The best words of each hypothesis, from logits [B, K, V]: their log probabilities and ids, [B, K, n].

    The best continuations of all hypotheses are among these, so that the search itself reads few numbers.
    """
    log_p = logits.log_softmax(-1)
    if not may_end:
        log_p[..., EOS] = -torch.inf
    return log_p.topk(min(continuations(logits.shape[1]), logits.shape[-1]))


def grow(search: Search, log_p: Tensor, words: Tensor, length: int, alpha: float) -> tuple[Search, Tensor]:
    """Add one of the likely words to each; also the row that each new hypothesis comes from, [B * K]."""
    batch, beam, likely = log_p.shape
    joint = (search.log_p[..., None] + log_p).flatten(1)
    best, places = joint.topk(continuations(beam))
    source, tokens = places // likely, words.flatten(1).gather(1, places)
    sequences = torch.cat([take(search.alive, source), tokens[..., None]], -1)
    ends = tokens == EOS
    scores = best.masked_fill(~ends, -torch.inf) / length_penalty(length, alpha)
    ended, scores = keep_best(
        torch.cat([pad_to(search.ended, length), sequences], 1), torch.cat([search.scores, scores], 1), beam
    )
    log_p, order = best.masked_fill(ends, -torch.inf).topk(beam)
    rows = source.gather(1, order) + torch.arange(batch, device=order.device)[:, None] * beam
    return Search(take(sequences, order), log_p, ended, scores), rows.flatten()


def stop(search: Search, limits: Tensor, length: int, alpha: float) -> Search:
    """Drop the hypotheses of inputs whose search has ended; those at their limit end as they are."""
    at_limit = (limits == length)[:, None]
    # Only where nothing has ended: a sequence that was cut off is no rival of one that is complete.
    cut = at_limit & ~search.scores.isfinite().any(1, keepdim=True)
    scores = torch.where(cut, search.log_p / length_penalty(length, alpha), search.scores)
    ended = torch.where(cut[..., None], search.alive, search.ended)
    hope = search.log_p.max(1, keepdim=True).values / length_penalty(limits[:, None], alpha)
    done = at_limit | (scores.min(1, keepdim=True).values >= hope)
    return Search(search.alive, search.log_p.masked_fill(done, -torch.inf), ended, scores)


def keep_best(sequences: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    scores, order = scores.topk(count)
    return take(sequences, order), scores


def take(sequences: Tensor, order: Tensor) -> Tensor:
    """sequences [B, N, t], order [B, K] -> [B, K, t]."""
    return sequences.gather(1, order[..., None].expand(-1, -1, sequences.shape[-1]))


def pad_to(sequences: Tensor, length: int) -> Tensor:
    return torch.nn.functional.pad(sequences, (0, length - sequences.shape[-1]), value=PAD)
