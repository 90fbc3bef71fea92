"""A linear-chain conditional random field (CRF): scores of whole sequences of tags.

Lafferty, McCallum and Pereira (2001). The score of tags y for emissions x of T steps is

    s(x, y) = start[y_1] + sum_t x_t[y_t] + sum_t transitions[y_t, y_{t+1}] + end[y_T]

and p(y | x) = exp(s(x, y)) / Z(x), where Z sums over all sequences of tags.

    crf = linnet.CRF(num_tags=9)
    loss = -crf(emissions, tags, lengths=lengths, reduction="mean")
    paths = crf.decode(emissions, lengths=lengths)

One loop over time computes the sums over all beginnings and over all ends of a sequence, and the gradient is
that of the formula (what is observed minus what is expected): autograd records one node, not a few for each
step. The sums are scaled products where no factor can underflow, and otherwise sums of logarithms, so large
scores neither overflow nor vanish.

Differs from the LRN authors' code: theirs has energies, -s, and never adds the score of the last tag where a
batch is padded (use_end=False). Padding has a state of its own there: num_tags counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from linnet.base.options import check_size, choose
from linnet.layers.init import orthogonal_
from linnet.layers.sequence import check_flags, mask_of_lengths

REDUCTIONS = ("none", "sum", "mean", "token_mean", "sequence_token_mean")


class Viterbi(NamedTuple):
    """The best sequences of tags."""

    tags: Tensor  # int64 [T, B]; 0 at padded steps
    scores: Tensor  # [B]: s(x, y)


class CRF(nn.Module):
    """Log-likelihood, best sequence and marginals of tags; the parameters are named as in pytorch-crf.

    num_tags      the number of tags
    batch_first   emissions are [B, T, num_tags] and tags [B, T]; otherwise [T, B, num_tags] and [T, B]
    use_end       False: the last tag has no score of its own; end_transitions is not trained

    Each method takes `lengths` [B] for sequences that are padded at the end, or a `mask` [T, B] that is True
    at real steps. A step that the mask excludes is skipped, wherever it is: at the end, at the start or in
    between. Each sequence needs a real step. The values at other steps, tags included, change nothing.
    """

    def __init__(
        self, num_tags: int, batch_first: bool = False, use_end: bool = True, *, device=None, dtype=None
    ):
        super().__init__()
        check_size("num_tags", num_tags)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.num_tags, self.batch_first, self.use_end = num_tags, batch_first, use_end
        self.start_transitions = nn.Parameter(torch.empty(num_tags, **where))
        self.end_transitions = nn.Parameter(torch.empty(num_tags, **where), requires_grad=use_end)
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags, **where))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Orthogonal transitions, start and end 0 (the LRN authors)."""
        orthogonal_(self.transitions)
        nn.init.zeros_(self.start_transitions)
        nn.init.zeros_(self.end_transitions)

    def forward(
        self,
        emissions: Tensor,
        tags: Tensor,
        mask: Tensor | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        reduction: str = "sum",
    ) -> Tensor:
        """Return the log-likelihood of `tags`, log p(y | x).

        reduction   none: [B]; sum; mean: over sequences; token_mean: the sum divided by the number of all
                    real steps; sequence_token_mean: the mean over sequences of log p / length (LRN's)
        """
        choose("reduction", reduction, REDUCTIONS)
        chain, order = self.chain(emissions, mask, lengths)
        parts = chain.emissions, chain.start, chain.transitions, chain.end
        found = LogLikelihood.apply(chain, self.read_tags(tags, chain, order), *parts)
        return reduced(found, chain.lengths, reduction)

    @torch.no_grad()
    def decode(
        self, emissions: Tensor, mask: Tensor | None = None, lengths: Tensor | Sequence[int] | None = None
    ) -> list[list[int]]:
        """Return the most probable tags of each sequence, without those of padded steps."""
        chain, _ = self.chain(emissions, mask, lengths)
        best = viterbi(chain).tags.T.tolist()
        return [tags[:length] for tags, length in zip(best, chain.lengths.tolist(), strict=True)]

    @torch.no_grad()
    def viterbi(
        self, emissions: Tensor, mask: Tensor | None = None, lengths: Tensor | Sequence[int] | None = None
    ) -> Viterbi:
        """Return the most probable tags as a tensor, and their scores; log p is the score minus log Z."""
        chain, order = self.chain(emissions, mask, lengths)
        tags, scores = viterbi(chain)
        return Viterbi(self.put_back(tags, order), scores)

    @torch.no_grad()
    def marginals(
        self, emissions: Tensor, mask: Tensor | None = None, lengths: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        """Return p(y_t = k | x), of the shape of the emissions; 0 at padded steps."""
        chain, order = self.chain(emissions, mask, lengths)
        return self.put_back(sums_of(chain).marginals(), order)

    @torch.no_grad()
    def log_partition(
        self, emissions: Tensor, mask: Tensor | None = None, lengths: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        """Return log Z [B]."""
        chain, _ = self.chain(emissions, mask, lengths)
        return sums_of(chain).log_partition()

    # --------------------------------------------------------------------------------------- arguments

    def chain(
        self, emissions: Tensor, mask: Tensor | None, lengths: Tensor | Sequence[int] | None
    ) -> tuple[Chain, Tensor | None]:
        """Return the real steps first, and the order that brings them there (None: they were first)."""
        self.check(emissions)
        x = emissions.to(self.transitions.dtype)
        x = x.transpose(0, 1) if self.batch_first else x
        real, order = self.real_steps(x, mask, lengths)
        x = x if order is None else x.gather(0, order[..., None].expand_as(x))
        end = self.end_transitions if self.use_end else torch.zeros_like(self.end_transitions)
        return Chain(x, real.sum(0), self.start_transitions, self.transitions, end), order

    def check(self, emissions: Tensor) -> None:
        layout = "[batch, time, num_tags]" if self.batch_first else "[time, batch, num_tags]"
        shape = tuple(emissions.shape)
        if emissions.dim() != 3 or shape[-1] != self.num_tags or not emissions.numel():
            raise ValueError(
                f"CRF was built with num_tags={self.num_tags} and got emissions of shape {shape}; "
                f"they are {layout}"
            )
        if not emissions.is_floating_point():
            raise TypeError(f"emissions must be floating-point numbers; got {emissions.dtype}")

    def real_steps(
        self, x: Tensor, mask: Tensor | None, lengths: Tensor | Sequence[int] | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the mask [T, B], and the order of steps in which the real ones come first."""
        if mask is not None and lengths is not None:
            raise ValueError("give a mask or lengths, not both")
        if mask is None:
            full = x.new_full((x.shape[1],), len(x), dtype=torch.int64)
            return mask_of_lengths(full if lengths is None else lengths, like=x), None
        shape = (x.shape[1], len(x)) if self.batch_first else (len(x), x.shape[1])
        check_flags("mask", mask, shape, "[batch, time]" if self.batch_first else "[time, batch]", x.device)
        mask = mask.T if self.batch_first else mask
        if not bool(mask.any(0).all()):
            raise ValueError(
                "each sequence needs at least one real step; the mask of one of them is all False"
            )
        # True after False: not only the end is padded.
        if bool((mask[1:] & ~mask[:-1]).any()):
            return mask, (~mask).to(torch.uint8).argsort(dim=0, stable=True)
        return mask, None

    def read_tags(self, tags: Tensor, chain: Chain, order: Tensor | None) -> Tensor:
        """Return the tags of the real steps first, [T, B]; 0 at the others."""
        time, batch, _ = chain.emissions.shape
        expected = (batch, time) if self.batch_first else (time, batch)
        if tags.dtype != torch.int64 or tuple(tags.shape) != expected:
            raise ValueError(
                f"tags must be torch.int64 of shape {expected}, as the emissions; got {tags.dtype} of shape "
                f"{tuple(tags.shape)}"
            )
        tags = tags.T if self.batch_first else tags
        tags = torch.where(chain.mask, tags if order is None else tags.gather(0, order), 0)
        # On other devices than the CPU, reading the values would wait for the device.
        if tags.device.type == "cpu" and not 0 <= int(tags.min()) <= int(tags.max()) < self.num_tags:
            raise IndexError(
                f"tags are 0 to {self.num_tags - 1}, as num_tags={self.num_tags}; got {int(tags.min())} to "
                f"{int(tags.max())} at real steps"
            )
        return tags

    def put_back(self, values: Tensor, order: Tensor | None) -> Tensor:
        """Return values [T, B, ...] of the real steps at the steps and in the layout of the emissions."""
        if order is not None:
            index = order.reshape(order.shape + (1,) * (values.dim() - 2)).expand_as(values)
            values = torch.zeros_like(values).scatter(0, index, values)
        return values.transpose(0, 1) if self.batch_first else values

    def extra_repr(self) -> str:
        return f"{self.num_tags}, batch_first={self.batch_first}, use_end={self.use_end}"


def reduced(found: Tensor, lengths: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return found
    if reduction == "sequence_token_mean":
        return (found / lengths).mean()
    divisor: dict[str, int | Tensor] = {"sum": 1, "mean": len(found), "token_mean": lengths.sum()}
    return found.sum() / divisor[reduction]


# ----------------------------------------------------------------------------------------- algorithms


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
    def forward(ctx, chain, tags, emissions, start, transitions, end):
        ctx.sums = sums_of(chain)
        ctx.save_for_backward(tags)
        return score(chain, tags) - ctx.sums.log_partition()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
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
