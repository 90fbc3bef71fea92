"""A module that is dropped frees its parameters at once, without the garbage collector."""

from __future__ import annotations

import gc
import weakref
from itertools import product
from typing import Any

import pytest
import torch
from helpers import tensors

import linnet
from tools.variants import FORMS

# By these units a second derivative goes through the loop over the step that kernels were traced from. The
# others are torch's own doing; its second derivative of EURNN's step keeps a cycle.
TWICE = [linnet.SRU, linnet.LRN, linnet.RAN, linnet.SCRN, linnet.LSTM, linnet.GRU]


def use(module: torch.nn.Module, x: torch.Tensor, how: str) -> None:
    with torch.set_grad_enabled(how != "no_grad"):
        y, state = module.run_step(x) if isinstance(module, linnet.Cell) else module(x)
        if how == "backward":
            (y.sum() + sum(s.sum() for s in tensors(state))).backward()
        if how == "twice":
            (gradient,) = torch.autograd.grad(y.sum(), [next(module.parameters())], create_graph=True)
            gradient.sum().backward()


@pytest.mark.parametrize(
    ("unit", "how"),
    [
        *product(FORMS.values(), ["built", "no_grad", "forward", "backward"]),
        *product(TWICE, ["twice"]),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
@pytest.mark.parametrize("step", [False, True], ids=["sequence", "step"])
def test_a_dropped_module_frees_its_parameters(unit, step, how):
    module: Any = unit.cell_class(4, 16) if step else unit(4, 16, num_layers=2, zoneout=0.1)
    gc.disable()
    try:
        if how != "built":
            use(module, torch.randn(2, 4) if step else torch.randn(3, 2, 4), how)
        watched = [weakref.ref(parameter) for parameter in module.parameters()]
        del module
        assert [reference() for reference in watched] == [None] * len(watched)
    finally:
        gc.enable()


def test_a_graph_outlives_its_module():
    """The second derivative goes by the loop over the unit's step, which must still be there."""
    rnn, x = (
        linnet.SRU(4, 4, dtype=torch.double),
        torch.randn(3, 2, 4, dtype=torch.double, requires_grad=True),
    )
    y, _ = rnn(x)
    del rnn
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    gradient.sum().backward()
    assert x.grad is not None
