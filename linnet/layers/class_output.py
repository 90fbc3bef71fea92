"""The output of a classifier: a linear layer with a norm limit, and the loss with smoothed targets."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_number, check_rate
from linnet.layers.softmax import IGNORE


class LimitedLinear(nn.Linear):
    """A linear layer in which the weights of each output have at most the norm `max_norm` (Kim 2014: 3).

    The weights are scaled in place when they are used, like those of nn.Embedding(max_norm=...).
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        max_norm: float,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        check_number("max_norm", max_norm, least=0)
        super().__init__(input_size, output_size, device=device, dtype=dtype)
        self.max_norm = max_norm

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.renorm_(2, 0, self.max_norm)
        return super().forward(x)


def smoothed_cross_entropy(
    logits: Tensor, targets: Tensor, smoothing: float = 0.0, excluded: int | None = None
) -> Tensor:
    """The cross entropy of each item with smoothed targets, minus the entropy of the targets: at best 0.

    logits      [B, K]
    targets     [B]: classes; -100 gives 0
    smoothing   the probability of the other classes together (the LRN authors: 0.1)
    excluded    a class, such as padding, with a smoothed target of 0 (OpenNMT-py)
    """
    check_rate("smoothing", smoothing)
    classes = logits.shape[-1]
    others = classes - 1 if excluded is None else classes - 2
    if not smoothing or others < 1:
        return F.cross_entropy(logits, targets, reduction="none", ignore_index=IGNORE)
    share = smoothing / others
    # F.cross_entropy gives its smoothing to all classes alike, also to the target and to the excluded one.
    loss = F.cross_entropy(
        logits, targets, reduction="none", ignore_index=IGNORE, label_smoothing=share * classes
    )
    entropy = -(1 - smoothing) * math.log(1 - smoothing) - smoothing * math.log(share)
    if excluded is not None:
        # One gather for both: the gradient of each is as large as the logits.
        both = torch.stack([torch.full_like(targets, excluded), targets.clamp(min=0)], -1)
        none, right = logits.gather(-1, both).unbind(-1)
        loss = loss + share * (none - right)
    return (loss - entropy).masked_fill(targets == IGNORE, 0)
