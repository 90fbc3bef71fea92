"""Batches of gradients: `torch.autograd.grad(..., is_grads_batched=True)`, `jacobian(..., vectorize=True)`.

torch then runs backward once, within a vmap, on gradients with a hidden dimension, which kernels cannot read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from linnet.base.torch_private import (
    add_batch_dim,
    is_legacy_batched,
    legacy_vmap_level,
    remove_batch_dim,
    transform,
)

Gradients = tuple[Tensor | None, ...]
Backward = Callable[..., Gradients]


def for_each_sample(backward: Backward) -> Backward:
    """Make the backward of an autograd function run sample by sample, if its gradients are a batch."""

    @wraps(backward)
    def by_samples(ctx: Any, *above: Tensor) -> Gradients:
        if torch.is_grad_enabled():  # it consists of torch's operations, which know batches
            return backward(ctx, *above)
        run = partial(backward, ctx)
        if transform() is not None:
            return EachSample.apply(run, *above)
        return in_legacy_vmap(run, above) if any(map(is_legacy_batched, above)) else run(*above)

    return by_samples


class EachSample(torch.autograd.Function):
    """run(*above), within torch.func.vmap once for each sample."""

    @staticmethod
    def forward(run: Backward, *above: Tensor) -> Gradients:
        return run(*above)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept, because no one differentiates this."""

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[int | None], run: Backward, *above: Tensor) -> Any:
        pairs = zip(above, in_dims[1:], strict=True)
        whole = [a.expand(info.batch_size, *a.shape) if d is None else a.movedim(d, 0) for a, d in pairs]
        found = stacked(partial(EachSample.apply, run), whole)
        return found, tuple(None if each is None else 0 for each in found)


def in_legacy_vmap(run: Backward, above: Sequence[Tensor]) -> Gradients:
    """`EachSample` within the vmap that torch.autograd has of its own."""
    level = legacy_vmap_level()
    batched = next(filter(is_legacy_batched, above))
    size = len(remove_batch_dim(batched, level, 1, 0))
    found = stacked(run, [remove_batch_dim(each, level, size, 0) for each in above])
    return tuple(None if each is None else add_batch_dim(each, 0, level) for each in found)


def stacked(run: Backward, above: Sequence[Tensor]) -> Gradients:
    samples = [run(*sample) for sample in zip(*above, strict=True)]
    return tuple(None if each[0] is None else torch.stack(each) for each in zip(*samples, strict=True))
