"""Padded steps are not computed: the same results and gradients as by the loop, from real steps only."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import Any

import pytest
import torch
from fused_runs import FORMS, Variant
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import linnet
from linnet.cpu import forward
from linnet.program.padding import Padding
from tools.variants import PLAIN

LENGTHS = torch.tensor([3, 7, 0, 5, 1, 7])
STEPS, BATCH = 7, len(LENGTHS)
PADDED = torch.arange(STEPS)[:, None] >= LENGTHS
HOLES = torch.rand(STEPS, BATCH, generator=torch.Generator().manual_seed(5)) < 0.4
STACKS: list[dict[str, Any]] = [{}, {"num_layers": 2, "bidirectional": True}]


def gradients(rnn: Any, x: Any, given: dict[str, Any], backend: str | None = None) -> list[Tensor]:
    """The output, the final states, and the gradients of x and of all parameters."""
    rnn.zero_grad()
    with linnet.backend(backend) if backend else contextlib.nullcontext():
        y, state = rnn(x, **given)
    results = [y.data if isinstance(y, PackedSequence) else y]
    results += state if isinstance(state, tuple) else [state]
    draws = torch.Generator().manual_seed(3)
    weights = [torch.randn(r.shape, generator=draws, dtype=r.dtype) for r in results]
    # A state that is a constant has no gradient.
    varying = [i for i, result in enumerate(results) if result.requires_grad]
    torch.autograd.backward([results[i] for i in varying], [weights[i] for i in varying])
    return [*results, *(p.grad for p in rnn.parameters() if p.grad is not None)]


def check(rnn: Any, padded: Tensor, given: dict[str, Any]) -> None:
    """NaN at padded steps: whatever reads one of them is wrong."""
    x = torch.randn(STEPS, BATCH, rnn.input_size, dtype=torch.double).masked_fill(
        padded[..., None], torch.nan
    )
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    by_kernels = gradients(rnn, inputs[0], given)
    by_loop = gradients(rnn, inputs[1], given, "reference")
    torch.testing.assert_close(
        [*by_kernels, inputs[0].grad], [*by_loop, inputs[1].grad], rtol=1e-9, atol=1e-9
    )
    assert not by_kernels[0][padded].any()


@pytest.mark.parametrize("options", STACKS, ids=["one direction", "a stack of both"])
@pytest.mark.parametrize("unit", [Variant(*each) for each in PLAIN], ids=str)
def test_lengths_and_masks_with_holes(unit: Variant, options: dict[str, Any]):
    check(unit.build(5, **options), PADDED, {"lengths": LENGTHS})
    check(unit.build(5, **options), HOLES, {"mask": ~HOLES})


@pytest.mark.parametrize("unit", FORMS, ids=str)
def test_resets_and_initial_states(unit: Variant):
    rnn = unit.build(5, bidirectional=True)
    resets = torch.rand(STEPS, BATCH) < 0.3
    state = rnn(torch.randn(2, BATCH, rnn.input_size, dtype=torch.double))[1]
    state = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
    check(rnn, PADDED, {"lengths": LENGTHS, "resets": resets, "state": state})


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("unit", ["SRU", "LSTM", "GRU"])
def test_threads_change_no_bit(unit: str, threads: int, monkeypatch):
    monkeypatch.setattr("linnet.cpu.call.WORTH", 1)  # so that so little is shared
    rnn = getattr(linnet, unit)(40, 40)
    x, lengths = torch.randn(STEPS, 13, 40), torch.arange(13) % (STEPS + 1)
    expected, before = rnn(x, lengths=lengths), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.testing.assert_close(rnn(x, lengths=lengths), expected, rtol=0, atol=0)
    finally:
        torch.set_num_threads(before)


OPTIONS: dict[str, dict[str, Any]] = {
    "residual": {"residual": True},
    "prenorm": {"prenorm": "layer"},
    "norm": {"norm": "rms"},
    "proj_size": {"proj_size": 3},
    "input_dropout": {"input_dropout": 0.5},
    "state_dropout": {"state_dropout": 0.5},
    "zoneout": {"zoneout": 0.5},
    "weight_drop": {"weight_drop": 0.5},
    "dropout": {"dropout": 0.5, "num_layers": 2, "variational": True},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_what_else_reads_the_input_reads_zeros_at_padded_steps(options: dict[str, Any]):
    """And noise is drawn as by the loop: for all steps."""
    rnn = linnet.GRU(5, 5, bidirectional=True, dtype=torch.double, **{"num_layers": 2, **options})
    x = torch.randn(STEPS, BATCH, 5, dtype=torch.double).masked_fill(PADDED[..., None], torch.nan)
    found = []
    for backend in ("cpu", "reference"):
        torch.manual_seed(0)
        found.append(gradients(rnn, x, {"lengths": LENGTHS}, backend))
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


def test_hooks_see_zeros_at_padded_steps():
    rnn, seen = linnet.SRU(5, 5), []
    rnn.directions[0].register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    x = torch.randn(STEPS, BATCH, 5).masked_fill(PADDED[..., None], torch.nan)
    rnn(x, lengths=LENGTHS)
    assert torch.equal(seen[0], x.masked_fill(PADDED[..., None], 0))


def test_a_hook_that_changes_an_output_in_place_changes_what_the_next_layer_reads():
    torch.manual_seed(0)
    rnn, x = linnet.SCRN(5, 5, num_layers=2), torch.randn(STEPS, BATCH, 5)

    def double(module: Any, given: Any, result: tuple[Tensor, Any]) -> None:
        result[0].mul_(2)

    rnn.directions[0].register_forward_hook(double)
    with torch.no_grad():
        y, _ = rnn(x, lengths=LENGTHS)
        with linnet.backend("reference"):
            torch.testing.assert_close(y, rnn(x, lengths=LENGTHS)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("unit", ["SRU", "LRN", "LSTM", "GRU"])
@pytest.mark.parametrize("options", STACKS, ids=["one direction", "a stack of both"])
@pytest.mark.parametrize("mode", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
def test_packed_sequences(unit: str, options: dict[str, Any], mode: Any):
    rnn = getattr(linnet, unit)(5, 5, dtype=torch.double, **options)
    x, lengths = torch.randn(STEPS, BATCH, 5, dtype=torch.double), LENGTHS.clamp(min=1)
    with mode():
        packed, state = rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))
        y, final = rnn(x, lengths=lengths)
    torch.testing.assert_close(pad_packed_sequence(packed)[0], y)
    torch.testing.assert_close(state, final)


def test_gradients_of_packed_sequences_reach_the_data():
    rnn, lengths = linnet.SRU(5, 5), LENGTHS.clamp(min=1)
    x = torch.randn(STEPS, BATCH, 5)
    first, second = x.clone().requires_grad_(), x.clone().requires_grad_()
    rnn(pack_padded_sequence(first, lengths, enforce_sorted=False))[0].data.pow(2).sum().backward()
    rnn(second, lengths=lengths)[0].pow(2).sum().backward()
    torch.testing.assert_close(first.grad, second.grad)


def test_gradients_of_gradients():
    rnn = linnet.LSTM(3, 3, bidirectional=True, dtype=torch.double)
    x = torch.randn(4, 4, 3, dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1], [1, 0, 0, 1], [0, 1, 0, 1]], dtype=torch.bool)
    assert torch.autograd.gradgradcheck(lambda x: rnn(x, mask=mask)[0], x)


def test_batches_of_gradients():
    rnn, x = linnet.GRU(3, 3), torch.randn(STEPS, BATCH, 3, requires_grad=True)
    y = rnn(x, lengths=LENGTHS)[0]
    above = torch.randn(2, *y.shape)
    (batch,) = torch.autograd.grad(y, x, above, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(y, x, a, retain_graph=True)[0] for a in above]
    torch.testing.assert_close(batch, torch.stack(each))


def test_a_mask_that_changes_before_backward_changes_nothing():
    rnn, x, mask = linnet.LSTM(3, 3), torch.randn(STEPS, BATCH, 3), ~HOLES
    expected = gradients(rnn, x, {"mask": mask.clone()})
    rnn.zero_grad()
    y, state = rnn(x, mask=mask)
    mask.logical_not_()
    draws = torch.Generator().manual_seed(3)
    weights = [torch.randn(r.shape, generator=draws) for r in (y, *state)]
    torch.autograd.backward([y, *state], weights)
    torch.testing.assert_close([p.grad for p in rnn.parameters()], expected[3:])


@pytest.mark.parametrize("batch_first", [False, True])
def test_only_real_steps_are_computed(batch_first: bool, monkeypatch):
    seen: list[tuple[int, ...]] = []
    run = forward.ForwardScan.run

    def spy(self: Any, operands: Any) -> Any:
        seen.append(tuple(operands.source.x.shape[:2]))
        return run(self, operands)

    monkeypatch.setattr(forward.ForwardScan, "run", spy)
    rnn = linnet.SRU(3, 3, num_layers=2, batch_first=batch_first)
    x = torch.randn(BATCH, STEPS, 3) if batch_first else torch.randn(STEPS, BATCH, 3)
    rnn(x, lengths=LENGTHS)
    assert seen == [(int(LENGTHS.sum()), 1)] * 2


def test_full_lengths_are_no_padding():
    rnn, x = linnet.LSTM(3, 3), torch.randn(STEPS, BATCH, 3)
    torch.testing.assert_close(rnn(x, lengths=[STEPS] * BATCH), rnn(x), rtol=0, atol=0)


def test_lengths_that_are_all_zero_leave_the_state():
    rnn, x, state = linnet.GRU(3, 3), torch.randn(STEPS, BATCH, 3), torch.randn(1, BATCH, 3)
    y, final = rnn(x, state, lengths=[0] * BATCH)
    assert torch.equal(final, state)
    assert not y.any()


def test_the_layout_is_that_of_torch():
    x, lengths = torch.randn(STEPS, BATCH, 2), LENGTHS.clamp(min=1)
    padding = Padding(torch.arange(STEPS)[:, None] < lengths, lengths)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    again = padding.pack(x)
    assert len(again) == len(packed.data)
    assert torch.equal(padding.starts.diff()[1:], packed.batch_sizes)
    padded = x.masked_fill(torch.arange(STEPS)[:, None, None] >= lengths[:, None], 0)
    assert torch.equal(padding.unpacked(again), padded)


def test_a_call_keeps_nothing_alive():
    rnn, x = linnet.LSTM(3, 3, num_layers=2), torch.randn(STEPS, BATCH, 3, requires_grad=True)
    gc.disable()
    try:
        y, _ = rnn(x, lengths=LENGTHS)
        node = weakref.ref(y)
        del y, _
        assert node() is None
    finally:
        gc.enable()
