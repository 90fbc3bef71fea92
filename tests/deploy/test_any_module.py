"""Modules of users, given by an example, step in C, JavaScript and WebAssembly as in Python."""

from __future__ import annotations

import ctypes
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import linnet
from linnet.deploy.step.build import program_of
from linnet.deploy.step.interpret import outputs_of_program
from linnet.deploy.step.program import WINDOW, Product
from linnet.deploy.step.share import with_shared_scratch
from tools.frame_cases import Denoiser, Frames, Reader, Recurring, by_example, frames
from tools.run_steps import CC, NODE, assert_equal_outputs, checked, run_compiled, run_modules, shared_library
from tools.step_cases import Case

needs_compiler = pytest.mark.skipif(CC is None, reason="there is no C compiler")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")
needs_zig = pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is not installed")
STEPS = 12


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return frames(STEPS)


def named(cases: list[Case], name: str) -> Case:
    return next(each for each in cases if each.name == name)


@needs_compiler
def test_every_step_in_c_is_that_of_python(cases: list[Case], tmp_path: Path):
    names = {f"model{n}": each for n, each in enumerate(cases)}
    for name, each in names.items():
        linnet.export_c(each.model, tmp_path / name, example=each.example, name=name)
    library = shared_library([tmp_path / name / f"{name}.c" for name in names], tmp_path, "-O1")
    for name, each in names.items():
        assert_equal_outputs(each, run_compiled(library, tmp_path / name / f"{name}.h", each.inputs))


@needs_node
def test_every_step_in_javascript_is_that_of_python(cases: list[Case], tmp_path: Path):
    for each in cases:
        linnet.export_js(each.model, tmp_path / each.name, example=each.example)
    results = run_modules(tmp_path, cases)
    for each in cases:
        assert_equal_outputs(each, results[each.name]["outputs"])


@needs_compiler
def test_int8_in_c_is_that_of_the_program(cases: list[Case], tmp_path: Path):
    """Convolutions, recurrent matrices and embeddings."""
    chosen = [named(cases, name) for name in ("convolutions", "torch-LSTM", "reader", "denoiser")]
    for n, each in enumerate(chosen):
        linnet.export_c(each.model, tmp_path / f"model{n}", example=each.example, name=f"model{n}", int8=True)
    sources = [tmp_path / f"model{n}" / f"model{n}.c" for n in range(len(chosen))]
    library = shared_library(sources, tmp_path, "-O1")
    for n, each in enumerate(chosen):
        found = run_compiled(library, tmp_path / f"model{n}" / f"model{n}.h", each.inputs)
        expected = outputs_of_program(int8_program(each), each.inputs)
        # Where a last digit of difference rounds a number to another level, an output differs.
        assert ((found - expected).abs().amax(1) > 1e-5).float().mean() < 0.2, each.name
        assert 1e-5 < (each.outputs - expected).abs().max() < 0.3, each.name


def int8_program(each: Case) -> Any:
    from linnet.deploy.exported import exported_program

    return exported_program(each.model, each.example, int8=True, skip=(), flush_denormals=False)


def test_modules_in_skip_stay_in_float32(cases: list[Case], tmp_path: Path):
    each = named(cases, "denoiser")
    folder = linnet.export_c(each.model, tmp_path / "c", example=each.example, int8=True, skip=["first"])
    text = (folder / "model.c").read_text(encoding="utf-8")
    assert "float first_conv_weight[" in text
    assert "int8_t second_conv_weight[" in text
    with pytest.raises(ValueError, match=r"no matrix .* starts with 'third'; there are first_conv_weight"):
        linnet.export_c(each.model, tmp_path / "d", example=each.example, int8=True, skip=["third"])
    with pytest.raises(ValueError, match=r"export linnet.quantize\(model, skip=...\)"):
        linnet.export_c(linnet.SRU(3, 4), tmp_path / "d", int8=True, skip=["first"])


# ------------------------------------------------------------------------------------ block calls


@needs_compiler
@pytest.mark.parametrize("name", ["denoiser", "reader"])
def test_a_block_in_c_is_its_steps_to_the_last_bit(cases: list[Case], name: str, tmp_path: Path):
    each = named(cases, name)
    linnet.export_c(each.model, tmp_path / "c", example=each.example)
    library = shared_library([tmp_path / "c" / "model.c"], tmp_path, "-O1")
    header = tmp_path / "c" / "model.h"
    state, scratch = memory_of(header)
    inputs = each.inputs.numpy().astype(np.float32 if each.inputs.dim() == 2 else np.int32)
    outputs = np.zeros_like(each.outputs.numpy())
    library.model_init(state)
    for start, end in ((0, 5), (5, 5), (5, STEPS)):
        given, made = (array[start:end].ctypes.data_as(ctypes.c_void_p) for array in (inputs, outputs))
        library.model_run(state, scratch, given, made, ctypes.c_size_t(end - start))
    assert torch.equal(torch.from_numpy(outputs), run_compiled(library, header, each.inputs))


def memory_of(header: Path) -> tuple[Any, Any]:
    text = header.read_text(encoding="utf-8")
    sizes = {key: int(value) for key, value in re.findall(r"#define MODEL_(\w+)_BYTES (\d+)", text)}
    return ctypes.create_string_buffer(sizes["STATE"]), ctypes.create_string_buffer(sizes["SCRATCH"])


BLOCKS = """
const { Model, inputSize, tokens } = await import(process.argv[2]);
const inputs = JSON.parse(process.argv[3]);
const model = new Model();
const stepped = model.start(), run = model.start();
const outputs = inputs.flatMap((input) => Array.from(model.step(stepped, input)));
const flat = tokens ? inputs : Float32Array.from(inputs.flat());
const blocks = Array.from(model.run(run, flat.slice(0, 5 * inputSize)));
blocks.push(...model.run(run, flat.slice(5 * inputSize)));
let refused = "";
const same = JSON.stringify(stepped) === JSON.stringify(run);
try {
  model.run(run, tokens ? [-1] : flat.subarray(1));
} catch (error) {
  refused = error.message;
}
console.log(JSON.stringify({ outputs, blocks, same, refused }));
"""


@needs_node
@pytest.mark.parametrize("name", ["denoiser", "reader"])
@pytest.mark.parametrize("export", [linnet.export_js, pytest.param(linnet.export_wasm, marks=needs_zig)])
def test_a_block_in_a_page_is_its_steps(
    cases: list[Case], name: str, export: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Blocks of two steps in WebAssembly: a call has several, and the last is not full.
    monkeypatch.setattr("linnet.deploy.source.wasm.MOST_NUMBERS", 23 if name == "reader" else 37)
    each = named(cases, name)
    folder = export(each.model, tmp_path / "web", example=each.example)
    (tmp_path / "run.mjs").write_text(BLOCKS, encoding="utf-8")
    command = [
        str(NODE),
        str(tmp_path / "run.mjs"),
        str(folder / "model.js"),
        json.dumps(each.inputs.tolist()),
    ]
    found = json.loads(checked(command))
    assert found["outputs"] == found["blocks"]
    assert found["same"]
    assert re.search("a multiple of 8 numbers|from 0 to 10.*got -1", found["refused"])
    assert_equal_outputs(each, torch.tensor(found["blocks"]).view_as(each.outputs))


class Decaying(nn.Module):
    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = 0.5 * state + x
        return state, state


@needs_compiler
@pytest.mark.parametrize(("flush", "last"), [(False, 2.0**-129), (True, 0.0)])
def test_denormal_numbers_are_flushed_on_demand(flush: bool, last: float, tmp_path: Path):
    x = torch.zeros(130, 1)
    x[0] = 1
    example = (x[:1], torch.zeros(1, 1))
    linnet.export_c(Decaying(), tmp_path / "c", example=example, flush_denormals=flush)
    library = shared_library([tmp_path / "c" / "model.c"], tmp_path, "-O1")
    found = run_compiled(library, tmp_path / "c" / "model.h", x)
    assert found[90] == 2.0**-90
    assert found[-1] == last


# ----------------------------------------------------------------------------------- what is made


def test_a_batch_norm_is_a_part_of_the_convolution_before_it():
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(3)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    model = Frames(nn.Sequential(nn.Conv1d(4, 3, 3), norm))
    program = program_of(model, example=(torch.zeros(1, 4, 8), torch.zeros(1)))
    assert set(program.vectors) == {"parts_0_0_bias"}
    assert [type(kernel) is Product for kernel in program.kernels].count(True) == 1


@pytest.mark.parametrize(("unit", "biases"), [("LSTM", 2), ("GRU", 3), ("RNN", 2), ("SRU", 2), ("LRN", 2)])
def test_biases_are_a_part_of_products(unit: str, biases: int):
    """LSTM and RNN have two biases, whose sum is one vector; GRU adds the second one within a gate."""
    model = nn.Sequential(getattr(linnet, unit)(5, 4), nn.Linear(4, 3))
    kernels = program_of(model).kernels
    products = [kernel for kernel in kernels if isinstance(kernel, Product)]
    assert len(kernels) - len(products) == 1  # the loop over the channels
    assert sum(kernel.bias is not None for kernel in products) == biases


def test_windows_are_copied_one_at_a_time():
    model = Frames(nn.Conv1d(4, 3, 5))
    program = program_of(model, example=(torch.zeros(1, 4, 100), torch.zeros(1)))
    assert program.sizes[WINDOW] == 4 * 5


def test_a_window_of_one_channel_is_no_copy():
    program = program_of(Frames(nn.Conv1d(1, 3, 5)), example=(torch.zeros(1, 1, 100), torch.zeros(1)))
    assert WINDOW not in program.sizes


def test_values_share_memory_that_nothing_reads_any_more(cases: list[Case]):
    each = named(cases, "denoiser")
    program = program_of(each.model, example=each.example)
    smaller = with_shared_scratch(program)
    assert sum(smaller.scratch.values()) < 0.6 * sum(program.scratch.values())
    assert_equal_outputs(each, outputs_of_program(smaller, each.inputs), 1e-6)


def test_the_readme_says_how_much_memory_it_takes(cases: list[Case], tmp_path: Path):
    each = named(cases, "torch-GRUCell")
    folder = linnet.export_c(each.model, tmp_path / "c", example=each.example)
    readme = (folder / "README.md").read_text(encoding="utf-8")
    weights = sum(parameter.numel() for parameter in each.model.parameters())
    assert f"| Flash | weights and other constants | {4 * weights:,} |" in readme
    assert "| RAM | `model_state`, one for each stream | 16 |" in readme
    page = linnet.export_js(each.model, tmp_path / "js", example=each.example)
    assert f"| weights and other constants in memory | {4 * weights:,} |" in (page / "README.md").read_text()


def test_a_state_that_is_not_zero_is_the_start(tmp_path: Path):
    start = torch.linspace(-1, 1, 4)[None]
    model = Recurring(nn.GRUCell(5, 4), 4)
    each = by_example("start", model, torch.zeros(1, 5), start, 3)
    program = program_of(model, example=each.example)
    assert_equal_outputs(each, outputs_of_program(program, each.inputs))
    assert torch.equal(torch.from_numpy(program.state["state0"]), start[0])


# -------------------------------------------------------------------------------------- refusals


class Counting(nn.Module):
    def forward(self, x: Tensor, state: Tensor) -> Any:
        return x


class Growing(nn.Module):
    def forward(self, x: Tensor, state: Tensor) -> Any:
        return x, torch.cat([state, x], 1)


class Renaming(nn.Module):
    def forward(self, x: Tensor, state: Any) -> Any:
        return x, {"g": state["h"], "c": state["c"]}


class Sorted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.topk(2).indices.float()


class Where(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.max(-1)[1] + x


class Circular(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[:, 1:] = x[:, :-1]
        return y


class Choosing(nn.Module):
    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return (x if x.sum() > 0 else 2 * x), state


class Random(nn.Module):
    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return x + torch.from_numpy(np.random.default_rng().random(4, np.float32)), state


class Counted(Reader):
    def forward(self, token: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = super().forward(token, state)
        return y + token, state


X, H = torch.zeros(1, 4), torch.zeros(1, 4)
READ = (torch.tensor([3]), Reader().start())
REFUSED = [
    (Counting(), (X, H), "returns a tensor of torch.float32 of the shape .*; expected a pair"),
    (Growing(), (X, H), r"the new state state0 has the shape \(1, 8\), and that of the example \(1, 4\)"),
    (Renaming(), (X, {"h": H, "c": H}), "the new state is dict, with the parts c, g; expected .* c, h"),
    (
        Frames(nn.Sequential(nn.ReLU(), Sorted())),
        (X, H),
        r"parts.0.1: the step uses aten.topk.*sort or choose outside",
    ),
    (Frames(Where()), (X, H), "parts.0: the step reads where in a tensor a maximum is"),
    (Frames(Circular()), (X, H), "parts.0: the step uses aten.copy_.*make a new tensor"),
    (Frames(nn.AvgPool1d(3, ceil_mode=True)), (X[None], H), "average pooling with ceil_mode=True"),
    (Choosing(), (X, H), "cannot be exported|depend on the values"),
    (Random(), (X, H), "changes from call to call"),
    (Counted(), READ, "the step computes with the number of a token"),
    (Decaying(), (torch.tensor([3]), H), "the step computes with the number of a token"),
    (Decaying(), (X.double(), H), "x of the example is a float32 tensor .* got torch.float64"),
    (Decaying(), (X, None), "the state of the example is a float32 tensor, .* got NoneType"),
    (Decaying(), (X, ()), "has no tensor in it"),
    (Decaying(), X, r"example is \(x, state\), as forward takes them; got a tensor"),
]


@pytest.mark.parametrize(("model", "example", "message"), REFUSED, ids=[each[2][:40] for each in REFUSED])
def test_what_cannot_be_exported_is_an_error_with_a_reason(
    model: Any, example: Any, message: str, tmp_path: Path
):
    with pytest.raises(ValueError, match=message):
        linnet.export_c(model, tmp_path / "out", example=example)
    assert not (tmp_path / "out").exists()


def test_a_model_without_an_example_says_what_to_pass(tmp_path: Path):
    with pytest.raises(ValueError, match=r"pass example=\(x, state\)"):
        linnet.export_c(Denoiser(), tmp_path / "out")


# ----------------------------------------------------------------------------------------- Causal


@pytest.mark.parametrize(
    "conv",
    [
        lambda: nn.Conv1d(3, 4, 5),
        lambda: nn.Conv1d(3, 4, 3, dilation=4, bias=False),
        lambda: nn.Conv1d(3, 6, 4, stride=2, groups=3),
        lambda: nn.Conv1d(3, 4, 1),
        lambda: nn.Conv1d(3, 4, 2, stride=2),
        lambda: nn.Conv2d(3, 4, (3, 3), padding=(0, 1), stride=(1, 2), dilation=(2, 1)),
    ],
)
@torch.no_grad()
def test_stepping_a_causal_convolution_equals_the_sequence(conv: Any):
    torch.manual_seed(0)
    step = linnet.deploy.Causal(conv())
    frequencies = () if isinstance(step.conv, nn.Conv1d) else (7,)
    x = torch.randn(2, 3, 12, *frequencies)
    whole, buffer, outputs = step.sequence(x), step.start(2, *frequencies), []
    for frame in x.split([2, 6, 4], 2):
        y, buffer = step(frame, buffer)
        outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, 2), whole, rtol=1e-6, atol=1e-6)
    assert whole.shape[2] == 12 // step.conv.stride[0]
    # The past ignores the future.
    x[:, :, 6:] = 0
    assert torch.equal(
        step.sequence(x)[:, :, : 6 // step.conv.stride[0]], whole[:, :, : 6 // step.conv.stride[0]]
    )


def test_one_time_step_has_no_dimension_of_time():
    step = linnet.deploy.Causal(nn.Conv1d(3, 4, 5))
    y, buffer = step(torch.zeros(1, 3), step.start())
    assert y.shape == (1, 4)
    assert buffer.shape == step.start().shape == (1, 3, 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: linnet.deploy.Causal(nn.Conv1d(3, 4, 5, padding=2)), "with padding=0 over time"),
        (lambda: linnet.deploy.Causal(nn.Conv1d(3, 4, 5, padding="same")), "got padding='same'"),
        (lambda: linnet.deploy.Causal(nn.Conv1d(3, 4, 2, stride=3)), "skips inputs"),
        (lambda: linnet.deploy.Causal(nn.Linear(3, 4)), "got Linear"),
        (
            lambda: linnet.deploy.Causal(nn.Conv1d(3, 4, 2, stride=2))(
                torch.zeros(1, 3, 3), torch.zeros(1, 3, 0)
            ),
            r"a multiple of 2 time steps.*\(1, 3, 3\)",
        ),
    ],
)
def test_a_convolution_that_is_not_causal_is_refused(make: Any, message: str):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_gelu_is_that_of_torch():
    """By a polynomial instead of erf: to rounding over the whole range."""
    x = torch.linspace(-8, 8, 4001)[None]
    program = program_of(Frames(nn.GELU()), example=(x, torch.zeros(1)))
    start = F.gelu(x).mean()
    torch.testing.assert_close(outputs_of_program(program, x), F.gelu(x) + start, rtol=1e-6, atol=1e-6)
