"""Tools of torch that take a model with nn.LSTM or nn.GRU in it take one with Linnet's layers, too."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
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
    linnet.RNNCell(4, 6, nonlinearity="sigmoid"),
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


# ------------------------------------------------------------------------------- torch.onnx.export


def run_file(path: Any, *inputs: Tensor) -> list[Tensor]:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    session = onnxruntime.InferenceSession(path)
    names = [value.name for value in session.get_inputs()]
    found = session.run(None, {name: x.numpy() for name, x in zip(names, inputs, strict=True)})
    return [torch.from_numpy(each) for each in found]


def kinds(path: Any) -> list[str]:
    onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize(("unit", "kind"), [(linnet.GRU, "GRU"), (linnet.NRU, "Scan")])
def test_torch_onnx_export_writes_one_operator_for_any_length(unit: Any, kind: str, tmp_path: Path):
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    model, path, dynamic = made(unit), tmp_path / "model.onnx", torch.export.Dim.DYNAMIC
    shapes = ({0: dynamic, 2: dynamic},)
    torch.onnx.export(model, (x_of(3, 9),), path, dynamo=True, dynamic_shapes=shapes, verbose=False)
    assert kinds(path).count(kind) == 1
    for batch, steps in ((2, 7), (5, 11), (1, 1)):
        (found,) = run_file(path, x_of(batch, steps))
        torch.testing.assert_close(found, model(x_of(batch, steps)).detach(), rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_the_older_exporter_does_not_unroll_a_loop(tmp_path: Path):
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    path = tmp_path / "model.onnx"
    answer = (
        r"each of the 9 steps of GRU, .*linnet\.export_onnx.*dynamo=True.*linnet\.backend\(\"reference\"\)"
    )
    with pytest.raises(RuntimeError, match=answer):
        torch.onnx.export(made(linnet.GRU), (x_of(3, 9),), path, dynamo=False)
    step = WithStates(linnet.LSTM(4, 6)).eval()
    torch.onnx.export(step, (X[:1], H, C), path, dynamo=False)
    torch.testing.assert_close(run_file(path, X[1:2], H, C), [*step(X[1:2], H, C)], rtol=0, atol=1e-6)


# -------------------------------------------------------------------- quantisation of the neighbours


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore:torch.quantize_per_tensor",
    "ignore:torch.ao's quantisation leaves linnet's",
)
@pytest.mark.parametrize("unit", UNITS)
def test_quantize_dynamic_of_the_linear_layers(unit: Any):
    model, x = made(unit), x_of(2, 5)
    small = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    assert type(small.head) is torch.ao.nn.quantized.dynamic.Linear
    assert type(small.rnn) is unit
    torch.testing.assert_close(small.rnn(small.conv(x).mT)[0], model.rnn(model.conv(x).mT)[0], rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore")
def test_pt2e_quantises_the_neighbours():
    pt2e = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e", reason="torchao is not installed")
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    model, x = made(linnet.GRU), x_of(3, 9)
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = pt2e.prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
    prepared(x)
    small = pt2e.convert_pt2e(prepared)
    names = [str(node.target) for node in small.graph.nodes]
    assert names.count("linnet.scan.default") == 1
    # Of the head: this quantizer does not know nn.Conv1d.
    assert names.count("quantized_decomposed.dequantize_per_channel.default") == 1
    torch.testing.assert_close(small(x), model(x), rtol=0, atol=0.02)
