"""How far the states of a model move at each word, and whether they move further at rare words (SCRN paper).

(values,) = linnet.record(rnn, x)
moves(values)["s"]                         # [T, B]: the mean change of the channels of s at each step
rank_correlation(moves(values)["h"], rarity)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from linnet.recurrent.recorded_values import StepValues


def changes(values: StepValues, state: str) -> Tensor:
    """Return how the step changed a state, [T, B, size]: what NRU's Figure 6 shows of its memory."""
    return values[state] - values.before[state]


def moves(values: StepValues) -> dict[str, Tensor]:
    """Return the mean absolute change of each state at each step, [T, B]; of several, also of all together.

    The mean over channels and not the sum: states of different sizes can then be compared.
    """
    by_state = {name: changes(values, name).abs() for name in values.before}
    if len(by_state) > 1:
        by_state[" ".join(by_state)] = torch.cat(list(by_state.values()), -1)
    return {name: change.mean(-1) for name, change in by_state.items()}


def rarity(counts: Mapping[str, int], words: list[str]) -> Tensor:
    """Return -log of the share of each word among all counted words; an unknown word counts as one."""
    total = sum(counts.values())
    return torch.tensor([total / max(counts.get(word, 0), 1) for word in words]).log()


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Return Spearman's rank correlation of two series of the same length; equal values share a rank."""
    ranks = torch.stack([ranks_of(a.flatten()), ranks_of(b.flatten())])
    return float(torch.corrcoef(ranks)[0, 1])


def ranks_of(values: Tensor) -> Tensor:
    """Return the ranks, the mean rank for equal values."""
    _, groups, counts = values.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0)
    return (last - (counts - 1) / 2)[groups].double()
