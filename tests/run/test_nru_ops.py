"""NRU's scan as a registered operation: what torch's checks, compiler, exporter and tracers make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fused_runs import Variant, agree, draw, finish, flags, over, run, start, variant
from test_ops import check_compiled, exported, run_module
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import linnet

NRU = variant(linnet.NRU)
FORMS = [
    NRU,
    variant(linnet.NRU, layer_norm=True),
    variant(linnet.NRU, head_activation="relu", head_reduction="sum", bias=False),
]
# Other forms, and sizes that do not fall into vectors.
OTHERS = [
    variant(linnet.NRU, directions="full"),
    variant(linnet.NRU, directions="per-head"),
    variant(linnet.NRU, heads_read_input=True),
    variant(linnet.NRU, memory_size=9, num_heads=1),
]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


# -------------------------------------------------------------------------------------- torch.compile


@over("kind", ["nothing", "mask and resets"])
@over("form", FORMS)
def test_a_module_is_compiled_whole_and_once_for_all_lengths(form: Variant, kind: str):
    check_compiled(form, "aot_eager", kind)


# Of torch's own making, in what inductor imports.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_the_default_compiler_gives_the_same():
    check_compiled(NRU, "inductor", "mask and resets")


def operations_in(graph: torch.fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


@over("steps", [10, 100])
def test_a_compiled_stack_has_one_operation_a_direction_and_layer(steps: int):
    rnn = NRU.build(9, torch.float32, num_layers=2, bidirectional=True)
    graphs: list[torch.fx.Graph] = []

    def keep(module: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(module.graph)
        return module.forward

    x = draw(steps, 3, 7, seed=5, dtype=torch.float32)
    torch.compile(rnn, backend=keep, fullgraph=True, dynamic=True)(x, **flags("mask and resets", steps, 3))
    (graph,) = graphs
    names = operations_in(graph)
    assert sum("linnet.scan" in name for name in names) == 4
    assert len(names) < 200


@over("form", OTHERS)
def test_other_forms_are_compiled(form: Variant):
    check_compiles(form.build(8, torch.float32))


def test_bfloat16_is_compiled():
    check_compiles(NRU.build(8, torch.bfloat16), 3e-2)


def test_without_a_compiler_of_kernels_it_is_compiled_as_a_loop(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("linnet.run.available.HAS_LLVM", False)
    check_compiles(NRU.build(8, torch.float32))


def check_compiles(rnn: Any, tolerance: float = 1e-5) -> None:
    dtype = next(rnn.parameters()).dtype
    x = draw(3, 2, rnn.input_size, seed=5, dtype=dtype).requires_grad_()
    compiled = torch.compile(rnn, backend="aot_eager", fullgraph=True)
    agree(run_module(compiled, rnn, x, "nothing"), run("reference", rnn, x), tolerance)


# --------------------------------------------------------------------------------------- torch.export


class Model(nn.Module):
    """A model around NRU, as it would be exported."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = FORMS[1].build(9, torch.float32, bidirectional=True, num_layers=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


def test_an_exported_model_is_the_same_at_any_length_and_batch():
    model = Model().eval()
    program = exported(model, 5, 3)
    assert sum("linnet.scan" in name for name in operations_in(program.graph)) == 4
    for steps, batch in ((5, 3), (2, 7), (63, 1), (1, 33)):
        x = draw(steps, batch, 7, seed=6, dtype=torch.float32)
        torch.testing.assert_close(program.module()(x), model(x), rtol=1e-5, atol=1e-5)


LOAD = """
import sys, torch, linnet

program, x, expected = torch.export.load(sys.argv[1]), *torch.load(sys.argv[2])
torch.testing.assert_close(program.module()(x), expected, rtol=1e-5, atol=1e-5)
"""


def test_a_saved_program_runs_in_another_process(tmp_path: Path):
    """Where no NRU has been built: all that its kernel depends on is in the program."""
    model, (program, numbers) = Model().eval(), (tmp_path / "nru.pt2", tmp_path / "numbers.pt")
    torch.export.save(exported(model, 5, 3), program)
    x = draw(11, 2, 7, seed=6, dtype=torch.float32)
    torch.save((x, model(x).detach()), numbers)
    finish(start("-W", "ignore", "-c", LOAD, str(program), str(numbers)))


# -------------------------------------------------------------------------------------------- tracers


@pytest.mark.filterwarnings("ignore:`torch.jit.trace.* is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_traced_model_is_no_constant():
    model = Model().eval()
    example, x = (draw(5, 3, 7, seed=seed, dtype=torch.float32) for seed in (5, 6))
    traced = torch.jit.trace(model, (example,), check_trace=False)
    torch.testing.assert_close(traced(x), model(x), rtol=1e-5, atol=1e-5)


def test_make_fx_records_the_operation():
    rnn = NRU.build(9, torch.float32)
    example, x = (draw(5, 3, 7, seed=seed, dtype=torch.float32) for seed in (5, 6))
    graph = make_fx(lambda x: rnn(x)[0])(example)
    assert sum("linnet.scan" in name for name in operations_in(graph.graph)) == 1
    torch.testing.assert_close(graph(x), rnn(x)[0], rtol=1e-5, atol=1e-5)


@over("form", [*FORMS, *OTHERS])
def test_fake_tensors_have_shapes_and_no_numbers(form: Variant):
    with FakeTensorMode(allow_non_fake_inputs=True):
        rnn = form.unit(7, 9, bidirectional=True, **form.options)
        y, state = rnn(torch.empty(5, 3, 7))
        y.sum().backward()
    assert y.shape == (5, 3, 18)
    assert state.m.shape == (2, 3, rnn.first_cell.memory_size)
    assert all(p.grad is not None and p.grad.shape == p.shape for p in rnn.parameters())


def test_parameters_without_numbers_are_never_read():
    """A module that was built within the mode, and an input that was not."""
    with FakeTensorMode():
        rnn = linnet.NRU(7, 9)
    with pytest.raises(Exception, match=r"(?i)fake"):
        rnn(torch.randn(5, 3, 7))
