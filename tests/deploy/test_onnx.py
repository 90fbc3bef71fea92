"""Parity: a model as an ONNX file, run by onnxruntime, against the model at other lengths and batches."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import onnxruntime
import pytest
import torch
from fused_runs import (
    FUSED,
    NOT_ELEMENTWISE,
    OF_ANY_SIZE,
    OTHER_STEPS,
    WITH_INNER_PRODUCTS,
    Variant,
    draw,
    draw_state,
    enliven,
    flags,
)
from helpers import each
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

import linnet
from linnet.deploy.onnx_graph import STRUCTURAL
from linnet.deploy.onnx_nodes import COMPOSED, NAMES
from linnet.models.language import LanguageModel, LanguageModelConfig
from linnet.program.graph import Node
from linnet.program.graph_text import OTHERS
from linnet.program.plan import Plan
from linnet.program.trace import OPERATIONS, Line
from linnet.program.views import whole

OTHER_SIZES = ((1, 1), (9, 2), (4, 7))
Run = Callable[..., list[Tensor]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def load(path: Path, optimised: bool = True) -> Run:
    """The file as a function of the inputs in their order."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options)
    names = [value.name for value in session.get_inputs()]

    def run(*inputs: Any) -> list[Tensor]:
        outputs = session.run(None, {name: x.numpy() for name, x in zip(names, inputs, strict=True)})
        return [torch.from_numpy(output) for output in outputs]

    return run


def agree(run: Run, model: nn.Module, *inputs: Any, tolerance: float = 1e-5, **named_inputs: Any) -> None:
    """To `tolerance` of the largest number in each tensor, or of 1."""
    with torch.no_grad(), linnet.backend("reference"):
        expected = model(*inputs, **named_inputs)
    leaves, structure = tree_flatten(expected)
    found = run(*tree_leaves((inputs, named_inputs)))
    assert len(found) == len(leaves)
    scales = [max(1.0, leaf.abs().max().item()) if leaf.numel() else 1.0 for leaf in leaves]
    found, leaves = ([x / scale for x, scale in zip(each, scales, strict=True)] for each in (found, leaves))
    found, expected = (tree_unflatten(each, structure) for each in (found, leaves))
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def kinds(path: Path) -> list[str]:
    """The nodes of the graph, without those inside its scans."""
    return [node.op_type for node in onnx.load(path).graph.node]


class Several(nn.Module):
    """Stacks side by side: most of the time of an export goes before the first of them."""

    def __init__(self, variants: Sequence[Variant], **options: Any):
        super().__init__()
        self.stacks = nn.ModuleDict({str(v).replace(".", "_"): several_of(v, **options) for v in variants})

    def forward(self, x: Tensor, states: Any = None, mask: Any = None, resets: Any = None) -> dict[str, Any]:
        states = states or dict.fromkeys(self.stacks)
        given = {"mask": mask, "resets": resets}
        return {name: stack(x, states[name], **given) for name, stack in self.stacks.items()}


def directions_of(model: Several) -> list[Any]:
    return [direction for stack in model.stacks.values() for direction in stack.directions]


def several_of(unit: Variant, **options: Any) -> linnet.Recurrent:
    return unit.build(4, torch.float, input_size=4, **options)


# ------------------------------------------------------------------------------------------- units


ELEMENTWISE = [unit for unit in OF_ANY_SIZE if unit.build(4).first_cell.is_elementwise]
WITH_MATRIX = [unit for unit in OF_ANY_SIZE if unit not in ELEMENTWISE]
# Those whose step is a graph: it sums, norms or reorders channels.
WHOLE = [*(unit for unit in FUSED if unit not in OF_ANY_SIZE), *NOT_ELEMENTWISE]


@pytest.mark.parametrize(
    "units", [ELEMENTWISE, WITH_MATRIX, WHOLE], ids=["elementwise", "matrix", "not elementwise"]
)
def test_every_unit_in_both_directions_with_all_it_can_be_given(units: list[Variant], path: Path):
    model = Several(units, bidirectional=True).eval()

    def arguments(steps: int, batch: int) -> tuple[Tensor, dict[str, Any], dict[str, Tensor]]:
        x = draw(steps, batch, 4, seed=steps, dtype=torch.float)
        states = {name: draw_state(stack, batch) for name, stack in model.stacks.items()}
        return x, states, flags("mask and resets", steps, batch)

    x, states, given = arguments(3, 4)
    linnet.export_onnx(model, path, x, states, **given)
    onnx.checker.check_model(path, full_check=True)
    assert kinds(path).count("Scan") == sum(len(d.plans_of_mode()) for d in directions_of(model))
    run = load(path)
    for sizes in OTHER_SIZES:
        x, states, given = arguments(*sizes)
        agree(run, model, x, states, **given)


@pytest.mark.parametrize("unit", [linnet.LSTM, linnet.NRU])
def test_resets_to_a_state(unit: type[linnet.Recurrent], path: Path):
    rnn = Variant(unit, {}).build(4, torch.float, num_layers=2, bidirectional=True).eval()

    def arguments(steps: int, batch: int) -> dict[str, Any]:
        start = each(lambda s: s.expand(steps, *s.shape).cos(), draw_state(rnn, batch))
        return {**flags("mask and resets", steps, batch), "reset_state": start}

    linnet.export_onnx(rnn, path, torch.zeros(3, 4, 7), **arguments(3, 4))
    run = load(path)
    for sizes in OTHER_SIZES:
        agree(run, rnn, draw(*sizes, 7, seed=1, dtype=torch.float), **arguments(*sizes))


def test_options_that_change_the_step(path: Path):
    # Its matrices are parts of a parameter.
    blocks = Variant(linnet.LSTM, {"norm": "layer", "norm_on": "all", "heads": 2})
    model = Several([*OTHER_STEPS, *WITH_INNER_PRODUCTS, blocks]).eval()
    linnet.export_onnx(model, path, torch.zeros(3, 2, 4))
    agree(load(path), model, draw(6, 5, 4, seed=1, dtype=torch.float))


def test_options_of_the_driver(path: Path):
    options = [
        {"norm": "layer", "prenorm": "rms", "proj_size": 3},
        {"norm": "rms", "prenorm": "layer", "residual": True},
        {"zoneout": 0.3, "dropout": 0.5},
    ]
    zoned = [Variant(unit, {"zoneout": 0.3}) for unit in (linnet.SCRN, linnet.NRU, linnet.StatisticalRU)]
    units = [*(Variant(linnet.LRN, more) for more in options), *zoned]
    model = Several(units, num_layers=2).eval()
    linnet.export_onnx(model, path, torch.zeros(3, 2, 4))
    agree(load(path), model, draw(6, 5, 4, seed=1, dtype=torch.float))


def test_every_unit_is_tried_here():
    assert {v.unit.__name__.lower() for v in (*OF_ANY_SIZE, *WHOLE)} == set(linnet.UNITS)


def test_small_numbers_stay(path: Path):
    """An optimiser of graphs may take 1e-8, which keeps a norm from dividing 0 by 0, for 0."""
    options = [{"norm": "rms", "bias": False}, {"norm": "rms", "norm_on": "all", "bias": False}]
    model = Several([Variant(linnet.ATR, more) for more in options]).eval()
    linnet.export_onnx(model, path, torch.zeros(3, 2, 4))
    agree(load(path), model, torch.zeros(3, 2, 4))


@pytest.mark.parametrize(("name", "batch_first"), [("sru", True), ("scrn", False), ("nru", True)])
def test_lengths_are_an_input_of_a_stack(name: str, batch_first: bool, path: Path):
    rnn = linnet.UNITS[name](3, 4, num_layers=2, bidirectional=True, batch_first=batch_first).eval()

    def x(steps: int, batch: int) -> Tensor:
        return draw(steps, batch, 3, seed=0, dtype=torch.float).transpose(0, int(batch_first))

    linnet.export_onnx(rnn, path, x(6, 4), lengths=torch.tensor([6, 2, 1, 5]))
    run = load(path)
    agree(run, rnn, x(9, 3), lengths=torch.tensor([1, 9, 2]))
    agree(run, rnn, x(2, 1), lengths=torch.tensor([2]))


@pytest.mark.parametrize("unit", [Variant(linnet.LSTM, {"peepholes": True}), *WHOLE[::2]], ids=str)
def test_double(unit: Variant, path: Path):
    rnn = unit.build(4, torch.double, input_size=3, bidirectional=True).eval()
    linnet.export_onnx(rnn, path)
    # Its optimiser makes a factor, as of CfC's activation, the scale of a product: a number of float32.
    agree(load(path, optimised=False), rnn, draw(6, 2, 3, seed=1), tolerance=1e-10)


def test_unbatched(path: Path):
    rnn = linnet.SRU(3, 4).eval()
    linnet.export_onnx(rnn, path, torch.zeros(5, 3))
    agree(load(path), rnn, torch.randn(8, 3))


# ----------------------------------------------------------------------------- operators of ONNX

OPERATORS = [
    Variant(linnet.LSTM, {}),
    Variant(linnet.LSTM, {"peepholes": True, "bias": False, "prenorm": "layer"}),
    Variant(linnet.GRU, {}),
    Variant(linnet.GRU, {"bias": False}),
    *(Variant(linnet.RNN, {"nonlinearity": name}) for name in ("tanh", "relu", "sigmoid")),
]


class WithLengths(Several):
    """Stacks that are given lengths and a state."""

    def forward(self, x: Tensor, states: Any, lengths: Any = None) -> dict[str, Any]:
        return {name: stack(x, states[name], lengths=lengths) for name, stack in self.stacks.items()}


def test_units_that_onnx_has_are_its_operators_with_lengths_and_states(path: Path):
    model = WithLengths(OPERATORS, bidirectional=True).eval()

    def arguments(lengths: list[int], steps: int) -> tuple[Tensor, Any, Tensor]:
        batch = len(lengths)
        states = {name: draw_state(stack, batch) for name, stack in model.stacks.items()}
        return draw(steps, batch, 4, seed=steps, dtype=torch.float), states, torch.tensor(lengths)

    linnet.export_onnx(model, path, *arguments([3, 1, 2], 3))
    onnx.checker.check_model(path, full_check=True)
    found = kinds(path)
    assert "Scan" not in found
    assert [found.count(kind) for kind in ("LSTM", "GRU", "RNN")] == [4, 4, 6]
    run = load(path)
    for lengths, steps in (([1, 9, 2, 5], 9), ([1], 1), ([3, 4], 4)):
        agree(run, model, *arguments(lengths, steps))


def test_weights_of_an_operator_are_constants_of_the_file(path: Path):
    """As runtimes need them, which compile a network from its weights."""
    linnet.export_onnx(linnet.LSTM(3, 4), path)
    graph = onnx.load(path).graph
    (operator,) = [node for node in graph.node if node.op_type == "LSTM"]
    constants = {value.name for value in graph.initializer}
    assert set(operator.input[1:4]) <= constants


class NoOperators(Several):
    """Steps that no operator of ONNX computes, and one that is given a mask with gaps."""

    def forward(self, x: Tensor, mask: Tensor) -> dict[str, Any]:
        given = {"GRU": mask}
        return {name: stack(x, mask=given.get(name)) for name, stack in self.stacks.items()}


def test_what_no_operator_computes_stays_a_scan(path: Path):
    options = [{"norm": "layer"}, {"zoneout": 0.2}, {"output_gate": False}]
    others = [Variant(linnet.GRU, {"form": "ran"}), Variant(linnet.GRU, {})]
    model = NoOperators([*(Variant(linnet.LSTM, more) for more in options), *others]).eval()
    mask = torch.tensor([[True, False], [False, True], [True, True]])
    linnet.export_onnx(model, path, torch.zeros(3, 2, 4), mask)
    assert kinds(path).count("Scan") == 5
    agree(load(path), model, draw(3, 2, 4, seed=1, dtype=torch.float), mask)


# ------------------------------------------------------------------------------------------- int8

IN_INT8 = [
    Variant(linnet.LSTM, {"num_layers": 2}),
    Variant(linnet.GRU, {"heads": 2, "prenorm": "layer"}),
    Variant(linnet.RAN, {"input_heads": 2}),
    Variant(linnet.SRU, {"rank": 2}),
    Variant(linnet.LRN, {"norm": "layer"}),
    Variant(linnet.SCRN, {}),
]


def test_int8_for_any_length_in_both_directions_with_all_it_can_be_given(path: Path):
    model = linnet.quantize(Several(IN_INT8, bidirectional=True))

    def arguments(steps: int, batch: int) -> tuple[Tensor, dict[str, Any], dict[str, Tensor]]:
        x = draw(steps, batch, 4, seed=steps, dtype=torch.float)
        states = {name: draw_state(stack, batch) for name, stack in model.stacks.items()}
        return x, states, flags("mask and resets", steps, batch)

    x, states, given = arguments(3, 4)
    linnet.export_onnx(model, path, x, states, **given)
    onnx.checker.check_model(path, full_check=True)
    run = load(path)
    for sizes in OTHER_SIZES:
        x, states, given = arguments(*sizes)
        agree(run, model, x, states, **given)


def test_a_file_in_int8_holds_bytes(path: Path):
    model = nn.Sequential(nn.Linear(64, 128), linnet.GRU(128, 128))
    linnet.export_onnx(linnet.quantize(model), path, torch.randn(5, 2, 64))
    matrices = 64 * 128 + 2 * 3 * 128 * 128
    assert matrices < sum(len(each.raw_data) for each in onnx.load(path).graph.initializer) < 1.1 * matrices


def test_weights_only_in_int8(path: Path):
    rounded = linnet.quantize(linnet.GRU(3, 4), activations=False)
    linnet.export_onnx(rounded, path, torch.randn(5, 2, 3))
    assert kinds(path).count("GRU") == 1
    agree(load(path), rounded, torch.randn(7, 4, 3))


def test_an_lstm_in_int8_as_onnxruntimes_operator(path: Path):
    """Its rounding is its own, so the comparison is with float32, to the precision of int8."""
    model = WithLengths([Variant(linnet.LSTM, {}), Variant(linnet.LSTM, {"peepholes": True, "bias": False})])
    small = linnet.quantize(model.eval())

    def arguments(lengths: list[int], steps: int) -> tuple[Tensor, Any, Tensor]:
        states = {name: draw_state(stack, len(lengths)) for name, stack in model.stacks.items()}
        return draw(steps, len(lengths), 4, seed=steps, dtype=torch.float), states, torch.tensor(lengths)

    linnet.export_onnx(small, path, *arguments([3, 1, 2], 3), onnxruntime_operators=True)
    assert kinds(path).count("DynamicQuantizeLSTM") == 2
    agree(load(path), model, *arguments([1, 9, 2, 5], 9), tolerance=0.03)


def test_what_int8_does_not_have_says_so(path: Path):
    x = torch.randn(5, 2, 3)
    before = linnet.quantize(linnet.GRU(3, 4, form="before"))
    with pytest.raises(NotImplementedError, match=r"no kernels of int8 for products within.*streaming=True"):
        linnet.export_onnx(before, path, x)
    linnet.export_onnx(before, path, streaming=True)
    given = {"resets": torch.zeros(5, 2, dtype=torch.bool), "reset_state": torch.zeros(1, 2, 4)}
    with pytest.raises(NotImplementedError, match="no kernels of int8 for rotations"):
        linnet.export_onnx(linnet.quantize(linnet.GORU(3, 4)), path, x)
    with pytest.raises(NotImplementedError, match=r"GRU in int8 resets to zeros only.*without reset_state"):
        linnet.export_onnx(linnet.quantize(linnet.GRU(3, 4)), path, x, **given)


# -------------------------------------------------------------------------------------- streaming


class InSteps(nn.Module):
    """A stack, one step after the other."""

    def __init__(self, rnn: linnet.Recurrent):
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = self.rnn(x[None], state)
        return y[0], state


@pytest.mark.parametrize(
    "rnn",
    [
        linnet.LSTM(3, 4, num_layers=2, proj_size=2, prenorm="layer", zoneout=0.1),
        linnet.NRU(3, 4),
    ],
    ids=["projected", "not elementwise"],
)
def test_a_stream_is_one_step_with_its_state(rnn: linnet.Recurrent, path: Path):
    rnn = enliven(rnn).eval()
    linnet.export_onnx(rnn, path, streaming=True)
    assert "Scan" not in kinds(path)
    run, model = load(path), InSteps(rnn)
    states = [f"_{name}" for name in rnn.first_cell.states] if rnn.first_cell.State else [""]
    assert [value.name for value in onnx.load(path).graph.output[1:]] == [f"final{s}" for s in states]
    assert [value.name for value in onnx.load(path).graph.input[1:]] == [f"state{s}" for s in states]
    for batch in (1, 5):
        agree(run, model, draw(batch, 3, seed=batch, dtype=torch.float), draw_state(rnn, batch))


def test_a_stream_of_a_language_model_writes_logits(path: Path):
    model = LanguageModel(
        11, LanguageModelConfig(unit="lstm", hidden_size=6, embedding_size=6, tied=True)
    ).eval()
    linnet.export_onnx(model, path, streaming=True)
    run, state = load(path), model.initial_state(3)
    for token in torch.randint(11, (4, 3), generator=torch.Generator().manual_seed(0)):
        with torch.no_grad():
            logits, new = model.step_logits(token, state)
        found = run(token, *tree_leaves(state))
        torch.testing.assert_close(found, [logits, *tree_leaves(new)], rtol=0, atol=1e-5)
        state = new
    names = [value.name for value in onnx.load(path).graph.output]
    assert names == ["logits", "state.0.h", "state.0.c", "state.1.h", "state.1.c"]
    before = [value.name for value in onnx.load(path).graph.input]
    assert before == ["tokens", "before.0.h", "before.0.c", "before.1.h", "before.1.c"]


def test_a_language_model_over_whole_sequences(path: Path):
    model = LanguageModel(11, LanguageModelConfig(unit="gru", hidden_size=6, num_layers=1)).eval()
    linnet.export_onnx(model, path, torch.zeros(3, 2, dtype=torch.int64))
    tokens = torch.randint(11, (7, 4))
    with torch.no_grad():
        log_p, state = model.log_probs(tokens)
    logits, *found = load(path)(tokens)
    torch.testing.assert_close(logits.log_softmax(-1), log_p, rtol=0, atol=1e-5)
    torch.testing.assert_close(found, tree_leaves(state), rtol=0, atol=1e-5)
    assert [value.name for value in onnx.load(path).graph.output] == ["logits", "state.0.h"]
    assert [value.name for value in onnx.load(path).graph.input] == ["tokens"]
    assert kinds(path).count("GRU") == 1


def test_a_language_model_without_an_example_takes_a_state(path: Path):
    model = LanguageModel(11, LanguageModelConfig(unit="sru", hidden_size=6, embedding_size=5)).eval()
    linnet.export_onnx(model, path)
    run, tokens = load(path), torch.randint(11, (7, 4))
    with torch.no_grad():
        expected = model.log_probs(tokens)[0]
    first, *state = run(tokens[:3], *model.initial_state(4))
    second, *_ = run(tokens[3:], *state)
    torch.testing.assert_close(torch.cat([first, second]).log_softmax(-1), expected, rtol=0, atol=1e-5)
    assert [value.name for value in onnx.load(path).graph.input] == ["tokens", "before.0.c", "before.1.c"]
    assert [value.name for value in onnx.load(path).graph.output] == ["logits", "state.0.c", "state.1.c"]


@pytest.mark.parametrize(
    ("model", "inputs", "kind", "answer"),
    [
        (linnet.SRU(3, 4, bidirectional=True), [], ValueError, "one direction, and this SRU reads the end"),
        (nn.Linear(3, 4), [], TypeError, r"one step of Linear: .*x_t, state, streaming=True"),
        (linnet.SRU(3, 4), [0, 0, 0], TypeError, "the input of one step and the state: .* got 3 arguments"),
    ],
    ids=["both directions", "no example", "three arguments"],
)
def test_what_cannot_stream_says_so(model: nn.Module, inputs: list[Any], kind: type, answer: str, path: Path):
    with pytest.raises(kind, match=answer):
        linnet.export_onnx(model, path, *inputs, streaming=True)
    assert not path.exists()


# -------------------------------------------------------------------------------------- own units


class EverythingCell(linnet.Cell):
    """Each operation that a step may use, a state that becomes a number, and one that is an input."""

    class State(NamedTuple):
        h: Tensor
        one: Tensor
        last: Tensor

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device=None, dtype=None, **more):
        super().__init__(input_size, hidden_size, dict.fromkeys(self.State._fields, hidden_size))
        where = {"device": device, "dtype": dtype}
        self.input = linnet.Projection(
            input_size, {"a": hidden_size, "b": hidden_size}, bias, **where, **more
        )
        self.scale = nn.Parameter(torch.ones(hidden_size, **where))

    def step(self, a: Tensor, b: Tensor, h: Tensor, one: Tensor, last: Tensor):
        small = torch.exp(-h.abs()) + torch.log1p(a * a) - torch.expm1(-last.abs()) / 2
        large = torch.log(torch.sqrt(1 + h**2)) + torch.floor(a) * torch.sin(a) * torch.cos(h)
        clipped = h.clamp(-1, 1) * one * self.scale
        odd = ((a > 0) & (h <= 1)) | ~((b >= -1) & (h < 0.5))
        h = torch.where(odd, torch.tanh(small - large), torch.sigmoid(clipped)) + 0.1 * torch.sign(b)
        h = torch.where((a == b) | (a != last), h, b)
        return h, {"h": h, "one": torch.ones_like(one), "last": a}


class Everything(linnet.Recurrent, cell=EverythingCell):
    """A unit of the user's own."""


def test_every_operation_of_a_users_unit(path: Path):
    rnn = enliven(Everything(3, 4, bidirectional=True)).eval()
    (plan,) = rnn.directions[0].plans_for(())
    assert {line.op for line in plan.traced.forward.lines} == set(OPERATIONS)
    linnet.export_onnx(rnn, path, draw(5, 3, 3, seed=0, dtype=torch.float), draw_state(rnn, 3))
    agree(load(path), rnn, draw(9, 2, 3, seed=1, dtype=torch.float), draw_state(rnn, 2))


def test_every_operation_of_a_traced_step_has_its_translation():
    assert NAMES.keys() | COMPOSED.keys() == set(OPERATIONS)
    assert set(STRUCTURAL) | {"copy"} == set(OTHERS)


class ShapesCell(linnet.Cell):
    """Each operation of a step that is not elementwise, read by views of each kind."""

    class State(NamedTuple):
        h: Tensor
        one: Tensor
        last: Tensor

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device=None, dtype=None, **more):
        states = {"h": hidden_size, "one": 3, "last": hidden_size}
        super().__init__(input_size, hidden_size, states, output_size=hidden_size + 3)
        where = {"device": device, "dtype": dtype}
        parts = {"a": hidden_size, "b": 2}
        self.input = linnet.Projection(input_size, parts, bias, **where, **more)
        self.angle = nn.Parameter(torch.ones(hidden_size, **where))
        self.norm = nn.LayerNorm(hidden_size, **where)

    def step(self, a: Tensor, b: Tensor, h: Tensor, one: Tensor, last: Tensor):
        places, half = torch.tensor([1, 0, 1, 3, 3, 2]), h.shape[-1] // 2
        square = a.unflatten(-1, (half, 2)) * b.unsqueeze(-2)
        mixed = torch.softmax(torch.roll(h, 1, -1) * torch.cos(self.angle), -1) + torch.flip(last, [-1])
        counted = torch.zeros_like(h).index_add(-1, places, torch.cat([b, a[..., 2:], one[..., :2]], -1))
        turned = square.transpose(-1, -2).flatten(-2) + square.expand(2, *square.shape).sum(0).flatten(-2)
        low = torch.where((a > 0).expand_as(h) & (h.amax(-1, keepdim=True) > 0), a > h, b[..., :1] > 0)
        joined = torch.nn.functional.pad(b, (1, half - 1)) + torch.cat([self.angle[:2].expand_as(b), b], -1)
        new = torch.tanh(
            self.norm(mixed + counted + turned + joined) + low.to(h.dtype).mean(-1, keepdim=True)
        )
        return torch.cat([new, one], -1), {"h": new, "one": torch.full_like(one, 0.5), "last": h}


class Shapes(linnet.Recurrent, cell=ShapesCell):
    """A unit of the user's own."""


def test_every_operation_on_shapes_of_a_users_unit(path: Path):
    rnn = enliven(Shapes(3, 4, bidirectional=True)).eval()
    (plan,) = rnn.directions[0].plans_for(())
    assert {node.op for node in plan.traced.forward.nodes} >= set(OTHERS)
    given = flags("mask and resets", 5, 3)
    linnet.export_onnx(rnn, path, draw(5, 3, 3, seed=0, dtype=torch.float), draw_state(rnn, 3), **given)
    onnx.checker.check_model(path, full_check=True)
    given = flags("mask and resets", 9, 2)
    agree(load(path), rnn, draw(9, 2, 3, seed=1, dtype=torch.float), draw_state(rnn, 2), **given)


class ListedCell(EverythingCell):
    """A step that reads a list, whose change a compiler would not notice."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.rates = [0.5]

    def step(self, a: Tensor, b: Tensor, h: Tensor, one: Tensor, last: Tensor):
        h = self.rates[0] * h + torch.tanh(a + b)
        return h, {"h": h, "one": one, "last": last}


class Listed(linnet.Recurrent, cell=ListedCell):
    """A unit of the user's own."""


def test_a_step_that_reads_a_list_is_exported_for_any_length(path: Path):
    rnn = enliven(Listed(3, 4)).eval()
    linnet.export_onnx(rnn, path)
    assert kinds(path).count("Scan") == 1
    agree(load(path), rnn, draw(9, 2, 3, seed=1, dtype=torch.float))


# ----------------------------------------------------------------------------------------- models


class Tagger(nn.Module):
    """Words to tags, and a stack that is never called."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 6)
        self.encoder = linnet.SRU(6, 5, num_layers=2, bidirectional=True, dropout=0.5)
        self.decoder = linnet.LSTM(10, 4)
        self.tags = nn.Linear(4, 3)
        self.idle = linnet.NRU(3, 4)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        y, c = self.encoder(self.words(words), lengths=lengths)
        start = c[:1, :, :4].tanh()
        y, _ = self.decoder(y, (start, start), lengths=lengths)
        return self.tags(y).log_softmax(-1)


def test_a_model_with_stacks_in_it(path: Path):
    model = Tagger().train()
    model.encoder.eval()
    example = torch.randint(20, (5, 3)), torch.tensor([5, 1, 4])
    program = linnet.export_onnx(model, path, *example, output_names=["tags"])
    assert isinstance(program, torch.onnx.ONNXProgram)
    assert model.training
    assert model.decoder.training
    assert not model.encoder.directions[0].training
    assert not model.encoder._forward_pre_hooks
    run = load(path)
    agree(run, model.eval(), torch.randint(20, (8, 4)), torch.tensor([8, 3, 1, 2]))
    assert kinds(path).count("Scan") == 4
    assert kinds(path).count("LSTM") == 1


class Mixed(nn.Module):
    """torch's layers and Linnet's, one of them used twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 6), nn.GRU(6, 5, 2, bidirectional=True))
        self.second = linnet.GRU(10, 6)
        self.third = nn.LSTM(6, 8, proj_size=6)
        self.fourth = nn.utils.parametrizations.weight_norm(nn.RNN(6, 3, nonlinearity="relu"), "weight_hh_l0")

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.second(self.first(x)[0])
        return self.fourth(self.third(self.third(y)[0])[0])[0]


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_layers_of_torch_are_exported_for_any_length(path: Path):
    model = Mixed().eval()
    linnet.export_onnx(model, path, torch.randn(3, 2, 4))
    assert [kinds(path).count(kind) for kind in ("GRU", "Scan", "RNN", "Loop")] == [5, 2, 1, 0]
    agree(load(path), model, torch.randn(9, 4, 4))
    assert type(model.third) is nn.LSTM
    linnet.export_onnx(nn.GRU(4, 3, batch_first=True), path, torch.randn(3, 2, 4))
    assert kinds(path).count("GRU") == 1


class Derived(nn.GRU):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x * 2)


def test_a_layer_derived_from_torchs_is_not_exported_for_one_length(path: Path):
    model = nn.Sequential(Derived(4, 3))
    with pytest.raises(NotImplementedError, match=r"Derived is derived .* one length only.* dynamic_shapes"):
        linnet.export_onnx(model, path, torch.randn(3, 2, 4))


def test_names_and_free_sizes(path: Path):
    rnn = linnet.SCRN(3, 6, batch_first=True)
    linnet.export_onnx(rnn, path, torch.zeros(4, 5, 3), draw_state(rnn.float(), 4))
    assert [described(value) for value in onnx.load(path).graph.input] == [
        "x[batch, time, 3]",
        "state_s[1, batch, 1]",
        "state_h[1, batch, 6]",
    ]
    assert [described(value) for value in onnx.load(path).graph.output] == [
        "output[batch, time, 7]",
        "final_s[1, batch, 1]",
        "final_h[1, batch, 6]",
    ]


def described(value: onnx.ValueInfoProto) -> str:
    sizes = [size.dim_param or str(size.dim_value) for size in value.type.tensor_type.shape.dim]
    return f"{value.name}[{', '.join(sizes)}]"


def test_shapes_can_be_chosen(path: Path):
    rnn = linnet.LRN(3, 4).eval()
    shapes = {"x": {0: torch.export.Dim.DYNAMIC}}
    linnet.export_onnx(rnn, path, torch.zeros(4, 1, 3), dynamic_shapes=shapes)
    assert described(onnx.load(path).graph.input[0]) == "x[time, 1, 3]"
    agree(load(path), rnn, torch.randn(7, 1, 3))


def test_a_file_holds_one_step_however_long_the_example(path: Path):
    linnet.export_onnx(linnet.RAN(3, 4, bidirectional=True), path, torch.zeros(100, 2, 3))
    bodies = [node.attribute[0].g for node in onnx.load(path).graph.node if node.op_type == "Scan"]
    assert len(kinds(path)) < 30
    assert [len(body.node) < 30 for body in bodies] == [True, True]


def test_a_cell_is_one_step(path: Path):
    rnn = enliven(linnet.NRU(3, 4)).eval()
    cell = rnn.first_cell
    states = {batch: type(s)(*(part[0] for part in s)) for batch in (2, 5) for s in [draw_state(rnn, batch)]}
    linnet.export_onnx(cell, path, torch.zeros(2, 3), states[2])
    agree(load(path), cell, torch.randn(5, 3), states[5])
    assert "Scan" not in kinds(path)


# ----------------------------------------------------------------------------------------- errors


def test_an_empty_batch(path: Path):
    """Not for LSTM and GRU, whose operators end the process in onnxruntime, nor for heads: an error."""
    rnns = [unit(3, 4) for unit in (linnet.SRU, linnet.RAN, linnet.RNN, linnet.StatisticalRU, linnet.NRU)]
    for rnn in (*rnns, linnet.LSTM(3, 4, norm="rms", norm_on="all", heads=2)):
        linnet.export_onnx(rnn, path, torch.randn(5, 2, 3))
        output, *states = load(path)(torch.zeros(5, 0, 3))
        assert output.shape == (5, 0, 4)
        sizes = rnn.first_cell.states.values()
        assert [tuple(state.shape) for state in states] == [(1, 0, size) for size in sizes]


class SortedCell(ListedCell):
    def step(self, a: Tensor, b: Tensor, h: Tensor, one: Tensor, last: Tensor):
        h = torch.tanh(a + b + h.sort(-1).values)
        return h, {"h": h, "one": one, "last": last}


class Sorted(linnet.Recurrent, cell=SortedCell):
    """A unit whose step has no graph."""


def test_a_step_that_cannot_be_recorded_says_so(path: Path):
    rnn = enliven(Sorted(3, 4)).eval()
    answer = r"Sorted cannot be exported to ONNX: .*sort.*; one step of it can, linnet\.export_onnx\("
    with pytest.raises(NotImplementedError, match=answer):
        linnet.export_onnx(rnn, path)
    assert not path.exists()
    linnet.export_onnx(rnn, path, streaming=True)


@pytest.mark.parametrize(
    ("rnn", "reason"),
    [
        (linnet.SRU(3, 4, dtype=torch.bfloat16), r"SRU .* in torch.bfloat16; .* with \.float\(\)"),
        (linnet.SRU(3, 4, device="meta"), r"SRU .* it is on meta; .* with \.cpu\(\)"),
    ],
    ids=["bfloat16", "device"],
)
def test_options_that_have_no_kernel_say_so(rnn: linnet.Recurrent, reason: str, path: Path):
    with pytest.raises(NotImplementedError, match=reason):
        linnet.export_onnx(rnn, path)


@pytest.mark.parametrize(
    ("rnn", "field", "unknown"),
    [
        (linnet.LRN(3, 4), "lines", Line("v", "erf", ("h",))),
        (linnet.StatisticalRU(3, 4), "nodes", Node("v", "erf", (whole("mu", (1, 20)),), (1, 20))),
    ],
    ids=["elementwise", "not elementwise"],
)
def test_an_operation_without_a_translation_is_named(
    rnn: linnet.Recurrent, field: str, unknown: Any, path: Path
):
    (plan,) = rnn.eval().directions[0].plans_for(())
    step = plan.traced.forward
    traced = replace(plan.traced, forward=replace(step, **{field: (*getattr(step, field), unknown)}))
    changed = [Plan(traced, plan.extras, plan.products)]
    rnn.directions[0].plan_cache.plans = dict.fromkeys(rnn.directions[0].plan_cache.plans, changed)
    answer = r"cannot .* no translation of the operation 'erf' .*; one step of it can, linnet\.export_onnx\("
    with pytest.raises(NotImplementedError, match=answer):
        linnet.export_onnx(rnn, path)


class Stiff(nn.Module):
    """A model that knows how many sequences there are, or how many steps."""

    def __init__(self, what: str):
        super().__init__()
        self.rnn, self.what = linnet.LRN(3, 4), what
        self.start = nn.Parameter(torch.zeros(1, 5, 4))
        self.positions = nn.Parameter(torch.zeros(6, 1, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x, self.start)[0] if self.what == "batch" else self.rnn(x + self.positions)[0]


@pytest.mark.parametrize(("what", "number"), [("batch", 5), ("length", 6)])
def test_a_size_that_the_model_fixes_is_no_surprise(what: str, number: int, path: Path):
    message = (
        f"the model fixes the {what} of its sequences at {number}; if this is intended, pass dynamic_shapes"
    )
    with pytest.raises(ValueError, match=message):
        linnet.export_onnx(Stiff(what), path, torch.zeros(6, 5, 3))


@pytest.mark.parametrize(
    ("model", "inputs", "kind", "answer"),
    [
        (linnet.LRN(3, 4), [torch.zeros(1, 2, 3)], ValueError, r"LRN x of shape \(1, 2, 3\).* two or more"),
        (linnet.LRN(3, 4), [torch.zeros(2, 1, 3)], ValueError, "two or more"),
        (linnet.LRNCell(3, 4), [torch.zeros(1, 3)], ValueError, "two or more"),
        (linnet.LRN(3, 4), [torch.zeros(2, 2, 9)], ValueError, "built with input_size=3"),
        (Tagger(), [], TypeError, r"needs example arguments of Tagger"),
        (
            linnet.LRN(3, 4),
            [nn.utils.rnn.pack_sequence([torch.zeros(2, 3)])],
            TypeError,
            "PackedSequence in an ONNX file; give padded x and lengths",
        ),
    ],
    ids=["one step", "one sequence", "cell", "input size", "no example", "packed"],
)
def test_wrong_examples(model: nn.Module, inputs: list[Any], kind: type, answer: str, path: Path):
    with pytest.raises(kind, match=answer):
        linnet.export_onnx(model, path, *inputs)


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_named(package: str, path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"export_onnx needs {package}: pip install '.*\[onnx\]'"):
        linnet.export_onnx(linnet.LRN(3, 4), path)


def test_importing_linnet_brings_no_onnx():
    code = "import sys, linnet; print([name for name in ('onnx', 'onnxscript') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
