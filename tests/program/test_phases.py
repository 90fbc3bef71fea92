"""Steps with matrix products within: how they are cut into phases, and that any number of products works."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from fused_runs import Size, Variant, agree, check, draw, draw_state, enliven, over, plans_of, run
from torch import Tensor, nn

import linnet
from linnet.program.phases import Phases, phases_of
from linnet.program.plan import plan_called
from linnet.units.lstm import LSTMState


class NarrowCell(linnet.Cell):
    """Two products within the step, through a narrow layer, and a product with a bias after it."""

    State = LSTMState
    recurrence = {"recurrent": "h"}

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device=None, dtype=None, **projection
    ):
        super().__init__(input_size, hidden_size, {"h": 4, "c": hidden_size}, output_size=4)
        where: Any = {"device": device, "dtype": dtype}
        parts = {"a": hidden_size, "b": hidden_size}
        self.input = linnet.Projection(input_size, parts, bias, **where, **projection)
        self.recurrent = linnet.Projection(4, {"ah": hidden_size, "bh": hidden_size}, **where)
        self.down = linnet.Projection(hidden_size, {"d": 3, "e": 3}, bias, **where)
        self.up = linnet.Projection(3, {"u": hidden_size}, ("u",), **where)
        self.projection = linnet.Projection(hidden_size, {"y": 4}, True, **where)
        self.p = nn.Parameter(torch.empty(hidden_size, **where))

    def step(self, a: Tensor, b: Tensor, ah: Tensor, bh: Tensor, c: Tensor) -> tuple[Tensor, Any]:
        f = torch.sigmoid(a + ah + self.p * c)
        narrow = self.down(f * c)
        u = self.up(torch.tanh(narrow["d"]) * narrow["e"])["u"]
        c = f * c + (1 - f) * torch.tanh(b + bh + u)
        return c * u, {"h": c, "c": c}


class Narrow(linnet.Recurrent, cell=NarrowCell):
    """A unit with three products within its step, of three sizes."""


SIZES = [Size(1, 3, 5, "nothing"), Size(9, 5, 19, "mask and resets"), Size(6, 1, 33, "lengths")]


def phases(rnn: linnet.Recurrent) -> Phases:
    return phases_of(plans_of(rnn)[0].plan.traced)


@over("size", SIZES)
def test_any_number_of_products_of_any_sizes(size: Size):
    check(Variant(Narrow, {}), size)


@over("options", [{"zoneout": 0.2}, {"state_dropout": 0.2, "bias": False}])
def test_noise_on_states_of_different_sizes(options: dict):
    rnn = Variant(Narrow, options).build(5)
    x, state = draw(4, 3, 7, seed=5).requires_grad_(), draw_state(rnn, 3)
    results = []
    for backend in ("cpu", "reference"):
        torch.manual_seed(0)
        results.append(run(backend, rnn, x, state))
    agree(*results, 1e-13)


def test_a_step_is_cut_at_its_products():
    """What a product reads is computed early, and a state once nothing reads its previous value any more."""
    forward, backward, groups = phases(Narrow(2, 5))
    written = [[(piece.group, [name for name, _ in piece.graph.outputs]) for piece in p] for p in forward]
    wide, narrow, output = groups["c"], groups["d"], groups["h"]
    assert len({wide, narrow, output}) == 3
    assert written == [
        [(wide, ["inner.0"])],
        [(narrow, ["inner.1"])],
        [(wide, ["new.c", "inner.2"])],
        [(output, ["y", "new.h"])],
    ]
    assert [[piece.group for piece in phase] for phase in backward] == [[output], [wide], [narrow], [wide]]


def test_a_product_is_not_computed_with_what_it_has_made():
    text = json.loads(plans_of(linnet.GRU(3, 4, form="before"))[0].plan.text)
    assert text["inner"] == [["candidate", ["n_h"]]]
    text["forward"]["outputs"][2] = "n_h"
    with pytest.raises(ValueError, match="inner product 0 reads what depends on its own result"):
        plan_called(json.dumps(text))


@pytest.mark.parametrize("change", [{"norm": "layer"}, {"rank": 2}])
def test_a_product_with_a_norm_or_of_low_rank_is_recorded_as_a_whole(change: dict):
    rnn = Narrow(7, 5, dtype=torch.float64)
    rnn.first_cell.up = linnet.Projection(3, {"u": 5}, ("u",), dtype=torch.float64, **change)
    enliven(rnn)
    x, state = draw(4, 3, 7, seed=5).requires_grad_(), draw_state(rnn, 3)
    agree(run("cpu", rnn, x, state), run("reference", rnn, x, state), 1e-12)


def test_the_same_product_twice():
    class TwiceCell(NarrowCell):
        def step(self, a: Tensor, b: Tensor, ah: Tensor, bh: Tensor, c: Tensor) -> tuple[Tensor, Any]:
            c = torch.tanh(a + b + ah + bh + self.down(c)["d"] * self.down(a)["e"])
            return c, {"h": c, "c": c}

    class Twice(linnet.Recurrent, cell=TwiceCell):
        """Multiplies by one matrix twice."""

    # `down` makes parts of 3 channels, for a state of as many.
    check(Variant(Twice, {}), Size(5, 4, 3, "mask and resets"))
