"""linnet.quantize: the scheme, kernels that compute it exactly, and models that are saved and used."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fused_runs import enliven, flags
from safetensors.torch import load, save
from torch import Tensor, nn

import linnet
from linnet.cpu import int8 as kernels
from linnet.models.classifier import Classifier, ClassifierConfig
from linnet.models.language import LanguageModel, LanguageModelConfig
from linnet.recurrent.int8 import dequantised, product, quantised

UNITS = [
    (linnet.SRU, {}),
    (linnet.SRU, {"rank": 2}),
    (linnet.LRN, {"norm": "layer"}),
    (linnet.LSTM, {"num_layers": 2, "bidirectional": True}),
    (linnet.LSTM, {"zoneout": 0.1, "proj_size": 3}),
    (linnet.GRU, {"residual": True, "num_layers": 2}),
    (linnet.GRU, {"form": "before"}),
    (linnet.RAN, {"prenorm": "rms"}),
    (linnet.SCRN, {}),
    (linnet.SCRN, {"zoneout": 0.1}),
    (linnet.GORU, {}),
    (linnet.QRNN, {"window": 2}),
    (linnet.NRU, {}),
]


def names(case: Any) -> str:
    return case.__name__ if isinstance(case, type) else "-".join(case)


def language_model(**options: Any) -> LanguageModel:
    torch.manual_seed(0)
    config = {"unit": "sru", "hidden_size": 8, "embedding_size": 8, **options}
    return LanguageModel(50, LanguageModelConfig(**config)).eval()


# ------------------------------------------------------------------------------------- the scheme


def test_a_row_by_hand():
    numbers, scales = quantised(
        torch.tensor([[127.0, 0.5, 1.5, -2.5], [0.0, 0.0, 0.0, 0.0], [-2.0, 1.0, 0.0, 0.0]])
    )
    assert numbers.tolist() == [[127, 0, 2, -2], [0, 0, 0, 0], [-127, 64, 0, 0]]
    assert scales.tolist() == [1.0, 0.0, pytest.approx(2 / 127)]
    y = product(torch.tensor([254.0, 2.0]), torch.tensor([[3, 4]], dtype=torch.int8), torch.tensor([0.5]))
    assert y.item() == (127 * 3 + 1 * 4) * 0.5 * 2


@pytest.mark.parametrize("instruction", [True, False], ids=["dot instruction", "any machine"])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 1, 1), (5, 7, 3), (37, 66, 130), (4, 64, 64)])
def test_the_kernel_computes_the_definition_to_the_last_bit(
    rows: int, depth: int, columns: int, instruction: bool, monkeypatch: pytest.MonkeyPatch
):
    if instruction and not kernels.has_dot_instruction():
        pytest.skip("this machine has no AVX-512 VNNI")
    monkeypatch.setattr(kernels, "has_dot_instruction", lambda: instruction)
    monkeypatch.setattr(
        kernels, "linear_kernel", lambda: kernels.jit.compile_function(kernels.linear_ir(), "int8_linear")
    )
    torch.manual_seed(0)
    x, bias = 3 * torch.randn(rows, depth), torch.randn(columns)
    x[0], x[-1, 0] = 0, -50.0
    numbers, scales = quantised(torch.randn(columns, depth))
    panels = kernels.Int8Panels(numbers, scales)
    assert torch.equal(panels.times(x, bias), product(x, numbers, scales, bias))
    assert torch.equal(panels.times(x), product(x, numbers, scales))


def test_a_value_that_is_no_number_stays_visible():
    numbers, scales = quantised(torch.randn(20, 40))
    x = torch.randn(2, 40)
    x[1, 7] = torch.nan
    y = kernels.Int8Panels(numbers, scales).times(x)
    assert y[0].isfinite().all()
    assert y[1].isnan().all()


# ------------------------------------------------------------------------------------------ units


@pytest.mark.parametrize(("unit", "options"), UNITS, ids=names)
def test_kernels_compute_what_the_reference_does(unit: type[linnet.Recurrent], options: dict[str, Any]):
    rnn = linnet.quantize(enliven(unit(5, 5 if "residual" in options else 7, **options).float()))
    x = torch.randn(6, 3, 5, generator=torch.Generator().manual_seed(1))
    for kind in ("mask and resets", "nothing"):
        given = {} if kind == "nothing" else flags(kind, 6, 3)
        with torch.no_grad():
            found = rnn(x, **given)
            with linnet.backend("reference"):
                expected = rnn(x, **given)
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("unit", [linnet.SRU, linnet.LSTM, linnet.GRU, linnet.SCRN, linnet.QRNN])
def test_stepping_equals_running(unit: type[linnet.Recurrent]):
    rnn, x, state, outputs = (
        linnet.quantize(enliven(unit(5, 7, num_layers=2).float())),
        torch.randn(6, 3, 5),
        None,
        [],
    )
    with torch.no_grad():
        whole, final = rnn(x)
        for x_t in x:
            y, state = rnn(x_t[None], state)
            outputs.append(y)
    assert torch.equal(torch.cat(outputs), whole)
    torch.testing.assert_close(state, final, rtol=0, atol=0)


def test_kernels_run_without_a_fallback():
    with torch.no_grad(), linnet.backend("cpu"):
        for unit in (linnet.SRU, linnet.LSTM, linnet.GRU, linnet.RAN, linnet.SCRN):
            linnet.quantize(unit(4, 4))(torch.randn(3, 2, 4))


def test_int8_is_near_float32_and_weights_only_is_nearer():
    torch.manual_seed(0)
    rnn, x = linnet.LSTM(64, 64).eval(), torch.randn(20, 4, 64)
    with torch.no_grad():
        exact = rnn(x)[0]
        both, weights = (linnet.quantize(rnn, activations=a)(x)[0] - exact for a in (True, False))
    assert weights.std() < both.std() < 0.01 * exact.std()


# ----------------------------------------------------------------------------------------- models


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"unit": "scrn", "tied": True, "num_layers": 1},
        {"unit": "lstm", "tied": True},
        {"softmax": "mixture", "experts": 3, "tied": True},
        {"softmax": "adaptive", "cutoffs": (20,)},
        {"projection": 6},
    ],
    ids=["full", "scrn", "tied", "mixture", "adaptive", "projection"],
)
@pytest.mark.parametrize("activations", [True, False], ids=["int8", "weights"])
def test_language_models(options: dict[str, Any], activations: bool):
    model = language_model(**options)
    small = linnet.quantize(model, activations=activations)
    tokens, targets = torch.randint(50, (2, 7, 3), generator=torch.Generator().manual_seed(0))
    targets[0, 0] = -100
    with torch.no_grad():
        ours, exact = (each.loss(tokens, targets) for each in (small, model))
        assert ours.nll.item() == pytest.approx(exact.nll.item(), rel=0.01)
        log_probs = small.log_probs(tokens)[0]
        expected = F.nll_loss(log_probs.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
        assert ours.nll.item() == pytest.approx(expected.item(), rel=1e-5)
        assert small.step_logits(tokens[0])[0].shape == (3, 50)


def test_a_classifier():
    config = ClassifierConfig(
        unit="sru", hidden_size=8, embedding_size=8, bidirectional=True, tuned="special"
    )
    model = Classifier(30, 4, config).eval()
    tokens = torch.randint(30, (6, 3))
    with torch.no_grad():
        small = linnet.quantize(model)(tokens, torch.tensor([6, 2, 4]))
        torch.testing.assert_close(small, model(tokens, torch.tensor([6, 2, 4])), rtol=0, atol=0.05)


def test_skipped_modules_are_as_they_were():
    model = language_model(tied=True, unit="lstm")
    small = linnet.quantize(model, skip=["layers.0", "embedding"])
    kept = {name for name in small.state_dict() if name in model.state_dict() and ".weight" in name}
    assert "embedding.weight" in kept
    assert "layers.0.weight_ih_l0" in kept
    assert not any(name.startswith("layers.1") for name in kept)
    with torch.no_grad():
        small.log_probs(torch.zeros(2, 2, dtype=torch.int64))


# ------------------------------------------------------------------------------- saved and loaded


def bytes_of(module: nn.Module) -> bytes:
    return save({name: tensor.contiguous() for name, tensor in module.state_dict().items()})


def test_a_saved_model_is_a_quarter_of_the_size_and_loads():
    model = LanguageModel(500, LanguageModelConfig(unit="lstm", hidden_size=128, embedding_size=128)).eval()
    small = linnet.quantize(model)
    assert len(bytes_of(small)) < 0.27 * len(bytes_of(model))
    other = linnet.quantize(LanguageModel(500, model.config))
    tokens = torch.randint(500, (4, 2))
    with torch.no_grad():
        other.log_probs(tokens)  # packs its own matrices, which the file replaces
        other.load_state_dict(load(bytes_of(small)))
        assert torch.equal(other.log_probs(tokens)[0], small.log_probs(tokens)[0])


def test_copies_and_pickles():
    rnn, x = linnet.quantize(linnet.GRU(3, 4)), torch.randn(2, 2, 3)
    file = io.BytesIO()
    with torch.no_grad():
        expected = rnn(x)[0]
        torch.save(rnn, file)
        file.seek(0)
        for other in (copy.deepcopy(rnn), torch.load(file, weights_only=False)):
            assert torch.equal(other(x)[0], expected)


def test_the_original_is_unchanged_and_repr_says_int8():
    rnn = linnet.SRU(3, 4)
    before = copy.deepcopy(rnn.state_dict())
    small = linnet.quantize(rnn)
    assert "int8" not in repr(rnn)
    assert "skip=4, u=4, f=4, r=4, int8" in repr(small)
    assert "int8 weights" in repr(linnet.quantize(rnn, activations=False))
    torch.testing.assert_close(rnn.state_dict(), before)
    cell = small.cells[0].input
    torch.testing.assert_close(cell.weight, dequantised(*quantised(rnn.cells[0].input.weight.detach())))


# ----------------------------------------------------------------------------------------- errors


def test_training_is_an_error():
    rnn = linnet.quantize(linnet.SRU(3, 4))
    with pytest.raises(RuntimeError, match=r"a quantised model cannot be trained.*call model.eval\(\)"):
        rnn.train()(torch.randn(2, 1, 3))
    rnn.eval()
    with pytest.raises(RuntimeError, match="a quantised model cannot be trained"):
        rnn(torch.randn(2, 1, 3, requires_grad=True))


def not_finite() -> Tensor:
    weight = torch.zeros(4, 3)
    weight[1, 2] = torch.nan
    return weight


@pytest.mark.parametrize(
    ("model", "options", "kind", "answer"),
    [
        (lambda: linnet.quantize(linnet.SRU(3, 4)), {}, ValueError, "this SRU is quantised already"),
        (lambda: linnet.SRU(3, 4).double(), {}, TypeError, r"in float32, and .* is torch.float64"),
        (lambda: nn.LayerNorm(3), {}, ValueError, "LayerNorm has no matrix"),
        (
            lambda: linnet.SRU(3, 4),
            {"skip": ["direction.0"]},
            ValueError,
            "no module 'direction.0'.*'directions.0'",
        ),
        (
            lambda: linnet.LSTM(3, 4),
            {"skip": "directions.0.cell.recurrent"},
            ValueError,
            "a part of a cell, .*; skip 'directions.0.cell'",
        ),
        (lambda: linnet.SRU(3, 4, device="meta"), {}, ValueError, "is on meta"),
    ],
    ids=["twice", "float64", "no matrix", "unknown name", "part of a cell", "meta"],
)
def test_what_cannot_be_quantised_says_so(model: Any, options: dict[str, Any], kind: type, answer: str):
    with pytest.raises(kind, match=answer):
        linnet.quantize(model(), **options)


def test_a_weight_that_is_no_number_is_named():
    layer = nn.Linear(3, 4)
    with torch.no_grad():
        layer.weight.copy_(not_finite())
    with pytest.raises(ValueError, match="weight has a value that is NaN or infinite"):
        linnet.quantize(layer)


# ------------------------------------------------------------------------------------- operations


@pytest.mark.parametrize(
    ("unit", "options"),
    [
        (linnet.LSTM, {"num_layers": 2, "bidirectional": True}),
        (linnet.GRU, {"heads": 2, "input_heads": 2}),
        (linnet.SCRN, {}),
    ],
    ids=["LSTM", "heads", "SCRN"],
)
def test_an_exported_program_computes_the_same_at_any_length(unit: type, options: dict[str, Any]):
    small = linnet.quantize(enliven(unit(4, 6, **options).float()))
    dynamic = torch.export.Dim.DYNAMIC
    shapes = {"x": {0: dynamic, 1: dynamic}, "lengths": {0: dynamic}}
    x, lengths = torch.randn(5, 3, 4), torch.tensor([5, 2, 1])
    program = torch.export.export(small, (x,), {"lengths": lengths}, dynamic_shapes=shapes)
    names = {str(node.target) for node in program.graph.nodes}
    assert {"linnet.int8_linear.default", "linnet.int8_scan.default"} <= names
    x, lengths = torch.randn(9, 2, 4), torch.tensor([4, 9])
    found, expected = (run(x, lengths=lengths) for run in (program.module(), small))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_operations_check_what_kernels_read_by_address():
    small = linnet.quantize(linnet.GRU(4, 6))
    program = torch.export.export(small, (torch.randn(5, 3, 4),))
    (scan,) = (node for node in program.graph.nodes if "int8_scan" in str(node.target))
    plan = scan.args[0]
    numbers, scales = torch.zeros(18, 6, dtype=torch.int8), torch.ones(18)
    given = [torch.zeros(5, 3, 18), torch.zeros(6), torch.zeros(3, 6)]
    run = torch.ops.linnet.int8_scan
    assert [each.shape for each in run(plan, given, [numbers], [scales], None, None, False)] == [
        (5, 3, 6),
        (3, 6),
    ]
    for matrices, factors, answer in (
        (numbers[:12], scales, r"of shape \(18, 6\); got \(12, 6\)"),
        (numbers.float(), scales, "an int8 matrix of torch.int8"),
        (numbers, scales[:5], r"the scales of a matrix of shape \(18,\)"),
    ):
        with pytest.raises(ValueError, match=answer):
            run(plan, given, [matrices], [factors], None, None, False)
    with pytest.raises(ValueError, match="in int8 takes tensors of float32"):
        run(plan, [each.double() for each in given], [numbers], [scales], None, None, False)
    linear = torch.ops.linnet.int8_linear
    for x, heads, answer in (
        (torch.zeros(2, 5), 1, r"x of shape \(2, 6\)"),
        (torch.zeros(2, 6), 4, "cut 18"),
    ):
        with pytest.raises(ValueError, match=answer):
            linear(x, numbers, scales, None, heads, 1)
