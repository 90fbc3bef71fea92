"""Calls written for torch's modules: its names of arguments, empty batches, cells, and what `repr` shows."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from helpers import identical, liven, randn, random_state, same, tensors
from torch import Tensor, nn

import linnet
from tools.variants import FORMS

UNITS = list(FORMS.values())
over_units = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.__name__)
over_backends = pytest.mark.parametrize("backend", ["reference", "cpu"])
PAIRS = [
    pytest.param(nn.LSTM, linnet.LSTM, id="LSTM"),
    pytest.param(nn.GRU, linnet.GRU, id="GRU"),
    pytest.param(nn.RNN, linnet.RNN, id="RNN"),
]
over_pairs = pytest.mark.parametrize(("theirs", "ours"), PAIRS)
CELLS = [nn.LSTMCell, nn.GRUCell, nn.RNNCell]


# ---------------------------------------------------------------------------- names of arguments


@over_units
def test_input_and_hx_are_names_of_x_and_state(unit: Any):
    rnn = liven(unit(3, 4, 2))
    x, state = randn(5, 2, 3), random_state(rnn, 2)
    expected = rnn(x, state)
    identical(rnn(input=x, hx=state), expected)
    identical(rnn(x, hx=state), expected)
    identical(rnn(x=x, state=state), expected)
    cell, step = rnn.cells[0], rnn.cells[0](x[0])
    identical(cell(input=x[0]), step)
    _, held = cell.run_step(x[0])
    identical(cell(input=x[1], hx=held), cell(x[1], held))


def test_rnn_takes_its_nonlinearity_where_torch_does():
    """Fourth by position, before the bias; in the cell after it."""
    theirs, ours = (unit(3, 4, 2, "relu", False, True) for unit in (nn.RNN, linnet.RNN))
    assert (ours.bias, ours.batch_first) == (theirs.bias, theirs.batch_first) == (False, True)
    module = liven(nn.RNN(3, 4, nonlinearity="relu"))
    x = randn(5, 2, 3)
    for rnn in (linnet.RNN(3, 4, 1, "relu"), linnet.RNN(3, 4, nonlinearity="relu")):
        linnet.load_foreign(rnn.double(), module.state_dict(), source="torch")
        same(rnn(x)[0], module(x)[0])
        cell = linnet.RNNCell(3, 4, True, "relu", dtype=torch.double)
        cell.load_state_dict({name.removesuffix("_l0"): weight for name, weight in rnn.state_dict().items()})
        same(cell(x[0]), module(x)[0][0])
    order = [name for name in inspect.signature(nn.RNNCell.__init__).parameters if name != "self"]
    assert list(inspect.signature(linnet.RNNCell).parameters)[: len(order)] == order


# ------------------------------------------------------------------- empty batches, lengths of zero


@over_units
@over_backends
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one-way", "both-ways"])
def test_an_empty_batch_gives_empty_results_and_gradients_of_zero(
    unit: Any, backend: str, bidirectional: bool
):
    rnn = unit(3, 4, 2, bidirectional=bidirectional, dropout=0.5)
    x = torch.zeros(5, 0, 3, requires_grad=True)
    with linnet.backend(backend):
        y, state = rnn(x)
        y, state = rnn(x, state, mask=torch.ones(5, 0, dtype=torch.bool))
        cell_y, held = rnn.cells[0].run_step(x[0])
    assert y.shape == (5, 0, rnn.output_size)
    assert all(s.shape[:2] == (2 * rnn.num_directions, 0) for s in tensors(state))
    assert cell_y.shape[0] == 0
    assert all(s.shape[0] == 0 for s in tensors(held))
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
    assert not any(p.grad.any() for p in rnn.parameters() if p.grad is not None)


@over_units
@pytest.mark.parametrize("int8", [False, True], ids=["float32", "int8"])
def test_an_empty_batch_without_gradients_gives_empty_results(unit: Any, int8: bool):
    """A single step, after one with rows, and a sequence."""
    if int8 and unit is linnet.LTC:
        pytest.skip("it has no matrix products")
    rnn, cell = (linnet.quantize(each) if int8 else each for each in (unit(3, 4, 2), unit.cell_class(3, 4)))
    with torch.no_grad():
        for batch in (2, 0, 0):
            for steps in (1, 3):
                y, state = rnn(torch.zeros(steps, batch, 3))
                assert y.shape == (steps, batch, rnn.output_size)
                assert all(s.shape[:2] == (2, batch) for s in tensors(state))
            cell_y, held = cell.run_step(torch.zeros(batch, 3))
            assert cell_y.shape == (batch, cell.output_size)
            assert all(s.shape[0] == batch for s in tensors(held))


@over_pairs
def test_an_empty_batch_is_as_in_torch(theirs: Any, ours: Any):
    x = torch.zeros(5, 0, 3)
    results = [unit(3, 4, 2, bidirectional=True)(x) for unit in (theirs, ours)]
    (y, state), (expected, end) = [(y, tensors(state)) for y, state in results]
    assert y.shape == expected.shape
    assert [s.shape for s in state] == [s.shape for s in end]
    assert ours(3, 4, batch_first=True)(x.transpose(0, 1))[0].shape == (0, 5, 4)
    assert ours(3, 4)(x, lengths=[])[0].shape == (5, 0, 4)


@over_units
@over_backends
def test_a_length_of_zero_leaves_the_initial_state(unit: Any, backend: str):
    """In both directions, and as the sequence beside it were alone."""
    rnn = liven(unit(3, 4, 2, bidirectional=True))
    x, state = randn(5, 2, 3), random_state(rnn, 2)
    for how in ({"lengths": [0, 5]}, {"mask": torch.tensor([[False, True]] * 5)}):
        if backend == "cpu" and unit is linnet.StatisticalRU:
            continue  # it has no kernel
        with linnet.backend(backend):
            y, final = rnn(x, state, **how)
        assert not y[:, 0].any()
        for new, old in zip(tensors(final), tensors(state), strict=True):
            identical(new[:, 0], old[:, 0])
        alone = [s[:, 1:] for s in tensors(state)]
        expected, end = rnn(x[:, 1:], alone[0] if len(alone) == 1 else tuple(alone))
        same(y[:, 1:], expected)
        same([s[:, 1:] for s in tensors(final)], list(tensors(end)))


# ------------------------------------------------------------------------------------- dropout


@over_pairs
@over_backends
def test_a_dropout_of_one_is_as_in_torch(theirs: Any, ours: Any, backend: str):
    """The second layer reads zeros while training; the first gets no gradient."""
    module = liven(theirs(3, 4, 2, dropout=1.0, bidirectional=True))
    rnn = ours(3, 4, 2, dropout=1.0, bidirectional=True, dtype=torch.double)
    linnet.load_foreign(rnn, module.state_dict(), source="torch")
    x = randn(5, 2, 3)
    for training in (True, False):
        module.train(training)
        rnn.train(training)
        with linnet.backend(backend):
            same(rnn(x)[0], module(x)[0])
    rnn.train()(x)[0].sum().backward()
    first = [p.grad for cell in rnn.cells[:2] for p in cell.parameters()]
    assert not any(g.any() for g in first if g is not None)


@over_units
def test_a_variational_dropout_of_one_gives_zeros_too(unit: Any):
    rnn = liven(unit(3, 4, 2, dropout=1.0, variational=True))
    y, _ = rnn(randn(5, 2, 3))
    assert y.isfinite().all()
    torch.testing.assert_close(y, rnn(randn(5, 2, 3, seed=1))[0], rtol=0, atol=0)


# --------------------------------------------------------------------------------------- cells


@pytest.mark.parametrize("theirs", CELLS, ids=lambda cell: cell.__name__)
def test_the_cells_of_torch_return_what_torch_returns(theirs: Any):
    ours = getattr(linnet, theirs.__name__)
    module, cell = theirs(3, 4), ours(3, 4)
    for x in (torch.randn(2, 3), torch.randn(3), torch.zeros(0, 3)):
        found, expected = cell(x), module(x)
        for _ in range(2):  # what a call returns is what the next call takes
            assert isinstance(found, Tensor) == isinstance(expected, Tensor)
            assert [t.shape for t in tensors(found)] == [t.shape for t in tensors(expected)]
            found, expected = cell(x, found), module(x, expected)
    y, state = cell.run_step(x)
    identical(tensors(cell(x)), tensors(state))
    identical(y, tensors(state)[0])


@over_units
def test_the_other_cells_return_output_and_state(unit: Any):
    cell = unit.cell_class(3, 4)
    if hasattr(nn, unit.cell_class.__name__):
        return
    y, state = cell(torch.randn(2, 3))
    assert y.shape == (2, cell.output_size)
    again, _ = cell(torch.randn(2, 3), state)
    assert again.shape == y.shape


def test_the_gru_of_the_ran_paper_returns_output_and_state():
    """Its output is not its state h, so torch's form would lose it."""
    cell = linnet.GRUCell(3, 4, form="ran")
    x = torch.randn(2, 3)
    y, state = cell(x)
    assert state._fields == ("c", "h")
    identical(y, cell.run_step(x)[0])


# ---------------------------------------------------------------------------------------- repr


def test_repr_shows_every_option_that_is_not_its_default():
    first = linnet.LSTM(3, 4)
    assert repr(first).startswith("LSTM(\n  3, 4\n")
    text = repr(linnet.LSTM(3, 4, 2, False, dropout=0.1, norm="rms", proj_size=2, peepholes=True))
    shown = "3, 4, num_layers=2, bias=False, dropout=0.1, norm='rms', proj_size=2, peepholes=True"
    assert text.startswith(f"LSTM(\n  {shown}\n")
    assert repr(linnet.RNN(3, 4, 1, "relu")).startswith("RNN(\n  3, 4, nonlinearity='relu'\n")
    assert repr(linnet.SRUCell(3, 4, norm="layer")).startswith("SRUCell(\n  3, 4, norm='layer'\n")
    first.dropout = 0.5
    assert "3, 4, dropout=0.5" in repr(first)


@over_units
def test_repr_is_a_call_that_builds_the_same(unit: Any):
    shown = unit(3, 4).extra_repr()
    assert shown == "3, 4"
    options = {"num_layers": 2, "bidirectional": True, "input_dropout": 0.5, "prenorm": "rms"}
    rnn = unit(3, 4, **options, device="cpu", dtype=torch.double)
    again = eval(f"unit({rnn.extra_repr()})", {"unit": unit})
    assert again.extra_repr() == rnn.extra_repr()
    assert all(f"{name}={value!r}" in rnn.extra_repr() for name, value in options.items())
    assert "dtype" not in rnn.extra_repr()
