"""The level of a series: reading all steps at once equals reading them one by one."""

from __future__ import annotations

import pytest
import torch

from linnet.models import level


@pytest.mark.parametrize("count", [1, level.TOGETHER, 2 * level.TOGETHER + 3])
@pytest.mark.parametrize("relative", [True, False])
def test_all_steps_at_once_equal_steps_one_by_one(count: int, relative: bool):
    x = 100 + torch.randn(count, 3, 2, dtype=torch.float64)
    x = torch.where(torch.rand_like(x) < 0.2, float("nan"), x)
    state = start = level.start(x[0])
    steps = []
    for each in x:
        now, state = level.advance(each, state, 14, relative)
        steps.append(now)
    together, reached = level.advance(x, start, 14, relative, add=level.add_all)
    torch.testing.assert_close(together, level.Level(*map(torch.stack, zip(*steps, strict=True))))
    torch.testing.assert_close(level.LevelState(*(each[-1] for each in reached)), state)
