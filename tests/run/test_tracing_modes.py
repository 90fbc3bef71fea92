"""Who watches what torch dispatches sees the registered operation or the loop, never uninitialised memory."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch
from fused_runs import enliven
from helpers import same, tensors
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._python_dispatch import TorchDispatchMode

import linnet
from linnet.program.padding import slot_times
from tools.variants import FORMS

EVERY = [*FORMS.values()]
NAMES = lambda unit: unit.__name__  # noqa: E731


class Run(torch.nn.Module):
    """The output alone, and the state as a flat tuple: what tracers can hold."""

    def __init__(self, rnn: torch.nn.Module):
        super().__init__()
        self.rnn = rnn

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, state = self.rnn(x)
        return y, *tensors(state)


def built(unit: type, step: bool, **options: Any) -> tuple[Run, torch.Tensor, torch.Tensor]:
    """The module, an input to trace it with, and another one."""
    rnn = unit.cell_class(4, 16, **options) if step else unit(4, 16, **options)
    shape = (2, 4) if step else (5, 2, 4)
    return Run(enliven(rnn)).eval(), torch.randn(shape), torch.randn(shape)


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize("step", [False, True], ids=["sequence", "step"])
@pytest.mark.parametrize("unit", EVERY, ids=NAMES)
def test_a_graph_made_by_make_fx_computes_the_same(unit, step, grad):
    module, x, other = built(unit, step)
    with torch.set_grad_enabled(grad):
        graph = make_fx(module)(x)
        same(graph(other), module(other), atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize("step", [False, True], ids=["sequence", "step"])
@pytest.mark.parametrize("unit", EVERY, ids=NAMES)
def test_a_trace_computes_the_same(unit, step, grad, tmp_path):
    module, x, other = built(unit, step)
    with torch.set_grad_enabled(grad):
        traced = torch.jit.trace(module, x)
        same(traced(other), module(other), atol=1e-5, rtol=1e-5)
        torch.jit.save(traced, tmp_path / "traced.pt")
        same(torch.jit.load(tmp_path / "traced.pt")(other), module(other), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("step", [False, True], ids=["sequence", "step"])
@pytest.mark.parametrize("unit", EVERY, ids=NAMES)
def test_fake_tensors_have_the_shapes_of_real_ones(unit, step):
    module, x, _ = built(unit, step)
    expected = [(t.shape, t.dtype) for t in module(x)]
    with FakeTensorMode() as mode:
        fake, _, _ = built(unit, step)
        found = fake(mode.from_tensor(x))
        assert [(t.shape, t.dtype) for t in found] == expected
        sum(t.sum() for t in found).backward()
        assert all(p.grad is not None for p in fake.parameters() if p.requires_grad and p.numel())
    # Once more without the mode, by the tensors alone; units that make tensors of their own make real ones.
    if unit not in (linnet.StatisticalRU, linnet.EURNN, linnet.GORU):
        found = fake(mode.from_tensor(x))
        assert [(t.shape, t.dtype) for t in found] == expected


@pytest.mark.parametrize("step", [False, True], ids=["sequence", "step"])
@pytest.mark.parametrize("unit", EVERY, ids=NAMES)
def test_a_default_device_of_meta_changes_nothing_for_a_module_on_the_cpu(unit, step):
    module, x, _ = built(unit, step)
    expected = module(x)
    with torch.device("meta"):
        found = module(x)
        gradients = torch.autograd.grad(
            sum(t.sum() for t in found), list(module.parameters()), allow_unused=True
        )
    same(found, expected, atol=1e-5)
    assert all(g is None or g.device.type == "cpu" for g in gradients)


def test_lengths_are_read_whatever_the_default_device():
    rnn, x = linnet.SRU(4, 4), torch.randn(3, 2, 4)
    with torch.device("meta"):
        y, _ = rnn(x, lengths=[3, 1])
    assert not y[1:, 1].any()


@pytest.mark.parametrize("how", ["lengths", "mask", "packed"])
@pytest.mark.parametrize("both", [False, True])
def test_padding_is_skipped_whatever_the_default_device(how: str, both: bool):
    """Of so many sequences only the real steps are stored, at places that are computed and kept."""
    rnn, x = linnet.SRU(4, 6, bidirectional=both), torch.randn(7, 5, 4, requires_grad=True)
    lengths = torch.tensor([7, 1, 4, 2, 6])
    mask = torch.arange(7)[:, None] < lengths
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)

    def results() -> list[torch.Tensor]:
        given, options = (
            (packed, {}) if how == "packed" else (x, {how: {"lengths": lengths, "mask": mask}[how]})
        )
        y, state = rnn(given, **options)
        data = y.data if how == "packed" else y
        return [data, state, *torch.autograd.grad(data.sum() + state.sum(), rnn.parameters())]

    slot_times.cache_clear()
    with torch.device("meta"):
        found = results()
    same(found, results(), atol=0)


@pytest.mark.parametrize("unit", EVERY, ids=NAMES)
def test_a_module_built_on_meta_takes_weights_and_runs(unit):
    """As Hugging Face's from_pretrained does: built without memory, then given its weights."""
    there = enliven(unit(4, 16, num_layers=2, bidirectional=True))
    with torch.device("meta"):
        here = unit(4, 16, num_layers=2, bidirectional=True)
    assert all(p.is_meta for p in here.parameters())
    here.load_state_dict(there.state_dict(), assign=True)
    x = torch.randn(5, 2, 4)
    same(here(x)[0], there(x)[0], atol=1e-5)


@pytest.mark.parametrize("unit", EVERY, ids=NAMES)
def test_a_module_on_meta_runs_on_meta(unit):
    rnn = unit(4, 16, device="meta")
    y, state = rnn(torch.empty(5, 2, 4, device="meta"))
    assert y.is_meta
    assert y.shape == (5, 2, rnn.output_size)
    assert all(s.is_meta for s in tensors(state))


class Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("step", [False, True], ids=["sequence", "step"])
def test_a_dispatch_mode_sees_the_operation(step):
    module, x, _ = built(linnet.SRU, step)
    expected = module(x)
    with Watch() as watch:
        found = module(x)
    same(found, expected, atol=1e-5)
    assert any("linnet" in op for op in watch.ops)


def test_a_tensor_subclass_goes_by_the_loop():
    class Loud(torch.Tensor):
        calls: list[str] = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls.append(getattr(func, "__name__", ""))
            return super().__torch_function__(func, types, args, kwargs or {})

    rnn, x = linnet.SRU(4, 4), torch.randn(3, 2, 4)
    with pytest.warns(linnet.FallbackWarning, match="Loud"):
        y, _ = rnn(x.as_subclass(Loud))
    same(y.as_subclass(torch.Tensor), rnn(x)[0], atol=1e-5)
    assert "sigmoid" in Loud.calls


@pytest.mark.filterwarnings("ignore")
def test_the_old_onnx_exporter_writes_what_the_module_computes(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    module, x, other = built(linnet.LSTM, step=False)
    path = str(tmp_path / "old.onnx")
    with torch.no_grad(), linnet.backend("reference"):
        torch.onnx.export(module, (x,), path, dynamo=False)
    found = onnxruntime.InferenceSession(path).run(
        None, {onnxruntime.InferenceSession(path).get_inputs()[0].name: other.numpy()}
    )
    same([torch.from_numpy(f) for f in found], list(module(other)), atol=1e-5)


def test_building_under_a_fake_mode_leaves_plans_that_work():
    script = """
        import torch, linnet
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            linnet.SRU(4, 4)
        rnn = linnet.SRU(4, 4)
        with linnet.backend("cpu"):
            rnn(torch.randn(3, 2, 4))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=120)
