"""Many frames in one call of a stream: the same numbers as step by step, while other threads run."""

from __future__ import annotations

import platform
import threading

import pytest
import torch
from helpers import identical, tensors
from torch import Tensor

import linnet
from linnet.cpu.frames import ARM, X86


def build(name: str, **options) -> linnet.Recurrent:
    torch.manual_seed(3)
    return linnet.UNITS[name](6, 9, num_layers=2, **options).eval()


def compare(rnn: linnet.Recurrent, frames: Tensor, batch: int = 1, **given) -> None:
    """Both as steps and as two blocks, bit for bit, with the state after them."""
    stepped, whole = linnet.stream(rnn, batch), linnet.stream(rnn, batch)
    each = [{name: value[t] for name, value in given.items()} for t in range(len(frames))]
    expected = torch.stack([stepped(x, **more) for x, more in zip(frames, each, strict=True)])
    parts = [slice(0, 3), slice(3, len(frames))]
    blocks = [whole.run(frames[cut], **{n: v[cut] for n, v in given.items()}) for cut in parts]
    identical([torch.cat(blocks), *tensors(whole.state)], [expected, *tensors(stepped.state)])


@pytest.mark.parametrize("name", ["sru", "lstm", "gru", "nru", "scrn", "lrn"])
@pytest.mark.parametrize("batch", [1, 5])
def test_a_block_is_its_steps(name: str, batch: int):
    compare(build(name), torch.randn(7, batch, 6), batch)


def test_one_stream_needs_no_batch_dimension():
    compare(build("lstm"), torch.randn(7, 6))


@pytest.mark.parametrize("kind", ["strided", "float64 weights", "int8", "hooks"])
@pytest.mark.filterwarnings("ignore::linnet.FallbackWarning")
def test_blocks_that_need_more_than_the_native_call(kind: str):
    rnn, frames = build("gru"), torch.randn(7, 2, 6)
    if kind == "strided":
        frames = torch.randn(2, 7, 6).transpose(0, 1)
    elif kind == "float64 weights":
        rnn, frames = rnn.double(), frames.double()
    elif kind == "int8":
        rnn = linnet.quantize(rnn)
    else:
        rnn.register_forward_hook(lambda *_: None)
    compare(rnn, frames, 2)


def test_a_block_has_times_between_its_frames():
    compare(build("cfc"), torch.randn(7, 2, 6), 2, timespans=torch.rand(7, 2))


@pytest.mark.parametrize(
    ("shape", "message"),
    [((0, 2, 6), "one frame or more"), ((6,), "one frame or more"), ((4, 6, 2), r"shape \(2, 6\)")],
)
def test_other_shapes_are_errors(shape: tuple[int, ...], message: str):
    with pytest.raises(ValueError, match=message):
        linnet.stream(build("sru"), 2).run(torch.randn(shape))


def test_a_block_needs_a_time_for_each_frame():
    with pytest.raises(ValueError, match=r"timespans of shape \(4, 2\)"):
        linnet.stream(build("cfc"), 2).run(torch.randn(4, 2, 6), torch.rand(3, 2))


def test_other_threads_run_during_a_block():
    stream, frames = linnet.stream(build("sru")), torch.randn(200_000, 6)
    worker = threading.Thread(target=stream.run, args=(frames,))
    ticks = 0
    worker.start()
    while worker.is_alive():
        ticks += 1
    assert ticks > 100


@pytest.mark.skipif(platform.machine().lower() not in (*X86, *ARM), reason="no control of denormal numbers")
def test_denormal_numbers_are_zeros_in_a_stream_and_only_there():
    rnn = linnet.SRU(6, 9, bias=False).eval()
    small = torch.full((1, 1, 9), 1e-38)
    for call in (lambda stream: stream(torch.zeros(1, 6)), lambda stream: stream.run(torch.zeros(3, 1, 6))):
        stream = linnet.stream(rnn)
        stream.state = small
        call(stream)
        # The forget gates are close to 0.5, and half of 1e-38 is denormal.
        identical(stream.state, torch.zeros(1, 1, 9))
        assert (small * 0.5 != 0).all()
