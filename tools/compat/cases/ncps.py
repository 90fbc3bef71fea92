"""ncps, of the authors of CfC and LTC: their layers with their weights in Linnet's, and training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from ncps.torch import LTC, CfC
from ncps.wirings import AutoNCP, FullyConnected
from torch import Tensor, nn

import linnet
from tools.compat.contestants import RNN
from tools.compat.examples import CHANNELS, CLASSES, HIDDEN, check_plainly, work_plainly

INPUTS = 5
# What their CfC is built with; Linnet's takes the same but for dropout, which has no weights.
CFC: tuple[dict[str, Any], ...] = (
    {},
    {"mode": "pure"},
    {"mode": "no_gate", "backbone_units": 8, "backbone_layers": 3},
    {"backbone_units": 8, "backbone_layers": 3, "backbone_dropout": 0.2},
    {"backbone_layers": 0},
    {"mixed_memory": True, "proj_size": 2},
)


class Layer(nn.Module):
    """The package's CfC, which has one layer and returns the state without a dimension for layers."""

    def __init__(self, input_size: int, hidden_size: int, batch_first: bool = True):
        super().__init__()
        self.layer = CfC(input_size, hidden_size, batch_first=batch_first)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(x)


CONTESTANTS: dict[str, RNN] = {"ncps.CfC": Layer, "CfC": linnet.CfC}


class Model(nn.Module):
    def __init__(self, rnn: RNN):
        super().__init__()
        self.rnn = rnn(CHANNELS, HIDDEN, batch_first=True)
        self.out = nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.rnn(x)
        return self.out(output.mean(1))


def check(rnn: RNN, folder: Path) -> None:
    check_plainly(partial(Model, rnn), folder)
    if rnn is linnet.CfC:
        for options in CFC:
            ours = {name: value for name, value in options.items() if name != "backbone_dropout"}
            check_layer(CfC(INPUTS, 6, **options), linnet.CfC(INPUTS, 6, **ours, **HOW))
        check_ltc(FullyConnected(6, 2), False)
        check_ltc(AutoNCP(12, 2), True)


HOW: dict[str, Any] = {"batch_first": True, "dtype": torch.double}


def check_ltc(wiring: Any, implicit: bool) -> None:
    theirs = LTC(INPUTS, wiring, implicit_param_constraints=implicit)
    matrices = wiring.sensory_adjacency_matrix, wiring.adjacency_matrix
    ours = linnet.LTC(
        INPUTS, wiring.units, motors=wiring.output_dim, implicit=implicit, wiring=matrices, **HOW
    )
    check_layer(theirs, ours)


def check_layer(theirs: Any, rnn: linnet.Recurrent) -> None:
    """Compare a layer that has the package's weights, all of them other than at their start."""
    theirs = theirs.double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.rand_like(parameter) / 4)
    linnet.load_foreign(rnn, theirs.state_dict(), source="ncps")
    x = torch.randn(3, 7, INPUTS, dtype=torch.double)
    # Without a state, theirs starts from one of float32.
    start = torch.zeros(3, theirs.state_size, dtype=torch.double)
    expected, _ = theirs(x, (start, start) if theirs.use_mixed else start)
    torch.testing.assert_close(rnn.eval()(x)[0], expected, rtol=0, atol=1e-12)


def work(rnn: RNN) -> Callable[[], object]:
    return work_plainly(partial(Model, rnn))
