"""LSTM, GRU and RNN hold torch's own parameters: what works on those of nn.LSTM gives the same here."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from helpers import randn, same
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm
from torch.nn.utils.parametrize import register_parametrization
from torch.optim import SGD, Adam, AdamW

import linnet

NAMES = ("LSTM", "GRU", "RNN")
over_units = pytest.mark.parametrize("name", NAMES)
STACKS: list[dict[str, Any]] = [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}]


def twins(name: str, *sizes: int, **options: Any) -> tuple[Any, Any]:
    """torch's module and Linnet's, made with the same seed."""
    made = []
    for package in (nn, linnet):
        torch.manual_seed(3)
        made.append(getattr(package, name)(*(sizes or (3, 4)), **options, dtype=torch.double))
    return made[0], made[1]


def output(module: Any) -> Tensor:
    torch.manual_seed(5)  # what is computed for a call may draw numbers
    return module(randn(6, 2, 3))[0]


# -------------------------------------------------------------------------------- the same parameters


@over_units
@pytest.mark.parametrize("options", STACKS, ids=["one", "four", "no bias"])
def test_names_order_and_first_numbers_are_torchs(name: str, options: dict[str, Any]):
    theirs, ours = twins(name, **options)
    for (their_name, their), (our_name, our) in zip(
        theirs.named_parameters(), ours.named_parameters(), strict=True
    ):
        assert our_name == their_name
        assert torch.equal(our, their)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell", "RNNCell"])
def test_cells_have_those_of_torchs_cells(name: str):
    theirs, ours = twins(name)
    assert [each for each, _ in ours.named_parameters()] == [each for each, _ in theirs.named_parameters()]
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_peepholes_come_after_torchs():
    names = [name for name, _ in linnet.LSTM(3, 4, peepholes=True).named_parameters()]
    assert names[:4] == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    assert len(names) == 7


# ------------------------------------------------------------------------------------------- training


def train(module: Any, optimiser: torch.optim.Optimizer, steps: int = 12) -> list[float]:
    x, losses = randn(6, 2, 3), []
    for _ in range(steps):
        loss = (module(x)[0] - 0.3).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


OPTIMISERS: list[Callable[..., torch.optim.Optimizer]] = [
    lambda ps: SGD(ps, 0.5, momentum=0.9),
    lambda ps: Adam(ps, 0.02),
    lambda ps: AdamW(ps, 0.02, weight_decay=0.3),
]


@over_units
@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=["sgd", "adam", "decay"])
def test_training_follows_that_of_torch(name: str, optimiser: Callable):
    theirs, ours = twins(name)
    expected = train(theirs, optimiser(theirs.parameters()))
    torch.testing.assert_close(train(ours, optimiser(ours.parameters())), expected, rtol=1e-11, atol=0)
    assert all(after < before for before, after in pairwise(expected[-4:]))


def test_the_state_of_an_optimiser_goes_both_ways():
    theirs, ours = twins("LSTM")
    first, second = Adam(theirs.parameters(), 0.02), Adam(ours.parameters(), 0.02)
    train(theirs, first, 5)
    ours.load_state_dict(theirs.state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    torch.testing.assert_close(train(ours, second, 5), train(theirs, first, 5), rtol=1e-11, atol=0)
    theirs.load_state_dict(ours.state_dict())
    first.load_state_dict(copy.deepcopy(second.state_dict()))
    torch.testing.assert_close(train(theirs, first, 5), train(ours, second, 5), rtol=1e-11, atol=0)


# ------------------------------------------------------------------------------- ties and assignments


class Policy(nn.Module):
    """A cell for acting and a layer for learning, with the same weights."""

    def __init__(self, package: Any):
        super().__init__()
        torch.manual_seed(3)
        self.layer = package.LSTM(3, 4, dtype=torch.double)
        self.cell = package.LSTMCell(3, 4, dtype=torch.double)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(self.cell, name, getattr(self.layer, f"{name}_l0"))

    def act(self, x: Tensor) -> Tensor:
        state = None
        for step in x:
            state = self.cell(step, state)
        return state[0]  # type: ignore[index]

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        return self.layer(x)


def test_a_cell_that_is_tied_to_a_layer_learns_with_it():
    theirs, ours = Policy(nn), Policy(linnet)
    assert len(list(ours.parameters())) == 4
    for policy in (theirs, ours):
        with torch.no_grad():
            policy.act(randn(2, 2, 3))
        train(policy, Adam(policy.parameters(), 0.05), 3)
    same(ours.act(randn(6, 2, 3)), theirs.act(randn(6, 2, 3)))
    same(ours.act(randn(6, 2, 3)), ours.layer(randn(6, 2, 3))[0][-1])


def test_an_assigned_parameter_counts_also_when_compiled():
    theirs, ours = twins("GRU")
    expected = output(theirs)
    for name, weight in theirs.named_parameters():
        setattr(ours, name, nn.Parameter(weight.detach() + 1))
    torch.compiler.reset()
    compiled = torch.compile(ours, fullgraph=True, backend="eager")
    for name, weight in theirs.named_parameters():
        setattr(ours, name, weight)
    same(compiled(randn(6, 2, 3))[0], expected)
    assert ours.cells[0].weight_hh is theirs.weight_hh_l0


@over_units
def test_functional_call_takes_torchs_names(name: str):
    theirs, ours = twins(name)
    given = {key: weight.detach() * 2 for key, weight in theirs.named_parameters()}
    some = {key: given[key] for key in ("weight_hh_l0", "bias_hh_l0")}
    for each in (given, some):
        (expected, _), (found, _) = (functional_call(m, each, (randn(6, 2, 3),)) for m in (theirs, ours))
        same(found, expected)
    same(output(ours), output(theirs))


def test_weights_per_sample_by_vmap():
    theirs, ours = twins("RNN")
    x = randn(5, 3)

    def first(weight: Tensor) -> Tensor:
        return functional_call(ours, {"weight_ih_l0": weight}, (x,))[0]

    weights = torch.stack([theirs.weight_ih_l0, -theirs.weight_ih_l0]).detach()
    same(torch.func.vmap(first)(weights), torch.stack([first(weight) for weight in weights]))


# ------------------------------------------------------------------------------------ parametrizations


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


CHANGES: dict[str, Callable[[Any], object]] = {
    "pruned": lambda rnn: prune.l1_unstructured(rnn, "weight_hh_l0", 0.5),
    "weight norm": lambda rnn: parametrizations.weight_norm(rnn, "weight_hh_l0"),
    # In evaluation: while training, each reading of the weight improves its estimate of the norm.
    "spectral norm": lambda rnn: parametrizations.spectral_norm(rnn, "weight_ih_l0").parametrizations.eval(),
    "orthogonal": lambda rnn: parametrizations.orthogonal(rnn, "weight_hh_l0"),
    "bias": lambda rnn: register_parametrization(rnn, "bias_hh_l0", Doubled()),
    "weight norm by a hook": lambda rnn: weight_norm(rnn, "weight_hh_l0"),
    "spectral norm by a hook": lambda rnn: spectral_norm(rnn, "weight_hh_l0"),
}


@over_units
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
def test_parametrizations_by_torchs_names_train_as_with_torch(name: str, change: Callable):
    theirs, ours = twins(name)
    losses = []
    for module in (theirs, ours):
        torch.manual_seed(7)
        output(module)  # what was prepared before must not be used afterwards
        change(module)
        torch.manual_seed(7)
        losses.append(train(module, SGD(module.parameters(), 0.3), 4))
        with torch.no_grad():
            losses[-1] += [output(module.eval()).square().sum().item()]
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-10, atol=0)
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_removed_parametrizations_leave_parameters():
    theirs, ours = twins("LSTM")
    for module in (theirs, ours):
        prune.random_unstructured(module, "weight_hh_l0", 0.5)
        output(module)
        prune.remove(module, "weight_hh_l0")
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    same(output(ours), output(theirs))


# --------------------------------------------------------------------------- moves, copies, old files


def test_new_memory_and_copies_stay_one():
    rnn = linnet.LSTM(3, 4, 2)
    made = [rnn.double(), copy.deepcopy(rnn), copy.deepcopy(rnn).to("meta").to_empty(device="cpu")]
    made[2].reset_parameters()
    for each in made:
        inside = [cell.weight_hh for cell in each.cells]
        assert inside[0] is each.weight_hh_l0
        assert inside[1] is each.weight_hh_l1
        assert len(list(each.parameters())) == 8
    same(output(made[1]), output(made[0]))
    bound = 0.5 + 1e-9  # 1 / sqrt(4)
    assert all(weight.abs().max() <= bound for weight in made[2].parameters())


@pytest.mark.parametrize("name", NAMES)
def test_files_from_before_load(name: str):
    """They had one bias and the names of the projections inside."""
    rnn = getattr(linnet, name)(3, 4, bidirectional=True, dtype=torch.double)
    with torch.no_grad():
        for cell in rnn.cells:
            cell.bias_hh[: len(cell.bias_hh) - cell.input.apart] = 0
    old = {}
    for number, cell in enumerate(rnn.cells):
        prefix = f"directions.{number}.cell."
        old |= {f"{prefix}input.weight_ih": cell.weight_ih, f"{prefix}input.bias_ih": cell.bias_ih}
        old[f"{prefix}recurrent.weight_hh"] = cell.weight_hh
        if cell.input.apart:
            old[f"{prefix}recurrent.bias_hh"] = cell.bias_hh[-cell.input.apart :]
    again = getattr(linnet, name)(3, 4, bidirectional=True, dtype=torch.double)
    again.load_state_dict({key: tensor.detach().clone() for key, tensor in old.items()})
    same(output(again), output(rnn))


# --------------------------------------------------------------------------------- the rest of torch's


@over_units
def test_the_methods_of_torchs_base_class(name: str):
    theirs, ours = twins(name, num_layers=2)
    assert isinstance(ours, nn.RNNBase)
    assert ours.mode == theirs.mode
    x, order = randn(6, 2, 3), torch.tensor([1, 0])
    _, state = ours(x)
    assert ours.get_expected_hidden_size(x, None) == theirs.get_expected_hidden_size(x, None)
    ours.check_forward_args(x, state, None)
    same(ours.permute_hidden(state, order), theirs.permute_hidden(theirs(x)[1], order))
    for module in (ours, theirs):
        with pytest.raises(RuntimeError, match=r"Expected hidden"):
            module.check_forward_args(x[:, :1], state, None)


def test_the_mode_of_rnn_is_its_nonlinearity():
    assert linnet.RNN(3, 4, nonlinearity="relu").mode == nn.RNN(3, 4, nonlinearity="relu").mode
