"""Softmaxes over a vocabulary: the full softmax, a mixture of softmaxes, and the adaptive softmax.

Each is a module with

    loss(x, targets, tied)     x [T, B, F], targets [T, B] -> the mean of -log p over the targets that count
    logits(x, tied)            x [..., F] -> [..., V], for generation: log p up to a constant
    log_probs(x, tied)         x [..., F] -> [..., V]

`tied` is the matrix of the embedding if it is the output matrix too. It is an argument of each call, so that
the model has the parameter only once.

With a vocabulary of 10,000 words or more, the product with the output matrix is most of the work of a
language model, and the logits are by far its largest tensor. `mixture_nll` therefore processes the rows in
pieces: in one buffer, it computes the logits of a piece, then their softmax, then the gradient of the logits,
and from it the gradients of features and matrix, before it continues with the next piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_size
from linnet.recurrent.dropout import Dropout
from linnet.run.samples import for_each_sample

# The value of targets that do not count, as in torch.
IGNORE = -100
# The authors of the mixture add this to a probability before they take its logarithm.
MIXTURE_EPS = 1e-8
# The number of logits in a piece. Matrix products are faster with larger pieces; smaller ones fit the cache.
PIECE = 8 * 1024 * 1024


def mixture_nll(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, prior: Tensor | None = None
) -> Tensor:
    """Return the mean of -log p(target) over the targets that are not IGNORE (0 if there are none).

    x         [N, D] features, or [N, K, D] with K experts
    weight    [V, D]; bias [V] or None
    targets   [N]
    prior     [N, K], the weights of the experts: p = sum_k prior_k softmax(x_k W^T + b) + 1e-8;
              None: there is one expert, and p is its softmax
    """
    x = x if x.dim() == 3 else x[:, None]
    if torch.is_autocast_enabled(x.device.type):
        low = torch.get_autocast_dtype(x.device.type)
        x, weight, bias = x.to(low), weight.to(low), None if bias is None else bias.to(low)
    needs_gradients = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (x, weight, bias, prior)
    )
    if not needs_gradients:
        return in_pieces(x, weight, bias, prior, targets, gradients=False)[0]
    return MixtureNLL.apply(x, weight, bias, prior, targets)


def reference_nll(
    x: Tensor, weight: Tensor, bias: Tensor | None, prior: Tensor | None, targets: Tensor
) -> Tensor:
    """Return the same as `mixture_nll` by its formula; it can be differentiated twice."""
    logits = F.linear(x, weight, bias)
    log_p = F.log_softmax(logits, -1, dtype=wide(x.dtype))
    counted = targets != IGNORE
    at = targets.where(counted, 0)[:, None, None].expand(-1, x.shape[1], 1)
    hit = log_p.gather(-1, at)[..., 0]
    nll = -hit[:, 0] if prior is None else -((prior * hit.exp()).sum(-1) + MIXTURE_EPS).log()
    return (nll * counted).sum() / counted.sum().clamp(min=1)


class MixtureNLL(torch.autograd.Function):
    """Computes the gradients together with the loss, while the probabilities of a piece are in the buffer."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        ctx.save_for_backward(*arguments)
        loss, ctx.gradients = in_pieces(*arguments, gradients=True, needed=ctx.needs_input_grad)
        return loss

    @staticmethod
    @for_each_sample
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        (scale,) = upstream
        arguments = ctx.saved_tensors
        if torch.is_grad_enabled():
            return (*differentiable_gradients(arguments, scale), None)
        # Not kept, so that autograd need not copy them. A second backward pass computes them again.
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            _, gradients = in_pieces(*arguments, gradients=True, needed=ctx.needs_input_grad)
        if scale != 1:
            gradients = [None if g is None else g.mul_(scale) for g in gradients]
        return (*gradients, None)


def differentiable_gradients(arguments: Sequence[Tensor | None], scale: Tensor) -> list[Tensor | None]:
    """Return the gradients by the formula, with a graph for second derivatives."""
    loss = reference_nll(*arguments)  # type: ignore[arg-type]
    leaves = [t for t in arguments if t is not None and t.requires_grad]
    gradients = iter(torch.autograd.grad(loss, leaves, scale, create_graph=True))
    return [next(gradients) if t is not None and t.requires_grad else None for t in arguments[:-1]]


def in_pieces(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    prior: Tensor | None,
    targets: Tensor,
    *,
    gradients: bool,
    needed: Sequence[bool] = (True,) * 4,
) -> tuple[Tensor, list[Tensor | None]]:
    """Return the loss and, if `gradients`, those of x, weight, bias and prior that are `needed`."""
    rows, experts, size = x.shape
    counted = targets != IGNORE
    share = counted.to(wide(x.dtype)) / counted.sum().clamp(min=1)
    at = targets.where(counted, 0)
    piece = max(1, min(rows, PIECE // (experts * len(weight))))
    buffer = x.new_empty(piece * experts, len(weight))
    sums = Gradients(x, weight, bias, prior, needed) if gradients else None
    loss = share.new_zeros(())
    for start in range(0, rows, piece):
        chunk = slice(start, start + piece)
        features = x[chunk].reshape(-1, size)
        p = probabilities(features, weight, bias, buffer[: len(features)])
        expert_at = at[chunk].repeat_interleave(experts)[:, None] if experts > 1 else at[chunk, None]
        hit = p.gather(-1, expert_at)
        if prior is None:
            nll, factor = exact_nll(hit[:, 0], features, weight, bias, at[chunk]), share[chunk, None]
        else:
            nll, factor = mixed_nll(hit, prior[chunk], share[chunk, None])
        loss += torch.dot(nll, share[chunk])
        if sums is not None:
            p.scatter_add_(-1, expert_at, torch.full_like(hit, -1))
            sums.add(chunk, features, p, factor)
            if prior is not None:
                sums.add_prior(chunk, hit, prior, nll, share)
    return loss, [] if sums is None else sums.results()


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of sums and logarithms: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def probabilities(x: Tensor, weight: Tensor, bias: Tensor | None, buffer: Tensor) -> Tensor:
    """Return softmax(x W^T + b), in the buffer if its dtype is precise enough."""
    if bias is None:
        torch.mm(x, weight.T, out=buffer)
    else:
        torch.addmm(bias, x, weight.T, out=buffer)
    if buffer.dtype != wide(buffer.dtype) or buffer.device.type != "cpu":
        return torch.softmax(buffer, -1, dtype=wide(buffer.dtype))
    return torch.softmax(buffer, -1, out=buffer)


def exact_nll(hit: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """Return -log of the probabilities; those that underflowed are computed from their logits."""
    nll = -hit.log()
    underflow = hit < torch.finfo(hit.dtype).tiny
    if underflow.any():
        logits = F.linear(x[underflow], weight, bias).to(hit.dtype)
        nll[underflow] = F.cross_entropy(logits, targets[underflow], reduction="none")
    return nll


def mixed_nll(hit: Tensor, prior: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Return -log of the mixed probability, and the factor of each expert's gradient: its share in it."""
    of_expert = hit.view(prior.shape) * prior
    mixed = of_expert.sum(-1, keepdim=True) + MIXTURE_EPS
    return -mixed.log()[:, 0], (of_expert / mixed * share).reshape(-1, 1)


class Gradients:
    """The sums of the gradients over the pieces.

    With G = factor (p - one-hot of the target), dx = G W and dW = G^T x. The factor of a row multiplies x and
    dx, which are smaller than the logits.
    """

    def __init__(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, prior: Tensor | None, needed: Sequence[bool]
    ):
        self.weight = weight
        precise = wide(weight.dtype)
        self.x = x.new_empty(x.shape) if needed[0] else None
        # The first piece writes it, and the others add to it. Without rows there is no first piece.
        allocate = torch.empty_like if len(x) else torch.zeros_like
        self.dweight = allocate(weight, dtype=precise) if needed[1] else None
        self.bias = torch.zeros_like(bias, dtype=precise) if bias is not None and needed[2] else None
        self.prior = torch.empty_like(prior) if prior is not None and needed[3] else None

    def add(self, chunk: slice, features: Tensor, p: Tensor, factor: Tensor) -> None:
        g, of_row = p.to(features.dtype), factor.to(features.dtype)
        if self.x is not None:
            torch.mm(g, self.weight, out=self.x[chunk].view(-1, self.x.shape[-1])).mul_(of_row)
        if self.dweight is not None:
            add_product(self.dweight, g.T, features * of_row, first=chunk.start == 0)
        if self.bias is not None:
            self.bias.addmv_(p.T, factor[:, 0])

    def add_prior(self, chunk: slice, hit: Tensor, prior: Tensor, nll: Tensor, share: Tensor) -> None:
        if self.prior is not None:
            # d(-log q) / d prior_k = -p_k / q, and 1 / q = exp(nll).
            of_row = (share[chunk] * nll.exp())[:, None]
            self.prior[chunk] = -hit.view_as(prior[chunk]) * of_row

    def results(self) -> list[Tensor | None]:
        dtype = self.weight.dtype
        summed = [None if g is None else g.to(dtype) for g in (self.dweight, self.bias)]
        return [self.x, *summed, self.prior]


def add_product(into: Tensor, a: Tensor, b: Tensor, first: bool) -> None:
    """Compute into += a b, or into = a b if `first`; `into` may have a wider dtype than a and b."""
    if into.dtype == a.dtype:
        into.addmm_(a, b, beta=0 if first else 1)
    elif first:
        into.copy_(a @ b)
    else:
        into.add_(a @ b)


class FullSoftmax(nn.Module):
    """logits = x W^T + b over the whole vocabulary.

    tied_size   the number of features, at the end, that are multiplied by the embedding; the others are
                multiplied by `weight` (SCRN: h by the embedding, s by U)
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
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        where: dict[str, Any] = {"device": device, "dtype": dtype}
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
        # For a few rows, two products are faster than joining the matrices.
        own, shared = x.split([self.free, self.tied_size], -1)
        return F.linear(own, self.weight, self.bias) + F.linear(shared, tied)

    def log_probs(self, x: Tensor, tied: Tensor | None = None) -> Tensor:
        return F.log_softmax(self.logits(x, tied), -1)


class MixtureSoftmax(nn.Module):
    """p = sum_k prior_k softmax(tanh(x L_k + l_k) W^T + b), a mixture of softmaxes (Yang et al. 2018).

    The logits of one softmax over d features have at most rank d; those of a mixture can have a higher rank.

    latent_size   the size of each expert's output, which is multiplied by the shared matrix W
    dropout       on the experts' outputs
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
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("experts", experts)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.experts, self.latent_size = experts, latent_size
        self.latent = nn.Linear(size, experts * latent_size, **where)
        self.prior = nn.Linear(size, experts, bias=False, **where)
        self.dropout = Dropout(dropout, mode)
        self.weight = None if tied else nn.Parameter(torch.empty(vocabulary_size, latent_size, **where))
        self.bias = nn.Parameter(torch.empty(vocabulary_size, **where)) if bias else None

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [..., F] -> the outputs of the experts [..., K, D] and their weights [..., K]."""
        latent = torch.tanh(self.latent(x))
        latent = self.dropout(latent) if latent.dim() == 3 else latent
        prior = torch.softmax(self.prior(x), -1)
        return latent.unflatten(-1, (self.experts, self.latent_size)), prior

    def loss(self, x: Tensor, targets: Tensor, tied: Tensor | None = None) -> Tensor:
        latent, prior = (part.flatten(0, 1) for part in self.parts(x))
        return mixture_nll(latent, decoder(self.weight, tied), self.bias, targets.flatten(), prior)

    def log_probs(self, x: Tensor, tied: Tensor | None = None) -> Tensor:
        latent, prior = self.parts(x)
        p = torch.softmax(self.decode(latent, tied), -1)
        return ((prior[..., None] * p).sum(-2) + MIXTURE_EPS).log()

    def decode(self, latent: Tensor, tied: Tensor | None) -> Tensor:
        """Return the logits of each expert, [..., K, V]."""
        return F.linear(latent, decoder(self.weight, tied), self.bias)

    logits = log_probs


class AdaptiveSoftmax(nn.Module):
    """torch's adaptive softmax (Grave et al. 2017): clusters of rare words have fewer features.

    The vocabulary must be sorted by frequency.

    cutoffs   the first word of each cluster, e.g. (2000, 10000)
    """

    def __init__(
        self,
        size: int,
        vocabulary_size: int,
        bias: bool = False,
        *,
        cutoffs: Sequence[int],
        device: Device = None,
        dtype: torch.dtype | None = None,
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
        where: dict[str, Any] = {"device": device, "dtype": dtype}
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
    """Return the output matrix: the softmax's own, or that of the embedding."""
    matrix = own if own is not None else tied
    if matrix is None:
        raise TypeError("a tied softmax needs the matrix of the embedding: loss(x, targets, tied)")
    return matrix
