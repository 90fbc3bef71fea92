"""A few rows and a recurrent matrix: threads share out the channels of a step, and none waits for another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from fused_runs import WITH_INNER_PRODUCTS, Variant, enliven, over, variant
from helpers import identical, same, tensors
from torch import Tensor

import linnet
from linnet.cpu import forward, jit

UNITS = [
    *(variant(linnet.UNITS[name]) for name in ("lstm", "gru", "ran", "scrn", "atr", "janet", "rnn")),
    *WITH_INNER_PRODUCTS[:2],
]


@pytest.fixture(params=[(1, 1 << 24, 1 << 15), (2, 1, 1 << 15), (2, 1, 0)], ids=["alone", "two", "impatient"])
def _threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread; two, for any work; and two that at once do again what the other has begun."""
    threads, worth, patience = request.param
    monkeypatch.setattr(forward, "WORTH_SHARING", worth)
    monkeypatch.setattr(forward, "PATIENCE", patience)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    yield
    torch.set_num_threads(before)


def run(rnn: linnet.Recurrent, x: Tensor, by: str, **flags: Tensor) -> list[Tensor]:
    """The output, the final state and every gradient."""
    x = x.clone().requires_grad_()
    with linnet.backend(by):
        y, state = rnn(x, **flags)
    found = [y, *tensors(state)]
    total = sum((t * torch.linspace(-1, 1, t.numel()).view(t.shape)).sum() for t in found)
    return [*found, *torch.autograd.grad(total, [x, *rnn.parameters()])]


@pytest.mark.usefixtures("_threads")
@over("unit", UNITS)
@pytest.mark.parametrize("size", [1, 37, 150])
def test_shared_channels_give_what_the_loop_gives(unit: Variant, size: int):
    rnn = unit.build(size, input_size=4, bidirectional=True)
    draw = torch.Generator().manual_seed(size)
    for batch, flag in ((1, None), (3, "mask"), (2, "resets")):
        x = torch.randn(9, batch, 4, dtype=torch.double, generator=draw)
        flags = {} if flag is None else {flag: torch.rand(9, batch, generator=draw) > 0.4}
        same(run(rnn, x, "cpu", **flags), run(rnn, x, "reference", **flags), atol=1e-11, rtol=1e-11)


@over("unit", [variant(linnet.LSTM), variant(linnet.GRU), WITH_INNER_PRODUCTS[0]])
@pytest.mark.parametrize(("steps", "batch"), [(8, 1), (50, 1), (12, 3)])
def test_any_number_of_threads_gives_the_same_bits(
    unit: Variant, steps: int, batch: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(forward, "WORTH_SHARING", 1)
    rnn, x = unit.build(150, torch.float32, input_size=8), torch.randn(steps, batch, 8)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        with torch.no_grad():
            y, state = rnn(x)
        found.append([y, *tensors(state), *run(rnn, x, "cpu")])
    torch.set_num_threads(before)
    identical(found[1], found[0])
    identical(found[2], found[0])


@pytest.mark.parametrize(
    ("threads", "steps", "way"),
    [(1, 7, "short"), (1, 8, "projecting"), (2, 7, "short"), (2, 8, "shared")],
)
def test_one_thread_alone_claims_no_blocks(
    threads: int, steps: int, way: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(forward, "WORTH_SHARING", 1)
    ways: list[str] = []
    monkeypatch.setattr(
        forward, "way_of", lambda operands, of=forward.way_of: ways.append(of(operands)) or ways[-1]
    )
    rnn, before = linnet.LSTM(8, 150), torch.get_num_threads()
    torch.set_num_threads(threads)
    rnn(torch.randn(steps, 1, 8))
    torch.set_num_threads(before)
    assert ways == [way]


def test_threads_that_never_run_are_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    """Here the first of three does all the work before the others start."""
    monkeypatch.setattr(forward, "WORTH_SHARING", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    rnn, x = enliven(linnet.GRU(8, 150)), torch.randn(20, 1, 8)
    ranges: list[tuple[int, int]] = []

    def one_after_the_other(function: jit.Compiled, units: int, grain: int, arguments) -> None:
        native = jit.ctypes.CFUNCTYPE(None, *[jit.ctypes.c_int64] * 2, jit.ctypes.c_void_p)
        for unit in range(units):
            ranges.append((unit, units))
            native(function.address.value)(unit, unit + 1, arguments.buffer_info()[0])

    with torch.no_grad():
        with linnet.backend("reference"):
            expected, _ = rnn(x)
        monkeypatch.setattr(jit, "run", one_after_the_other)
        found, _ = rnn(x)
    assert (2, 3) in ranges
    same(found, expected, atol=1e-5, rtol=1e-5)
