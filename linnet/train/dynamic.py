"""Dynamic evaluation: a model keeps learning from the text it is tested on.

Krause et al. (2018), with the statistics of the authors of LRN's language models (Table 5):

    R  = sqrt(sum over training windows of g^2)             how much each weight moves in training
    w += lambda min(R / mean R, 1/lambda) (w_0 - w) - lr g / (R + epsilon)      after each window

Each window is scored before the model learns from it, so no token is seen before it is predicted. The mean of
R is the mean over tensors of their means, as in that code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from linnet.data.batches import windows
from linnet.models.language import LanguageModel
from linnet.runs.config import Checked, option
from linnet.tasks.results import Metrics


@dataclass(frozen=True)
class DynamicConfig(Checked):
    """The settings of the authors for Penn Treebank; for WikiText-2 decay .02 and epsilon .002."""

    dynamic_lr: float = option(0.002, "the learning rate on the test text", least=0)
    dynamic_decay: float = option(0.075, "lambda: how fast weights return to the trained ones", least=0)
    dynamic_epsilon: float = option(0.001, "added to the root of the squared gradients", least=0)
    dynamic_length: int = option(5, "time steps between two updates", least=1)
    dynamic_batch: int = option(100, "columns for the statistics of the training text", least=1)


class Statistics:
    """R of every parameter, and the mean by which it is divided."""

    def __init__(self, parameters: list[nn.Parameter], roots: list[Tensor]):
        self.parameters, self.roots = parameters, roots
        self.mean = torch.stack([root.mean() for root in roots]).mean().clamp_min(1e-30)


def statistics(model: LanguageModel, tokens: Tensor, settings: DynamicConfig) -> Statistics:
    parameters = [p for p in model.parameters() if p.requires_grad]
    sums = [torch.zeros_like(p) for p in parameters]
    with learning(model):
        for _ in passes(model, tokens, settings.dynamic_batch, settings.dynamic_length):
            for total, parameter in zip(sums, parameters, strict=True):
                if parameter.grad is not None:
                    total.addcmul_(parameter.grad, parameter.grad)
    return Statistics(parameters, [total.sqrt_() for total in sums])


def evaluate(
    model: LanguageModel,
    tokens: Tensor,
    known: Statistics,
    settings: DynamicConfig,
    metrics: Metrics,
    batch: int = 1,
) -> dict[str, float]:
    """Return the figures of a model that learns while it is evaluated; then restore its weights."""
    start = [p.detach().clone() for p in known.parameters]
    pull = pulls(known, settings.dynamic_decay)
    try:
        with learning(model):
            for parts in passes(model, tokens, batch, settings.dynamic_length):
                metrics.total += float(parts.nll)
                metrics.count += parts.count
                update(known, start, pull, settings)
    finally:
        with torch.no_grad():
            for parameter, value in zip(known.parameters, start, strict=True):
                parameter.copy_(value)
    return metrics.compute()


def pulls(known: Statistics, decay: float) -> list[Tensor]:
    """Return lambda R / mean R, at most 1."""
    return [(decay * root / known.mean).clamp_max(1.0) for root in known.roots]


@torch.no_grad()
def update(known: Statistics, start: list[Tensor], pull: list[Tensor], settings: DynamicConfig) -> None:
    for p, w0, back, root in zip(known.parameters, start, pull, known.roots, strict=True):
        p.add_(back * (w0 - p))
        if p.grad is not None:
            p.addcdiv_(p.grad, root + settings.dynamic_epsilon, value=-settings.dynamic_lr)


def passes(model: LanguageModel, tokens: Tensor, batch: int, length: int) -> Iterator[Any]:
    """Yield the loss of each window; the parameters then have its gradient."""
    device = next(model.parameters()).device
    state = None
    for window in windows(tokens, batch, length, tail="keep"):
        model.zero_grad()
        parts = model.loss(window.inputs.to(device), window.targets.to(device), state)
        parts.objective.backward()
        state = parts.state
        yield parts


@contextmanager
def learning(model: LanguageModel) -> Iterator[None]:
    """Within this, the model has gradients, but neither dropout nor the penalties of training."""
    mode, config = model.training, model.config
    model.eval()
    model.config = replace(config, ar=0.0, tar=0.0, sobolev=0.0)
    try:
        with torch.enable_grad():
            yield
    finally:
        model.config = config
        model.train(mode)
        model.zero_grad()
