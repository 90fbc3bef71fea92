"""Bad input is told what was expected and what came, before anything is computed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence

import linnet

UNITS = list(linnet.UNITS.values())
over_units = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.__name__)


def lstm(**options: Any) -> linnet.LSTM:
    return linnet.LSTM(3, 4, 2, **options)


def x(*shape: int, **kind: Any) -> torch.Tensor:
    return torch.zeros(shape or (5, 2, 3), **kind)


def state(*shape: int, **kind: Any) -> torch.Tensor:
    return torch.zeros(shape or (2, 2, 4), **kind)


def flags(*shape: int) -> torch.Tensor:
    return torch.ones(shape or (5, 2), dtype=torch.bool)


def packed() -> PackedSequence:
    return pack_padded_sequence(x(), [5, 2])


Case = tuple[Callable[[], object], type[Exception], str]


def check(case: Case) -> None:
    call, expected, message = case
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert issubclass(caught.type, expected)
    assert re.search(message, str(caught.value), re.DOTALL), f"{message!r} is not in {str(caught.value)!r}"


def table(cases: dict[str, Case]) -> Any:
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


# ---------------------------------------------------------------------------- what is run

INPUT: dict[str, Case] = {
    "a list": (lambda: lstm()([[0.0]]), TypeError, r"LSTM takes x as a Tensor .* got list"),
    "one dimension": (lambda: lstm()(x(3)), ValueError, r"\[time, batch, input_size\].* 1 dim.*\(3,\)"),
    "four dimensions": (lambda: lstm()(x(1, 5, 2, 3)), ValueError, r"got 4 dimensions, shape \(1, 5, 2, 3\)"),
    "wrong size": (
        lambda: lstm()(x(5, 2, 9)),
        ValueError,
        r"built with input_size=3 and got x of shape \(5, 2, 9\); x is \[time, batch, input_size\]",
    ),
    "wrong size, batch first": (
        lambda: lstm(batch_first=True)(x(5, 2, 9)),
        ValueError,
        r"input_size=3 .* \(5, 2, 9\); x is \[batch, time, input_size\]",
    ),
    "wrong size, unbatched": (
        lambda: lstm()(x(5, 9)),
        ValueError,
        r"3 .* \(5, 9\); x is \[time, input_size\]",
    ),
    "float64": (
        lambda: lstm()(x(dtype=torch.double)),
        TypeError,
        r"x is torch.float64, but LSTM works in torch.float32",
    ),
    "whole numbers": (lambda: lstm()(x(dtype=torch.long)), TypeError, r"torch.int64.*torch.float32"),
    "another device": (lambda: lstm()(x(device="meta")), ValueError, r"x is on meta, but LSTM works on cpu"),
    "no time steps": (lambda: lstm()(x(0, 2, 3)), ValueError, r"at least one time step; .* \(0, 2, 3\)"),
    "no time steps, batch first": (
        lambda: lstm(batch_first=True)(x(2, 0, 3)),
        ValueError,
        r"at least one time step; got x of shape \(2, 0, 3\), which is \[batch, time, input_size\]",
    ),
    "no time steps, unbatched": (lambda: lstm()(x(0, 3)), ValueError, r"one time step; .* \(0, 3\)"),
    "nothing": (lambda: lstm()(), TypeError, r"LSTM takes x as a Tensor .* got NoneType"),
    "x by both names": (
        lambda: lstm()(x(), input=x()),
        TypeError,
        r"x and input are two names of one argument; give one of them",
    ),
    "a state by both names": (
        lambda: linnet.GRU(3, 4)(x(), state(1, 2, 4), hx=state(1, 2, 4)),
        TypeError,
        r"state and hx are two names of one argument; give one of them",
    ),
    "packed of the wrong size": (
        lambda: lstm()(pack_sequence([x(5, 9), x(2, 9)])),
        ValueError,
        r"input_size=3 and got x of shape \(.*9\)",
    ),
    "packed in float64": (
        lambda: lstm()(pack_sequence([x(5, 3, dtype=torch.double)])),
        TypeError,
        r"x is torch.float64",
    ),
    "packed without channels": (
        lambda: lstm()(pack_sequence([x(5), x(4), x(2)])),
        ValueError,
        r"PackedSequence|dimension|shape",
    ),
    "packed with an extra dimension": (
        lambda: lstm()(pack_sequence([x(5, 2, 3), x(4, 2, 3)])),
        ValueError,
        r"dimension|shape",
    ),
}


@table(INPUT)
def test_what_x_may_be(case: Case):
    check(case)


STEP: dict[str, Case] = {
    "three dimensions": (
        lambda: linnet.LSTMCell(3, 4)(x()),
        ValueError,
        r"LSTMCell was built with input_size=3 .* \(5, 2, 3\); one step takes x as \[batch, input_size\]",
    ),
    "wrong size": (lambda: linnet.LSTMCell(3, 4)(x(2, 9)), ValueError, r"input_size=3 .* \(2, 9\)"),
    "x by both names": (
        lambda: linnet.LSTMCell(3, 4)(x(2, 3), input=x(2, 3)),
        TypeError,
        r"x and input are two names of one argument; give one of them",
    ),
    "a number": (lambda: linnet.LSTMCell(3, 4)(1.0), TypeError, r"Tensor.*float"),
    "float64": (lambda: linnet.LSTMCell(3, 4)(x(2, 3, dtype=torch.double)), TypeError, r"float64.*float32"),
    "another device": (lambda: linnet.LSTMCell(3, 4)(x(2, 3, device="meta")), ValueError, r"meta.*cpu"),
    "state of one layer too many": (
        lambda: linnet.LSTMCell(3, 4)(x(2, 3), (state(1, 2, 4), state(1, 2, 4))),
        ValueError,
        r"state 'h' of LSTM must have shape \(2, 4\); got \(1, 2, 4\)",
    ),
    "half a state": (
        lambda: linnet.LSTMCell(3, 4)(x(2, 3), state(2, 4)),
        TypeError,
        r"state of LSTM is a tuple \(h, c\); got \(Tensor\)",
    ),
}


@table(STEP)
def test_what_a_step_takes(case: Case):
    check(case)


LENGTHS: dict[str, Case] = {
    "longer than x": (lambda: lstm()(x(), lengths=[6, 1]), ValueError, r"between 0 and 5, .* got 6"),
    "negative": (lambda: lstm()(x(), lengths=[5, -2]), ValueError, r"between 0 and 5, .* got -2"),
    "floats": (lambda: lstm()(x(), lengths=[5.0, 2.0]), TypeError, r"whole numbers; got torch.float32"),
    "bools": (lambda: lstm()(x(), lengths=[True, True]), TypeError, r"whole numbers; got torch.bool"),
    "too few": (
        lambda: lstm()(x(), lengths=[5]),
        ValueError,
        r"shape \(2,\), one for each sequence; got \(1,\)",
    ),
    "too many": (lambda: lstm()(x(), lengths=[5, 2, 1]), ValueError, r"shape \(2,\).* got \(3,\)"),
    "a matrix": (lambda: lstm()(x(), lengths=torch.ones(1, 2).long()), ValueError, r"\(2,\).* got \(1, 2\)"),
    "one number": (lambda: lstm()(x(), lengths=5), ValueError, r"shape \(2,\).* got \(\)"),
    "of steps, batch first": (
        lambda: lstm(batch_first=True)(x(), lengths=[3] * 5),
        ValueError,
        r"between 0 and 2, .* got 3",
    ),
    "unbatched, too long": (lambda: lstm()(x(5, 3), lengths=6), ValueError, r"between 0 and 5, .* got 6"),
    "with a mask": (
        lambda: lstm()(x(), lengths=[5, 2], mask=flags()),
        ValueError,
        r"lengths and mask .* give one",
    ),
    "with packed input": (
        lambda: lstm()(packed(), lengths=[5, 2]),
        ValueError,
        r"lengths is for padded input; a PackedSequence has its own",
    ),
    "words": (lambda: lstm()(x(), lengths=["5", "2"]), TypeError, r"lengths"),
}


@table(LENGTHS)
def test_what_lengths_may_be(case: Case):
    check(case)


FLAGS: dict[str, Case] = {
    "a float mask": (
        lambda: lstm()(x(), mask=x(5, 2)),
        TypeError,
        r"mask must be a bool .* got torch.float32",
    ),
    "a mask of ints": (lambda: lstm()(x(), mask=flags().int()), TypeError, r"mask .* bool .* torch.int32"),
    "a mask that is a list": (lambda: lstm()(x(), mask=[[True]]), TypeError, r"bool tensor; got list"),
    "a mask turned around": (
        lambda: lstm()(x(), mask=flags(2, 5)),
        ValueError,
        r"mask must be \[time, batch\] of shape \(5, 2\), as x; got \(2, 5\)",
    ),
    "a mask turned around, batch first": (
        lambda: lstm(batch_first=True)(x(), mask=flags(2, 5)),
        ValueError,
        r"\[batch, time\] of shape \(5, 2\), as x; got \(2, 5\)",
    ),
    "a mask over channels": (
        lambda: lstm()(x(), mask=flags(5, 2, 3)),
        ValueError,
        r"\(5, 2\).* got \(5, 2, 3\)",
    ),
    "a mask of a batch, unbatched": (
        lambda: lstm()(x(5, 3), mask=flags(5, 1)),
        ValueError,
        r"\[time\] of shape \(5,\), as x; got \(5, 1\)",
    ),
    "a mask elsewhere": (
        lambda: lstm()(x(), mask=flags().to("meta")),
        ValueError,
        r"mask is on meta, but x is on cpu",
    ),
    "float resets": (lambda: lstm()(x(), resets=x(5, 2)), TypeError, r"resets must be a bool tensor"),
    "resets of the wrong shape": (
        lambda: lstm()(x(), resets=flags(5)),
        ValueError,
        r"resets must be \[time, batch\] of shape \(5, 2\).* got \(5,\)",
    ),
    "a mask with packed input": (
        lambda: lstm()(packed(), mask=flags()),
        ValueError,
        r"mask is for padded",
    ),
    "resets with packed input": (
        lambda: lstm()(packed(), resets=flags()),
        ValueError,
        r"resets is for padded",
    ),
    "a state for resets without resets": (
        lambda: lstm()(x(), reset_state=(state(), state())),
        ValueError,
        r"reset_state is .* at resets; give resets, too",
    ),
    "a state for resets with packed input": (
        lambda: lstm()(packed(), reset_state=(state(), state())),
        ValueError,
        r"reset_state is for padded",
    ),
    "a state for resets of another batch": (
        lambda: lstm()(x(), resets=flags(), reset_state=(state(2, 3, 4), state())),
        ValueError,
        r"reset_state: the state 'h' of LSTM must have shape \(2, 2, 4\); got \(2, 3, 4\)",
    ),
    "a state for resets of other steps": (
        lambda: lstm()(x(), resets=flags(), reset_state=(state(4, 2, 2, 4), state(4, 2, 2, 4))),
        ValueError,
        r"reset_state: the state 'h' of LSTM must have shape \(5, 2, 2, 4\); got \(4, 2, 2, 4\)",
    ),
    "a state for resets that is one tensor of two": (
        lambda: lstm()(x(), resets=flags(), reset_state=state()),
        TypeError,
        r"reset_state: the state of LSTM is a tuple \(h, c\); got \(Tensor\)",
    ),
    "a state for resets of another dtype": (
        lambda: lstm()(x(), resets=flags(), reset_state=(state().double(), state())),
        TypeError,
        r"reset_state: the state 'h' is torch.float64, but LSTM works in torch.float32",
    ),
    "a state for resets that is empty": (
        lambda: lstm()(x(), resets=flags(), reset_state=()),
        TypeError,
        r"reset_state: the state of LSTM is a tuple \(h, c\)",
    ),
}


@table(FLAGS)
def test_what_masks_and_resets_may_be(case: Case):
    check(case)


STATE: dict[str, Case] = {
    "another batch": (
        lambda: lstm()(x(), (state(2, 3, 4), state())),
        ValueError,
        r"state 'h' of LSTM must have shape \(2, 2, 4\); got \(2, 3, 4\)",
    ),
    "another size": (
        lambda: lstm()(x(), (state(), state(2, 2, 5))),
        ValueError,
        r"'c' .*\(2, 2, 4\); got \(2, 2, 5\)",
    ),
    "too few layers": (
        lambda: lstm()(x(), (state(1, 2, 4),) * 2),
        ValueError,
        r"\(2, 2, 4\); got \(1, 2, 4\)",
    ),
    "one direction": (
        lambda: lstm(bidirectional=True)(x(), (state(),) * 2),
        ValueError,
        r"\(4, 2, 4\); got \(2, 2, 4\)",
    ),
    "a batch for unbatched input": (
        lambda: lstm()(x(5, 3), (state(2, 1, 4),) * 2),
        ValueError,
        r"\(2, 4\); got \(2, 1, 4\)",
    ),
    "without projection": (
        lambda: lstm(proj_size=2)(x(), (state(),) * 2),
        ValueError,
        r"'h'.*\(2, 2, 2\); got",
    ),
    "half of it": (
        lambda: lstm()(x(), state()),
        TypeError,
        r"state of LSTM is a tuple \(h, c\); got \(Tensor\)",
    ),
    "three tensors": (lambda: lstm()(x(), (state(),) * 3), TypeError, r"a tuple \(h, c\); got"),
    "no tensors": (lambda: lstm()(x(), ("h", "c")), TypeError, r"a tuple \(h, c\); got \(str, str\)"),
    "a number": (lambda: lstm()(x(), 0.0), TypeError, r"state of LSTM is a tuple \(h, c\); got .*float"),
    "a tuple for one state": (
        lambda: linnet.LRN(3, 4)(x(), (state(1, 2, 4),) * 2),
        TypeError,
        r"state of LRN is one tensor \(h\); got \(Tensor, Tensor\)",
    ),
    "float64": (
        lambda: lstm()(x(), (state(dtype=torch.double),) * 2),
        TypeError,
        r"state 'h' is torch.float64, but LSTM works in torch.float32",
    ),
    "another device": (
        lambda: lstm()(x(), (state(device="meta"),) * 2),
        ValueError,
        r"'h' is on meta.* on cpu",
    ),
    "for packed input, another batch": (
        lambda: lstm()(packed(), (state(2, 3, 4),) * 2),
        ValueError,
        r"\(2, 2, 4\); got \(2, 3, 4\)",
    ),
    "of NRU": (
        lambda: linnet.NRU(3, 4)(x(), (state(1, 2, 4), state(1, 2, 4))),
        ValueError,
        r"state 'm' of NRU must have shape \(1, 2, 64\); got \(1, 2, 4\)",
    ),
}


@table(STATE)
def test_what_a_state_may_be(case: Case):
    check(case)


@over_units
def test_every_unit_names_itself_and_what_came(unit: Any):
    """One bad size, one bad state and one bad dtype each."""
    rnn, name = unit(3, 4), unit.__name__
    with pytest.raises(
        ValueError, match=rf"{name} was built with input_size=3 and got x of shape \(5, 2, 4\)"
    ):
        rnn(x(5, 2, 4))
    with pytest.raises(TypeError, match=f"x is torch.float64, but {name} works in torch.float32"):
        rnn(x(dtype=torch.double))
    _, good = rnn(x())
    bad = good[:, :1] if isinstance(good, torch.Tensor) else tuple(s[:, :1] for s in good)
    with pytest.raises(ValueError, match=rf"of {name} must have shape \(1, 2, .*; got \(1, 1, "):
        rnn(x(), bad)


def test_errors_of_input_can_be_caught_as_those_of_torch():
    """Where nn.LSTM and nn.LSTMCell raise RuntimeError, so does Linnet."""
    wrong: list[tuple[Any, ...]] = [
        (x(5, 2, 9),),
        (x(0, 2, 3),),
        (x(device="meta"),),
        (x(), (state(2, 3, 4),) * 2),
        (x(5, 3), (state(2, 1, 4),) * 2),
        (x(), state()),
        (x(), (state(dtype=torch.double),) * 2),
    ]
    for arguments in wrong:
        for rnn in (torch.nn.LSTM(3, 4, 2), lstm()):
            with pytest.raises(RuntimeError):
                rnn(*arguments)
    for cell in (torch.nn.LSTMCell(3, 4), linnet.LSTMCell(3, 4)):
        for arguments in [(x(2, 9),), (x(2, 3), (state(3, 4),) * 2), (x(2, 3, dtype=torch.double),)]:
            with pytest.raises(RuntimeError):
                cell(*arguments)


# ---------------------------------------------------------------------------- what is built


@over_units
@pytest.mark.parametrize("which", ["input_size", "hidden_size"])
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (0, ValueError, "must be at least 1; got 0"),
        (-1, ValueError, "must be at least 1; got -1"),
        (1.5, TypeError, "must be an int; got 1.5"),
        (True, TypeError, "must be an int; got True"),
        ("8", TypeError, "must be an int; got '8'"),
        (None, TypeError, "must be an int; got None"),
    ],
)
def test_sizes_are_whole_and_positive(unit: Any, which: str, value: Any, error: Any, message: str):
    sizes = {"input_size": 3, "hidden_size": 4, which: value}
    for build in (unit, getattr(linnet, f"{unit.__name__}Cell")):
        with pytest.raises(error, match=f"{which} {message}"):
            build(**sizes)


@over_units
@pytest.mark.parametrize("rate", ["input_dropout", "zoneout", "weight_drop"])
def test_rates_are_probabilities_below_one(unit: Any, rate: str):
    for value in (-0.1, 1.0, 2, float("nan")):
        with pytest.raises(ValueError, match=rf"{rate} must be in \[0, 1\); got {value}"):
            unit(3, 4, **{rate: value})
    for value in ("0.5", None, True):
        with pytest.raises(TypeError, match=rf"{rate} must be a number in \[0, 1\); got {value!r}"):
            unit(3, 4, **{rate: value})


@over_units
def test_the_dropout_between_layers_is_a_probability(unit: Any):
    """As in torch, 1 is allowed."""
    for value in (-0.1, 2, float("nan")):
        with pytest.raises(ValueError, match=r"dropout must be .*; got "):
            unit(3, 4, dropout=value)
    with pytest.raises(TypeError, match=r"dropout must be a number; got '0\.5'"):
        unit(3, 4, dropout="0.5")


def test_the_state_dropout_is_a_probability_below_one():
    with pytest.raises(ValueError, match=r"state_dropout must be in \[0, 1\); got 1.0"):
        linnet.LSTM(3, 4, state_dropout=1.0)


@over_units
def test_an_unknown_option_is_answered_with_the_closest_known_one(unit: Any):
    with pytest.raises(TypeError, match=rf"{unit.__name__} has no option 'zoneot'; did you mean 'zoneout'\?"):
        unit(3, 4, zoneot=0.1)
    with pytest.raises(TypeError, match=rf"{unit.__name__} has no option 'xyzzy'; choose from input_size, "):
        unit(3, 4, xyzzy=1)


@over_units
def test_a_cell_names_an_option_it_does_not_know(unit: Any):
    with pytest.raises(TypeError, match="xyzzy"):
        getattr(linnet, f"{unit.__name__}Cell")(3, 4, xyzzy=1)


# Option values: the unit, what is asked of it, the error, and what the error says.
OPTIONS: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "layers": (linnet.LSTM, {"num_layers": 0}, ValueError, "num_layers must be at least 1; got 0"),
    "half a layer": (linnet.LSTM, {"num_layers": 1.5}, TypeError, "num_layers must be an int; got 1.5"),
    "projection": (linnet.GRU, {"proj_size": -1}, ValueError, "proj_size must be at least 0; got -1"),
    "projection, LSTM": (linnet.LSTM, {"proj_size": -1}, ValueError, "proj_size must be at least 0; got -1"),
    "norm": (
        linnet.LRN,
        {"norm": "batch"},
        ValueError,
        "norm must be one of None, 'layer', 'rms'; got 'batch'",
    ),
    "prenorm": (linnet.LRN, {"prenorm": "batch"}, ValueError, "'layer', 'rms'; got 'batch'"),
    "weight_drop_on": (linnet.LSTM, {"weight_drop_on": "x"}, ValueError, "'recurrent', 'all'; got 'x'"),
    "HGRN bounds": (linnet.HGRN, {"bounds": "x"}, ValueError, "bounds must be one of 'own', 'shared', None"),
    "HGRN norm": (linnet.HGRN, {"output_norm": "x"}, ValueError, "output_norm must be one of None, 'layer'"),
    "HGRN norm of": (linnet.HGRN, {"norm_of": "x"}, ValueError, "norm_of must be one of 'state', 'gated'"),
    "HGRN gate": (linnet.HGRN, {"output_gate": "x"}, ValueError, "output_gate must be one of 'silu'"),
    "HGRN size": (linnet.HGRN, {"model_size": -1}, ValueError, "model_size must be at least 0; got -1"),
    "LRU ring": (linnet.LRU, {"r_min": 0.9, "r_max": 0.1}, ValueError, "0 <= r_min < r_max <= 1"),
    "LRU phase": (linnet.LRU, {"max_phase": -1.0}, ValueError, "max_phase must be finite and at least 0"),
    "CoRNN init": (linnet.CoRNN, {"init": "x"}, ValueError, "init must be one of 'joint', 'separate'"),
    "FastRNN update": (linnet.FastRNN, {"update": "x"}, ValueError, "update must be one of 'tanh'"),
    "FastGRNN gate": (linnet.FastGRNN, {"gate": "x"}, ValueError, "gate must be one of 'tanh', 'sigmoid'"),
    "FastGRNN update": (linnet.FastGRNN, {"update": "x"}, ValueError, "update must be one of 'tanh'"),
    "SLSTM bias": (linnet.SLSTM, {"forget_bias": "x"}, ValueError, "forget_bias must be one of 'powerlaw'"),
    "SLSTM start": (
        linnet.SLSTM,
        {"recurrent_init": "x"},
        ValueError,
        "recurrent_init must be one of 'zeros'",
    ),
    "LinOSS": (linnet.LinOSS, {"discretization": "x"}, ValueError, "must be one of 'IM', 'IMEX'; got 'x'"),
    "CfC mode": (linnet.CfC, {"mode": "x"}, ValueError, "mode must be one of 'default', 'no_gate', 'pure'"),
    "CfC activation": (linnet.CfC, {"activation": "x"}, ValueError, "activation must be one of 'lecun_tanh'"),
    "CfC units": (linnet.CfC, {"backbone_units": 0}, ValueError, "backbone_units must be at least 1; got 0"),
    "LiGRU norm": (linnet.LiGRU, {"normalization": "x"}, ValueError, "normalization must be one of 'batch'"),
    "LiGRU frames": (linnet.LiGRU, {"frames": "x"}, ValueError, "frames must be one of 'real', 'all'"),
    "LiGRU activation": (linnet.LiGRU, {"activation": "x"}, ValueError, "activation must be one of 'relu'"),
    "SRU activation": (
        linnet.SRU,
        {"activation": "relu"},
        ValueError,
        "activation .* 'tanh', 'identity'; got 'relu'",
    ),
    "SRU skip": (
        linnet.SRU,
        {"skip": "none"},
        ValueError,
        "skip must be one of 'auto', 'matrix'; got 'none'",
    ),
    "SRU rank": (linnet.SRU, {"rank": -1}, ValueError, "rank must be at least 0; got -1"),
    "SRU rank, real": (linnet.SRU, {"rank": 0.5}, TypeError, "rank must be an int; got 0.5"),
    "SRU dropout": (
        linnet.SRU,
        {"cell_dropout": 1.0},
        ValueError,
        r"cell_dropout must be in \[0, 1\); got 1.0",
    ),
    "SRU dropout on": (linnet.SRU, {"cell_dropout_on": "c"}, ValueError, "'state', 'gate'; got 'c'"),
    "SRU skip_from": (linnet.SRU, {"skip_from": 3}, ValueError, "skip_from"),
    "SRU highway bias": (linnet.SRU, {"highway_bias": "big"}, TypeError, "highway_bias .* 'big'"),
    "LRN activation": (linnet.LRN, {"activation": "relu"}, ValueError, "'tanh', 'identity'; got 'relu'"),
    "oLRN activation": (linnet.OLRN, {"activation": 1}, ValueError, "'tanh', 'identity'; got 1"),
    "gLRN activation": (linnet.GLRN, {"activation": None}, ValueError, "'tanh', 'identity'; got None"),
    "eLRN activation": (linnet.ELRN, {"activation": "id"}, ValueError, "'tanh', 'identity'; got 'id'"),
    "RAN activation": (linnet.RAN, {"activation": "relu"}, ValueError, "'tanh', 'identity'; got 'relu'"),
    "RAN reduced": (
        linnet.RAN,
        {"reduced": True},
        ValueError,
        "input_size == hidden_size .* got input_size=3, hidden_size=4",
    ),
    "RAN projection": (linnet.RAN, {"proj_size": 1.5}, TypeError, "proj_size must be an int; got 1.5"),
    "NRU memory": (
        linnet.NRU,
        {"memory_size": 5},
        ValueError,
        r"memory_size \* num_heads must be a square .* got 20",
    ),
    "NRU heads": (linnet.NRU, {"num_heads": 3}, ValueError, r"memory_size \* num_heads .* square .* got 192"),
    "NRU memory per head": (
        linnet.NRU,
        {"memory_size": 8, "directions": "per-head"},
        ValueError,
        "memory_size must be a square .* got 8",
    ),
    "NRU no memory": (linnet.NRU, {"memory_size": 0}, ValueError, "memory_size must be at least 1; got 0"),
    "NRU no heads": (linnet.NRU, {"num_heads": 0}, ValueError, "num_heads must be at least 1; got 0"),
    "NRU directions": (
        linnet.NRU,
        {"directions": "outer"},
        ValueError,
        "'joint', 'per-head', 'full'; got 'outer'",
    ),
    "NRU activation": (linnet.NRU, {"head_activation": "tanh"}, ValueError, "'identity', 'relu'; got 'tanh'"),
    "NRU reduction": (linnet.NRU, {"head_reduction": "max"}, ValueError, "'mean', 'sum'; got 'max'"),
    "SCRN context": (linnet.SCRN, {"context_size": 0}, ValueError, "context_size must be at least 1; got 0"),
    "SCRN alpha": (linnet.SCRN, {"alpha": 1.5}, ValueError, r"alpha must be in \[0, 1\]; got 1.5"),
    "SCRN alpha, a word": (linnet.SCRN, {"alpha": "slow"}, TypeError, "alpha .* 'slow'"),
    "SCRN reads": (linnet.SCRN, {"hidden_reads": "old"}, ValueError, "'new', 'previous'; got 'old'"),
    "SCRN init": (linnet.SCRN, {"init_scale": -0.1}, ValueError, "init_scale .* -0.1"),
    "ATR activation": (linnet.ATR, {"activation": "relu"}, ValueError, "'tanh', 'identity'; got 'relu'"),
    "QRNN window": (linnet.QRNN, {"window": 3}, ValueError, "window must be one of 1, 2; got 3"),
    "QRNN pooling": (
        linnet.QRNN,
        {"pooling": "o"},
        ValueError,
        "pooling must be one of 'f', 'fo', 'ifo'; got 'o'",
    ),
    "QRNN highway": (
        linnet.QRNN,
        {"highway": True, "pooling": "f"},
        ValueError,
        "highway=True needs an output gate",
    ),
    "JANET chrono": (linnet.JANET, {"chrono": 0}, ValueError, "chrono must be at least 1; got 0"),
    "JANET chrono, real": (linnet.JANET, {"chrono": 2.5}, TypeError, "chrono must be an int; got 2.5"),
    "JANET no bias": (linnet.JANET, {"chrono": 9, "bias": False}, ValueError, "chrono .* needs bias=True"),
    "JANET init": (
        linnet.JANET,
        {"init": "zeros"},
        ValueError,
        "'uniform', 'xavier', 'orthogonal'; got 'zeros'",
    ),
    "JANET beta": (linnet.JANET, {"beta": "one"}, TypeError, "beta .* 'one'"),
    "LSTM content": (linnet.LSTM, {"content": "x"}, ValueError, "'recurrent', 'linear'; got 'x'"),
    "LSTM activation": (linnet.LSTM, {"activation": "relu"}, ValueError, "'tanh', 'identity'; got 'relu'"),
    "LSTM chrono": (linnet.LSTM, {"chrono": -5}, ValueError, "chrono must be at least 1; got -5"),
    "LSTM no bias": (linnet.LSTM, {"chrono": 9, "bias": False}, ValueError, "chrono .* needs bias=True"),
    "LSTM init": (linnet.LSTM, {"init": "chrono"}, ValueError, "'orthogonal'; got 'chrono'"),
    "GRU form": (linnet.GRU, {"form": "cudnn"}, ValueError, "'after', 'before', 'ran'; got 'cudnn'"),
    "GRU init": (linnet.GRU, {"init": "identity"}, ValueError, "'orthogonal'; got 'identity'"),
    "ATR norm_on": (linnet.ATR, {"norm_on": "state"}, ValueError, "'input', 'all'; got 'state'"),
    "LSTM norm_on": (linnet.LSTM, {"norm_on": "state"}, ValueError, "'input', 'all'; got 'state'"),
    "GRU norm_on": (linnet.GRU, {"norm_on": "state"}, ValueError, "'input', 'all'; got 'state'"),
    "RNN nonlinearity": (
        linnet.RNN,
        {"nonlinearity": "gelu"},
        ValueError,
        "nonlinearity must be one of 'tanh', 'relu', 'sigmoid'; got 'gelu'",
    ),
    "RNN init": (linnet.RNN, {"init": "he"}, ValueError, "'orthogonal', 'identity'; got 'he'"),
    "statistics": (
        linnet.StatisticalRU,
        {"statistics_size": 0},
        ValueError,
        "statistics_size must be at least 1",
    ),
    "summary": (
        linnet.StatisticalRU,
        {"summary_size": -1},
        ValueError,
        "summary_size must be at least 1; got -1",
    ),
    "scales": (linnet.StatisticalRU, {"scales": (0.5, 1.0)}, ValueError, r"\[0, 1\); got \(0.5, 1.0\)"),
    "no scales": (linnet.StatisticalRU, {"scales": ()}, ValueError, r"one or more numbers .* got \(\)"),
    "one scale": (linnet.StatisticalRU, {"scales": 0.5}, TypeError, "scales .* 0.5"),
    "scales in words": (linnet.StatisticalRU, {"scales": ("slow",)}, TypeError, r"scales .*'slow'"),
    "MinGRU activation": (
        linnet.MinGRU,
        {"activation": "tanh"},
        ValueError,
        "activation must be one of 'positive', 'identity'; got 'tanh'",
    ),
    "MinGRU highway": (
        linnet.MinGRU,
        {"highway": True},
        ValueError,
        "needs input_size == hidden_size; got 3 and 4",
    ),
    "MinGRU skip_from": (
        linnet.MinGRU,
        {"highway": True, "skip_from": 1},
        ValueError,
        "skip_from=1 leaves no",
    ),
    "MinLSTM activation": (
        linnet.MinLSTM,
        {"activation": "g"},
        ValueError,
        "'positive', 'identity'; got 'g'",
    ),
    "MinLSTM forget bias": (linnet.MinLSTM, {"forget_bias": "3"}, TypeError, "forget_bias .* '3'"),
    "MinLSTM no bias": (
        linnet.MinLSTM,
        {"forget_bias": 3.0, "bias": False},
        ValueError,
        r"forget_bias=3\.0 is added to a bias; it needs bias=True",
    ),
    "IndRNN activation": (linnet.IndRNN, {"activation": "identity"}, ValueError, "'relu', 'tanh'; got"),
    "IndRNN steps": (linnet.IndRNN, {"steps": 0}, ValueError, "steps must be at least 1; got 0"),
    "IndRNN growth": (linnet.IndRNN, {"growth": 0.5}, ValueError, "growth must be .* at least 1; got 0.5"),
    "IndRNN long memory": (linnet.IndRNN, {"long_memory": True}, ValueError, "give steps"),
    "MGU init": (linnet.MGU, {"init": "he"}, ValueError, "'orthogonal'; got 'he'"),
    "MinimalRNN init": (linnet.MinimalRNN, {"init": "he"}, ValueError, "'orthogonal'; got 'he'"),
    "SGU init": (linnet.SGU, {"init": "he"}, ValueError, "'orthogonal'; got 'he'"),
}


@pytest.mark.parametrize(("unit", "options", "error", "message"), OPTIONS.values(), ids=OPTIONS.keys())
def test_the_value_of_an_option(unit: Any, options: dict[str, Any], error: type[Exception], message: str):
    check((lambda: unit(3, 4, **options), error, message))


def test_every_choice_of_every_unit_is_in_the_table():
    """An option with a text value is a choice among a few: one that no row tries would go unchecked."""
    tried = {(unit, name) for unit, options, _, _ in OPTIONS.values() for name in options}
    for unit in UNITS:
        chosen = {n: p.default for n, p in unit.options().items() if isinstance(p.default, str)}
        assert {(unit, name) for name in chosen} <= tried
