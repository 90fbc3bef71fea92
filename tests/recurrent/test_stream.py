"""Streams: one native call a step, and what it must never do differently from the module itself."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import weakref
from functools import partial

import pytest
import torch
from helpers import WITHOUT_NATIVE_STEPS, at_once, identical, same, tensors
from torch import Tensor, nn

import linnet
from linnet.cpu import in_order, steps
from linnet.cpu.threads import parallel_for

SIZES = {"nru": {"hidden_size": 12, "memory_size": 64}}


def build(name: str, dtype: torch.dtype = torch.double, **options) -> linnet.Recurrent:
    options = {"hidden_size": 12, "num_layers": 2, **SIZES.get(name, {}), **options}
    rnn = linnet.UNITS[name](12, dtype=dtype, **options).eval()
    with torch.no_grad():
        for i, p in enumerate(rnn.parameters()):
            p += 0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(i)).to(dtype)
    return rnn


def draw(*shape: int, dtype: torch.dtype = torch.double, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def follows(stream: linnet.Stream, rnn: linnet.Recurrent, xs: Tensor, state=None, **tolerance) -> None:
    """The stream must give what the loop gives, from `state` on."""
    found = [torch.stack([stream(x) for x in xs]), *tensors(stream.state)]
    with torch.no_grad(), linnet.backend("reference"):
        y, end = rnn(xs, state)
    same(found, [y, *tensors(end)], **{"rtol": 1e-12, "atol": 1e-12, **tolerance})


@pytest.mark.parametrize("name", linnet.UNITS)
@pytest.mark.parametrize("batch", [1, 5])
def test_a_stream_gives_what_the_module_gives(name: str, batch: int):
    rnn = build(name)
    stream = linnet.stream(rnn, batch)
    assert (stream.native is None) is (name in WITHOUT_NATIVE_STEPS)
    follows(stream, rnn, draw(4, batch, 12))


OPTIONS = [
    {"prenorm": "layer", "residual": True},
    {"norm": "rms", "proj_size": 5, "residual": True},
    {"norm": "layer", "prenorm": "rms", "bias": False},
    {"zoneout": 0.2, "dropout": 0.5, "input_dropout": 0.5},
]


@pytest.mark.parametrize("name", ["sru", "lstm", "scrn", "nru", "gru"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.filterwarnings("ignore::linnet.FallbackWarning")
def test_norms_projections_and_residuals_are_part_of_the_stream(name: str, options: dict):
    rnn = build(name, **options)
    follows(linnet.stream(rnn, 2), rnn, draw(3, 2, 12))


@pytest.mark.parametrize("hidden", [1, 3, 16, 37])
def test_float32_and_awkward_sizes(hidden: int):
    rnn = build("sru", torch.float32, hidden_size=hidden)
    follows(linnet.stream(rnn, 3), rnn, draw(3, 3, 12, dtype=torch.float32), rtol=1e-5, atol=1e-5)


def test_a_row_does_not_depend_on_the_rows_beside_it():
    rnn, xs = build("lstm", torch.float32), draw(3, 7, 12, dtype=torch.float32)
    together, alone = linnet.stream(rnn, 7), linnet.stream(rnn, 1)
    outputs = torch.stack([together(x) for x in xs])
    identical(torch.stack([alone(x[2]) for x in xs]), outputs[:, 2])


class OwnCell(linnet.Cell):
    """A user's unit: a leaky sum."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device=None, dtype=None, **projection
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        self.leak = [0.5]
        self.input = linnet.Projection(
            input_size, {"a": hidden_size}, bias, device=device, dtype=dtype, **projection
        )

    def step(self, a: Tensor, h: Tensor):
        h = torch.tanh(self.leak[0] * h + a)
        return h, {"h": h}


class Own(linnet.Recurrent, cell=OwnCell):
    """The stack of it."""


def own_unit() -> linnet.Recurrent:
    rnn = Own(4, 6, dtype=torch.double)
    for p in rnn.parameters():
        nn.init.normal_(p)
    return rnn.eval()


def test_a_unit_of_the_user_streams_and_its_options_are_seen():
    rnn = own_unit()
    stream = linnet.stream(rnn)
    assert stream.native is not None
    follows(stream, rnn, draw(3, 1, 4))
    state = stream.state
    rnn.first_cell.leak[0] = 0.1
    follows(stream, rnn, draw(3, 1, 4), state)


@pytest.mark.parametrize("length", [6, 5, 1, 0])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("name", ["elrn", "glrn", "indrnn", "sru"])
def test_a_bias_that_is_replaced_by_a_shorter_one_is_that_of_the_last_channels(
    name: str, heads: int, length: int
):
    """With heads there is a product for each part, within which such a bias may start."""
    rnn = build(name, input_heads=heads)
    xs = draw(3, 2, 12)
    projection = rnn.first_cell.input
    shorter = nn.Parameter(projection.bias[:length].detach().clone())
    setattr(projection, projection.bias_name, shorter)
    stream = linnet.stream(rnn, 2)
    follows(stream, rnn, xs)
    with torch.no_grad():
        same(rnn(xs[:1])[0], torch.stack([linnet.stream(rnn, 2)(xs[0])]))


# ------------------------------------------------------------------------------------------ state


@pytest.mark.parametrize("name", ["sru", "lstm", "scrn", "nru", "eurnn"])
def test_the_state_can_be_read_set_and_reset_by_row(name: str):
    rnn, xs = build(name), draw(4, 3, 12)
    stream = linnet.stream(rnn, 3)
    for x in xs:
        stream(x)
    state = stream.state
    kept = [s.clone() for s in tensors(state)]
    stream(xs[0])
    identical(tensors(state), kept)  # a copy
    stream.state = state
    identical(tensors(stream.state), kept)
    follows(stream, rnn, xs, state)
    kept = [s.clone() for s in tensors(stream.state)]
    stream.reset([0, 2])
    for now, before in zip(tensors(stream.state), kept, strict=True):
        assert not now[:, [0, 2]].any()
        identical(now[:, 1], before[:, 1])
    stream.reset()
    follows(stream, rnn, xs)


def kind(value):
    return type(value).__name__


@pytest.mark.parametrize("rows", [[], (), torch.tensor([], dtype=torch.int64), range(0), iter([])], ids=kind)
def test_a_reset_of_no_row_changes_nothing(rows):
    stream = linnet.stream(build("sru"), 3)
    stream(draw(3, 12))
    before = tensors(stream.state)
    stream.reset(rows)
    identical(tensors(stream.state), before)


@pytest.mark.parametrize("rows", [range(0, 3, 2), {0, 2}, iter([0, 2]), torch.tensor([0, 2])], ids=kind)
def test_rows_may_be_any_iterable(rows):
    stream = linnet.stream(build("sru"), 3)
    stream(draw(3, 12))
    stream.reset(rows)
    assert [bool(row.any()) for row in stream.state.transpose(0, 1)] == [False, True, False]


@pytest.mark.parametrize("inside", ["made", "used"])
@pytest.mark.parametrize("name", ["sru", "lstm", "nru", "statisticalru"])
def test_a_stream_may_be_made_and_used_in_inference_mode_and_outside(name: str, inside: str):
    rnn, xs = build(name), draw(3, 2, 12)
    with torch.inference_mode(inside == "made"):
        stream = linnet.stream(rnn, 2)
        first = [stream(x) for x in xs]
    with torch.inference_mode(inside == "used"):
        state = stream.state
        stream.reset([0])
        stream.state = state
        stream.reset()
        identical([stream(x) for x in xs], first)


def test_a_state_or_an_input_that_does_not_fit_is_an_error():
    stream = linnet.stream(build("lstm"), 2)
    with pytest.raises(ValueError, match=r"the state 'h' of LSTM must have shape \(2, 2, 12\)"):
        stream.state = (torch.zeros(2, 1, 12), torch.zeros(2, 1, 12))
    with pytest.raises(ValueError, match=r"made with batch=2 and takes x of shape \(2, 12\); got \(3, 12\)"):
        stream(torch.zeros(3, 12))
    with pytest.raises(TypeError, match=r"x is torch.float32, but LSTM works in torch.float64"):
        stream(torch.zeros(2, 12))
    with pytest.raises(TypeError, match=r"takes x as a Tensor; got list"):
        stream([1.0])
    with pytest.raises(IndexError):
        stream.reset(7)


def test_an_output_stays_what_it_was_and_has_no_gradient():
    rnn = build("lrn")
    stream, x = linnet.stream(rnn), draw(1, 12).requires_grad_()
    y = stream(x)
    kept = y.clone()
    stream(draw(1, 12, seed=2))
    identical(y, kept)
    assert not y.requires_grad


@pytest.mark.parametrize("shape", [(24, 1), (1, 24), (12,)])
def test_inputs_that_lie_elsewhere(shape: tuple[int, ...]):
    rnn, wide = build("gru"), draw(*shape)
    x = wide[::2].T if shape[0] == 24 else wide[..., 6:18] if len(shape) == 2 else wide
    stream = linnet.stream(rnn)
    y = stream(x)
    assert y.shape == x.shape
    with torch.no_grad():
        same(y.view(1, 12), rnn(x.reshape(1, 1, 12))[0][0], rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------------------------- changes


def in_place(rnn: linnet.Recurrent) -> None:
    for p in rnn.parameters():
        p.data.mul_(0.5)


def by_loading(rnn: linnet.Recurrent) -> None:
    rnn.load_state_dict({name: 2 * p for name, p in rnn.state_dict().items()})


def by_assigning(rnn: linnet.Recurrent) -> None:
    rnn.load_state_dict({name: 2 * p for name, p in rnn.state_dict().items()}, assign=True)


def in_data(rnn: linnet.Recurrent) -> None:
    weight = rnn.first_cell.input.weight
    weight.data = (weight.data + 0.1).T.contiguous().T  # no longer contiguous


def by_a_new_module(rnn: linnet.Recurrent) -> None:
    rnn.directions[1] = build("lstm", num_layers=1, zoneout=0.1).directions[0]


def by_an_option(rnn: linnet.Recurrent) -> None:
    rnn.directions[0].zoneout = 0.3


def by_a_hook(rnn: linnet.Recurrent) -> None:
    rnn.first_cell.input.register_forward_hook(
        lambda module, inputs, output: {k: -v for k, v in output.items()}
    )


def by_a_parametrization(rnn: linnet.Recurrent) -> None:
    nn.utils.parametrizations.weight_norm(rnn, "weight_hh_l0")


def by_a_forward(rnn: linnet.Recurrent) -> None:
    projection = rnn.first_cell.input
    plain = projection.forward
    projection.forward = lambda x: {name: -part for name, part in plain(x).items()}


@pytest.mark.filterwarnings("ignore::linnet.FallbackWarning")
def test_a_change_in_a_dictionary_that_took_the_place_of_another_is_seen():
    rnn, xs = build("lstm"), draw(3, 2, 12)
    stream, projection = linnet.stream(rnn, 2), rnn.first_cell.input
    # Nothing has changed yet.
    projection._parameters = dict(projection._parameters)
    follows(stream, rnn, xs, stream.state)
    projection._parameters["weight"] = nn.Parameter(2 * projection.weight.detach())
    follows(stream, rnn, xs, stream.state)


CHANGES = [in_place, by_loading, by_assigning, in_data, by_a_new_module, by_an_option]
CHANGES += [by_a_hook, by_a_parametrization, by_a_forward]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.filterwarnings("ignore::linnet.FallbackWarning")
def test_a_changed_module_is_seen_at_the_next_step(change):
    rnn, xs = build("lstm"), draw(3, 2, 12)
    stream, cell = linnet.stream(rnn, 2), rnn.cells[0]
    for x in xs:
        stream(x)
    with torch.no_grad():
        cell(xs[0])
        _, cell_state = cell.run_step(xs[0])
        cell(xs[0], cell_state)
    state = stream.state
    change(rnn)
    follows(stream, rnn, xs, state)
    with torch.no_grad():
        found = cell.run_step(xs[0], cell_state)
        with linnet.backend("reference"):
            expected = cell.run_step(xs[0], cell_state)
    same([found[0], *tensors(found[1])], [expected[0], *tensors(expected[1])], rtol=1e-12, atol=1e-12)


def test_what_a_stream_cannot_do_is_an_error():
    rnn = linnet.SRU(4, 4)
    with pytest.raises(RuntimeError, match=r"call rnn.eval\(\), as in"):
        linnet.stream(rnn)
    stream = linnet.stream(rnn.eval())
    rnn.train()
    with pytest.raises(RuntimeError, match=r"call rnn.eval\(\), as in"):
        stream(torch.zeros(1, 4))
    rnn.eval().double()
    with pytest.raises(RuntimeError, match=r"the weights are torch.float64 on cpu now"):
        stream(torch.zeros(1, 4))
    with pytest.raises(ValueError, match="bidirectional=False"):
        linnet.stream(linnet.SRU(4, 4, bidirectional=True).eval())
    with pytest.raises(TypeError, match=r"takes a module such as linnet.SRU; got LSTM"):
        linnet.stream(nn.LSTM(4, 4))


def test_a_stream_of_bfloat16_says_that_it_is_no_native_call():
    rnn = linnet.SRU(4, 4, dtype=torch.bfloat16).eval()
    with pytest.warns(linnet.FallbackWarning, match="a native step takes float32 or float64"):
        stream = linnet.stream(rnn)
    x = torch.ones(3, 1, 4, dtype=torch.bfloat16)
    with torch.no_grad():
        same(torch.stack([stream(row) for row in x]), rnn(x)[0], rtol=2e-2, atol=2e-2)


def test_a_dropped_module_is_freed_at_once():
    rnn = build("lstm")
    stream, cell = linnet.stream(rnn), rnn.cells[0]
    with torch.no_grad():
        cell(draw(1, 12))
        rnn(draw(1, 1, 12))
        stream(draw(1, 12))
    assert cell.plan_cache.decision is not None
    gone = [weakref.ref(each) for each in (rnn, cell, cell.input.weight)]
    gc.disable()
    try:
        del stream, rnn, cell
        assert [each() for each in gone] == [None] * 3
    finally:
        gc.enable()


# ---------------------------------------------------------------------------------------- threads


class CountedPool:
    """torch's thread pool, and how often it was asked for threads."""

    def __init__(self) -> None:
        self.calls = 0
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 3, ctypes.c_void_p, ctypes.c_void_p)
        self.function = kind(self.run)

    def run(self, *arguments: int) -> int:
        self.calls += 1
        return parallel_for()(*arguments)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> CountedPool:
    counted = CountedPool()
    monkeypatch.setattr(in_order, "parallel_for", lambda: counted.function)
    return counted


BUSY = "import time\nend = time.time() + 20\nwhile time.time() < end: pass"


def test_a_small_step_is_not_shared_out_while_other_processes_are_busy(pool: CountedPool):
    """Waiting for a second thread would then take a hundred times as long as the work."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    try:
        for name in ("sru", "lstm"):
            rnn = build(name, torch.float32, hidden_size=512, num_layers=1)
            stream, x = linnet.stream(rnn), torch.randn(1, 12)
            with torch.no_grad():
                for _ in range(5):
                    stream(x)
                    rnn(x[None])
                    rnn.cells[0](x)
    finally:
        for process in others:
            process.kill()
            process.wait()
    assert pool.calls == 0


def test_a_large_step_is_shared_out_and_gives_the_same_bits(
    pool: CountedPool, monkeypatch: pytest.MonkeyPatch
):
    rnn, xs = build("lstm", torch.float32, hidden_size=50), draw(3, 2, 12, dtype=torch.float32)
    alone = linnet.stream(rnn, 2)
    monkeypatch.setattr(steps, "SHARED", 1)
    together = linnet.stream(rnn, 2)
    outputs = [torch.stack([stream(x) for x in xs]) for stream in (alone, together)]
    # Two layers with two products each, the product with the input in one part as all columns have a bias.
    assert pool.calls == 3 * 2 * 2
    identical(*outputs)


def test_threads_take_turns_at_one_stream():
    rnn, x = build("lstm"), draw(1, 12)
    stream = linnet.stream(rnn)
    at_once(*[partial(stream, x)] * 4, times=50)
    with torch.no_grad():
        _, state = rnn(x.expand(200, 1, 12))
    same(tensors(stream.state), tensors(state), rtol=1e-9, atol=1e-9)


def test_a_module_in_training_mode_is_refused_with_the_line_to_write():
    rnn = linnet.SRU(3, 4, 2, dropout=0.1)
    message = r"training mode; call rnn.eval\(\), as in stream = linnet.stream\(rnn.eval\(\)\)"
    with pytest.raises(RuntimeError, match=message):
        linnet.stream(rnn)
    stream = linnet.stream(rnn.eval())
    rnn.train()
    with pytest.raises(RuntimeError, match=message):
        stream(torch.zeros(1, 3))
