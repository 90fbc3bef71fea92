"""Batches of gradients, as in vectorised Jacobians: kernels run backward once for each sample."""

from __future__ import annotations

import pytest
import torch
from fused_runs import FORMS, variant
from torch.autograd.functional import hessian, jacobian

import linnet
from linnet.layers.softmax import mixture_nll

UNITS = [*FORMS, variant(linnet.NRU)]


def one_by_one(outputs, inputs, above):
    """The gradients of each sample, stacked."""
    found = [torch.autograd.grad(outputs, inputs, each, retain_graph=True) for each in above]
    return [torch.stack(each) for each in zip(*found, strict=True)]


def check_batch(y, inputs):
    above = torch.randn(3, *y.shape, dtype=y.dtype)
    expected = one_by_one(y, inputs, above)
    found = torch.autograd.grad(y, inputs, above, is_grads_batched=True, retain_graph=True)
    torch.testing.assert_close(list(found), expected, rtol=1e-12, atol=1e-12)
    # torch.func has another vmap than torch.autograd.
    found = torch.vmap(lambda each: torch.autograd.grad(y, inputs, each, retain_graph=True))(above)
    torch.testing.assert_close(list(found), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_a_batch_of_gradients_of_a_unit(unit, steps):
    rnn = unit.build(16)
    x = torch.randn(steps, 5, rnn.input_size, dtype=torch.double, requires_grad=True)
    check_batch(rnn(x)[0], [x, *rnn.parameters()])


@pytest.mark.parametrize("options", [{"norm": "layer"}, {"zoneout": 0.3}, {"bidirectional": True}], ids=str)
def test_a_batch_of_gradients_with_options(options):
    rnn = variant(linnet.GRU).build(16, **options)
    x = torch.randn(4, 5, 7, dtype=torch.double, requires_grad=True)
    check_batch(rnn(x)[0], [x, *rnn.parameters()])


@pytest.mark.parametrize("unit", [linnet.SRU, linnet.GRU], ids=lambda unit: unit.__name__)
def test_vectorised_jacobians_and_hessians(unit):
    rnn = variant(unit).build(5, input_size=3).requires_grad_(False)
    x = torch.randn(3, 2, 3, dtype=torch.double)

    def output(x):
        return rnn(x)[0].sum((0, 1))

    found = jacobian(output, x, vectorize=True, create_graph=True)
    torch.testing.assert_close(found, jacobian(output, x), rtol=1e-12, atol=1e-12)
    found, expected = (hessian(lambda x: output(x).sin().sum(), x, vectorize=v) for v in (True, False))
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def test_a_batch_of_gradients_of_a_crf_and_of_a_mixture_of_softmaxes():
    crf = linnet.CRF(4).double()
    emissions = torch.randn(5, 3, 4, dtype=torch.double, requires_grad=True)
    check_batch(crf(emissions, torch.randint(4, (5, 3)), reduction="none"), [emissions, *crf.parameters()])
    x, weight = (torch.randn(*shape, dtype=torch.double, requires_grad=True) for shape in ((6, 2, 3), (9, 3)))
    prior = torch.rand(6, 2, dtype=torch.double).softmax(-1).requires_grad_()
    check_batch(mixture_nll(x, weight, None, torch.randint(9, (6,)), prior), [x, weight, prior])
