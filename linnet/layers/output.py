"""The output of a classifier: a linear layer with a norm limit, and the loss with smoothed targets."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.base.options import check_number, check_rate
from linnet.layers.softmax import IGNORE


class LimitedLinear(nn.Linear):
    """A linear layer in which the weights of each output have at most the norm `max_norm` (Kim 2014: 3).

    The weights are scaled in place when they are used, like those of nn.Embedding(max_norm=...).
    """

    def __init__(self, input_size: int, output_size: int, max_norm: float, device=None, dtype=None):
        check_number("max_norm", max_norm, least=0)
        super().__init__(input_size, output_size, device=device, dtype=dtype)
        self.max_norm = max_norm

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.renorm_(2, 0, self.max_norm)
        return super().forward(x)


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """The cross entropy of each item with smoothed targets, minus the entropy of the targets: at best 0.

    logits      [B, K]
    targets     [B]: classes; -100 gives 0
    smoothing   the probability of the other classes together (the LRN authors: 0.1)

    F.cross_entropy gives its smoothing to all K classes, so it needs K / (K - 1) times as much.
    """
    check_rate("smoothing", smoothing)
    classes = logits.shape[-1]
    if not smoothing or classes < 2:
        return F.cross_entropy(logits, targets, reduction="none", ignore_index=IGNORE)
    every = smoothing * classes / (classes - 1)
    loss = F.cross_entropy(logits, targets, reduction="none", ignore_index=IGNORE, label_smoothing=every)
    others = smoothing * math.log(smoothing / (classes - 1))
    entropy = -(1 - smoothing) * math.log(1 - smoothing) - others
    return loss - entropy * (targets != IGNORE).to(loss.dtype)
