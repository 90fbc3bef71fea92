"""linnet.convert and linnet.restore: the same weights, names, ties, modes and outputs, or a reason."""

from __future__ import annotations

import copy
import operator
import re
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import linnet
from linnet.convert import report as reports

STACKS: list[nn.Module] = [
    nn.LSTM(3, 5, num_layers=2, bidirectional=True, dropout=0.3),
    nn.LSTM(3, 5, proj_size=2, batch_first=True, dtype=torch.float64),
    nn.GRU(3, 5, bias=False),
    nn.RNN(3, 5, num_layers=2, nonlinearity="relu"),
]
CELLS: list[nn.Module] = [
    nn.LSTMCell(3, 5),
    nn.GRUCell(3, 5, bias=False),
    nn.RNNCell(3, 5, nonlinearity="relu"),
]


def inputs(layer: Any) -> Tensor:
    shape = (4, 3) if isinstance(layer, nn.RNNCellBase) else (4, 6, 3)
    return torch.randn(shape, dtype=next(layer.parameters()).dtype)


def assert_same(got: Any, expected: Any) -> None:
    torch.testing.assert_close(linnet_free(got), linnet_free(expected))


def linnet_free(value: Any) -> Any:
    """Tuples and tensors in place of named tuples and subclasses."""
    if isinstance(value, PackedSequence):
        return value.data
    return value.as_subclass(Tensor) if isinstance(value, Tensor) else tuple(map(linnet_free, value))


class Two(nn.Module):
    """A layer that is used twice, under two names, and a cell deeper in the tree."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.GRU(3, 3)
        self.blocks = nn.ModuleDict({"again": nn.Sequential(self.first)})
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.blocks["again"](self.first(x)[0])  # type: ignore[operator]
        return self.cell(y[-1])


@pytest.mark.parametrize("layer", [*STACKS, *CELLS], ids=str)
def test_a_layer_and_back(layer: nn.Module):
    model = nn.Sequential(copy.deepcopy(layer)).eval()
    x = inputs(layer)
    expected, names = model(x), list(model.state_dict())
    report = linnet.convert(model)
    assert report.model is model
    assert isinstance(model[0], getattr(linnet, type(layer).__name__))
    assert model[0].training is False
    assert_same(model(x), expected)
    linnet.restore(model)
    assert type(model[0]) is type(layer)
    assert list(model.state_dict()) == names
    assert model[0].extra_repr() == layer.extra_repr()
    assert_same(model(x), expected)


def test_the_model_itself_may_be_a_layer():
    layer, x = nn.LSTM(3, 5), torch.randn(4, 2, 3)
    report = linnet.convert(layer)
    assert type(report.model) is linnet.LSTM
    assert_same(report.model(x), layer(x))


def test_converting_draws_no_random_numbers():
    model = Two()
    before = torch.get_rng_state()
    linnet.convert(model, example=torch.randn(2, 1, 3, generator=torch.Generator()))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_shared_layer_stays_shared():
    model, x = Two(), torch.randn(4, 2, 3)
    expected = model(x)
    report = linnet.convert(model)
    assert [layer.path for layer in report.layers] == ["first = blocks.again.0", "cell"]
    assert model.first is model.blocks["again"][0]  # type: ignore[index]
    assert_same(model(x), expected)


@pytest.mark.parametrize("layer", [*STACKS, *CELLS], ids=str)
def test_the_parameters_are_the_same_objects(layer: nn.Module):
    model = nn.Sequential(copy.deepcopy(layer))
    frozen = next(model.parameters()).requires_grad_(False)
    before, names = list(model.parameters()), list(model.state_dict())
    for change in (linnet.convert, linnet.restore):
        change(model)
        assert list(model.state_dict()) == names
        assert all(map(operator.is_, before, model.parameters()))
        assert len(list(model.parameters())) == len(before)
    assert not frozen.requires_grad


class Tied(nn.Module):
    """A cell that steps with the weights of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.cell = nn.LSTM(3, 5), nn.LSTMCell(3, 5)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(self.cell, name, getattr(self.layer, f"{name}_l0"))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][-1] + self.cell(x[0])[0]


def test_ties_and_optimisers_stay_valid():
    """An optimiser that was made before trains the converted model as it would have trained the original."""
    torch.manual_seed(0)
    model, x = Tied(), torch.randn(4, 2, 3)
    twin = copy.deepcopy(model)
    optimisers = [torch.optim.Adam(each.parameters()) for each in (model, twin)]
    linnet.convert(model)
    assert model.cell.weight_hh is model.layer.weight_hh_l0
    for each, optimiser in zip((model, twin), optimisers, strict=True):
        for _ in range(3):
            optimiser.zero_grad()
            each(x).square().sum().backward()
            optimiser.step()
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert len(list(model.parameters())) == 4


def test_parametrizations_are_carried_over():
    lstm = parametrizations.weight_norm(nn.LSTM(3, 5), "weight_hh_l0")
    model, x, names = nn.Sequential(lstm), torch.randn(4, 2, 3), list(lstm.state_dict())
    magnitude = lstm.parametrizations.weight_hh_l0.original0
    linnet.convert(model)
    assert isinstance(model[0], linnet.LSTM)
    assert list(model[0].state_dict()) == names
    for number in range(3):
        with torch.no_grad():
            magnitude.mul_(1 + number)
        assert_same(model(x), lstm(x))
    model(x)[0].sum().backward()
    assert magnitude.grad is not None
    linnet.restore(model)
    assert isinstance(model[0], nn.LSTM)
    assert list(model[0].state_dict()) == names
    assert_same(model(x), lstm(x))


def test_a_parametrized_layer_is_not_rounded():
    lstm = parametrizations.weight_norm(nn.LSTM(3, 5), "weight_hh_l0").eval()
    assert "weight_hh_l0 is parametrized" in linnet.convert(lstm, int8=True).layers[0].why


def test_hooks_inside_a_layer_are_not_lost():
    rnn = linnet.GRU(3, 5)
    rnn.cells[0].register_forward_hook(lambda *_: None)
    assert "has hooks" in linnet.restore(rnn).layers[0].why


def test_a_module_that_contains_its_parent():
    model = nn.Sequential(nn.GRU(3, 5), nn.Sequential())
    model[1].add_module("parent", model)
    assert [layer.path for layer in linnet.convert(model).layers] == ["0"]


def test_packed_sequences():
    lstm = nn.LSTM(3, 5, bidirectional=True)
    x = pack_padded_sequence(torch.randn(6, 3, 3), [6, 2, 4], enforce_sorted=False)
    assert_same(linnet.convert(lstm).model(x), lstm(x))


def test_hooks_keep_their_handles():
    model, seen = nn.Sequential(nn.LSTM(3, 5)), []
    handle = model[0].register_forward_hook(lambda *_: seen.append(1))
    model[0].nickname = "ears"
    linnet.convert(model)
    model(torch.randn(2, 1, 3))
    assert seen == [1]
    assert model[0].nickname == "ears"
    handle.remove()
    model(torch.randn(2, 1, 3))
    assert seen == [1]


# ---------------------------------------------------------------------------- left alone


class Doubling(nn.LSTM):
    def forward(self, *args: Any) -> Any:
        output, state = super().forward(*args)
        return 2 * output, state


class Named(nn.LSTM):
    """Another constructor, and nothing else."""

    def __init__(self, size: int) -> None:
        super().__init__(size, size)


def with_hook_of_itself() -> nn.Module:
    layer = nn.LSTM(3, 5)
    layer.register_load_state_dict_pre_hook(lambda *_: None)
    return layer


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(nn.Sequential(nn.LSTM(3, 5)))


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: Doubling(3, 5), "subclass with its own forward"),
        (lambda: prune.l1_unstructured(nn.LSTM(3, 5), "weight_hh_l0", 0.5), "weight_hh_l0_orig"),
        (with_hook_of_itself, "a hook that reads its state dict refers to it"),
        (scripted, "TorchScript"),
    ],
    ids=["subclass", "pruned", "hook", "script"],
)
def test_a_layer_that_is_left_alone(build: Any, why: str):
    layer = build()
    report = linnet.convert(layer)
    assert report.model is layer
    assert why in report.layers[0].why
    assert why in str(report)


def test_a_subclass_with_another_constructor_is_converted():
    assert type(linnet.convert(Named(3)).model) is linnet.LSTM


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (linnet.SRU(3, 5), "torch has no such unit"),
        (linnet.LSTM(3, 5, peepholes=True), "nn.LSTM has no peepholes"),
        (linnet.GRU(3, 5, input_dropout=0.5), "nn.GRU has no input_dropout"),
        (linnet.RNN(3, 5, nonlinearity="sigmoid"), "nn.RNN has no nonlinearity='sigmoid'"),
        (linnet.RNNCell(3, 5, nonlinearity="sigmoid"), "nn.RNNCell has no nonlinearity='sigmoid'"),
        (linnet.quantize(linnet.LSTM(3, 5)), "int8"),
    ],
    ids=["unit", "option", "dropout", "nonlinearity", "nonlinearity of a cell", "int8"],
)
def test_what_torch_does_not_have_is_not_restored(layer: nn.Module, why: str):
    report = linnet.restore(layer)
    assert report.model is layer
    assert why in report.layers[0].why


def test_a_layer_that_fails_on_the_example_is_put_back(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of order")

    model = nn.Sequential(nn.GRU(3, 5))
    monkeypatch.setattr(linnet.GRU, "forward", broken)
    report = linnet.convert(model, example=torch.randn(2, 1, 3))
    assert type(model[0]) is nn.GRU
    assert "out of order" in report.layers[0].why
    assert report.whole is not None
    assert report.whole.difference == 0


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match=r"expected an nn\.Module.*got dict"):
        linnet.convert({})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"example is a tensor, a tuple .* got list"):
        linnet.convert(Two(), example=[1])
    with pytest.raises(ValueError, match=r"int8=True is for inference.*model\.eval\(\)"):
        linnet.convert(Two(), int8=True)


# ---------------------------------------------------------------------------- the report


def test_a_report_with_an_example():
    model = Two().train()
    model.cell.eval()
    report = linnet.convert(model, example={"x": torch.randn(4, 2, 3)})
    assert report.whole is not None
    assert report.whole.difference is not None
    assert 0 <= report.whole.difference < 1e-6
    for layer in report.layers:
        assert layer.measured is not None
        assert layer.measured.before > 0
    assert model.training
    assert model.first.training
    assert not model.cell.training
    assert re.search(r"nn\.GRU\(3, 3\) +linnet\.GRU ", str(report))
    assert "<td>nn.GRU(3, 3)</td><td>linnet.GRU</td>" in report._repr_html_()
    assert "the whole model" in str(report)


def test_a_report_shows_a_difference(monkeypatch: pytest.MonkeyPatch):
    """A wrong layer is reported as such."""
    forward = linnet.GRU.forward
    model = nn.Sequential(nn.GRU(3, 5))
    monkeypatch.setattr(
        linnet.GRU, "forward", lambda *a, **b: (forward(*a, **b)[0] + 0.25, forward(*a, **b)[1])
    )
    report = linnet.convert(model, example=torch.randn(2, 1, 3))
    assert report.layers[0].measured is not None
    assert report.layers[0].measured.difference == pytest.approx(0.25, abs=1e-6)


def test_a_model_without_recurrent_layers():
    report = linnet.convert(nn.Linear(2, 2))
    assert str(report) == "Linear has no recurrent layer that could be replaced"
    assert "no recurrent layer" in report._repr_html_()


class Counting(nn.Module):
    """A model that keeps a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.count = nn.GRU(3, 5), 0
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.total += 1
        return self.rnn(x)[0] + self.count


def test_a_model_with_a_state_is_not_compared():
    model = Counting()
    report = linnet.convert(model, example=torch.randn(2, 1, 3))
    assert report.whole is not None
    assert report.whole.difference is None
    assert "keeps a state" in str(report)
    assert model.total == 0


def test_describes_its_layers():
    assert reports.described(nn.LSTM(3, 5)) == "nn.LSTM(3, 5)"
    assert reports.described(linnet.LSTM(3, 5)) == "linnet.LSTM(3, 5)"


# ---------------------------------------------------------------------------- int8 and quantised layers


def test_int8():
    model, x = nn.Sequential(nn.LSTM(8, 16)).eval(), torch.randn(5, 2, 8)
    with torch.no_grad():
        expected = model(x)[0]
        report = linnet.convert(model, int8=True)
        assert "in int8" in str(report)
        error = (model(x)[0] - expected).abs().max()
    assert 0 < error < 0.02
    report = linnet.convert(nn.GRU(3, 5).double().eval(), int8=True)
    assert "takes models in float32" in report.layers[0].why


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "layer", [nn.LSTM(3, 5, num_layers=2, bidirectional=True), nn.GRUCell(3, 5)], ids=str
)
def test_quantised_layers_of_torch(layer: nn.Module):
    model = nn.Sequential(layer).eval()
    x = torch.randn(4, 3) if isinstance(layer, nn.GRUCell) else torch.randn(4, 6, 3)
    quantised = torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {type(layer)})
    expected = quantised(x)
    linnet.convert(quantised)
    assert isinstance(quantised[0], getattr(linnet, type(layer).__name__))
    with torch.no_grad():
        got = quantised(x)
    # Their products round x to 7 or 8 bits; ours have the same weights and do not round x.
    one, other = (value if isinstance(value, Tensor) else value[0] for value in (got, expected))
    assert 0 < (one - other).abs().max() < 0.02


# ---------------------------------------------------------------------------- loops over steps


class Policy(nn.Module):
    """Steps of a layer with flags of done episodes, as in programs for reinforcement learning."""

    def __init__(self, layer: nn.Module, feeds_back: bool = False, masks: bool = True) -> None:
        super().__init__()
        self.layer, self.feeds_back, self.masks = layer, feeds_back, masks

    def forward(self, xs: Tensor, starts: Tensor) -> Tensor:
        is_cell = isinstance(self.layer, (nn.RNNCellBase, linnet.Cell))
        h = xs.new_zeros((xs.shape[1], 5) if is_cell else (1, xs.shape[1], 5))
        outputs = [xs[0]]
        for x, start in zip(xs, starts, strict=True):
            h = h * ~start[:, None] if self.masks else h
            x = x + outputs[-1].mean() if self.feeds_back else x
            if is_cell:
                h = y = self.layer(x, h)
            else:
                y, h = self.layer(x[None], h)
            outputs.append(y)
        return outputs[-1]


def flags(steps: int = 8) -> tuple[Tensor, Tensor]:
    starts = torch.zeros(steps, 2, dtype=torch.bool)
    starts[3, 1] = starts[5, 0] = True
    return torch.randn(steps, 2, 3), starts


@pytest.mark.parametrize("layer", [nn.GRU(3, 5), nn.GRUCell(3, 5)], ids=str)
def test_a_loop_with_resets_is_found(layer: nn.Module):
    report = linnet.convert(Policy(layer), example=flags())
    assert "called 8 times, one step each, with states that are cleared" in str(report)
    assert "rnn(x, state, resets=starts)" in str(report)


def test_the_note_on_a_loop_has_the_difference_of_the_last_states():
    note = linnet.convert(Policy(nn.GRU(3, 5)), example=flags()).layers[0].notes[0]
    assert float(note.partition("(difference ")[2].partition(")")[0]) < 1e-6


def test_a_loop_without_resets_is_found():
    report = linnet.convert(Policy(nn.GRU(3, 5), masks=False), example=flags())
    assert "one call rnn(x, state) takes" in str(report)


def test_a_loop_that_feeds_its_outputs_back_has_to_stay():
    report = linnet.convert(Policy(nn.GRUCell(3, 5), feeds_back=True), example=flags())
    assert "the loop has to stay" in str(report)


def test_one_call_over_a_sequence_is_no_loop():
    report = linnet.convert(nn.Sequential(nn.GRU(3, 5)), example=torch.randn(8, 2, 3))
    assert report.layers[0].notes == []
