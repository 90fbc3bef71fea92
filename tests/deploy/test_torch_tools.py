"""Tools of torch that take a model with nn.LSTM or nn.GRU in it take one with Linnet's layers, too."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import linnet


class Model(nn.Module):
    """A convolution, a recurrent layer and a head: [B, 4, T] -> [B, T, 3]."""

    def __init__(self, layer: Callable[..., nn.Module]):
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 3, padding=1)
        self.rnn = layer(8, 16, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.rnn(self.conv(x).transpose(1, 2))
        return self.head(y)


class Output(nn.Module):
    """The output of a layer."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.rnn = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


class WithStates(nn.Module):
    """A layer or a cell with the pair of states of LSTM."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.rnn = layer

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (h, c) = self.rnn(x, (h, c))
        return y, h, c


class WithCell(nn.Module):
    def __init__(self, cell: nn.Module):
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        h, c = self.cell(x, (h, c))
        return h, c


def made(layer: Callable[..., nn.Module]) -> Model:
    torch.manual_seed(0)
    return Model(layer).eval()


def x_of(batch: int, steps: int) -> Tensor:
    return torch.randn(batch, 4, steps, generator=torch.Generator().manual_seed(steps))


X, H, C = torch.randn(5, 3, 4), torch.randn(1, 3, 6), torch.randn(1, 3, 6)
UNITS = [linnet.LSTM, linnet.GRU, linnet.SRU, linnet.NRU]


# --------------------------------------------------------------------------------------- torch.fx


def targets(graph: torch.fx.Graph) -> list[tuple[str, str]]:
    return [(node.op, getattr(node.target, "__name__", node.target)) for node in graph.nodes]


@pytest.mark.parametrize("unit", UNITS)
def test_a_layer_is_a_leaf_of_symbolic_trace(unit: type[linnet.Recurrent]):
    model = made(unit)
    traced = torch.fx.symbolic_trace(model)
    assert targets(traced.graph) == targets(torch.fx.symbolic_trace(made(nn.GRU)).graph)
    assert torch.equal(traced(x_of(2, 5)), model(x_of(2, 5)))


def test_states_and_cells_are_traced_as_those_of_torch():
    layer, cell = WithStates(linnet.LSTM(4, 6)), WithCell(linnet.LSTMCell(4, 6))
    traced = torch.fx.symbolic_trace(layer)
    assert targets(traced.graph) == targets(torch.fx.symbolic_trace(WithStates(nn.LSTM(4, 6))).graph)
    torch.testing.assert_close(traced(X, H, C), layer(X, H, C), rtol=0, atol=0)
    torch.testing.assert_close(
        torch.fx.symbolic_trace(cell)(X[0], H[0], C[0]), cell(X[0], H[0], C[0]), rtol=0, atol=0
    )


class WithLengths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = linnet.CfC(4, 6)

    def forward(self, x: Tensor, lengths: Tensor, timespans: Tensor) -> Tensor:
        return self.rnn(input=x, lengths=lengths, timespans=timespans)[0]


def test_further_arguments_are_traced():
    model = WithLengths()
    given = X, torch.tensor([5, 1, 3]), torch.rand(5, 3)
    traced = torch.fx.symbolic_trace(model)
    assert torch.equal(traced(*given), model(*given))
    assert not torch.equal(traced(*given), traced(*given[:2], 2 * given[2]))


# -------------------------------------------------------------------------------- torch.jit.script


def name(module: Any) -> str:
    return f"{type(module).__name__}({module.extra_repr()})"


scripting = pytest.mark.filterwarnings(
    "ignore:`torch.jit.* is deprecated:DeprecationWarning", "ignore:torch.jit.script compiles linnet's"
)
SCRIPTED = [
    linnet.LSTM(4, 6, num_layers=2, bidirectional=True, dropout=0.1),
    linnet.LSTM(4, 6, proj_size=3, dtype=torch.double),
    linnet.GRU(4, 6, batch_first=True),
    linnet.RNN(4, 6, nonlinearity="relu", bias=False),
]


@scripting
@pytest.mark.parametrize("rnn", SCRIPTED, ids=name)
def test_lstm_gru_and_rnn_are_scripted_as_those_of_torch(rnn: Any):
    rnn.eval()
    x = X.to(rnn.weight_ih_l0.dtype)
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(Output(rnn)), file)
    file.seek(0)
    tolerance = 1e-12 if x.dtype is torch.double else 1e-6
    torch.testing.assert_close(torch.jit.load(file)(x), rnn(x)[0], rtol=0, atol=tolerance)


@scripting
@pytest.mark.parametrize(
    ("model", "state"),
    [(WithStates(linnet.LSTM(4, 6)), (X, H, C)), (WithCell(linnet.LSTMCell(4, 6)), (X[0], H[0], C[0]))],
    ids=["layer", "cell"],
)
def test_a_model_with_states_is_scripted(model: nn.Module, state: tuple[Tensor, ...]):
    expected = model(*state)
    with pytest.warns(UserWarning, match=r"as nn\.LSTM.* script a copy: .*deepcopy"):
        scripted = torch.jit.script(copy.deepcopy(model))
    torch.testing.assert_close(scripted(*state), expected, rtol=0, atol=1e-6)
    assert type(next(model.children())).__module__.startswith("linnet.")


NOT_SCRIPTED = [
    linnet.SRU(4, 6),
    linnet.SRUCell(4, 6),
    linnet.RNN(4, 6, nonlinearity="sigmoid"),
    linnet.LSTM(4, 6, norm="rms"),
    linnet.LSTMCell(4, 6, peepholes=True),
    linnet.LSTM(4, 6, num_layers=2, dropout=0.1, variational=True),
    linnet.quantize(linnet.LSTM(4, 6)),
]


@scripting
@pytest.mark.parametrize("rnn", NOT_SCRIPTED, ids=name)
def test_what_torch_does_not_have_names_what_works(rnn: nn.Module):
    answer = rf"cannot compile linnet's {type(rnn).__name__}: .* Use torch\.jit\.trace or torch\.export"
    with pytest.raises(TypeError, match=answer):
        torch.jit.script(nn.Sequential(rnn))
