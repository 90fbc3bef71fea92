"""Exported C computes what the model computes, step by step, and says clearly what it cannot."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import linnet
from linnet.deploy.source.c_programs import piece_text
from linnet.deploy.step.build import outputs_of
from linnet.recurrent import int8
from tests.user_units import Leaky, Moving
from tools.run_steps import CC, STRICT, assert_equal_outputs, checked, run_compiled, shared_library
from tools.step_cases import (
    Case,
    language_model,
    models,
    numbers,
    stack,
    tokens,
    units,
    variants,
    with_heads,
)

needs_compiler = pytest.mark.skipif(CC is None, reason="there is no C compiler")
STEPS = 500


@needs_compiler
def test_every_step_of_every_model_is_that_of_python(tmp_path: Path):
    """One library of all models."""
    own = [stack(unit, 2, STEPS) for unit in (Leaky, Moving)]
    every = [*units(STEPS), *variants(30), *models(30), *own]
    cases = {f"model{n}": each for n, each in enumerate(every)}
    for name, each in cases.items():
        linnet.export_c(each.model, tmp_path / name, name=name)
    sources = [tmp_path / name / f"{name}.c" for name in cases]
    library = shared_library(sources, tmp_path, "-O1")
    for name, each in cases.items():
        header = tmp_path / name / f"{name}.h"
        assert_equal_outputs(each, run_compiled(library, header, each.inputs))
        # As a run counts them, whatever is stored of them.
        parameters = sum(weight.numel() for weight in each.model.parameters())
        assert f"a recurrent model with {parameters:,} parameters" in header.read_text()


@pytest.fixture
def speaker() -> Case:
    return language_model(40, unit="sru")


VOCABULARY = ["\n", *"abcdefghijklmnopq", "é"]


@needs_compiler
@pytest.mark.parametrize("weights", ["arrays", "file"])
def test_its_own_programs_run_clean(speaker: Case, tmp_path: Path, weights: str):
    """The test program under UndefinedBehaviorSanitizer, and the one that continues a text."""
    folder = linnet.export_c(speaker.model, tmp_path / "c", weights=weights, vocabulary=VOCABULARY)
    sanitized = ("-O1", "-g", "-fsanitize=undefined", "-fno-sanitize-recover=all")
    checked([str(CC), *STRICT, *sanitized, "model.c", "model_test.c", "-o", "test"], folder=folder)
    assert "largest difference" in checked(["./test"], folder=folder)
    checked([str(CC), *STRICT, *sanitized, "model.c", "main.c", "-lm", "-o", "speak"], folder=folder)
    text = checked(["./speak", "café", "30"], folder=folder)
    assert text.startswith("café")
    assert len(text) == len("café") + 30 + 1
    assert set(text) <= set(VOCABULARY)


# Escape, a bell, a carriage return, delete, and one that a terminal may take for an escape sequence; and two
# that reverse the direction of a line.
OBEYED = ["\x1b", "\x07", "\r", "\x7f", "\x9b", "\u202e", "\u2066"]


@needs_compiler
def test_control_characters_of_the_vocabulary_are_shown_as_escapes(speaker: Case, tmp_path: Path):
    vocabulary = ["\n", "\t", *OBEYED, *"abcdefghi", "é"]
    folder = linnet.export_c(speaker.model, tmp_path / "c", vocabulary=vocabulary)
    checked([str(CC), *STRICT, "model.c", "main.c", "-lm", "-o", "speak"], folder=folder)
    text = checked(["./speak", "a\t\x1b\x9b\u202eé", "200", "9"], folder=folder)
    assert text.startswith("a\t\\x1b\\x9b\\u202eé")
    assert not set(text) & set(OBEYED)


def test_bytes_that_are_a_part_of_a_letter_are_shown_as_they_are():
    assert piece_text(b"\xc3") == '{1, "\\303", 0},'
    assert piece_text(b"\xc3\x1b") == '{2, "\\303\\033", "\\303\\134x1b"},'
    assert piece_text("\x1b") == piece_text(b"\x1b") == '{1, "\\033", "\\134x1b"},'


@needs_compiler
def test_the_test_program_finds_a_difference(speaker: Case, tmp_path: Path):
    folder = linnet.export_c(speaker.model, tmp_path / "c")
    source = folder / "model.c"
    source.write_text(source.read_text().replace("1.0f - f", "1.001f - f"))
    checked([str(CC), *STRICT, "model.c", "model_test.c", "-o", "test"], folder=folder)
    with pytest.raises(RuntimeError, match="largest difference"):
        checked(["./test"], folder=folder)


@needs_compiler
def test_weights_of_another_model_are_refused(tmp_path: Path):
    first, other = (linnet.LRN(3, 4) for _ in range(2))
    folder = linnet.export_c(first, tmp_path / "first", weights="file")
    wrong = linnet.export_c(other, tmp_path / "other", weights="file")
    library = shared_library([folder / "model.c"], tmp_path, "-O1")
    library.model_open.restype = ctypes.c_void_p
    own, theirs = ((each / "model.weights").read_bytes() for each in (folder, wrong))
    assert len(own) == len(theirs)
    assert library.model_open(own, ctypes.c_size_t(len(own)))
    assert not library.model_open(theirs, ctypes.c_size_t(len(theirs)))
    assert not library.model_open(own, ctypes.c_size_t(len(own) - 1))


@needs_compiler
def test_elementary_functions_are_those_of_torch(tmp_path: Path):
    """Over their whole range, with infinity and NaN: at most a few units in the last place."""
    functions = {
        "exponential": torch.exp,
        "logarithm": torch.log,
        "sigmoid": torch.sigmoid,
        "tangent": torch.tanh,
        "less_one": torch.expm1,
        "log_one_plus": torch.log1p,
        "square_root": torch.sqrt,
        "sine": torch.sin,
        "cosine": torch.cos,
        "round_down": torch.floor,
    }
    library = library_of_functions(functions, tmp_path)
    small, large = -torch.logspace(-9, 2, 100), torch.logspace(-40, 38, 500)
    x = torch.cat([torch.linspace(-110, 110, 4001), small, large])
    special = torch.tensor([0.0, torch.inf, -torch.inf, torch.nan])
    for name, function in functions.items():
        given = x[x.abs() < 1000] if name in ("sine", "cosine") else torch.cat([x, special])
        found = torch.tensor([getattr(library, f"call_{name}")(value) for value in given.tolist()])
        expected = function(given.double()).float()
        close = torch.isclose(found, expected, rtol=1e-6, atol=2e-7, equal_nan=True)
        assert close.all(), (name, given[~close], found[~close], expected[~close])


@needs_compiler
@pytest.mark.parametrize("options", [("-O3",), ("-O3", "-march=native")], ids=["plain", "native"])
def test_int8_products_are_those_of_python_to_the_last_bit(tmp_path: Path, options: tuple[str, ...]):
    """Sums and their scaling, for sizes with remainders, zeros, and halves that are rounded to even."""
    library = int8_library(tmp_path, options)
    for inputs, outputs in ((1, 1), (7, 5), (33, 17), (300, 40)):
        generator = torch.Generator().manual_seed(inputs)
        weights = torch.randn(outputs, inputs, generator=generator)
        weights[0] = 0
        bias = torch.randn(outputs, generator=generator)
        numbers, scales = int8.quantised(weights)
        random = torch.randn(inputs, generator=generator)
        halves = torch.arange(inputs) % 254 - 126.5
        halves[0] = 127
        for x in (random, halves, 1e-30 * random, torch.zeros(inputs)):
            expected = int8.product(x, numbers, scales, bias)
            assert torch.equal(call_int8(library, x, numbers, scales, bias), expected)


@needs_compiler
def test_a_large_bias_does_not_cost_digits_of_the_sum(tmp_path: Path):
    """It is added last, so the result is rounded once at its size; in narrow blocks of outputs, too."""
    torch.manual_seed(0)
    linear = nn.Linear(387, 21)
    nn.init.uniform_(linear.bias, 70, 80)
    model, x = Counting(linear), torch.randn(20, 387)
    linnet.export_c(model, tmp_path, example=(x[:1], torch.zeros(1)))
    found = run_compiled(shared_library([tmp_path / "model.c"], tmp_path, "-O1"), tmp_path / "model.h", x)
    with torch.no_grad():
        exact = linear.double()(x.double())
    # Half of the distance of numbers from 64 to 128, and the rounding of sums of about 1.
    assert (found - exact).abs().max() < 2**-18 + 1e-6


class Counting(nn.Module):
    """A layer, and a state that counts the steps."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(x), state + 1


def int8_library(folder: Path, options: tuple[str, ...]) -> ctypes.CDLL:
    from linnet.deploy.source.c import functions_for

    arguments = (
        "const int8_t *w, const float *s, const int32_t *t, const float *b, const float *x, float *y, int m"
    )
    head = f"void multiply({arguments}, int n)"
    call = f"{head};\n{head} {{ int16_t q[300]; int8_product(w, s, t, b, x, q, y, m, n); }}"
    (folder / "int8.c").write_text("\n".join(["#include <stdint.h>", functions_for(call), call]))
    return shared_library([folder / "int8.c"], folder, *options)


def call_int8(
    library: ctypes.CDLL, x: torch.Tensor, numbers: torch.Tensor, scales: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    y = torch.empty(len(bias))
    tensors = [numbers, scales, numbers.sum(1, dtype=torch.int32), bias, x, y]
    library.multiply(*(ctypes.c_void_p(each.data_ptr()) for each in tensors), len(x), len(bias))
    return y


@needs_compiler
def test_what_is_stored_is_told_from_the_parameters(tmp_path: Path):
    """nn.LSTM has two biases that are stored as one, and SRU two constants for each channel."""
    for unit, parameters, stored in ((linnet.LSTM, 448, 416), (linnet.SRU, 160, 176)):
        for rounded in (False, True):
            folder = linnet.export_c(unit(4, 8), tmp_path / f"{unit.__name__}-{rounded}", int8=rounded)
            said = f"{parameters} parameters ({stored} numbers stored)"
            assert all(said in (folder / name).read_text() for name in ("model.h", "README.md"))


def test_int8_models_step_as_in_python(tmp_path: Path):
    """Tied weights, one-hot input, several rows, norms, a projection that recurs, heads, blocks."""
    cases = [
        language_model(1, unit="scrn", tied=True, embedding_size=8),
        language_model(1, unit="ran", embedding_size=0),
        language_model(1, unit="lstm", softmax="mixture", experts=3, latent_size=7),
        stack(linnet.SRU, 2, 1, norm="layer", prenorm="rms"),
        stack(linnet.LSTM, 3, 1, proj_size=4),
        stack(linnet.NRU, 2, 1),
        *with_heads(1),
    ]
    for n, each in enumerate(cases):
        linnet.export_c(each.model, tmp_path / f"model{n}", name=f"model{n}", int8=True)
    library = shared_library(
        [tmp_path / f"model{n}" / f"model{n}.c" for n in range(len(cases))], tmp_path, "-O2"
    )
    for n, each in enumerate(cases):
        header = tmp_path / f"model{n}" / f"model{n}.h"
        small = linnet.quantize(each.model)
        inputs = tokens(40) if each.inputs.dim() == 1 else numbers(40)
        found, expected = run_compiled(library, header, inputs), outputs_of(small, inputs)
        # Where a last digit of difference rounds a number to another level, an output differs.
        apart = (found - expected).abs().amax(1) > 1e-5
        assert apart.float().mean() < 0.2, each.name
        assert not torch.allclose(outputs_of(each.model, inputs), expected, atol=1e-5)


def library_of_functions(names, folder: Path) -> ctypes.CDLL:
    from linnet.deploy.source.c import functions_for

    heads = {name: f"float call_{name}(float x)" for name in names}
    calls = [f"{head};\n{head} {{ return {name}(x); }}" for name, head in heads.items()]
    code = "\n".join(["#include <stdint.h>", functions_for("\n".join(calls)), *calls])
    (folder / "functions.c").write_text(code)
    library = shared_library([folder / "functions.c"], folder, "-O2")
    for name in names:
        call = getattr(library, f"call_{name}")
        call.argtypes, call.restype = [ctypes.c_float], ctypes.c_float
    return library


# ------------------------------------------------------------------------------------------ errors


def broken() -> nn.Module:
    rnn = linnet.SRU(3, 4)
    rnn.first_cell.input.weight.data[0, 0] = torch.nan
    return rnn


class Sorting(linnet.LRN.cell_class):
    """A step with an operation that no language has."""

    def step(self, k, q, v, h):
        return super().step(k, q, v.sort(-1)[0], h)


class SortingStack(linnet.Recurrent, cell=Sorting):
    """A user's stack."""


class Choosing(linnet.LRN.cell_class):
    """A step that reads the channels in which a value is positive."""

    def step(self, k, q, v, h):
        return super().step(k, q, v + v[k > 0].sum(), h)


class ChoosingStack(linnet.Recurrent, cell=Choosing):
    """A user's stack."""


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: linnet.SRU(3, 4, bidirectional=True), "SRU reads in both directions"),
        (
            lambda: nn.LSTM(3, 4),
            "LSTM is not a model that can be exported step by step; Recurrent, LanguageModel",
        ),
        (
            lambda: nn.Sequential(nn.Linear(3, 4)),
            "needs a stack such as linnet.SRU among its layers; got Linear",
        ),
        (broken, "directions.0.cell.input.weight has NaN or infinite numbers"),
        (lambda: linnet.SRU(3, 4).double(), r"is torch.float64; convert the model with .float\(\)"),
        (lambda: SortingStack(3, 4), r"uses aten.sort.default, which cannot be exported.*v.sort\(-1\)"),
        (lambda: ChoosingStack(3, 4), "the step computes which numbers it reads"),
    ],
)
@pytest.mark.parametrize("export", [linnet.export_c, linnet.export_js])
def test_what_cannot_be_exported_is_an_error_and_writes_nothing(export, model, message: str, tmp_path: Path):
    with pytest.raises(ValueError, match=message):
        export(model(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("export", [linnet.export_c, linnet.export_js], ids=["c", "js"])
def test_the_default_device_does_not_change_an_export(export, tmp_path: Path):
    model = linnet.SRU(3, 5, num_layers=2)
    usual = export(model, tmp_path / "usual")
    with torch.device("meta"):
        here = export(model, tmp_path / "here")
    for file in usual.iterdir():
        assert file.read_bytes() == (here / file.name).read_bytes()


def test_an_export_replaces_an_export_and_nothing_else(tmp_path: Path):
    folder = linnet.export_c(linnet.SRU(3, 4), tmp_path / "c")
    before = re.search(r"FINGERPRINT (.*)", (folder / "model.h").read_text())
    linnet.export_c(linnet.SRU(3, 4), folder)
    after = re.search(r"FINGERPRINT (.*)", (folder / "model.h").read_text())
    assert before is not None
    assert after is not None
    assert before[1] != after[1]
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="has other files in it"):
        linnet.export_c(linnet.SRU(3, 4), tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_a_failed_export_leaves_the_folder_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = linnet.export_c(linnet.SRU(3, 4), tmp_path / "c")
    kept = (folder / "model.h").read_text()

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("linnet.deploy.c.write_files", full)
    with pytest.raises(OSError, match="No space left"):
        linnet.export_c(linnet.LRN(3, 4), folder)
    assert (folder / "model.h").read_text() == kept
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_wrong_name_and_too_many_weights_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ValueError, match="lower-case letters, digits and _; got '2nd model'"):
        linnet.export_c(linnet.SRU(3, 4), tmp_path / "c", name="2nd model")
    monkeypatch.setattr("linnet.deploy.c.MOST_IN_SOURCE", 10)
    with pytest.raises(ValueError, match="pass weights='file'"):
        linnet.export_c(linnet.SRU(3, 4), tmp_path / "c")
