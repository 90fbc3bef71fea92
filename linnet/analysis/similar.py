"""Where else a model is in a similar state, as LSTMVis (Strobelt et al. 2018) searches."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# A channel that hardly changes would otherwise be scaled to the size of its rounding.
LEAST = 1e-6


def similarities(pattern: Tensor, states: Tensor) -> Tensor:
    """Return how similar the states that end at each step are to a pattern, [T]; NaN at the first n - 1.

    pattern   states after n consecutive steps [n, H]
    states    those in which to search [T, H]

    The similarity is the mean cosine of the states of the same place in the order, after each channel is
    shifted and scaled to mean 0 and deviation 1 over `states`: no channel dominates because it is large.
    """
    exact = states.double()
    mean, deviation = exact.mean(0), exact.std(0, correction=0).clamp(min=LEAST)
    scaled, wanted = (exact - mean) / deviation, (pattern - mean) / deviation
    cosines = F.cosine_similarity(wanted[:, None], scaled, dim=-1).to(states.dtype)  # [n, T]
    found = torch.full((len(states),), torch.nan, dtype=states.dtype)
    if len(states) >= len(pattern):
        # The diagonals: the first state of the pattern with step t, the second with t + 1, ...
        windows = [row[k : len(states) - len(pattern) + k + 1] for k, row in enumerate(cosines)]
        found[len(pattern) - 1 :] = torch.stack(windows).mean(0)
    return found
