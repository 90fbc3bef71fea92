"""linnet.freeze: the same results from packed copies, and errors for changes of what was packed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from helpers import identical, tensors
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

import linnet
from linnet.recurrent.freeze import Frozen


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def build(unit: type = linnet.LSTM, **options: Any) -> Any:
    torch.manual_seed(0)
    return unit(6, 37, **options).eval()


def run(rnn: Any, x: Any, state: Any = None, **flags: Any) -> list[Tensor]:
    with torch.no_grad():
        y, new = rnn(x, state, **flags)
    return [y.data if not isinstance(y, Tensor) else y, *tensors(new)]


def counted(rnn: Any, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The inputs that run by kernels with packed copies."""
    inputs: list[Tensor] = []
    stack, real = rnn.inference.bound.stack, rnn.inference.bound.stack.run
    monkeypatch.setattr(stack, "run", lambda layout, x, states: inputs.append(x) or real(layout, x, states))
    return inputs


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}], ids=str
)
@pytest.mark.parametrize("unit", [linnet.LSTM, linnet.GRU, linnet.LRN, linnet.RAN, linnet.ATR])
def test_a_frozen_layer_gives_the_same_bits(unit: type, options: dict, batch: int, monkeypatch):
    rnn = build(unit, **options)
    shape = (batch, 9, 6) if rnn.batch_first else (9, batch, 6)
    x, longer = torch.randn(shape), torch.randn(shape).repeat_interleave(23, int(rnn.batch_first))
    state = rnn(x)[1]
    expected = [run(rnn, x), run(rnn, x, state), run(rnn, longer)]
    before = [s.clone() for s in tensors(state)]
    inputs = counted(linnet.freeze(rnn), monkeypatch)
    found = [run(rnn, x), run(rnn, x, state), run(rnn, longer)]
    assert len(inputs) == 3
    for ours, theirs in zip(found, expected, strict=True):
        identical(ours, theirs)
    identical(tensors(state), before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_strides_dtypes_and_short_sequences(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch):
    rnn = build(dtype=dtype)
    inputs = [torch.randn(2, 9, 6, dtype=dtype).transpose(0, 1), torch.randn(9, 2, 8, dtype=dtype)[..., 1:7]]
    inputs += [torch.randn(2, 1, 6, dtype=dtype), torch.randn(2, 2, 6, dtype=dtype)[:, :1]]
    expected = [run(rnn, x) for x in inputs]
    counts = counted(linnet.freeze(rnn), monkeypatch)
    for x, theirs in zip(inputs, expected, strict=True):
        torch.testing.assert_close(run(rnn, x), theirs)
    assert len(counts) == len(inputs)


def usual_calls() -> dict[str, Callable[[], tuple[Any, Any, dict]]]:
    """Calls that the usual ways run: a layer, x, and flags."""
    x, flags = torch.randn(9, 2, 6), torch.rand(9, 2) > 0.3
    return {
        "mask": lambda: (build(), x, {"mask": flags}),
        "resets": lambda: (build(), x, {"resets": flags}),
        "lengths": lambda: (build(), x, {"lengths": [9, 4]}),
        "packed": lambda: (build(), pack_sequence([x[:, 0], x[:5, 1]]), {}),
        "step": lambda: (build(), x[:1], {}),
        "unbatched": lambda: (build(), x[:, 0], {}),
        "not side by side": lambda: (build(), torch.randn(9, 6, 2).mT, {}),
        "bfloat16": lambda: (build(dtype=torch.bfloat16), x.bfloat16(), {}),
        "residual": lambda: (linnet.LSTM(6, 6, residual=True).eval(), x, {}),
        "as_lstm": lambda: (build(linnet.GRU, as_lstm=True), x, {}),
        "a skip": lambda: (linnet.SRU(6, 6).eval(), x, {}),
        "a norm": lambda: (build(norm="layer"), x, {}),
        "proj_size": lambda: (build(linnet.GRU, proj_size=3), x, {}),
        "own kernel": lambda: (build(linnet.NRU), x, {}),
        "two stages": lambda: (build(linnet.SCRN), x, {}),
        "an empty batch": lambda: (build(), x[:, :0], {}),
    }


@pytest.mark.parametrize("name", usual_calls())
def test_all_other_calls_run_as_usual(name: str):
    rnn, x, flags = usual_calls()[name]()
    expected = run(rnn, x, **flags)
    identical(run(linnet.freeze(rnn), x, **flags), expected)


def in_place(rnn: Any) -> None:
    with torch.no_grad():
        rnn.weight_hh_l0 += 1


def through_data(rnn: Any) -> None:
    rnn.weight_hh_l0.data = torch.zeros(4 * 37, 37)


def assigned(rnn: Any) -> None:
    rnn.weight_hh_l0 = nn.Parameter(torch.zeros(4 * 37, 37))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (in_place, r"weight_hh_l0 has been changed in place"),
        (through_data, r"weight_hh_l0 has other memory"),
        (assigned, r"weight_hh_l0 is not the same object"),
        (lambda rnn: rnn.load_state_dict(rnn.state_dict()), r"weight_ih_l0 has been changed in place"),
        (lambda rnn: rnn.double(), r"weight_ih_l0 has other memory, dtype or shape"),
        (lambda rnn: rnn.train(), r"LSTM is frozen, and it is in training mode; call model.eval\(\)"),
    ],
)
@pytest.mark.parametrize("flags", [{}, {"lengths": [9, 4]}], ids=["plain", "lengths"])
def test_a_change_is_an_error_that_says_what_to_do(change: Callable, text: str, flags: dict):
    rnn, x = linnet.freeze(build()), torch.randn(9, 2, 6)
    rnn(x)
    change(rnn)
    x = x.to(next(rnn.parameters()).dtype)
    with pytest.raises(RuntimeError, match=text) as error:
        rnn(x, **flags)
    assert "linnet.unfreeze(model)" in str(error.value)
    with pytest.raises(RuntimeError, match=text):  # as long as it is frozen
        rnn(x, **flags)
    linnet.unfreeze(rnn)
    again = copy.deepcopy(rnn)
    identical(run(rnn.eval(), x, **flags), run(again.eval(), x, **flags))


def test_changes_of_options_and_hooks_are_seen():
    rnn, x = linnet.freeze(build()), torch.randn(9, 2, 6)
    before = run(rnn, x)
    rnn.directions[0].zoneout = 0.5
    zoned = build()
    zoned.directions[0].zoneout = 0.5
    identical(run(rnn, x), run(zoned, x))
    rnn.directions[0].zoneout = 0.0
    identical(run(rnn, x), before)
    calls: list[int] = []
    handle = rnn.directions[0].cell.input.register_forward_hook(lambda *_: calls.append(1))
    with linnet.backend("reference"):
        run(rnn, x)
    handle.remove()
    assert calls == [1]
    identical(run(rnn, x), before)


def test_the_reference_and_gradients_of_x():
    rnn, x = linnet.freeze(build()), torch.randn(9, 2, 6, requires_grad=True)
    y, _ = rnn(x)
    with linnet.backend("reference"):
        expected, _ = rnn(x)
    ours, theirs = (torch.autograd.grad(each.sin().sum(), x)[0] for each in (y, expected))
    torch.testing.assert_close(ours, theirs)
    # Without gradients the result is a tensor like any other.
    y, _ = rnn(x.detach())
    assert not y.requires_grad
    y += 1


def test_parameters_require_gradients_again_as_before():
    model = nn.Sequential(nn.Linear(3, 6), build())
    rnn: Any = model[1]
    rnn.bias_ih_l0.requires_grad_(False)
    required = [p.requires_grad for p in model.parameters()]
    assert linnet.freeze(model) is linnet.freeze(model)
    assert [p.requires_grad for p in model.parameters()] == [True, True, *[False] * (len(required) - 2)]
    assert linnet.unfreeze(model) is model
    assert [p.requires_grad for p in model.parameters()] == required
    assert not isinstance(rnn.inference, Frozen)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda rnn: pickle.loads(pickle.dumps(rnn))])
def test_copies_are_frozen_and_have_their_own_weights(copied: Callable, monkeypatch: pytest.MonkeyPatch):
    rnn, x = linnet.freeze(build()), torch.randn(9, 2, 6)
    other = copied(rnn)
    with torch.no_grad():  # before its first call it has packed nothing
        other.directions[0].cell.recurrent.weight_hh.zero_()
    expected = build()
    with torch.no_grad():
        expected.directions[0].cell.recurrent.weight_hh.zero_()
    identical(run(other, x), run(expected, x))
    inputs = counted(other, monkeypatch)
    run(other, x)
    assert len(inputs) == 1
    assert other.inference.trained == rnn.inference.trained
    in_place(other)
    with pytest.raises(RuntimeError, match="changed in place"):
        other(x)
    identical(run(rnn, x), run(build(), x))


def test_threads_may_call_at_once():
    rnn, inputs = linnet.freeze(build(bidirectional=True)), [torch.randn(30, 1, 6) for _ in range(32)]
    expected = [run(build(bidirectional=True), x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: run(rnn, x), inputs))
    for ours, theirs in zip(found, expected, strict=True):
        identical(ours, theirs)


def test_what_cannot_be_frozen():
    with pytest.raises(RuntimeError, match=r"LSTM is in training mode; call model.eval\(\) first"):
        linnet.freeze(linnet.LSTM(3, 4))
    with pytest.raises(TypeError, match=r"layers of Linnet, such as linnet.LSTM; Linear has none"):
        linnet.freeze(nn.Linear(3, 4))
    with torch.inference_mode():
        rnn = linnet.LSTM(3, 4).eval()
    with pytest.raises(RuntimeError, match="inference tensors, whose changes torch does not count"):
        linnet.freeze(rnn)
