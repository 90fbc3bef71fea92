"""What backward reads is saved for it: changing it in place in between is an error, as in plain PyTorch."""

from __future__ import annotations

import pytest
import torch
from fused_runs import FUSED, variant

import linnet

UNITS = [*FUSED, variant(linnet.NRU)]


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("flag", ["mask", "resets"])
@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_a_flag_that_changes_before_backward_is_an_error(unit, flag, backend):
    """As with the `dones` buffer of a reinforcement-learning loop, which the next episode overwrites."""
    rnn = unit.build(16)
    flags = torch.ones(5, 3, dtype=torch.bool) if flag == "mask" else torch.zeros(5, 3, dtype=torch.bool)
    with linnet.backend(backend):
        y, _ = rnn(torch.randn(5, 3, rnn.input_size, dtype=torch.double), **{flag: flags})
    flags.logical_not_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_a_flag_may_change_when_no_gradient_is_wanted(unit):
    rnn, flags = unit.build(16), torch.ones(5, 3, dtype=torch.bool)
    with torch.no_grad():
        y, _ = rnn(torch.randn(5, 3, rnn.input_size, dtype=torch.double), mask=flags)
    before = y.clone()
    flags.logical_not_()
    assert torch.equal(y, before)
