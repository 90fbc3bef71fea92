"""What is written down of a step, and of its gradient, is what the step computes; or it is refused."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fused_runs import FUSED, OF_ANY_SIZE, OTHER_STEPS, WITH_INNER_PRODUCTS, Variant, plans_of
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import linnet
from linnet.program import shared_traces
from linnet.program.trace import OPERATIONS, NotPointwise, Pointwise, Traced, bias_of, trace

Function = Callable[[Tensor, Tensor], Tensor]


def step_of(function: Function):
    """A step with one input x and one state h, which is its output as well."""

    def step(inputs, states, weights):
        h = function(inputs["x"], states["h"])
        return h, {"h": h}

    return step


def traced(function: Function) -> Traced:
    return trace(step_of(function), ["x"], ["h"], [])


def interpret(graph: Pointwise, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a kernel would compute, in torch's own operations."""
    known: dict[Any, Tensor] = dict(inputs)

    def value(operand: str | float) -> Tensor:
        return known[operand] if isinstance(operand, str) else torch.tensor(operand, dtype=torch.double)

    for line in graph.lines:
        known[line.result] = getattr(torch, line.op)(*map(value, line.operands))
    like = next(iter(inputs.values()))
    return {name: value(operand).to(like.dtype).expand_as(like) for name, operand in graph.outputs}


def randoms(names: list[str], seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(4, 6, generator=generator, dtype=torch.double) for name in names}


def equal(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    torch.testing.assert_close(dict(ours), dict(theirs), rtol=1e-12, atol=1e-12, equal_nan=True)


def check_against_autograd(graphs: Traced, step: Any) -> None:
    """Both graphs, interpreted, against the step itself and what autograd makes of it."""
    groups = [
        randoms(list(names), seed)
        for seed, names in enumerate((graphs.inputs, graphs.states, graphs.weights))
    ]
    known = {name: t.requires_grad_() for group in groups for name, t in group.items()}
    inputs, states, weights = groups
    read: dict[str, Tensor] = {}
    made = {part: inputs.pop(part) for product in graphs.inner for part in product.parts}

    def multiply(_: str, source: Tensor, parts: list[str], biased: list[str], __: int) -> dict[str, Tensor]:
        read[f"inner.{len(read)}"] = source
        return {n: made[n] + weights[bias_of(n)] if n in biased else made[n] for n in parts}

    y, new = step(inputs, states, weights, **({"multiply": multiply} if graphs.inner else {}))
    outputs = {"y": y, **{f"new.{name}": new[name] for name in graphs.states}, **read}
    equal(interpret(graphs.forward, known), outputs)
    above = randoms([f"d{name}" for name in outputs], seed=3)
    # A state that is a constant has no gradient.
    varying = [name for name, output in outputs.items() if output.requires_grad]
    gradients = torch.autograd.grad(
        [outputs[name] for name in varying],
        list(known.values()),
        [above[f"d{name}"] for name in varying],
        allow_unused=True,
        materialize_grads=True,
    )
    expected = {f"d.{name}": gradient for name, gradient in zip(known, gradients, strict=True)}
    equal(interpret(graphs.backward, known | above), expected)


# ------------------------------------------------------------------------------------ known steps


def lrn() -> Traced:
    return plans_of(linnet.LRN(3, 5))[0].plan.traced


def test_the_step_of_lrn_is_its_eight_operations_in_order():
    graph = lrn().forward
    assert [line.op for line in graph.lines] == [
        "add",
        "sigmoid",
        "sub",
        "sigmoid",
        "mul",
        "mul",
        "add",
        "tanh",
    ]
    assert graph.inputs == ("k", "q", "v", "h")
    last = graph.lines[-1].result
    assert graph.outputs == (("y", last), ("new.h", last))


def test_the_gradient_of_lrn_computes_no_function_that_its_step_does_not():
    """The derivatives of sigmoid and tanh are products of their values."""
    graph = lrn().backward
    assert Counter(line.op for line in graph.lines) == Counter(add=5, sub=4, mul=12, neg=1, sigmoid=2, tanh=1)
    assert [name for name, _ in graph.outputs] == ["d.k", "d.q", "d.v", "d.h"]
    assert graph.inputs == ("k", "q", "v", "h", "dy", "dnew.h")


def test_the_output_that_is_a_state_is_known():
    assert lrn().output_state == "h"
    assert plans_of(linnet.SRU(3, 5))[0].plan.traced.output_state is None


def test_a_graph_reads_as_text():
    text = str(traced(lambda x, h: torch.tanh(x + h)).forward)
    assert text == "inputs: x, h\nv0 = add(x, h)\nv1 = tanh(v0)\ny = v1\nnew.h = v1"


def test_all_units_fuse():
    assert {v.unit for v in FUSED} == set(linnet.UNITS.values())
    others = {v.unit for v in FUSED} - {v.unit for v in (*OF_ANY_SIZE, *WITH_INNER_PRODUCTS)}
    whole = {linnet.NRU, linnet.StatisticalRU, linnet.HGRN, linnet.LRU, linnet.LinOSS, linnet.CfC, linnet.LTC}
    assert others == whole


def test_equal_operations_are_written_once():
    graph = traced(lambda x, h: torch.sigmoid(x + h) * h + torch.sigmoid(x + h)).forward
    assert [line.op for line in graph.lines] == ["add", "sigmoid", "mul", "add"]


def test_what_the_outputs_do_not_need_is_left_out():
    def step(x, h):
        torch.exp(x)
        return x + h

    assert len(traced(step).forward.lines) == 1


def test_zeros_of_different_sign_are_different_numbers():
    graph = traced(lambda x, h: 1 / (x * 0.0) + 1 / (x * -0.0) + h).forward
    inputs = {"x": torch.ones(1, dtype=torch.double), "h": torch.zeros(1, dtype=torch.double)}
    assert interpret(graph, inputs)["y"].isnan()  # infinity less infinity


# ----------------------------------------------------------------------- gradients, against autograd


@pytest.mark.parametrize("variant", [*OF_ANY_SIZE, *OTHER_STEPS, *WITH_INNER_PRODUCTS], ids=str)
@pytest.mark.parametrize("zoneout", [0.0, 0.3])
def test_graphs_of_every_unit_compute_its_step_and_its_gradient(variant: Variant, zoneout: float):
    rnn = variant.build(6, zoneout=zoneout)
    for training in (True, False):
        for plan, step in plans_of(rnn, training):
            check_against_autograd(plan.traced, step)


POINTWISE: dict[str, Function] = {
    "relu": lambda x, h: torch.relu(x + h) * h,
    "exp": lambda x, h: torch.exp(-x * h),
    "where": lambda x, h: torch.where(x > h, x * h, torch.tanh(h)),
    "where with a number": lambda x, h: torch.where(x > 0.1, h, 0.5) * x,
    "clamp": lambda x, h: (x * h).clamp(-0.5, 0.7) * h,
    "clamp below": lambda x, h: (x * h).clamp(min=-0.2) + h,
    "clamp above": lambda x, h: torch.clamp(x * h, max=0.2) + h,
    "clamp by tensors": lambda x, h: torch.clamp(x, h, h + 1),
    "square": lambda x, h: x**2 + torch.square(h),
    "cube": lambda x, h: x**3 * h,
    "power of a tensor": lambda x, h: torch.pow(x.abs() + 0.1, h),
    "power of a number": lambda x, h: 2.0**x * h,
    "softplus": lambda x, h: F.softplus(x + h) * h,
    "logsigmoid": lambda x, h: F.logsigmoid(x + h) * h,
    "elu": lambda x, h: F.elu(x + h, alpha=0.7) * h,
    "abs": lambda x, h: (x * h).abs() + h,
    "log": lambda x, h: torch.log(x.abs() + 1) * h,
    "sqrt": lambda x, h: torch.sqrt(x * x + h * h + 1),
    "rsqrt": lambda x, h: x * torch.rsqrt(h * h + 1),
    "reciprocal": lambda x, h: x * (h * h + 1).reciprocal(),
    "maximum": lambda x, h: torch.maximum(x, h) * x,
    "minimum": lambda x, h: torch.minimum(x, h) * x,
    "max of two": lambda x, h: torch.max(x, h) * h,
    "min of two": lambda x, h: torch.min(x, h) * h,
    "comparisons": lambda x, h: torch.where(
        (x >= h) | (x < -h) & ~(x <= 0.3 * h) | (x == 0) & (h != 0), x * h, h - x
    ),
    "sin and cos": lambda x, h: torch.sin(x) * torch.cos(h),
    "expm1 and log1p": lambda x, h: torch.expm1(0.3 * x) * torch.log1p(h * h),
    "sign": lambda x, h: torch.sign(x) * h,
    "floor": lambda x, h: torch.floor(3 * x) * h,
    "silu": lambda x, h: F.silu(x + h),
    "leaky relu": lambda x, h: F.leaky_relu(x + h, 0.1),
    "softsign": lambda x, h: F.softsign(x + h),
    "hardtanh": lambda x, h: F.hardtanh(x + h) * h,
    "relu6": lambda x, h: F.relu6(4 * x + h) * h,
    "mish": lambda x, h: F.mish(x + h),
    "gelu by tanh": lambda x, h: F.gelu(x + h, approximate="tanh"),
    "addcmul": lambda x, h: torch.addcmul(x, x, h, value=0.3),
    "masked fill": lambda x, h: (x * h).masked_fill(x > 0, 0.0) + h,
    "in place": lambda x, h: (x * h).mul_(2).add_(x, alpha=0.3).sigmoid_(),
    "from one": lambda x, h: 1 - x * h,
    "a part detached": lambda x, h: x * torch.sigmoid(h).detach() + h,
}  # fmt: skip


@pytest.mark.parametrize("name", POINTWISE)
def test_graphs_of_a_users_step_compute_it_and_its_gradient(name: str):
    function = POINTWISE[name]
    check_against_autograd(traced(function), step_of(function))


@pytest.mark.parametrize("name", POINTWISE)
def test_only_operations_that_emitters_know_are_written_down(name: str):
    graphs = traced(POINTWISE[name])
    assert {line.op for graph in (graphs.forward, graphs.backward) for line in graph.lines} <= set(OPERATIONS)


def test_a_step_may_leave_its_state_or_its_output_alone():
    """A state handed on, an input taken over, an output that nothing depends on."""

    def step(inputs, states, weights):
        return torch.zeros_like(inputs["x"]), {"h": inputs["x"], "c": states["c"]}

    graphs = trace(step, ["x"], ["h", "c"], [])
    known = randoms(["x", "h", "c", "dy", "dnew.h", "dnew.c"])
    zeros = torch.zeros_like(known["x"])
    equal(interpret(graphs.forward, known), {"y": zeros, "new.h": known["x"], "new.c": known["c"]})
    expected = {"d.x": known["dnew.h"], "d.h": zeros, "d.c": known["dnew.c"]}
    equal(interpret(graphs.backward, known), expected)


def test_a_step_without_a_gradient_has_gradients_of_zero():
    """As a unit that fires: its output is 0 or 1."""
    graphs = traced(lambda x, h: torch.where(x + h > 0, torch.ones_like(h), torch.zeros_like(h)))
    known = randoms(["x", "h", "dy", "dnew.h"])
    zeros = torch.zeros_like(known["x"])
    equal(interpret(graphs.backward, known), {"d.x": zeros, "d.h": zeros})


# --------------------------------------------------------------------------- refused, with a reason

# What the message has to name, and a step on one line.
REFUSED: dict[str, tuple[str, Function]] = {
    "matmul": ("matmul", lambda x, h: x @ h),
    "linear": ("linear|matmul|mm", lambda x, h: F.linear(x, h)),
    "sum": ("sum", lambda x, h: x + h.sum(-1, keepdim=True)),
    "sum over a dimension by number": ("sum|imension", lambda x, h: x + h.sum(1, keepdim=True)),
    "mean": ("mean", lambda x, h: x - h.mean(-1, keepdim=True)),
    "softmax": ("softmax", lambda x, h: x * h.softmax(-1)),
    "sort": ("sort", lambda x, h: x * h.sort(-1).values),
    "cumsum": ("cumsum", lambda x, h: x * h.cumsum(-1)),
    "an index": ("ind", lambda x, h: x * h[:, :1]),
    "a roll": ("roll|imension", lambda x, h: x * h.roll(1, -1)),
    "a cut in two": ("chunk", lambda x, h: torch.cat(h.chunk(2, -1)[::-1], -1)),
    "item": ("item|_local_scalar_dense", lambda x, h: x * h.flatten()[0].item()),
    "a branch": ("branch|bool|_local_scalar_dense", lambda x, h: x if h > 0 else h),
    "random numbers": ("rand", lambda x, h: x * torch.rand_like(h)),
    "dropout": ("dropout", lambda x, h: F.dropout(x * h, 0.5, training=True)),
    "an operation that no kernel knows": ("erf", lambda x, h: torch.erf(x) * h),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_operation_and_the_users_line(name: str):
    word, function = REFUSED[name]
    with pytest.raises(NotPointwise, match=word) as refusal:
        traced(function)
    assert f"{Path(__file__).name}:{inspect.getsourcelines(function)[1]}" in str(refusal.value)


def test_a_refusal_of_a_gradient_names_the_users_line():
    """The step itself is pointwise; autograd's way back through it is not, and it is not the user's."""

    class Odd(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, above):
            return above.sort().values  # here it is

    with pytest.raises(NotPointwise, match="sort") as refusal:
        traced(lambda x, h: Odd.apply(x) + h)
    assert "here it is" in str(refusal.value)


SHAPES_AND_VALUES: dict[str, Function] = {
    "the norm": lambda x, h: x / (1 + h.norm()),
    "the shape": lambda x, h: x + h / h.shape[-1],
    "the shape, taken apart": lambda x, h: next(x + h / width for _, width in [h.shape]),
    "the number of elements": lambda x, h: x + h / h.numel(),
    "the other way round": lambda x, h: x + h.flip(-1),
    "a list of values": lambda x, h: x + h * (sum(map(sum, h.tolist())) if h.dim() else h.tolist()),
    "values as an array": lambda x, h: x + h * h.detach().numpy().sum(),
    "transposed": lambda x, h: x * h.mT if h.dim() > 1 else x * h,
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES_AND_VALUES)
def test_a_unit_that_looks_at_shapes_or_values_still_computes_its_step(name: str):
    """On scalars these are harmless, and the kernel would be wrong without a word."""
    unit = unit_of(SHAPES_AND_VALUES[name])
    rnn = unit(3, 4, dtype=torch.double)
    x = torch.randn(5, 4, 3, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    y, _ = rnn(x)
    with linnet.backend("reference"):
        torch.testing.assert_close(y, rnn(x)[0], rtol=1e-12, atol=1e-12)


CONVERTED: dict[str, Function] = {
    "a comparison as a number": lambda x, h: x * (h > 0).to(h.dtype) + h,
    "a comparison multiplied": lambda x, h: x * (h > 0) + h,
    "a comparison subtracted": lambda x, h: x * (1 - (h > 0).double()),
    "cut to whole numbers": lambda x, h: x + (3 * h).int().to(h.dtype),
    "cut to long numbers": lambda x, h: x + (3 * h).long(),
    "rounded down while divided": lambda x, h: x + torch.div(3 * x, h + 2, rounding_mode="floor"),
    "cut while divided": lambda x, h: x + torch.div(3 * x, h + 2, rounding_mode="trunc"),
    "floor division": lambda x, h: x + 3 * x // (h + 2),
    "remainder": lambda x, h: x + x % (h + 2),
    "numbers as truth values": lambda x, h: torch.where(torch.logical_and(x, h), x, h),
    "a number as a truth value": lambda x, h: torch.where(h.bool(), x, h) + h,
    "truth values compared": lambda x, h: torch.where((x > 0) == (h > 0), x, h),
    "exclusive or": lambda x, h: torch.where((x > 0) ^ (h > 0), x, h),
    "a constant truth value": lambda x, h: torch.where(torch.tensor(True), x, h),
    "rounded": lambda x, h: x + h.round(),
    "a number as a tensor": lambda x, h: torch.tensor(0.5) * x + h,
    "a narrower dtype": lambda x, h: x + h.to(torch.float32).to(torch.float64),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVERTED)
def test_a_unit_that_converts_between_kinds_of_numbers_computes_its_step(name: str):
    """By a kernel or by the reference loop, but not differently, and not with an error."""
    rnn = unit_of(CONVERTED[name])(3, 4, dtype=torch.double)
    x = torch.randn(5, 4, 3, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    y, _ = rnn(x)
    with linnet.backend("reference"):
        # A narrower dtype inside a step in float64 is rounding that a kernel may leave out.
        torch.testing.assert_close(y, rnn(x)[0], rtol=1e-6, atol=1e-5)


def unit_of(function: Function) -> type[linnet.Recurrent]:
    class Cell(linnet.Cell):
        def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None, **projection):
            super().__init__(input_size, hidden_size, {"h": hidden_size})
            where = {"device": device, "dtype": dtype}
            self.input = linnet.Projection(input_size, {"x": hidden_size}, bias, **where, **projection)
            self.reset_parameters()

        def reset_parameters(self):
            torch.manual_seed(0)
            for parameter in self.parameters():
                nn.init.normal_(parameter)

        def step(self, x, h):
            h = torch.tanh(function(x, h))
            return h, {"h": h}

    class Unit(linnet.Recurrent, cell=Cell):
        """A unit of the test."""

    return Unit


# ------------------------------------------------------------------------------------ circumstances


class Swapping(TorchFunctionMode):
    """Computes tanh where sigmoid is called."""

    def __torch_function__(self, function, types, arguments=(), named=None):
        return (torch.tanh if function is torch.sigmoid else function)(*arguments, **(named or {}))


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def within(around: Callable[[], Any]) -> Callable[[Callable[[], Any]], Any]:
    def run(job: Callable[[], Any]) -> Any:
        with around():
            return job()

    return run


def inside(call: Callable[[Callable[[Tensor], Tensor]], Any]) -> Callable[[Callable[[], Any]], Any]:
    """Within a function that torch transforms or calls again."""

    def run(job: Callable[[], Any]) -> Any:
        made: list[Any] = []
        call(lambda x: made.append(job()) or (x * x).sum())  # type: ignore[func-returns-value]
        return made[0]

    return run


# Modes that may be active while a unit is first traced, and are gone when it runs again.
PASSING: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "no_grad": within(torch.no_grad),
    "inference mode": within(torch.inference_mode),
    "anomaly mode": within(lambda: torch.autograd.set_detect_anomaly(True)),
    "deterministic algorithms": within(deterministic),
    "autocast": within(lambda: torch.autocast("cpu", torch.bfloat16)),
    "forward mode": within(torch.autograd.forward_ad.dual_level),
    "hooks on saved tensors": within(partial(saved_tensors_hooks, torch.clone, torch.clone)),
    "a mode of functions": within(Swapping),
    "a mode of dispatch": within(lambda: FlopCounterMode(display=False)),
    "fake tensors": within(FakeTensorMode),
    "a default device": within(lambda: torch.device("meta")),
    "torch.func.grad": inside(lambda f: torch.func.grad(f)(torch.ones(3))),
    "torch.func.vmap": inside(lambda f: torch.vmap(f, randomness="same")(torch.ones(3, 2))),
    "torch.func.functionalize": inside(lambda f: torch.func.functionalize(f)(torch.ones(3))),
    "checkpoint": inside(lambda f: checkpoint(f, torch.ones(3, requires_grad=True), use_reentrant=False)),
}


@pytest.mark.parametrize("mode", PASSING)
def test_a_trace_does_not_depend_on_the_mode_it_is_made_in(mode: str):
    expected = traced(POINTWISE["softplus"])
    assert PASSING[mode](partial(traced, POINTWISE["softplus"])) == expected


@pytest.mark.parametrize("mode", PASSING)
@pytest.mark.parametrize(
    "build", [partial(linnet.LSTM, peepholes=True), partial(linnet.GRU, form="before")], ids=["LSTM", "GRU"]
)
def test_a_unit_has_the_same_plans_whatever_mode_it_was_built_in(build: Any, mode: str, monkeypatch):
    monkeypatch.setattr(shared_traces, "TRACES", {})
    expected = build(3, 5)
    monkeypatch.setattr(shared_traces, "TRACES", {})
    rnn = PASSING[mode](partial(build, 3, 5))
    for training in (True, False):
        assert plans_of(rnn, training)[0].plan == plans_of(expected, training)[0].plan


def test_a_unit_built_in_anomaly_mode_runs_by_kernels():
    """Even if its gradient is NaN for the number that a trace computes with."""
    x = torch.randn(3, 2, 4, dtype=torch.float64)
    with torch.autograd.set_detect_anomaly(True):
        rnn = unit_of(lambda x, h: torch.sqrt(torch.relu(x - 0.5)) + h)(4, 13, dtype=torch.float64)
        by_kernels = by("cpu", rnn, x)
        assert torch.is_anomaly_enabled()
    torch.testing.assert_close(by_kernels, by("reference", rnn, x))


def by(backend: str, rnn: linnet.Recurrent, x: Tensor) -> Tensor:
    with linnet.backend(backend):
        return rnn(x)[0].detach()


def test_a_gradient_may_ask_for_nan_in_any_mode():
    class Careful(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, above):
            return torch.where(above.isnan(), 0.0, 2 * above)

    expected = traced(lambda x, h: Careful.apply(x) + h)
    assert "ne" in [line.op for line in expected.backward.lines]
    with torch.autograd.set_detect_anomaly(True):
        found = traced(lambda x, h: Careful.apply(x) + h)
    assert [line.op for line in found.backward.lines] == [line.op for line in expected.backward.lines]


def test_a_refusal_that_may_pass_is_not_kept():
    """A global hook runs on a module that the step calls."""
    scale = nn.Tanh()
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, inputs, output: output.sort().values if module is scale else None
    )
    try:
        rnn = unit_of(lambda x, h: scale(x) + h)(3, 5)
        with pytest.warns(linnet.FallbackWarning, match="every module has a hook"):
            rnn(torch.randn(4, 2, 3))
    finally:
        handle.remove()
    x = torch.randn(4, 2, 3)
    torch.testing.assert_close(by("cpu", rnn, x), by("reference", rnn, x))


def test_a_number_of_a_narrow_default_dtype_is_no_lasting_refusal():
    torch.set_default_dtype(torch.bfloat16)
    try:
        rnn = unit_of(lambda x, h: torch.maximum(x, torch.scalar_tensor(0.3)) + h)(3, 5, dtype=torch.float32)
    finally:
        torch.set_default_dtype(torch.float32)
    x = torch.randn(4, 2, 3)
    torch.testing.assert_close(by("cpu", rnn, x), by("reference", rnn, x))


def test_a_trace_without_room_on_the_stack_is_no_refusal():
    def step(x: Tensor, h: Tensor) -> Tensor:
        raise RecursionError

    with pytest.raises(RecursionError):
        traced(step)


def test_a_default_dtype_and_device_change_nothing():
    expected = traced(POINTWISE["elu"])
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert traced(POINTWISE["elu"]) == expected
    finally:
        torch.set_default_dtype(torch.float32)
