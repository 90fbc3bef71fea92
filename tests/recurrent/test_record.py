"""linnet.record: the values of `step` by name, for every unit and for a user's own."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor, nn

import linnet
from linnet.models.language import LanguageModel, LanguageModelConfig


class Leaky(linnet.Cell):
    """A unit of a user: its step calls that of its base class, and leaves an argument as it is."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device=None, dtype=None, **more):
        super().__init__(input_size, hidden_size, {"s": hidden_size})
        self.input = linnet.Projection(input_size, {"v": hidden_size}, bias, device=device, dtype=dtype)
        nn.init.normal_(self.input.weight)
        nn.init.zeros_(self.input.bias)

    def step(self, v: Tensor, s: Tensor):
        kept = 0.9 * s
        return kept + v, {"s": kept + v}


class Squashed(Leaky):
    """The same with a squashed output."""

    def step(self, v: Tensor, s: Tensor):
        y, state = super().step(v, s)
        squashed = torch.tanh(y)
        return squashed, state


class SquashedStack(linnet.Recurrent, cell=Squashed):
    """Layers of the unit."""


UNITS = [*linnet.UNITS.values(), SquashedStack]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.__name__)
def test_values_are_those_of_stepping_the_cell(unit: type[linnet.Recurrent]):
    torch.manual_seed(0)
    rnn, x = unit(6, 8).eval(), torch.randn(4, 3, 6)
    (values,) = linnet.record(rnn, x)
    cell, state = rnn.first_cell, None
    for t, x_t in enumerate(x):
        with linnet.backend("reference"):  # compiling seventeen kernels takes longer than all else
            y, state = cell.run_step(x_t, state)
        named = dict(zip(cell.states, cell.state_tensors(state), strict=True))
        torch.testing.assert_close(values.output[t], y)
        for name, expected in named.items():
            torch.testing.assert_close(values[name][t], expected)
            if t + 1 < len(x):
                torch.testing.assert_close(values.before[name][t + 1], expected)
    assert all(value.shape[:2] == (4, 3) for value in values.values())


@pytest.mark.parametrize(
    ("unit", "names"),
    [
        (linnet.SRU, "f r c h"),
        (linnet.LRN, "i f h v"),
        (linnet.OLRN, "i f o c h"),
        (linnet.RAN, "content i f c h"),
        (linnet.LSTM, "content i f o c h"),
        (linnet.GRU, "r z n h"),
        (linnet.NRU, "h m alpha beta written erased"),
        (linnet.SCRN, "s h"),
        (SquashedStack, "kept squashed v s"),
    ],
)
def test_names_are_those_of_the_paper(unit: type[linnet.Recurrent], names: str):
    (values,) = linnet.record(unit(6, 8), torch.randn(2, 1, 6))
    assert set(names.split()) <= set(values)


def test_a_name_is_the_value_at_the_end_of_the_step():
    """f of SRU is the gate, not its projection, which is the argument f."""
    rnn = linnet.SRU(6, 6)
    x = torch.randn(5, 2, 6)
    (values,) = linnet.record(rnn, x)
    projected = rnn.first_cell.project(x)
    gate = torch.sigmoid(projected["f"] + rnn.first_cell.v_f * values.before["c"])
    torch.testing.assert_close(values["f"], gate)
    torch.testing.assert_close(values.arguments["f"], projected["f"])
    torch.testing.assert_close(
        values["c"], values["f"] * values.before["c"] + (1 - values["f"]) * values["u"]
    )


def test_every_layer_and_direction_is_recorded_and_padding_is_zero():
    rnn = linnet.SRU(6, 4, num_layers=2, bidirectional=True)
    x, lengths = torch.randn(5, 3, 6), [5, 4, 2]
    recording = linnet.record(rnn, x, lengths=lengths)
    output, state = rnn(x, lengths=lengths)
    assert [values.name for values in recording] == [f"directions.{number}" for number in range(4)]
    torch.testing.assert_close(recording.output[0], output)
    torch.testing.assert_close(torch.cat([recording[2]["h"], recording[3]["h"]], -1), output)
    # Backwards, the final state is that of the first step.
    torch.testing.assert_close(recording[3]["c"][0], state[3])
    assert recording[1]["f"][4, 1:].abs().max() == 0
    assert recording[1]["f"][4, 0].abs().max() > 0


def test_a_whole_model_is_recorded_in_evaluation_mode_and_left_as_it_was():
    config = LanguageModelConfig(unit="ran", embedding_size=5, hidden_size=7, num_layers=2, layer_dropout=0.5)
    model = LanguageModel(11, config).train()
    model.layers[0].eval()
    profiler = sys.getprofile()
    tokens = torch.randint(11, (6, 2))
    first, again = linnet.record(model, tokens), linnet.record(model, tokens)
    assert [values.name for values in first] == ["layers.0.directions.0", "layers.1.directions.0"]
    assert torch.equal(first[1]["c"], again[1]["c"])
    assert (model.training, model.layers[0].training, model.layers[1].training) == (True, False, True)
    assert sys.getprofile() is profiler
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("name", ["sru", "lstm", "scrn", "nru", "statisticalru"])
def test_states_of_all_steps_come_from_the_kernels(name: str, monkeypatch: pytest.MonkeyPatch):
    """In both directions and with padding, without calling `step`."""
    rnn = linnet.UNITS[name](6, 8, num_layers=2, bidirectional=True)
    x, lengths = torch.randn(5, 3, 6), [5, 4, 2]
    expected = linnet.record(rnn, x, lengths=lengths)
    rnn.eval()(x)  # traces the step
    for cell in rnn.cells:
        monkeypatch.setattr(cell, "run_stages", None)
    found = linnet.record(rnn, x, lengths=lengths, return_states=True)
    assert len(found) == len(expected) == 4
    for ours, theirs in zip(found, expected, strict=True):
        assert list(ours) == list(theirs.cell.states)
        for state in ours:
            torch.testing.assert_close(ours[state], theirs[state].detach(), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(
                ours.before[state], theirs.before[state].detach(), rtol=1e-4, atol=1e-5
            )
    torch.testing.assert_close(found.output[0], expected.output[0].detach(), rtol=1e-4, atol=1e-5)


def test_errors_say_what_record_takes():
    with pytest.raises(TypeError, match="Linear contains none"):
        linnet.record(nn.Linear(2, 2), torch.zeros(1, 2))
    (values,) = linnet.record(linnet.LRN(2, 3), torch.zeros(2, 1, 2))
    with pytest.raises(KeyError, match="the step of LRN has no value 'o'; it has k, q, v, h, i, f"):
        values["o"]
