"""Penalties that are added to a loss to keep activations small and smooth."""

from __future__ import annotations

from torch import Tensor


def activation_penalty(output: Tensor) -> Tensor:
    """AR (Merity et al. 2017): the mean square of the output."""
    return output.square().mean()


def temporal_penalty(output: Tensor) -> Tensor:
    """TAR (Merity et al. 2017): the mean square of its change from step to step, [T, B, F]."""
    if len(output) < 2:
        return 0 * output.sum()
    return (output[1:] - output[:-1]).square().mean()


def sobolev_penalty(h: Tensor, weight: Tensor, keep: float = 1.0) -> Tensor:
    """The sum over time of |dh_t / dh_{t-1}|^2 for h_t = sigmoid(a_t + h_{t-1} R), a value for each sequence.

    Kabdolov et al. (2018), section 7: the derivative is R diag(sigma'), and so its squared norm is
    (sigma')^2 v, where v_j is the squared norm of column j of R; and sigma' = h (1 - h).

    h        [T, B, H]
    weight   [H, H], R as it is stored: a row for each column of R
    keep     1 - rate of the dropout on h, if it has one: then h = m sigma with m = 0 or 1/keep, the
             derivative is R diag(m sigma'), and m sigma' = h (1 - keep h)
    """
    slope = h * (1 - keep * h)
    return (slope.square() @ weight.square().sum(1)).sum(0)
