"""Groups of parameters for an optimiser."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import linnet


def test_a_model_without_advice_is_one_group():
    model = nn.Sequential(linnet.SRU(3, 4), nn.Linear(4, 2))
    (group,) = linnet.parameter_groups(model, lr=0.1, weight_decay=0.01)
    assert len(group["params"]) == len(list(model.parameters()))
    assert (group["lr"], group["weight_decay"]) == (0.1, 0.01)


def test_lru_trains_its_lambda_slowly_and_without_decay():
    model = nn.ModuleDict({"rnn": linnet.LRU(3, 4), "head": nn.Linear(4, 2)})
    usual, slow = linnet.parameter_groups(model, lr=0.1, weight_decay=0.01)
    cell = model["rnn"].first_cell
    expected = {id(p) for p in (cell.nu, cell.theta, cell.gamma, cell.input.weight)}
    assert {id(p) for p in slow["params"]} == expected
    assert (slow["lr"], slow["weight_decay"]) == (0.05, 0.0)
    assert len(usual["params"]) + len(slow["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("unit", "name"),
    [(linnet.IndRNN, "u"), (linnet.MinGRU, "input.weight"), (linnet.MinLSTM, "input.weight")],
)
def test_what_authors_leave_out_of_weight_decay_keeps_its_rate(unit: type[linnet.Recurrent], name: str):
    rnn = unit(3, 4)
    usual, undecayed = linnet.parameter_groups(rnn, lr=0.1, weight_decay=0.01)
    assert undecayed == {"params": [rnn.first_cell.get_parameter(name)], "lr": 0.1, "weight_decay": 0.0}
    assert usual["weight_decay"] == 0.01


def test_an_optimiser_takes_the_groups_and_scales_their_steps():
    torch.manual_seed(0)
    rnn = linnet.LRU(3, 4)
    cell, before = rnn.first_cell, {n: p.detach().clone() for n, p in rnn.first_cell.named_parameters()}
    optimiser = torch.optim.SGD(linnet.parameter_groups(rnn, lr=0.1, slow=0.1))
    rnn(torch.randn(5, 2, 3))[0].square().sum().backward()
    optimiser.step()
    for name, rate in (("nu", 0.01), ("out.c.weight", 0.1)):
        parameter = cell.get_parameter(name)
        torch.testing.assert_close(before[name] - parameter, rate * parameter.grad)


def test_rates_are_checked():
    with pytest.raises(ValueError, match="lr"):
        linnet.parameter_groups(linnet.LRU(3, 4), lr=-1.0)
