"""A linear-chain conditional random field (CRF): scores of whole sequences of tags.

Lafferty, McCallum and Pereira (2001). The score of tags y for emissions x of T steps is

    s(x, y) = start[y_1] + sum_t x_t[y_t] + sum_t transitions[y_t, y_{t+1}] + end[y_T]

and p(y | x) = exp(s(x, y)) / Z(x), where Z sums over all sequences of tags.

    crf = linnet.CRF(num_tags=9)
    loss = -crf(emissions, tags, lengths=lengths, reduction="mean")
    paths = crf.decode(emissions, lengths=lengths)

Differs from the LRN authors' code: theirs has energies, -s, and never adds the score of the last tag where a
batch is padded (use_end=False). Padding has a state of its own there: num_tags counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.calls import like
from linnet.base.options import check_size, choose
from linnet.layers.crf_sums import Chain, LogLikelihood, Viterbi, sums_of, viterbi
from linnet.recurrent.init import orthogonal_
from linnet.recurrent.sequence import check_flags, mask_of_lengths

REDUCTIONS = ("none", "sum", "mean", "token_mean", "sequence_token_mean")


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
        self,
        num_tags: int,
        batch_first: bool = False,
        use_end: bool = True,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
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

    if TYPE_CHECKING:

        @like(forward)
        def __call__(self, *inputs: Any, **named: Any) -> Any: ...

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
