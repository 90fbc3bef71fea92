"""Models of ONNX files as modules: equal to onnxruntime, with the names of the file."""

from __future__ import annotations

import copy

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

import linnet
from linnet.deploy.read.files import model_of
from tools import onnx_cases
from tools.onnx_cases import CASES

DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
# onnxruntime has no layout=1.
BY_BATCH = "lstm_by_batch"


def read(model: onnx.ModelProto, **options):
    return model_of(model.SerializeToString(), None, options, 2**30)


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def feed_of(session: onnxruntime.InferenceSession, seed: int) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(seed)
    return {
        each.name: np.asarray(chance.standard_normal(each.shape)).astype(DTYPES[each.type])
        for each in session.get_inputs()
    }


def call(model: torch.nn.Module, feed: dict[str, np.ndarray]) -> tuple[Tensor, ...]:
    with torch.no_grad():
        found = model(**{name: torch.from_numpy(np.asarray(each)) for name, each in feed.items()})
    return found if isinstance(found, tuple) else (found,)


def assert_same(found: tuple[Tensor, ...], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, torch.from_numpy(np.asarray(b)), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", [name for name in CASES if name != BY_BATCH])
def test_a_model_computes_what_onnxruntime_computes(name: str):
    """The first call runs with checks, the second by its plan; the numbers differ between the calls."""
    proto = CASES[name]()
    session, model = session_of(proto), read(proto)
    assert model.input_names == [each.name for each in session.get_inputs()]
    assert model.output_names == [each.name for each in session.get_outputs()]
    for seed in range(2):
        feed = feed_of(session, seed)
        assert_same(call(model, feed), session.run(None, feed))
    assert len(model.plans) == 1


def test_batches_before_time():
    """The same layer with layout=1 takes and returns transposed tensors."""
    usual = read(onnx_cases.recurrent("LSTM", "bidirectional", states=True))
    by_batch = read(CASES[BY_BATCH]())
    x, h, c = torch.randn(5, 3, 4), torch.randn(2, 3, 6), torch.randn(2, 3, 6)
    y, hn, cn = usual(x, h, c)
    found = by_batch(*(each.transpose(0, 1) for each in (x, h, c)))
    torch.testing.assert_close(found, (y.permute(2, 0, 1, 3), hn.transpose(0, 1), cn.transpose(0, 1)))


@pytest.mark.parametrize(("exponent", "operator"), [(2.0, "Mul"), ([2.0], "Pow"), (3.0, "Pow")], ids=str)
def test_a_square_is_a_product(exponent: float | list[float], operator: str):
    nodes = [onnx_cases.node("Pow", ["x", "e"], ["y"])]
    proto = onnx_cases.model(nodes, {"x": (2, 3)}, ["y"], {"e": np.array(exponent, np.float32)})
    session, model = session_of(proto), read(proto)
    assert [node.operator for node in model.graph.nodes] == [operator]
    feed = feed_of(session, seed=0)
    assert_same(call(model, feed), session.run(None, feed))


def test_recurrent_nodes_are_layers_of_linnet():
    kinds = {"lstm_peepholes": linnet.LSTM, "gru_before": linnet.GRU, "rnn_relu": linnet.RNN}
    for name, kind in kinds.items():
        layers = [each for each in read(CASES[name]()).modules() if isinstance(each, linnet.Recurrent)]
        assert [type(each) for each in layers] == [kind]


def test_parameters_have_the_names_of_the_file():
    """The state dict of a model that torch has exported is that of the model, unless a layer is recurrent."""
    names = set(read(CASES["convolutions"]()).state_dict())
    assert names == {"w1", "b1", "w2", "w3", "s", "m", "v"}
    proto = onnx_cases.model(
        [
            onnx_cases.node("Mul", ["x", "block.0.scale"], ["y"]),
            onnx_cases.node("Add", ["y", "forward"], ["z"]),
        ],
        {"x": (2, 3)},
        ["z"],
        {"block.0.scale": onnx_cases.numbers(3), "forward": onnx_cases.numbers(3)},
    )
    model = read(proto)
    assert set(model.state_dict()) == {"block.0.scale", "forward_2"}
    model.block.get_submodule("0").scale.data.zero_()
    torch.testing.assert_close(model(torch.randn(2, 3)), torch.from_numpy(onnx_cases.numbers(3)).expand(2, 3))


def test_a_fixed_input_leaves_out_the_branch_that_never_runs():
    proto = onnx_cases.branches()
    session, model = session_of(proto), read(proto, rate=16000)
    assert model.input_names == ["x"]
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    expected = session.run(None, {"x": x, "rate": np.array(16000)})
    assert_same(call(model, {"x": x}), expected)
    with pytest.raises(ValueError, match="no input 'rat'; did you mean 'rate'"):
        read(proto, rat=1)


def test_a_condition_on_a_value_is_looked_at_in_each_call():
    proto = onnx_cases.branches()
    session, model = session_of(proto), read(proto)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    for rate in (16000, 8000, 16000):
        feed = {"x": x, "rate": np.array(rate)}
        assert_same(call(model, feed), session.run(None, feed))


def test_inputs_that_do_not_fit_are_refused():
    model = read(CASES["lstm_both"]())
    x, state = torch.randn(5, 3, 4), torch.zeros(2, 3, 6)
    with pytest.raises(ValueError, match=r"x has the shape \(5, 3, 4\); got \(5, 3, 5\)"):
        model(torch.randn(5, 3, 5), state, state)
    with pytest.raises(TypeError, match=r"h is a tensor of torch.float32; got torch.float64"):
        model(x, state.double(), state)
    with pytest.raises(TypeError, match="takes 3 inputs, x, h, c; got 1 by position and none by name"):
        model(x)


def test_a_copy_has_its_own_weights():
    model = read(CASES["lstm"]())
    x = torch.randn(5, 3, 4)
    before = model(x)[0]
    twin = copy.deepcopy(model)
    for each in twin.parameters():
        each.data.zero_()
    assert not twin(x)[0].any()
    assert torch.equal(model(x)[0], before)


def test_gradients_reach_the_parameters_after_inference():
    """What the first call has computed from shapes is read in the backward pass of the second."""
    nodes = [
        onnx_cases.node("Shape", ["x"], ["s"]),
        onnx_cases.node("ConstantOfShape", ["s"], ["zeros"]),
        onnx_cases.node("Sub", ["zeros", "one"], ["minus"]),
        onnx_cases.node("Mul", ["w", "minus"], ["y"]),
    ]
    constants = {"w": onnx_cases.numbers(3), "one": np.array(1, np.float32)}
    model = read(onnx_cases.model(nodes, {"x": (2, 3)}, ["y"], constants))
    with torch.inference_mode():
        model(torch.zeros(2, 3))
    model(torch.zeros(2, 3)).sum().backward()
    assert model.w.grad.tolist() == [-2.0, -2.0, -2.0]


def test_programs_of_torch_export_contain_the_model():
    model = read(CASES["convolutions"]())
    x = torch.randn(2, 3, 16)
    with pytest.raises(linnet.UnreadableModel, match="call the model once before you export"):
        torch.export.export(model, (x,))
    expected = model(x)
    exported = torch.export.export(model, (x,)).module()
    torch.testing.assert_close(exported(x), expected)
