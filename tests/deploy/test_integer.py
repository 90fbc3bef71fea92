"""Models in whole numbers: C computes what Python computes, bit for bit, and both are close to float32."""

from __future__ import annotations

import ctypes
import platform
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import linnet
from linnet.deploy.integer.formats import Format, format_for, rescaled
from linnet.deploy.integer.model import IntegerModel
from linnet.deploy.integer.program import multipliers_of, scaled
from linnet.deploy.integer.tables import Tables, interpolated
from linnet.deploy.step.models import CannotExport
from tools.run_steps import CC, STRICT, checked, shared_library

needs_compiler = pytest.mark.skipif(CC is None, reason="there is no C compiler")
# Their steps divide one variable by another, or sum over channels.
WITHOUT = {"nru", "minlstm", "slstm", "hgrn", "linoss", "ltc"}


# Units whose steps have all operations that others have.
KINDS = ("lstm", "gru", "sru", "scrn", "statisticalru", "goru", "mingru", "rglru", "sgu", "indrnn")


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).square().mean().sqrt() / expected.square().mean().sqrt())


def stack(name: str, **options) -> nn.Module:
    torch.manual_seed(0)
    return linnet.UNITS[name](7, 10, **{"num_layers": 2, **options}).eval()


def examples(steps: int = 30, batch: int = 3, size: int = 7, seed: int = 1) -> Tensor:
    return torch.randn(steps, batch, size, generator=torch.Generator().manual_seed(seed))


def tokens(steps: int = 30, batch: int = 3, count: int = 12) -> Tensor:
    return torch.randint(0, count, (steps, batch), generator=torch.Generator().manual_seed(1))


def of_words() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(12, 6), linnet.GRU(6, 10), nn.Linear(10, 4)).eval()


def cases() -> dict[str, tuple[nn.Module, Tensor]]:
    every = {name: (stack(name), examples()) for name in KINDS}
    every["heads"] = stack("lstm", heads=2, num_layers=1), examples()
    every["start"] = stack("mingru", learned_start=True), examples()
    every["residual"] = nn.Sequential(stack("sru", residual=True, proj_size=7), nn.Linear(7, 3)), examples()
    every["words"] = of_words(), tokens()
    # Seven times as many channels as four, and rows that are left over.
    every["wide"] = nn.Sequential(nn.Linear(7, 30), nn.ReLU(), linnet.GRU(30, 29)).eval(), examples()
    return every


def run_compiled(library: ctypes.CDLL, name: str, model: IntegerModel, numbers: Tensor) -> Tensor:
    program = model.integers.program
    state = ctypes.create_string_buffer(2 * sum(map(len, program.state.values())))
    scratch = ctypes.create_string_buffer(2 * sum(program.scratch.values()) or 1)
    output = (ctypes.c_int16 * program.sizes["output"])()
    getattr(library, f"{name}_init")(state)
    kind = ctypes.c_int32 if program.tokens else ctypes.c_int16
    flat = numbers.flatten().tolist()
    whole = (ctypes.c_int16 * (len(output) * len(numbers)))()
    run = getattr(library, f"{name}_run")
    run(state, scratch, (kind * len(flat))(*flat), whole, ctypes.c_size_t(len(numbers)))
    getattr(library, f"{name}_init")(state)
    outputs = []
    for each in numbers.tolist():
        given = ctypes.c_int32(each) if program.tokens else (ctypes.c_int16 * len(each))(*each)
        getattr(library, f"{name}_step")(state, scratch, given, output)
        outputs.append(list(output))
    assert [number for row in outputs for number in row] == list(whole)
    return torch.tensor(outputs)


@needs_compiler
def test_c_computes_the_numbers_of_python(tmp_path: Path):
    """Also for inputs that are four times as large as in calibration, so that values saturate."""
    models = {}
    for name, (model, given) in cases().items():
        models[name] = linnet.quantize_integer(model, given), given
        linnet.export_c(models[name][0], tmp_path / name, name=name)
    library = shared_library([tmp_path / name / f"{name}.c" for name in models], tmp_path, "-O0")
    for name, (model, given) in models.items():
        numbers = model.input_numbers(given if model.integers.program.tokens else 4 * given)[:, :1]
        expected = model.run(numbers)[0][:, 0]
        found = run_compiled(library, name, model, numbers[:, 0])
        assert torch.equal(found, expected), name
        assert expected.unique().numel() > 10, name


@needs_compiler
@pytest.mark.parametrize("name", ["lstm", "gru", "sru"])
def test_its_own_program_runs_clean_and_nothing_is_in_floating_point(name: str, tmp_path: Path):
    folder = linnet.export_c(linnet.quantize_integer(stack(name), examples()), tmp_path / "c")
    sanitized = ("-O1", "-g", "-fsanitize=undefined", "-fno-sanitize-recover=all")
    checked([str(CC), *STRICT, *sanitized, "model.c", "model_test.c", "-o", "test"], folder=folder)
    assert checked(["./test"], folder=folder) == "numbers that differ from Python: 0\n"
    for file in ("model.h", "model.c", "model_weights.h"):
        code = re.sub(r"/\*.*?\*/", "", (folder / file).read_text(), flags=re.DOTALL)
        assert not re.search(r"float|double|\d\.\d|\d[eE][-+]", code), file
    if platform.machine() == "x86_64":
        checked([str(CC), *STRICT, "-O2", "-mgeneral-regs-only", "-c", "model.c"], folder=folder)


@needs_compiler
def test_the_test_program_finds_a_difference(tmp_path: Path):
    folder = linnet.export_c(linnet.quantize_integer(stack("gru"), examples()), tmp_path / "c")
    source = folder / "model.c"
    source.write_text(source.read_text().replace("(at & 127) + 64", "(at & 127) + 1"))
    checked([str(CC), *STRICT, "model.c", "model_test.c", "-o", "test"], folder=folder)
    with pytest.raises(RuntimeError, match="numbers that differ"):
        checked(["./test"], folder=folder)


@pytest.mark.parametrize("name", ["lstm", "gru", "sru", "lrn", "mingru"])
def test_it_is_as_close_to_float32_as_int8(name: str):
    """Values of 16 bits are finer than the int8 that `linnet.quantize` rounds them to."""
    rnn, x = stack(name, num_layers=1), examples(80, 8)
    small = linnet.quantize_integer(rnn, x)
    other = examples(80, 8, seed=2)
    with torch.no_grad():
        expected, rounded = rnn(other)[0], linnet.quantize(rnn)(other)[0]
    assert relative(small(other)[0], expected) < 1.1 * relative(rounded, expected)
    assert small.error < 0.05


@pytest.mark.parametrize("name", [name for name in linnet.UNITS if name not in WITHOUT])
def test_every_other_unit_has_a_form_in_whole_numbers(name: str):
    assert linnet.quantize_integer(stack(name, num_layers=1), examples()).error < 0.05


def test_the_state_continues_a_sequence():
    small, x = linnet.quantize_integer(stack("lstm"), examples()), examples(seed=3)
    whole, end = small(x)
    first, state = small(x[:11])
    second, state = small(x[11:], state)
    assert torch.equal(torch.cat([first, second]), whole)
    assert all(torch.equal(state[name], end[name]) for name in end)


def test_kinds_of_values_side_by_side_have_formats_of_their_own():
    """The candidate of this GRU is a hundred times as small as its gates, and keeps its digits."""
    rnn = stack("gru", num_layers=1)
    with torch.no_grad():
        for weight in (rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0, rnn.bias_hh_l0):
            weight[20:] *= 0.01
    small = linnet.quantize_integer(rnn, examples())
    assert any(len(set(each.fractions.tolist())) > 1 for each in small.integers.formats.values())
    assert small.error < 0.01


def test_sums_of_many_large_weights_stay_within_32_bits():
    """Of 600 weights of 127, with numbers of 16 bits, they would not: the numbers are limited."""
    layer = nn.Linear(600, 2, bias=False)
    nn.init.ones_(layer.weight)
    model = nn.Sequential(linnet.RNN(2, 600), layer).eval()
    small = linnet.quantize_integer(model, examples(size=2))
    limit = min(each.limit for name, each in small.integers.formats.items() if name != "output")
    assert 20000 < limit * 127 * 600 / 2**31 * 32768 <= 32768
    with torch.no_grad():
        expected = layer(model[0](examples(size=2))[0])
    assert relative(small(examples(size=2))[0], expected) < 0.02


# ------------------------------------------------------------------------------------- arithmetic


def test_numbers_are_rounded_to_the_nearest_and_saturate():
    assert rescaled(torch.tensor([5, 6, -6, -5, 7]), 2, 99).tolist() == [1, 2, -1, -1, 2]
    assert rescaled(torch.tensor([500, -500]), 1, 99).tolist() == [99, -100]
    assert Format(2).numbers(torch.tensor([0.3, -1e9])).tolist() == [1, -32768]
    assert format_for("x", 1.0).fraction == 13
    assert format_for("x", 0.0).fraction == 14


def test_a_multiplier_and_a_shift_are_a_factor():
    factors = np.array([0.75, 1e-3, 12.3, 1e-30, 0.0])
    found = scaled(torch.full((5,), 1000), *(torch.from_numpy(each) for each in multipliers_of(factors)))
    assert found.tolist() == [750, 1, 12300, 0, 0]


@pytest.mark.parametrize("op", ["sigmoid", "tanh"])
def test_tables_are_close_to_their_functions(op: str):
    vectors: dict[str, np.ndarray] = {}
    name = Tables(vectors).name_of(op, {}, Format(12), Format(15))
    x = torch.arange(-32768, 32768)
    found = interpolated(torch.from_numpy(vectors[name]), x).double() / 2**15
    torch.testing.assert_close(found, getattr(torch, op)(x.double() / 2**12), rtol=0, atol=1.5e-4)


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_units_without_a_form_in_whole_numbers_say_why(name: str):
    with pytest.raises(CannotExport, match=r"no form in whole numbers.*int8=True"):
        linnet.quantize_integer(stack(name), examples())


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (torch.zeros(4, 7), ValueError, r"inputs of shape \(T, B, 7\); got \(4, 7\)"),
        (torch.zeros(4, 2, 7, dtype=torch.int64), TypeError, "got torch.int64"),
        (torch.full((4, 2, 7), 1e6), CannotExport, "reaches 1e"),
        (torch.full((4, 2, 7), torch.inf), CannotExport, "infinite"),
    ],
)
def test_calibration_that_does_not_fit_is_an_error(given: Tensor, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        linnet.quantize_integer(stack("gru"), given)


def test_options_of_c_that_need_floats_or_files_are_errors(tmp_path: Path):
    small = linnet.quantize_integer(stack("gru"), examples())
    with pytest.raises(ValueError, match="leave out weights='file'"):
        linnet.export_c(small, tmp_path / "c", weights="file")
