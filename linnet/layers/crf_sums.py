"""The algorithms of a linear-chain CRF: sums over all sequences of tags, and the best sequence.

One loop over time computes the sums over all beginnings and over all ends of a sequence, and the gradient is
that of the formula (what is observed minus what is expected): autograd records one node, not a few for each
step. The sums are scaled products where no factor can underflow, and otherwise sums of logarithms, so large
scores neither overflow nor vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from linnet.run.samples import for_each_sample


class Viterbi(NamedTuple):
    """The best sequences of tags."""

    tags: Tensor  # int64 [T, B]; 0 at padded steps
    scores: Tensor  # [B]: s(x, y)


@dataclass(frozen=True, eq=False)
class Chain:
    """The scores of a batch, its padding at the end."""

    emissions: Tensor  # [T, B, K]
    lengths: Tensor  # [B]
    start: Tensor  # [K]
    transitions: Tensor  # [K, K]
    end: Tensor  # [K]

    @cached_property
    def mask(self) -> Tensor:
        return torch.arange(len(self.emissions), device=self.lengths.device)[:, None] < self.lengths

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        """The index of the last real step of each sequence."""
        return self.lengths - 1, torch.arange(len(self.lengths), device=self.lengths.device)

    @cached_property
    def scores(self) -> Tensor:
        """The emissions with start and end added to the first and the last; 0 at padded steps."""
        scores = self.emissions.detach().masked_fill(~self.mask[..., None], 0)
        scores[0] += self.start.detach()
        scores[self.ends] += self.end.detach()
        return scores

    @cached_property
    def reversal(self) -> Tensor:
        """The steps [T, B, K] in reverse order; padded steps repeat the first."""
        steps = torch.arange(len(self.emissions), device=self.lengths.device)[:, None]
        return (self.lengths - 1 - steps).clamp(min=0)[..., None].expand_as(self.emissions)

    def reverse(self, values: Tensor) -> Tensor:
        """Return values [T, B, K] with the real steps in reverse order."""
        return values.gather(0, self.reversal)


class LogSums:
    """Logarithms of sums over all beginnings up to a tag and over all ends from it on: [T, B, K] each.

    The score of the tag itself is in both. The ends are the beginnings of the reversed sequence, so one loop
    computes both. Padded steps come last in both, so their values reach no real step.
    """

    def __init__(self, chain: Chain):
        self.chain = chain
        both = torch.stack([chain.scores, chain.reverse(chain.scores)], 1)
        pairs = torch.stack([chain.transitions, chain.transitions.T])[:, None]
        steps = [both[0]]
        for now in both[1:]:
            steps.append(torch.logsumexp(steps[-1][..., None] + pairs, -2) + now)
        self.beginnings, ends = torch.stack(steps, 1)
        self.ends = chain.reverse(ends)

    def log_partition(self) -> Tensor:
        """Return log Z [B]."""
        return torch.logsumexp(self.beginnings[self.chain.ends], -1)

    def marginals(self) -> Tensor:
        """Return p(y_t = k | x) [T, B, K], 0 at padded steps."""
        log_p = self.beginnings + self.ends - self.chain.scores - self.log_partition()[:, None]
        return log_p.exp().masked_fill(~self.chain.mask[..., None], 0)

    def expected_pairs(self, weights: Tensor) -> Tensor:
        """Return how often each pair of tags is expected [K, K], with a weight [B] for each sequence."""
        ends = self.ends[1:] - self.log_partition()[:, None]
        log_p = self.beginnings[:-1, :, :, None] + self.chain.transitions + ends[:, :, None]
        p = log_p.exp().masked_fill(~self.chain.mask[1:, :, None, None], 0)
        return (p * weights[:, None, None]).sum((0, 1))


class ScaledSums:
    """The same sums without logarithms: products with a matrix, divided by their total every few steps.

    In float64. From one step to the next, the share of a tag falls to exp(-spread) at worst, where spread is
    how far the scores of a step are apart, plus how far the transitions are. No product underflows as long as
    the spreads between two divisions add up to LARGEST_SPREAD at most.
    """

    LARGEST_SPREAD = 200.0

    def __init__(self, chain: Chain, spread: float):
        self.chain = chain
        scores, transitions = chain.scores.double(), chain.transitions.double()
        self.highest, self.highest_pair = scores.amax(-1, keepdim=True), transitions.max()
        self.factors = (scores - self.highest).exp_()
        self.pairs = (transitions - self.highest_pair).exp_()
        both = torch.stack([self.factors, chain.reverse(self.factors)], 1)
        self.totals = torch.ones_like(both[..., :1])
        every = max(1, int(self.LARGEST_SPREAD / max(spread, 1.0)))
        self.run(both, torch.stack([self.pairs, self.pairs.T]), every)
        self.beginnings, self.ends = both[:, 0], chain.reverse(both[:, 1])

    def run(self, both: Tensor, pairs: Tensor, every: int) -> None:
        """Replace the factors of each step by the sums up to it."""
        before = None
        for step, (now, total) in enumerate(zip(both, self.totals, strict=True)):
            if before is not None:
                now.mul_(torch.bmm(before, pairs))
            if step % every == 0:
                now.div_(torch.sum(now, -1, keepdim=True, out=total))
            before = now

    def log_partition(self) -> Tensor:
        steps = (self.totals[:, 0].log() + self.highest)[..., 0].masked_fill(~self.chain.mask, 0).sum(0)
        last = self.beginnings[self.chain.ends].sum(-1).log()
        return (steps + last + (self.chain.lengths - 1) * self.highest_pair).to(self.chain.scores.dtype)

    def marginals(self) -> Tensor:
        p = (self.beginnings * self.ends).div_(self.factors)
        p.div_(p.sum(-1, keepdim=True)).masked_fill_(~self.chain.mask[..., None], 0)
        return p.to(self.chain.scores.dtype)

    def expected_pairs(self, weights: Tensor) -> Tensor:
        first, second = self.beginnings[:-1], self.ends[1:]
        totals = ((first @ self.pairs) * second).sum(-1)
        weights = (weights / totals).masked_fill(~self.chain.mask[1:], 0)
        pairs = first.flatten(0, 1).T @ (second * weights[..., None]).flatten(0, 1)
        return pairs.mul_(self.pairs).to(self.chain.scores.dtype)


def sums_of(chain: Chain) -> LogSums | ScaledSums:
    # On other devices than the CPU, float64 is slow, and reading the spread would wait for the device.
    if chain.scores.device.type != "cpu":
        return LogSums(chain)
    (lowest, highest), (low, high) = chain.scores.aminmax(dim=-1), chain.transitions.aminmax()
    spread = float((highest - lowest).max() + high - low)
    return ScaledSums(chain, spread) if spread < ScaledSums.LARGEST_SPREAD else LogSums(chain)


class LogLikelihood(torch.autograd.Function):
    """log p(y | x) [B]; its gradient is what y has minus what is expected.

    The scores of the chain are arguments too, because they have the gradients.
    """

    @staticmethod
    def forward(
        ctx: Any,
        chain: Chain,
        tags: Tensor,
        emissions: Tensor,
        start: Tensor,
        transitions: Tensor,
        end: Tensor,
    ) -> Tensor:
        ctx.sums = sums_of(chain)
        ctx.save_for_backward(tags)
        return score(chain, tags) - ctx.sums.log_partition()

    @staticmethod
    @for_each_sample
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (tags,), sums = ctx.saved_tensors, ctx.sums
        counted = sums.chain.mask * gradient
        emissions = sums.marginals().mul_(-gradient[:, None])
        emissions.scatter_add_(2, tags[..., None], counted[..., None])
        size = emissions.shape[-1]
        pairs = (tags[:-1] * size + tags[1:]).flatten()
        observed = gradient.new_zeros(size * size).index_add_(0, pairs, counted[1:].flatten())
        transitions = observed.view(size, size) - sums.expected_pairs(gradient)
        return None, None, emissions, emissions[0].sum(0), transitions, emissions[sums.chain.ends].sum(0)


def score(chain: Chain, tags: Tensor) -> Tensor:
    """Return s(x, y) [B]."""
    steps = chain.scores.gather(2, tags[..., None])[..., 0]
    steps[1:] += chain.transitions[tags[:-1], tags[1:]].masked_fill(~chain.mask[1:], 0)
    return steps.sum(0)


def viterbi(chain: Chain) -> Viterbi:
    """Return the best tags [T, B], 0 at padded steps, and their scores [B].

    One loop computes the best score of all ends from a tag on; the other reads the tags from the first to the
    last. In both, padded steps come last, so no step needs a mask.
    """
    # [T, K, B]: the loop is several times faster with the batch as the innermost dimension.
    scores = as_array(chain.reverse(chain.scores).transpose(1, 2).contiguous())
    pairs = as_array(chain.transitions)
    largest = np.max if isinstance(scores, np.ndarray) else torch.amax
    steps = [scores[0]]
    for now in scores[1:]:
        steps.append(largest(steps[-1][:, None] + pairs.T[..., None], 0) + now)
    best = chain.reverse(stacked(steps).transpose(1, 2))
    ends = as_array(best)
    tags = [ends[0].argmax(-1)]
    for now in ends[1:]:
        tags.append((pairs[tags[-1]] + now).argmax(-1))
    return Viterbi(stacked(tags).masked_fill(~chain.mask, 0), best[0].amax(-1))


def as_array(values: Tensor) -> Any:
    """Return an array of numpy on the CPU: for arrays this small, its calls take half the time of torch's."""
    known = values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64)
    return values.detach().numpy() if known else values.detach()


def stacked(steps: list[Any]) -> Tensor:
    return torch.from_numpy(np.stack(steps)) if isinstance(steps[0], np.ndarray) else torch.stack(steps)
