"""Torch's names of weights in LSTM, GRU and RNN: state dicts both ways, initialisers, older checkpoints."""

from __future__ import annotations

import copy
from itertools import product
from typing import Any

import pytest
import torch
from helpers import identical, liven, randn, same
from torch import Tensor, nn

import linnet

PAIRS = [
    pytest.param(nn.LSTM, linnet.LSTM, {}, id="LSTM"),
    pytest.param(nn.LSTM, linnet.LSTM, {"proj_size": 2}, id="LSTM-proj"),
    pytest.param(nn.GRU, linnet.GRU, {}, id="GRU"),
    pytest.param(nn.RNN, linnet.RNN, {}, id="RNN"),
    pytest.param(nn.RNN, linnet.RNN, {"nonlinearity": "relu"}, id="RNN-relu"),
]
over_pairs = pytest.mark.parametrize(("theirs", "ours", "options"), PAIRS)
SHAPES = [
    {"num_layers": layers, "bidirectional": both, "bias": bias}
    for layers, both, bias in product((1, 2), (False, True), (False, True))
]
over_shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "-".join(f"{v:d}" for v in s.values()))


def pair(theirs: Any, ours: Any, **options: Any) -> tuple[Any, Any]:
    module, rnn = liven(theirs(3, 4, **options)), ours(3, 4, **options, dtype=torch.double)
    rnn.load_state_dict(module.state_dict())
    return module, rnn


def output(module: nn.Module) -> Tensor:
    return module(randn(5, 2, 3))[0]


# ---------------------------------------------------------------------------------- state dicts


@over_pairs
@over_shapes
def test_state_dicts_go_both_ways(theirs: Any, ours: Any, options: dict[str, Any], shape: dict[str, Any]):
    module, rnn = pair(theirs, ours, **options, **shape)
    same(output(rnn), output(module))
    given = rnn.torch_state_dict()
    assert {k: v.shape for k, v in given.items()} == {k: v.shape for k, v in module.state_dict().items()}
    back = theirs(3, 4, **options, **shape, dtype=torch.double)
    back.load_state_dict(given)
    same(output(back), output(rnn))


def test_a_module_inside_a_model_takes_its_part_of_the_state_dict():
    old = nn.ModuleDict({"rnn": nn.GRU(3, 4, 2), "head": nn.Linear(4, 1)})
    new = nn.ModuleDict({"rnn": linnet.GRU(3, 4, 2), "head": nn.Linear(4, 1)})
    new.load_state_dict(old.state_dict())
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(new["rnn"](x)[0], old["rnn"](x)[0])
    on_meta = copy.deepcopy(new).to("meta")
    on_meta.load_state_dict(old.state_dict(), assign=True)
    identical(on_meta["rnn"](x)[0], new["rnn"](x)[0])


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell", "RNNCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_cell_takes_the_state_dict_of_torchs_cell(name: str, bias: bool):
    module, cell = getattr(nn, name)(3, 4, bias), getattr(linnet, name)(3, 4, bias)
    cell.load_state_dict(module.state_dict())
    x = torch.randn(2, 3)
    torch.testing.assert_close(tuple(cell(x)), tuple(module(x)))
    back = getattr(nn, name)(3, 4, bias)
    back.load_state_dict(cell.torch_tensors())
    torch.testing.assert_close(back(x), module(x))


WRONG = {
    "another unit": (linnet.GRU(3, 4), nn.LSTM(3, 4), "size mismatch"),
    "too few layers": (linnet.LSTM(3, 4, 2), nn.LSTM(3, 4), "Missing key"),
    "too many layers": (linnet.LSTM(3, 4), nn.LSTM(3, 4, 2), "Unexpected key"),
    "one direction": (linnet.LSTM(3, 4, bidirectional=True), nn.LSTM(3, 4), "Missing key"),
    "no bias": (linnet.LSTM(3, 4, bias=False), nn.LSTM(3, 4), "Unexpected key"),
    "a bias": (linnet.LSTM(3, 4), nn.LSTM(3, 4, bias=False), "Missing key"),
    "peepholes": (linnet.LSTM(3, 4, peepholes=True), nn.LSTM(3, 4), "Missing key"),
    "another form": (linnet.GRU(3, 4, form="before"), nn.GRU(3, 4), "Missing key"),
    "a norm": (linnet.LSTM(3, 4, norm="layer", norm_on="all"), nn.LSTM(3, 4), "Missing key"),
}


@pytest.mark.parametrize(("rnn", "module", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_state_dict_that_does_not_fit_is_refused(rnn: Any, module: Any, message: str):
    with pytest.raises(RuntimeError, match=message):
        rnn.load_state_dict(module.state_dict())


@pytest.mark.parametrize(
    "rnn",
    [
        linnet.LSTM(3, 4, peepholes=True),
        linnet.LSTM(3, 4, zoneout=0.1),
        linnet.LSTM(3, 4, content="linear"),
        linnet.GRU(3, 4, proj_size=2),
        linnet.GRU(3, 4, form="before"),
        linnet.RNN(3, 4, layer_norm=True),
        linnet.RNN(4, 4, residual=True),
    ],
    ids=lambda rnn: rnn.extra_repr(),
)
def test_what_torch_cannot_compute_has_no_state_dict_of_torch(rnn: Any):
    with pytest.raises(ValueError, match=r"no module of torch computes what \w+\([34], 4, .*\) does"):
        rnn.torch_state_dict()


# ---------------------------------------------------------------------------------- by attribute


@over_pairs
def test_weights_by_torchs_names_are_the_parameters(theirs: Any, ours: Any, options: dict[str, Any]):
    module, rnn = pair(theirs, ours, num_layers=2, bidirectional=True, **options)
    assert rnn._all_weights == module._all_weights
    assert rnn._flat_weights_names == module._flat_weights_names
    assert [[w.shape for w in ws] for ws in rnn.all_weights] == [
        [w.shape for w in ws] for ws in module.all_weights
    ]
    parameters = list(rnn.parameters())
    for name, weight in zip(rnn._flat_weights_names, rnn._flat_weights, strict=True):
        assert getattr(rnn, name) is weight
        assert any(weight is parameter for parameter in parameters)
    assert not hasattr(rnn, "weight_ih_l2")
    assert not hasattr(ours(3, 4, bias=False), "bias_hh_l0")
    assert not hasattr(ours(3, 4), "weight_ih_l0_reverse")
    assert not hasattr(rnn, "weight_nonsense")


@over_pairs
def test_what_is_written_to_the_weights_counts(theirs: Any, ours: Any, options: dict[str, Any]):
    module, rnn = pair(theirs, ours, num_layers=2, bidirectional=True, **options)
    for _ in range(2):
        for name, weight in module.named_parameters():
            nn.init.normal_(weight)
            getattr(rnn, name).data.copy_(weight.data)
        same(output(rnn), output(module))
        same(output(copy.deepcopy(rnn)), output(module))


def test_the_second_bias_reaches_a_stream_that_is_running():
    rnn, x = linnet.LSTM(3, 4, dtype=torch.double).eval(), randn(1, 3)
    stream = linnet.stream(rnn)
    with torch.no_grad():
        for value in (0.5, 1.5):
            stream(x)
            stream.reset()
            rnn.bias_hh_l0.fill_(value)
            y = stream(x)
            same(y, rnn(x[None])[0][0])
            stream.reset()


def test_a_projection_inside_says_where_to_assign():
    rnn = linnet.LSTM(3, 4)
    with pytest.raises(AttributeError, match=r"rnn.weight_hh_l0 = ..."):
        rnn.cells[0].recurrent.weight_hh = nn.Parameter(torch.zeros(16, 4))


# --------------------------------------------------------------------------------- initialisers


@torch.no_grad()
def forget_bias_of_one(rnn: nn.Module) -> None:
    """As people write it for nn.LSTM, after a search through `named_parameters`."""
    for name, weight in rnn.named_parameters():
        if "weight_ih" in name:
            nn.init.xavier_uniform_(weight)
        elif "weight_hh" in name:
            nn.init.orthogonal_(weight)
        elif "bias" in name:
            weight.zero_()
            if "bias_ih" in name:
                n = weight.size(0)
                weight.data[n // 4 : n // 2].fill_(1.0)


def forget_bias_by_name(lstm: Any) -> None:
    for names in lstm._all_weights:
        for name in names:
            if "weight_hh" in name:
                nn.init.orthogonal_(getattr(lstm, name))
            if "bias" in name:
                bias = getattr(lstm, name)
                n = bias.size(0)
                bias.data.fill_(0.0)
                bias.data[n // 4 : n // 2].fill_(0.5)


@pytest.mark.parametrize("initialise", [forget_bias_of_one, forget_bias_by_name])
def test_the_usual_initialisers_do_what_they_say(initialise: Any):
    """The columns of the recurrent matrix are orthonormal, and only the forget gate has a bias."""
    rnn = linnet.LSTM(3, 4, num_layers=2, bidirectional=True)
    initialise(rnn)
    rnn(torch.randn(1, 1, 3))
    for cell in rnn.cells:
        torch.testing.assert_close(cell.weight_hh.T @ cell.weight_hh, torch.eye(4))
        biases = dict(zip(cell.input.parts, cell.input.bias.chunk(4), strict=True))
        assert {name: set(bias.tolist()) for name, bias in biases.items()} == {
            "i": {0.0},
            "f": {1.0},
            "content": {0.0},
            "o": {0.0},
        }
