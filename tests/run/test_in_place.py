"""What backward reads is saved for it: changing it in place in between is an error, as in plain PyTorch."""

from __future__ import annotations

import pytest
import torch
from fused_runs import FORMS, variant

import linnet

UNITS = [*FORMS, variant(linnet.NRU)]


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


def gradients_after(rnn, x, change):
    """The gradients of x and of all parameters if `change` is applied to the output and the state."""
    rnn.zero_grad()
    x = x.clone().requires_grad_()
    torch.manual_seed(0)
    y, state = rnn(x)
    results = [change(each) for each in (y, *(state if isinstance(state, tuple) else (state,)))]
    sum((result * result.detach().cos()).sum() for result in results).backward()
    return [x.grad, *(parameter.grad.clone() for parameter in rnn.parameters())]


def in_place(tensor):
    return tensor.mul_(2).sub_(0.5)


def in_copies(tensor):
    return tensor.clone().mul_(2).sub_(0.5)


def check_in_place(rnn, x):
    expected, found = (gradients_after(rnn, x, change) for change in (in_copies, in_place))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


# The loop, on which SCRN runs short sequences, returns states that torch's own operations have saved.
@pytest.mark.parametrize(("steps", "batch"), [(1, 5), (4, 2), (4, 9)])
@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.unit is not linnet.SCRN], ids=str)
def test_results_may_be_changed_in_place_before_backward(unit, steps, batch):
    """As those of nn.GRU. The gradients are those of a copy that is changed."""
    rnn = unit.build(16)
    check_in_place(rnn, torch.randn(steps, batch, rnn.input_size, dtype=torch.double))


OPTIONS = [{"norm": "layer"}, {"zoneout": 0.3}, {"batch_first": True}, {"bidirectional": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("unit", [linnet.LRN, linnet.GRU], ids=lambda unit: unit.__name__)
def test_results_with_options_may_be_changed_in_place_before_backward(unit, options):
    check_in_place(variant(unit).build(16, **options), torch.randn(4, 9, 7, dtype=torch.double))


@pytest.mark.parametrize("unit", [linnet.GRU, linnet.LSTM], ids=lambda u: u.__name__)
def test_a_dropped_state_and_a_second_backward_see_the_output_of_the_scan(unit):
    rnn = variant(unit).build(16, state_dropout=0.4)
    x = torch.randn(4, 9, 7, dtype=torch.double)
    check_in_place(rnn, x)
    y, _ = rnn.eval()(x.requires_grad_())
    y.mul_(2)
    first, second = (torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("unit", ["GRU", "LSTM", "RAN", "LRN"])
@pytest.mark.parametrize("grad", [True, False])
def test_the_output_of_a_module_without_gradients_may_be_changed_in_place(unit, grad):
    """By an operation that has gradients, too: the output must not be a view of a buffer."""
    rnn = getattr(linnet, unit)(7, 16, norm="layer").requires_grad_(False)
    with torch.set_grad_enabled(grad):
        y, _ = rnn(torch.randn(4, 9, 7))
    factor = torch.full((1,), 3.0, requires_grad=True)
    before = y.clone()
    y.mul_(factor)
    torch.testing.assert_close(y, 3 * before)
    y.sum().backward()
    torch.testing.assert_close(factor.grad, before.sum()[None])


def test_a_changed_output_does_not_keep_the_states_alive_after_backward():
    """What detects a change has no memory of its own: only `y` does."""
    rnn, x = linnet.GRU(4, 16), torch.randn(3, 5, 4)
    y, _ = rnn(x)
    loss, counter = y.sum(), y.grad_fn.changes.counter
    loss.backward()
    assert counter.untyped_storage().nbytes() == 0
