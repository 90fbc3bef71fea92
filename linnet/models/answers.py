"""What a forecaster says about a value to come: some of its quantiles, or a distribution.

A model gives a middle m and further numbers r for each value. Both are in the scale of its window.

    Quantiles    m is the median; q_i = q_{i-1} + softplus(r_i) above it, and likewise below, so that
                 quantiles never cross. The loss is the mean of max(p e, (p - 1) e) over the levels p,
                 e = y - q
    StudentT     m + softplus(r_1) t, t of Student's distribution with 2 + softplus(r_2) degrees of freedom.
                 The loss is the negative logarithm of its density
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.polynomial.chebyshev import chebinterpolate
from torch import Tensor

ANSWERS = ("quantiles", "student")
NARROWEST = 1e-3
"""The smallest scale of a Student distribution: a constant series would have a density without a limit."""

DEGREE = 16
"""Of the polynomials for the quantiles of a Student distribution: 12 digits for levels up to 0.9999."""


class Answer(ABC):
    """How the outputs of a model are read; `extra` is the number of outputs besides the middle."""

    extra: int

    def __init__(self, levels: Sequence[float]):
        self.levels = check_levels(levels)

    @abstractmethod
    def losses(self, middle: Tensor, extra: Tensor, truth: Tensor) -> Tensor:
        """Return the loss of each value, for middle and truth [...] and extra [..., self.extra]."""

    @abstractmethod
    def quantiles(self, middle: Tensor, extra: Tensor) -> Tensor:
        """Return the quantiles of all levels, [..., levels]."""


class Quantiles(Answer):
    def __init__(self, levels: Sequence[float]):
        super().__init__(levels)
        self.extra, self.place = len(self.levels) - 1, self.levels.index(0.5)

    def quantiles(self, middle: Tensor, extra: Tensor) -> Tensor:
        widths = F.softplus(extra)
        found = [middle]
        for number in reversed(range(self.place)):
            found.insert(0, found[0] - widths[..., number])
        for number in range(self.place, self.extra):
            found.append(found[-1] + widths[..., number])
        return torch.stack(found, -1)

    def losses(self, middle: Tensor, extra: Tensor, truth: Tensor) -> Tensor:
        errors, levels = truth[..., None] - self.quantiles(middle, extra), middle.new_tensor(self.levels)
        return torch.maximum(levels * errors, (levels - 1) * errors).mean(-1)


class StudentT(Answer):
    extra = 2

    def parts(self, extra: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scale and the degrees of freedom, above 2 so that there is a variance."""
        scale, freedom = F.softplus(extra).unbind(-1)
        return scale + NARROWEST, freedom + 2

    def losses(self, middle: Tensor, extra: Tensor, truth: Tensor) -> Tensor:
        scale, freedom = self.parts(extra)
        return -torch.distributions.StudentT(freedom, middle, scale, validate_args=False).log_prob(truth)

    def quantiles(self, middle: Tensor, extra: Tensor) -> Tensor:
        scale, freedom = self.parts(extra)
        return middle[..., None] + scale[..., None] * self.standard(freedom)

    def standard(self, freedom: Tensor) -> Tensor:
        """Return the quantiles of the distribution with scale 1, by a polynomial in 1 / freedom <= 1/2."""
        x = (4 / freedom - 1)[..., None]
        first, *others = freedom.new_tensor(self.chebyshev)
        one, two = torch.zeros_like(x), torch.zeros_like(x)
        for each in reversed(others):
            one, two = each + 2 * x * one - two, one
        return first + x * one - two

    @cached_property
    def chebyshev(self) -> np.ndarray:
        """The coefficients of Chebyshev polynomials, [DEGREE + 1, levels]."""
        from scipy.stats import t

        def quantile(x: np.ndarray, level: float) -> np.ndarray:
            return t.ppf(level, 4 / (x + 1))

        of_level: list[Any] = [partial(quantile, level=level) for level in self.levels]
        return np.stack([chebinterpolate(each, DEGREE) for each in of_level], 1)


def check_levels(levels: Sequence[float]) -> tuple[float, ...]:
    given = tuple(levels)
    ascending = all(one < other for one, other in itertools.pairwise(given))
    if 0.5 not in given or not ascending or not (given[0] > 0 and given[-1] < 1):
        raise ValueError(
            "quantiles are levels between 0 and 1 in ascending order, 0.5 among them, such as 0.1 0.5 0.9; "
            f"got {' '.join(map(str, given)) or 'none'}"
        )
    return given


def answer_of(kind: str, levels: Sequence[float]) -> Answer:
    return Quantiles(levels) if kind == "quantiles" else StudentT(levels)
