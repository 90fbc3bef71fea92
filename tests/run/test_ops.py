"""The scan as a registered operation: what torch's own checks, compiler and exporter make of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fused_runs import (
    FUSED,
    WITH_INNER_PRODUCTS,
    Variant,
    agree,
    draw,
    draw_state,
    finish,
    flags,
    over,
    plans_of,
    run,
    start,
    variant,
)
from helpers import each, tensors
from torch import Tensor, nn

import linnet
from linnet.program.plan import Plan
from linnet.program.planning import matrices_of, weights_of
from linnet.program.whole_step import derived_operands
from linnet.run import ops

UNITS = [
    variant(linnet.SRU, square=True),
    variant(linnet.LSTM, peepholes=True),
    variant(linnet.GRU),
    *WITH_INNER_PRODUCTS[:2],
    variant(linnet.NRU, memory_size=4, num_heads=4, layer_norm=True),
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
    beside = cell.extra_inputs(x)
    states = [s[0] for s in tensors(draw_state(rnn, 3))]
    parts = [cell.input.joint(x), *(beside[name] for name in fusible.plan.extras)]
    weights, matrices = operands_of(cell, stage, fusible.plan)
    leaves = [t.detach().requires_grad_() for t in (*parts, *weights, *states, *matrices)]
    given = flags(kind, 4, 3)
    return fusible.plan.text, leaves, given.get("mask"), given.get("resets"), reverse


def operands_of(cell: Any, stage: Any, plan: Any) -> tuple[Any, Any]:
    if plan.derived is not None:
        return derived_operands(cell, plan.derived)
    inner = [product.attribute for product in plan.traced.inner]
    return weights_of(cell, stage, inner).values(), matrices_of(cell, stage, inner)


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


# --------------------------------------------------------------------------- whoever calls them by hand


Call = tuple[str, list[Tensor], Any, Any, bool]


def replaced(call: Call, i: int, tensor: Tensor) -> Call:
    tensors = [*call[1]]
    tensors[i] = tensor
    return (call[0], tensors, *call[2:])


def wrong_calls(call: Call) -> Iterator[Call]:
    """Each with one thing that does not fit the plan."""
    plan, tensors, mask, resets, reverse = call
    for i, tensor in enumerate(tensors):
        tensor = tensor.detach()
        for axis in range(tensor.dim()):
            yield replaced(call, i, tensor.narrow(axis, 0, tensor.shape[axis] - 1))
            yield replaced(call, i, tensor.narrow(axis, 0, 0))
            yield replaced(call, i, torch.cat([tensor, tensor], axis))
        yield replaced(call, i, tensor[None])
        yield replaced(call, i, tensor.long())
        yield replaced(call, i, tensor.flatten()[:1].expand(7).clone())
        if tensor.dim() == 2:
            yield replaced(call, i, tensor.to_sparse())
    yield (plan, tensors[:-1], mask, resets, reverse)
    yield (plan, [*tensors, tensors[-1]], mask, resets, reverse)
    yield (plan, [], mask, resets, reverse)
    for flag in (torch.ones(4, 2).bool(), torch.ones(3, 4).bool(), torch.ones(4, 3), torch.ones(4).bool()):
        yield (plan, tensors, flag, resets, reverse)
        yield (plan, tensors, mask, flag, reverse)


def refuses(operation: Any, call: tuple) -> bool:
    try:
        operation(*call)
    except (ValueError, NotImplementedError, RuntimeError):
        return True
    return False


@over("unit", UNITS)
def test_a_call_that_does_not_fit_the_plan_is_refused(unit: Variant):
    """Kernels read by address: what is too small would be read beyond its end."""
    call = arguments(unit, "mask and resets", torch.float32)
    calls = list(wrong_calls(call))
    assert len(calls) > 45
    accepted = [i for i, wrong in enumerate(calls) if not refuses(torch.ops.linnet.scan, wrong)]
    assert not accepted
    torch.ops.linnet.scan(*call)


def test_what_is_refused_is_named():
    plan, (joint, *others), *rest = arguments(UNITS[1], "nothing", torch.float32)
    with pytest.raises(ValueError, match=r"takes the weight '.*' of shape \(5,\); got \(4,\)"):
        torch.ops.linnet.scan(plan, [joint, others[0].detach()[:4], *others[1:]], *rest)


@over("unit", UNITS[:2])
def test_a_gradient_that_does_not_fit_the_plan_is_refused(unit: Variant):
    plan, leaves, *how = arguments(unit, "nothing", torch.float32)
    leaves = [leaf.detach() for leaf in leaves]
    results = ops.scan_op(plan, leaves, *how)
    states = len(ops.plan_called(plan).traced.states)
    above, kept = results[: 1 + states], results[1 + states :]
    needed = [True] * len(leaves)

    def refused(**changed: Any) -> bool:
        given = {"kept": kept, "above": above, "needed": needed, **changed}
        call = (plan, leaves, given["kept"], given["above"], given["needed"], *how)
        return refuses(torch.ops.linnet.scan_backward, call)

    assert not refused()
    for name, group in (("kept", kept), ("above", above)):
        assert refused(**{name: group[:-1]})
        for i, tensor in enumerate(group):
            for bad in (tensor[:-1], tensor[:, :-1], tensor[..., :3], tensor.double(), tensor[None]):
                # The gradients of final states may have any dtype.
                fits = bad.dtype == torch.double and name == "above" and i > 0
                assert refused(**{name: [*group[:i], bad, *group[i + 1 :]]}) or fits, (name, i, bad.shape)
    assert refused(needed=needed[:-1])


def test_inputs_whose_channels_are_not_side_by_side_are_read_right():
    plan, (joint, *others), *rest = arguments(UNITS[1], "mask", torch.float32)
    turned = joint.detach().permute(2, 0, 1).contiguous().permute(1, 2, 0)
    others = [other.detach() for other in others]
    ours, theirs = (torch.ops.linnet.scan(plan, [j, *others], *rest) for j in (turned, joint.detach()))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


# ------------------------------------------------------------------------------------ a plan as text


def test_a_plan_survives_its_text():
    for unit in FUSED:
        for fusible in plans_of(unit.build(5)):
            again = Plan.read(fusible.plan.text)
            assert again == fusible.plan
            assert again.text == fusible.plan.text


PRINT_TEXT = """
import hashlib, linnet, torch
for unit in linnet.UNITS.values():
    direction = unit(4, 4).directions[0]
    extras = tuple(direction.cell.extra_inputs(torch.empty(1, 1, 4, device="meta")))
    for mode in (True, False):
        plans = direction.train(mode).plans_for(extras)
        for plan in () if isinstance(plans, str) else plans:
            print(hashlib.sha256(plan.text.encode()).hexdigest())
"""


def test_the_text_of_a_plan_is_the_same_in_every_process():
    first, second = (finish(start("-c", PRINT_TEXT)) for _ in range(2))
    assert first == second
    assert len(first.split()) > 20


def changed(**fields: Any) -> str:
    """The text of LRN's plan with other fields."""
    ((plan, _),) = plans_of(variant(linnet.LRN).build(5))
    return json.dumps({**json.loads(plan.text), **fields})


def graph(*lines: Any, outputs: Any = ("h", "h")) -> dict[str, Any]:
    return {"lines": list(lines), "outputs": list(outputs)}


MALFORMED = {
    "nothing": "",
    "no JSON": "plan",
    "a hash of another process": "0123456789abcdef",
    "a list": "[]",
    "nested without end": "[" * 100_000,
    "too long": " " * (1 << 21),
    "code": "__import__('os').abort()",
    "no fields": "{}",
    "a field too many": changed(more=1),
    "another version": changed(linnet=2),
    "names that are numbers": changed(inputs=[1, 2, 3]),
    "a name twice": changed(inputs=["k", "k", "v"]),
    "the name of a state": changed(inputs=["h", "q", "v"]),
    "no states": changed(states=[]),
    "no inputs": changed(inputs=[]),
    "an extra that is no input": changed(extras=["x"]),
    "all inputs extras": changed(extras=["k", "q", "v"]),
    "a product of no state": changed(products=[["c", ["v"]]]),
    "a product without parts": changed(products=[["h", []]]),
    "a product that is a name": changed(products=["h"]),
    "an unknown operation": changed(forward=graph(["v0", "system", "h"])),
    "an operation that is a method": changed(forward=graph(["v0", "__class__", "h"])),
    "too few operands": changed(forward=graph(["v0", "add", "h"])),
    "too many operands": changed(forward=graph(["v0", "tanh", "h", "h"])),
    "an unknown operand": changed(forward=graph(["v0", "tanh", "z"])),
    "an operand from later": changed(forward=graph(["v0", "tanh", "v1"], ["v1", "tanh", "h"])),
    "a result twice": changed(forward=graph(["v0", "tanh", "h"], ["v0", "tanh", "h"])),
    "a result that is an input": changed(forward=graph(["h", "tanh", "h"])),
    "an operand that is a list": changed(forward=graph(["v0", "tanh", ["h"]])),
    "an operand that is true": changed(forward=graph(["v0", "tanh", True])),
    "a number beyond float": changed(forward=graph(["v0", "tanh", 10**400])),
    "truth for a number": changed(forward=graph(["v0", "gt", "h", 0.0], ["v1", "tanh", "v0"])),
    "a number for truth": changed(forward=graph(["v0", "where", "h", "h", "h"])),
    "an output that is a truth value": changed(forward=graph(["v0", "gt", "h", 0.0], outputs=("v0", "h"))),
    "too few outputs": changed(forward=graph(outputs=("h",))),
    "no outputs": changed(backward={"lines": []}),
    "lines that are a name": changed(forward={"lines": "h", "outputs": ["h", "h"]}),
    "a line that is a name": changed(forward=graph("tanh")),
}


@over("problem", list(MALFORMED))
def test_a_malformed_plan_is_an_error_that_says_what_is_wrong(problem: str):
    tensors = [torch.zeros(4, 3, 15), torch.zeros(3, 5)]
    with pytest.raises(ValueError, match="the plan of a linnet::scan cannot be read: "):
        torch.ops.linnet.scan(MALFORMED[problem], tensors, None, None, False)


def test_plans_that_are_read_are_bounded():
    assert ops.plan_called.cache_info().maxsize is not None


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


class LeakingCell(linnet.Cell):
    """An option of each kind that a step may read."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None, **projection):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        where = {"device": device, "dtype": dtype}
        self.leak, self.g, self.scales = 0.3, torch.tanh, [1.5]
        self.input = linnet.Projection(input_size, {"a": hidden_size}, bias, **where, **projection)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.normal_(self.input.weight, generator=torch.Generator().manual_seed(0))
        nn.init.zeros_(self.input.bias)

    def step(self, a: Tensor, h: Tensor):
        h = self.g(a) + self.leak * h
        return h, {"h": h}


class Leaking(linnet.Recurrent, cell=LeakingCell):
    """A unit with options."""


class ListeningCell(LeakingCell):
    def step(self, a: Tensor, h: Tensor):
        h = self.g(a) + self.scales[0] * self.leak * h
        return h, {"h": h}


class Listening(linnet.Recurrent, cell=ListeningCell):
    """A unit with options that a compiler does not look into."""


@over("unit", [Leaking, Listening])
def test_a_compiled_module_sees_options_that_change(unit: type[linnet.Recurrent]):
    rnn: Any = unit(4, 6, zoneout=0.3).eval()
    direction = rnn.directions[0]
    compiled = torch.compile(rnn, backend="aot_eager", fullgraph=True)
    x = draw(5, 2, 4, seed=5, dtype=torch.float32)
    seen = [compiled(x)[0]]
    for thing, name, value in (
        (direction, "zoneout", 0.8),
        (direction, "zoneout", 0.1),
        (direction.cell, "leak", 0.9),
        (direction.cell, "leak", 0.2),
        (direction.cell, "g", torch.sigmoid),
        *([(direction.cell, "scales", [0.7])] if unit is Listening else []),
    ):
        setattr(thing, name, value)
        seen.append(compiled(x)[0])
        assert not torch.allclose(seen[-1], seen[-2])
        with linnet.backend("reference"):
            torch.testing.assert_close(seen[-1], rnn(x)[0], rtol=1e-5, atol=1e-5)


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


# Another process, which has built none of the units. `import linnet` is all it needs.
LOAD = """
import sys, warnings, torch, linnet
warnings.filterwarnings("ignore", "The given buffer is not writable")  # torch 2.10 says so of its own
for folder in sys.argv[1:]:
    program = torch.export.load(f"{folder}/program.pt2")
    x, expected = torch.load(f"{folder}/numbers.pt")
    y = program.module()(x)
    assert torch.equal(y, expected), (folder, (y - expected).abs().max())
    compiled = torch.compile(program.module(), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), expected, rtol=1e-6, atol=1e-5)
"""


def test_a_saved_program_runs_in_another_process(tmp_path: Path):
    folders = [save_program(unit, tmp_path) for unit in (linnet.SRU, linnet.LSTM, linnet.SCRN)]
    finish(start("-c", LOAD, *map(str, folders)))


def save_program(unit: type[linnet.Recurrent], parent: Path) -> Path:
    folder = parent / unit.__name__
    folder.mkdir()
    program = exported(Model(variant(unit)).eval(), 5, 3)
    x = draw(7, 2, 7, seed=6, dtype=torch.float32)
    torch.export.save(program, folder / "program.pt2")
    with torch.no_grad():
        torch.save((x, program.module()(x)), folder / "numbers.pt")
    return folder


@over("unit", [variant(linnet.SRU), variant(linnet.LSTM)])
def test_an_exported_graph_does_not_grow_with_the_length(unit: Variant):
    model = Model(unit).eval()
    short, long = (len(exported(model, steps, 3).graph.nodes) for steps in (4, 40))
    assert short == long
