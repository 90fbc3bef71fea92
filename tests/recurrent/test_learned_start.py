"""Units with a learned start: it is where a sequence starts in whatever way it is run, and it is trained."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import liven, randn
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

import linnet
from linnet.models.language import LanguageModel, LanguageModelConfig

BACKENDS = pytest.mark.parametrize("backend", [None, "reference"], ids=["kernels", "loop"])


def stack(**options: Any) -> linnet.MinGRU:
    return liven(linnet.MinGRU(3, 4, 2, learned_start=True, **options))


def start_of(rnn: linnet.Recurrent, batch: int) -> Tensor:
    """[layers, batch, size], as a user would give it."""
    return torch.stack([cell.g(cell.start_h).expand(batch, -1) for cell in rnn.cells])


def gradients(rnn: nn.Module, y: Tensor, state: Tensor) -> list[Tensor]:
    loss = y.square().sum() + state.sum()
    return list(torch.autograd.grad(loss, list(rnn.parameters())))


@BACKENDS
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("given", ["nothing", "lengths", "mask"])
def test_no_state_is_the_learned_one_and_has_gradients(backend: str | None, bidirectional: bool, given: str):
    rnn, x = stack(bidirectional=bidirectional), randn(5, 3, 3)
    mask = torch.arange(5)[:, None] < torch.tensor([5, 2, 3])
    how = {"nothing": {}, "lengths": {"lengths": torch.tensor([5, 2, 3])}, "mask": {"mask": mask}}[given]
    with linnet.backend(backend):
        found, expected = rnn(x, **how), rnn(x, start_of(rnn, 3), **how)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    for ours, theirs in zip(gradients(rnn, *found), gradients(rnn, *expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
        assert ours.abs().max() > 0


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("batch_first", [False, True])
def test_calls_of_every_layout(mode: Any, batch_first: bool):
    rnn, x = stack(batch_first=batch_first).eval(), randn(3, 5, 3)
    batch = 3 if batch_first else 5
    with mode():
        for _ in range(3):  # later calls are bound
            assert torch.equal(rnn(x)[0], rnn(x, start_of(rnn, batch))[0])
        unbatched = rnn(x[0])[0]
        assert torch.equal(unbatched, rnn(x[0], start_of(rnn, 1)[:, 0])[0])
        packed = pack_sequence([x[0, :2], x[1], x[2, :3]], enforce_sorted=False)
        assert torch.equal(rnn(packed)[0].data, rnn(packed, start_of(rnn, 3))[0].data)


@BACKENDS
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_resets_start_from_the_learned_state(backend: str | None, bidirectional: bool, masked: bool):
    rnn, x = stack(bidirectional=bidirectional), randn(6, 3, 3)
    resets = torch.zeros(6, 3, dtype=torch.bool)
    resets[2, 0] = resets[0, 1] = resets[5, 1] = True
    how = {"mask": torch.arange(6)[:, None] < torch.tensor([6, 6, 4])} if masked else {}
    with linnet.backend(backend):
        found = rnn(x, resets=resets, **how)
    with linnet.backend("reference"):
        expected = rnn(x, start_of(rnn, 3), resets=resets, reset_state=start_of(rnn, 3), **how)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(gradients(rnn, *found), gradients(rnn, *expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_resets_without_gradients_after_other_calls():
    """A call with resets to zeros is bound to kernels; one of a unit with a start is not."""
    rnn, x = stack().eval(), randn(6, 3, 3)
    resets = torch.zeros(6, 3, dtype=torch.bool)
    resets[3, 1] = True
    with torch.no_grad():
        for steps in (6, 1):
            flags = resets[-steps:].roll(2, 0) if steps == 6 else torch.ones(1, 3, dtype=torch.bool)
            expected = rnn(x[:steps], start_of(rnn, 3), resets=flags, reset_state=start_of(rnn, 3))[0]
            for _ in range(3):
                torch.testing.assert_close(rnn(x[:steps], resets=flags)[0], expected)


def test_padded_calls_with_resets_after_others_without():
    """Those of one layer are bound to kernels that start from zeros."""
    rnn = liven(linnet.MinGRU(3, 4, learned_start=True)).eval()
    x, lengths = randn(6, 8, 3), torch.tensor([6, 2, 3, 6, 1, 5, 4, 6])
    resets = torch.zeros(6, 8, dtype=torch.bool)
    resets[1, :3] = True
    start = start_of(rnn, 8)
    for mode in (torch.enable_grad, torch.no_grad):
        with mode():
            expected = rnn(x, start, lengths=lengths, resets=resets, reset_state=start)[0]
            for _ in range(3):
                torch.testing.assert_close(rnn(x, lengths=lengths, resets=resets)[0], expected)


def test_both_directions_do_not_share_a_launch_that_resets_to_zeros(monkeypatch: pytest.MonkeyPatch):
    launched = []
    monkeypatch.setattr("linnet.recurrent.direction.run_pair", lambda *_: launched.append(True))
    rnn, x = liven(linnet.MinGRU(3, 4, bidirectional=True, learned_start=True)), randn(6, 3, 3)
    rnn(x, resets=torch.ones(6, 3, dtype=torch.bool))
    assert not launched
    with linnet.backend("reference"):
        rnn(x)
    assert launched


def test_a_state_that_is_given_is_not_replaced():
    rnn, x = stack(), randn(5, 3, 3)
    zeros = torch.zeros(2, 3, 4).double()
    assert not torch.equal(rnn(x, zeros)[0], rnn(x)[0])
    rnn(x, zeros)[0].sum().backward()
    gradient = rnn.cells[0].start_h.grad
    assert gradient is None or not gradient.any()


def test_one_step_of_a_cell():
    cell = liven(linnet.MinLSTMCell(3, 4, learned_start=True))
    x = randn(2, 3)
    start = cell.g(cell.start_h)
    for _ in range(2):
        torch.testing.assert_close(cell(x)[1], cell(x, start.expand(2, -1))[1])
        torch.testing.assert_close(cell(x[0])[1], cell(x[0], start)[1])
    state = cell.initial_state((), x)["h"]
    assert state.data_ptr() != cell.start_h.data_ptr()


def test_as_lstm_has_the_start_for_c():
    rnn, x = stack(as_lstm=True), randn(5, 3, 3)
    zeros = torch.zeros(2, 3, 4).double()
    assert torch.equal(rnn(x)[0], rnn(x, (zeros, start_of(rnn, 3)))[0])


def test_frozen_stacks_start_from_it():
    rnn, x = stack().eval(), randn(5, 3, 3)
    expected = rnn(x)[0].detach()
    frozen = linnet.freeze(copy.deepcopy(rnn))
    for _ in range(2):
        torch.testing.assert_close(frozen(x)[0], expected)


def test_streams_start_and_reset_to_it():
    rnn, x = stack().eval(), randn(4, 2, 3)
    stream = linnet.stream(rnn, batch=2)
    torch.testing.assert_close(stream.state, start_of(rnn, 2).detach())
    expected = rnn(x)[0].detach()
    for _ in range(2):
        torch.testing.assert_close(torch.stack([stream(step) for step in x]), expected)
        stream.reset()
    stream(x[0])
    stream.reset(1)
    torch.testing.assert_close(stream.state[:, 1], start_of(rnn, 2)[:, 1].detach())
    assert not torch.equal(stream.state[:, 0], start_of(rnn, 2)[:, 0])
    with torch.no_grad():
        rnn.cells[1].start_h.add_(1.0)
    stream.reset()
    torch.testing.assert_close(stream.state, start_of(rnn, 2).detach())


@BACKENDS
@pytest.mark.parametrize("activations", [True, False])
def test_a_quantised_stack_starts_from_it(backend: str | None, activations: bool):
    rnn, x = stack().float().eval(), randn(5, 3, 3).float()
    small = linnet.quantize(rnn, activations=activations)
    resets = torch.ones(5, 3, dtype=torch.bool)
    with linnet.backend(backend):
        for how in ({}, {"resets": resets}):
            with torch.no_grad():
                start = start_of(small, 3)
                expected = small(x, start, **how, **({"reset_state": start} if how else {}))[0]
            torch.testing.assert_close(small(x, **how)[0], expected)


def test_a_compiled_stack_starts_from_it():
    torch.compiler.reset()  # it counts how often code was compiled, by all tests together
    rnn, x = stack(), randn(5, 3, 3)
    compiled = torch.compile(rnn, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x)[0], rnn(x)[0])
    resets = torch.zeros(5, 3, dtype=torch.bool)
    resets[2, 1] = True
    torch.testing.assert_close(compiled(x, resets=resets)[0], rnn(x, resets=resets)[0])


def test_a_language_model_starts_from_it():
    settings = {"unit": "mingru", "unit_options": {"learned_start": True}, "embedding_size": 5}
    model = LanguageModel(7, LanguageModelConfig(**settings, hidden_size=6, num_layers=2)).eval()
    tokens = torch.randint(7, (4, 3))
    for layer, state in zip(model.stack, model.initial_state(3), strict=True):
        torch.testing.assert_close(state, start_of(layer, 3))
    with_state = model(tokens, model.initial_state(3)).output
    torch.testing.assert_close(model(tokens).output, with_state)


def test_onnx_has_it_in_the_file(tmp_path: Path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    rnn = stack().float().eval()
    linnet.export_onnx(rnn, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    x = randn(6, 3, 3).float()
    (name,) = [each.name for each in session.get_inputs()]
    (found, *_) = session.run(None, {name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), rnn(x)[0].detach())


def test_units_without_a_start_begin_with_zeros():
    cell = linnet.SRUCell(3, 4)
    assert cell.start() is None
    assert not cell.initial_state((2,), torch.zeros(1))["c"].any()
    assert linnet.MinGRUCell(3, 4).start() is None
