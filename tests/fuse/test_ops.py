"""The scan as a registered operation: what torch's own checks, compiler and exporter make of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from fused_runs import Variant, agree, draw, draw_state, flags, over, plans_of, run, variant
from helpers import each, tensors
from torch import Tensor, nn

import linnet
from linnet.fuse import ops
from linnet.units.fused import matrices_of, weights_of

UNITS = [
    variant(linnet.SRU, square=True),
    variant(linnet.LSTM, peepholes=True),
    variant(linnet.GRU),
]
DTYPES = [torch.float32, torch.bfloat16]


def arguments(
    unit: Variant, kind: str, dtype: torch.dtype, reverse: bool = False, batch_first: bool = False
) -> tuple:
    """Those of linnet::scan, taken from a module and not made up."""
    rnn = unit.build(5, dtype)
    cell, (fusible,) = rnn.first_cell, plans_of(rnn)
    (stage,) = cell.stages()
    x = draw(3, 4, rnn.input_size, seed=5, dtype=dtype).transpose(0, 1)
    x = x if batch_first else x.contiguous()
    beside = cell.beside(x)
    states = [s[0] for s in tensors(draw_state(rnn, 3))]
    parts = [cell.input.joint(x), *(beside[name] for name in fusible.plan.extras)]
    weights, matrices = weights_of(cell, stage).values(), matrices_of(cell, stage)
    leaves = [t.detach().requires_grad_() for t in (*parts, *weights, *states, *matrices)]
    given = flags(kind, 4, 3)
    return fusible.plan.key, leaves, given.get("mask"), given.get("resets"), reverse


@over("kind", ["nothing", "mask and resets"])
@over("unit", UNITS)
def test_torch_finds_no_fault_with_the_operation(unit: Variant, kind: str):
    torch.library.opcheck(ops.scan_op, arguments(unit, kind, torch.float32, reverse=kind == "nothing"))


def test_torch_finds_no_fault_with_it_in_bfloat16():
    torch.library.opcheck(ops.scan_op, arguments(UNITS[1], "mask", torch.bfloat16))


@over("unit", UNITS[:2])
def test_torch_finds_no_fault_with_it_where_inputs_are_not_contiguous(unit: Variant):
    torch.library.opcheck(ops.scan_op, arguments(unit, "mask", torch.float32, batch_first=True))


@over("unit", UNITS[:2])
def test_torch_finds_no_fault_with_it_where_dtypes_are_mixed(unit: Variant):
    """As under autocast: the projections are bfloat16, the parameters and states float32."""
    plan, (joint, *others), *rest = arguments(unit, "mask", torch.float32)
    half = joint.detach().bfloat16().requires_grad_()
    extras = len(ops.plan_called(plan).extras)
    others = [t.detach().bfloat16().requires_grad_() if i < extras else t for i, t in enumerate(others)]
    torch.library.opcheck(ops.scan_op, (plan, [half, *others], *rest))


@over("kind", ["nothing", "mask and resets"])
@over("dtype", DTYPES)
@over("unit", UNITS)
def test_torch_finds_no_fault_with_its_gradient(unit: Variant, kind: str, dtype: torch.dtype):
    plan, leaves, *how = arguments(unit, kind, dtype)
    leaves = [leaf.detach() for leaf in leaves]
    results = ops.scan_op(plan, leaves, *how)
    states = len(ops.plan_called(plan).traced.states)
    above = [torch.randn_like(result) for result in results[: 1 + states]]
    for needed in ([True] * len(leaves), [i % 2 == 0 for i in range(len(leaves))]):
        given = (plan, leaves, results[1 + states :], above, needed, *how)
        # It has no gradient of its own, so there is none to be registered.
        tests = ("test_schema", "test_faketensor")
        torch.library.opcheck(ops.scan_backward_op, given, test_utils=tests)


# -------------------------------------------------------------------------------------- torch.compile


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def check_compiled(unit: Variant, backend: str, kind: str = "nothing") -> None:
    """At three lengths, forward and backward, against the module as it is; compiled for the first of them."""
    rnn = unit.build(9, torch.float32)
    compiled = torch.compile(rnn, backend=backend, fullgraph=True, dynamic=True)
    for steps in (5, 8, 13):
        x = draw(steps, 3, rnn.input_size, seed=5, dtype=torch.float32).requires_grad_()
        with torch.compiler.set_stance("fail_on_recompile" if steps > 5 else "default"):
            ours = run_module(compiled, rnn, x, kind)
        agree(ours, run("cpu", rnn, x, **flags(kind, steps, 3)), 1e-5)


def run_module(compiled: Any, rnn: Any, x: Tensor, kind: str) -> dict[str, Tensor]:
    state = each(lambda s: s.requires_grad_(), draw_state(rnn, x.shape[1]))
    y, final = compiled(x, state, **flags(kind, *x.shape[:2]))
    results = {"output": y, **{f"final state {i}": s for i, s in enumerate(tensors(final))}}
    leaves = {
        "x": x,
        **{f"state {i}": s for i, s in enumerate(tensors(state))},
        **dict(rnn.named_parameters()),
    }
    weights = [draw(*r.shape, seed=9 + i, dtype=r.dtype) for i, r in enumerate(results.values())]
    found = torch.autograd.grad(
        list(results.values()), list(leaves.values()), weights, allow_unused=True, materialize_grads=True
    )
    named = {f"gradient of {name}": g for name, g in zip(leaves, found, strict=True)}
    return {name: tensor.detach() for name, tensor in (results | named).items()}


@over("unit", [*UNITS[:2], variant(linnet.SCRN)])
def test_a_module_is_compiled_whole_and_once_for_all_lengths(unit: Variant):
    check_compiled(unit, "aot_eager")


def test_a_compiled_module_takes_masks_and_resets():
    check_compiled(UNITS[0], "aot_eager", "mask and resets")


# Of torch's own making, in what inductor imports.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_the_default_compiler_gives_the_same():
    check_compiled(variant(linnet.LRN), "inductor")


def test_a_copy_can_be_compiled():
    """A copy of a module, as an averaged model or a data-parallel one is."""
    rnn = copy.deepcopy(variant(linnet.LRN).build(9, torch.float32))
    x = draw(5, 3, 7, seed=5, dtype=torch.float32)
    compiled = torch.compile(rnn, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x)[0], rnn(x)[0], rtol=1e-5, atol=1e-5)


def test_autocast_can_be_compiled():
    rnn = variant(linnet.SRU).build(9, torch.float32)
    x = draw(5, 3, 7, seed=5, dtype=torch.float32).requires_grad_()
    found = []
    for module in (torch.compile(rnn, backend="aot_eager", fullgraph=True), rnn):
        with torch.autocast("cpu", torch.bfloat16):
            y, _ = module(x)
        found.append(torch.autograd.grad(y.float().sum(), [x, *rnn.parameters()]))
    torch.testing.assert_close(*found, rtol=2e-2, atol=2e-2)


@over("unit", [variant(linnet.EURNN), variant(linnet.GORU), variant(linnet.StatisticalRU)])
def test_a_unit_that_does_not_fuse_can_be_compiled(unit: Variant):
    rnn = unit.build(8, torch.float32)
    x = draw(3, 2, rnn.input_size, seed=5, dtype=torch.float32)
    compiled = torch.compile(rnn, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x)[0], rnn(x)[0], rtol=1e-5, atol=1e-5)


def test_a_dtype_without_a_kernel_can_be_compiled():
    rnn = variant(linnet.LRN).build(8, torch.float16)
    x = draw(3, 2, rnn.input_size, seed=5, dtype=torch.float16)
    compiled = torch.compile(rnn, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x)[0], rnn(x)[0], rtol=1e-2, atol=1e-2)


# --------------------------------------------------------------------------------------- torch.export


class Model(nn.Module):
    """A model around a unit, as it would be exported."""

    def __init__(self, unit: Variant):
        super().__init__()
        self.rnn = unit.build(9, torch.float32, bidirectional=True, num_layers=2)
        self.head = nn.Linear(self.rnn.output_size, 2)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.rnn(x)
        return self.head(y)


def exported(model: nn.Module, steps: int, batch: int) -> Any:
    sizes = {0: torch.export.Dim("steps", min=1, max=4096), 1: torch.export.Dim("batch", min=1, max=4096)}
    x = draw(steps, batch, 7, seed=5, dtype=torch.float32)
    return torch.export.export(model, (x,), dynamic_shapes={"x": sizes}, strict=False)


@over("unit", [variant(linnet.SRU), variant(linnet.LSTM), variant(linnet.SCRN)])
def test_an_exported_model_is_the_same_at_any_length_and_batch(unit: Variant):
    model = Model(unit).eval()
    program = exported(model, 5, 3)
    for steps, batch in ((5, 3), (2, 7), (63, 1), (1, 33)):
        x = draw(steps, batch, 7, seed=6, dtype=torch.float32)
        torch.testing.assert_close(program.module()(x), model(x), rtol=1e-5, atol=1e-5)


@over("unit", [variant(linnet.SRU), variant(linnet.LSTM)])
def test_an_exported_graph_does_not_grow_with_the_length(unit: Variant):
    model = Model(unit).eval()
    short, long = (len(exported(model, steps, 3).graph.nodes) for steps in (4, 40))
    assert short == long
