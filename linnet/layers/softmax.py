"""From features to words: the full softmax, a mixture of softmaxes, and the adaptive softmax.

Each is a module with

    loss(x, targets, tied)     x [T, B, F], targets [T, B] -> the mean of -log p over what is counted
    logits(x, tied)            x [..., F] -> [..., V], for generation: log p up to a constant
    log_probs(x, tied)         x [..., F] -> [..., V]

`tied` is the matrix of the embedding where it decodes too; it is lent at each call, so that a model
has each parameter once.

With a vocabulary of 10k words and more, the product with the output matrix is most of what a
language model computes, and its result is the largest tensor by far. The loss therefore goes
through the rows in pieces (`mixture_nll`): the logits of a piece become its probabilities and then
their own gradient in one buffer, and are used for the gradients of features and matrix before the
next piece is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.base.options import check_size
from linnet.layers.dropout import Dropout

# Targets that are not counted; the value that torch ignores.
IGNORE = -100
# The authors of the mixture add this to a probability before its logarithm is taken.
MIXTURE_EPS = 1e-8
# The logits that are there at one time. Larger pieces make better products, smaller ones stay in a cache.
PIECE = 8 * 1024 * 1024


def mixture_nll(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, prior: Tensor | None = None
) -> Tensor:
    """The mean of -log p(target) over the targets that are not IGNORE (0, if there are none).

    x         [N, D] features, or [N, K, D] with K experts
    weight    [V, D]; bias [V] or None
    targets   [N]
    prior     [N, K]: the shares of the experts, p = sum_k prior_k softmax(x_k W^T + b) + 1e-8;
              without it there is one expert, and p is its softmax
    """
    x = x if x.dim() == 3 else x[:, None]
    if torch.is_autocast_enabled(x.device.type):
        low = torch.get_autocast_dtype(x.device.type)
        x, weight, bias = x.to(low), weight.to(low), None if bias is None else bias.to(low)
    learns = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (x, weight, bias, prior)
    )
    if not learns:
        return in_pieces(x, weight, bias, prior, targets, learns=False)[0]
    return MixtureNLL.apply(x, weight, bias, prior, targets)


def reference_nll(
    x: Tensor, weight: Tensor, bias: Tensor | None, prior: Tensor | None, targets: Tensor
) -> Tensor:
    """What `mixture_nll` computes, as one would write it; this one can be differentiated again."""
    logits = F.linear(x, weight, bias)
    log_p = F.log_softmax(logits, -1, dtype=wide(x.dtype))
    counted = targets != IGNORE
    at = targets.where(counted, 0)[:, None, None].expand(-1, x.shape[1], 1)
    hit = log_p.gather(-1, at)[..., 0]
    nll = -hit[:, 0] if prior is None else -((prior * hit.exp()).sum(-1) + MIXTURE_EPS).log()
    return (nll * counted).sum() / counted.sum().clamp(min=1)


class MixtureNLL(torch.autograd.Function):
    """The gradients are made together with the loss, while the probabilities of a piece are at hand."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        ctx.save_for_backward(*arguments)
        loss, ctx.gradients = in_pieces(*arguments, learns=True, wanted=ctx.needs_input_grad)
        return loss

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        (scale,) = upstream
        arguments = ctx.saved_tensors
        if torch.is_grad_enabled():
            return (*differentiable_gradients(arguments, scale), None)
        # Handed over and not kept, so that the first who asks for them need not copy them.
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            _, gradients = in_pieces(*arguments, learns=True, wanted=ctx.needs_input_grad)
        if scale != 1:
            gradients = [None if g is None else g.mul_(scale) for g in gradients]
        return (*gradients, None)


def differentiable_gradients(arguments: Sequence[Tensor | None], scale: Tensor) -> list[Tensor | None]:
    """For a second derivative: the gradients by the plain formula, as functions of its inputs."""
    loss = reference_nll(*arguments)  # type: ignore[arg-type]
    leaves = [t for t in arguments if t is not None and t.requires_grad]
    found = iter(torch.autograd.grad(loss, leaves, scale, create_graph=True))
    return [next(found) if t is not None and t.requires_grad else None for t in arguments[:-1]]


def in_pieces(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    prior: Tensor | None,
    targets: Tensor,
    *,
    learns: bool,
    wanted: Sequence[bool] = (True,) * 4,
) -> tuple[Tensor, list[Tensor | None]]:
    """The loss, and the gradients of x, weight, bias and prior where they are wanted."""
    rows, experts, size = x.shape
    counted = targets != IGNORE
    share = counted.to(wide(x.dtype)) / counted.sum().clamp(min=1)
    at = targets.where(counted, 0)
    piece = max(1, min(rows, PIECE // (experts * len(weight))))
    buffer = x.new_empty(piece * experts, len(weight))
    gradients = Gradients(x, weight, bias, prior, wanted) if learns else None
    loss = share.new_zeros(())
    for start in range(0, rows, piece):
        of = slice(start, start + piece)
        features = x[of].reshape(-1, size)
        p = probabilities(features, weight, bias, buffer[: len(features)])
        expert_at = at[of].repeat_interleave(experts)[:, None] if experts > 1 else at[of, None]
        hit = p.gather(-1, expert_at)
        if prior is None:
            nll, blame = exact_nll(hit[:, 0], features, weight, bias, at[of]), share[of, None]
        else:
            nll, blame = mixed_nll(hit, prior[of], share[of, None])
        loss += torch.dot(nll, share[of])
        if gradients is not None:
            p.scatter_add_(-1, expert_at, torch.full_like(hit, -1))
            gradients.add(of, features, p, blame)
            if prior is not None:
                gradients.add_prior(of, hit, prior, nll, share)
    return loss, [] if gradients is None else gradients.results()


def wide(dtype: torch.dtype) -> torch.dtype:
    """In which sums and logarithms are taken."""
    return torch.promote_types(dtype, torch.float32)


def probabilities(x: Tensor, weight: Tensor, bias: Tensor | None, buffer: Tensor) -> Tensor:
    """softmax(x W^T + b), in the buffer if it is precise enough."""
    if bias is None:
        torch.mm(x, weight.T, out=buffer)
    else:
        torch.addmm(bias, x, weight.T, out=buffer)
    if buffer.dtype != wide(buffer.dtype) or buffer.device.type != "cpu":
        return torch.softmax(buffer, -1, dtype=wide(buffer.dtype))
    return torch.softmax(buffer, -1, out=buffer)


def exact_nll(hit: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """-log of the probabilities; where one was too small to be held, from its logits again."""
    nll = -hit.log()
    lost = hit < torch.finfo(hit.dtype).tiny
    if lost.any():
        logits = F.linear(x[lost], weight, bias).to(hit.dtype)
        nll[lost] = F.cross_entropy(logits, targets[lost], reduction="none")
    return nll


def mixed_nll(hit: Tensor, prior: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """-log of the mixed probability, and each expert's share in it: by this its logits are corrected."""
    of_expert = hit.view(prior.shape) * prior
    mixed = of_expert.sum(-1, keepdim=True) + MIXTURE_EPS
    return -mixed.log()[:, 0], (of_expert / mixed * share).reshape(-1, 1)


class Gradients:
    """The sums of the gradients over the pieces.

    With G = blame (p - one-hot of the target), dx = G W and dW = G^T x. The factor of a row is
    applied to the small side of each product and never to the logits.
    """

    def __init__(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, prior: Tensor | None, wanted: Sequence[bool]
    ):
        self.weight = weight
        precise = wide(weight.dtype)
        self.x = x.new_empty(x.shape) if wanted[0] else None
        # The first piece writes it and the others add to it; without any row there is no piece.
        fresh = torch.empty_like if len(x) else torch.zeros_like
        self.dweight = fresh(weight, dtype=precise) if wanted[1] else None
        self.bias = torch.zeros_like(bias, dtype=precise) if bias is not None and wanted[2] else None
        self.prior = torch.empty_like(prior) if prior is not None and wanted[3] else None

    def add(self, of: slice, features: Tensor, p: Tensor, blame: Tensor) -> None:
        g, factor = p.to(features.dtype), blame.to(features.dtype)
        if self.x is not None:
            torch.mm(g, self.weight, out=self.x[of].view(-1, self.x.shape[-1])).mul_(factor)
        if self.dweight is not None:
            add_product(self.dweight, g.T, features * factor, first=of.start == 0)
        if self.bias is not None:
            self.bias.addmv_(p.T, blame[:, 0])

    def add_prior(self, of: slice, hit: Tensor, prior: Tensor, nll: Tensor, share: Tensor) -> None:
        if self.prior is not None:
            # d(-log q) / d prior_k = -p_k / q, and 1 / q = exp(nll).
            by_row = (share[of] * nll.exp())[:, None]
            self.prior[of] = -hit.view_as(prior[of]) * by_row

    def results(self) -> list[Tensor | None]:
        like = self.weight.dtype
        whole = [None if g is None else g.to(like) for g in (self.dweight, self.bias)]
        return [self.x, *whole, self.prior]


def add_product(into: Tensor, a: Tensor, b: Tensor, first: bool) -> None:
    """into += a b, or into = a b; in low precision the sum over the pieces is kept in a wider type."""
    if into.dtype == a.dtype:
        into.addmm_(a, b, beta=0 if first else 1)
    elif first:
        into.copy_(a @ b)
    else:
        into.add_(a @ b)


class FullSoftmax(nn.Module):
    """logits = x W^T + b over the whole vocabulary.

    tied_size   so many features at the end are decoded by the embedding; the rest by a matrix of its
                own, `weight` (SCRN: its h by the embedding, its s by U)
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        size: int,
        vocabulary_size: int,
        bias: bool = True,
        *,
        tied_size: int = 0,
        device=None,
        dtype=None,
    ):
        super().__init__()
        where = {"device": device, "dtype": dtype}
        free = size - tied_size
        self.free, self.tied_size = free, tied_size
        self.weight = nn.Parameter(torch.empty(vocabulary_size, free, **where)) if free else None
        self.bias = nn.Parameter(torch.empty(vocabulary_size, **where)) if bias else None

    def whole_weight(self, tied: Tensor | None) -> Tensor:
        if self.weight is None or tied is None:
            return decoder(self.weight, tied)
        return torch.cat([self.weight, tied], 1)

    def loss(self, x: Tensor, targets: Tensor, tied: Tensor | None = None) -> Tensor:
        return mixture_nll(x.flatten(0, 1), self.whole_weight(tied), self.bias, targets.flatten())

    def logits(self, x: Tensor, tied: Tensor | None = None) -> Tensor:
        if self.weight is None or tied is None:
            return F.linear(x, decoder(self.weight, tied), self.bias)
        # For a few rows, two products are cheaper than a joined matrix.
        own, shared = x.split([self.free, self.tied_size], -1)
        return F.linear(own, self.weight, self.bias) + F.linear(shared, tied)

    def log_probs(self, x: Tensor, tied: Tensor | None = None) -> Tensor:
        return F.log_softmax(self.logits(x, tied), -1)


class MixtureSoftmax(nn.Module):
    """p = sum_k prior_k softmax(tanh(x L_k + l_k) W^T + b), a mixture of softmaxes (Yang et al. 2018).

    One softmax of d features can tell apart no more than d dimensions of contexts; a mixture can.

    latent_size   the size of what each expert hands to the one matrix W that all share
    dropout       on that
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        size: int,
        vocabulary_size: int,
        bias: bool = True,
        *,
        experts: int,
        latent_size: int,
        tied: bool = False,
        dropout: float = 0.0,
        mode: str = "sequence",
        device=None,
        dtype=None,
    ):
        super().__init__()
        check_size("experts", experts)
        where = {"device": device, "dtype": dtype}
        self.experts, self.latent_size = experts, latent_size
        self.latent = nn.Linear(size, experts * latent_size, **where)
        self.prior = nn.Linear(size, experts, bias=False, **where)
        self.dropout = Dropout(dropout, mode)
        self.weight = None if tied else nn.Parameter(torch.empty(vocabulary_size, latent_size, **where))
        self.bias = nn.Parameter(torch.empty(vocabulary_size, **where)) if bias else None

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [..., F] -> what each expert says [..., K, D] and how much it counts [..., K]."""
        latent = torch.tanh(self.latent(x))
        latent = self.dropout(latent) if latent.dim() == 3 else latent
        prior = torch.softmax(self.prior(x), -1)
        return latent.unflatten(-1, (self.experts, self.latent_size)), prior

    def loss(self, x: Tensor, targets: Tensor, tied: Tensor | None = None) -> Tensor:
        latent, prior = (part.flatten(0, 1) for part in self.parts(x))
        return mixture_nll(latent, decoder(self.weight, tied), self.bias, targets.flatten(), prior)

    def log_probs(self, x: Tensor, tied: Tensor | None = None) -> Tensor:
        latent, prior = self.parts(x)
        p = torch.softmax(F.linear(latent, decoder(self.weight, tied), self.bias), -1)
        return ((prior[..., None] * p).sum(-2) + MIXTURE_EPS).log()

    logits = log_probs


class AdaptiveSoftmax(nn.Module):
    """Frequent words first, rare words in clusters of fewer features (Grave et al. 2017), by torch.

    The vocabulary must be sorted by frequency.

    cutoffs   where the clusters begin, e.g. (2000, 10000)
    """

    def __init__(
        self,
        size: int,
        vocabulary_size: int,
        bias: bool = False,
        *,
        cutoffs: Sequence[int],
        device=None,
        dtype=None,
    ):
        super().__init__()
        ordered = list(cutoffs) == sorted(set(cutoffs)) and cutoffs and cutoffs[0] > 0
        if not ordered or cutoffs[-1] >= vocabulary_size:
            raise ValueError(
                "the adaptive softmax takes cutoffs that rise from above 0 to below the size of the "
                f"vocabulary, {vocabulary_size}; got cutoffs={tuple(cutoffs)}"
            )
        if size < 4 ** len(cutoffs):
            raise ValueError(
                f"each cluster of the adaptive softmax has a quarter of the features of the one before; "
                f"{len(cutoffs)} cutoffs need at least {4 ** len(cutoffs)} features, and there are {size}"
            )
        where = {"device": device, "dtype": dtype}
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(
            size, vocabulary_size, list(cutoffs), head_bias=bias, **where
        )

    def loss(self, x: Tensor, targets: Tensor, tied: Tensor | None = None) -> Tensor:
        counted = targets.flatten() != IGNORE
        if not counted.any():
            return 0 * x.sum()
        return self.softmax(x.flatten(0, 1)[counted], targets.flatten()[counted]).loss

    def log_probs(self, x: Tensor, tied: Tensor | None = None) -> Tensor:
        return self.softmax.log_prob(x.flatten(0, -2)).unflatten(0, x.shape[:-1])

    logits = log_probs


def decoder(own: Tensor | None, tied: Tensor | None) -> Tensor:
    """The one matrix there is: the softmax's own, or that of the embedding."""
    matrix = own if own is not None else tied
    if matrix is None:
        raise TypeError("a tied softmax is called with the matrix of the embedding: loss(x, targets, tied)")
    return matrix
