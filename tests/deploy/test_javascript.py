"""Exported JavaScript computes what the model computes, step by step, in Node."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.deploy.step.build import outputs_of
from tests.user_units import Leaky, Moving
from tools.run_steps import NODE, assert_equal_outputs, checked, run_modules
from tools.step_cases import Case, language_model, models, stack, units, variants, with_heads

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed")
needs_zig = pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is not installed")
STEPS = 500


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    own = [stack(unit, 2, STEPS) for unit in (Leaky, Moving)]
    made = [*units(STEPS), *variants(30), *models(30), *own]
    return {each.name: each for each in made}


@pytest.fixture(scope="module")
def results(cases: dict[str, Case], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("js")
    for each in cases.values():
        linnet.export_js(each.model, folder / each.name)
    return run_modules(folder, list(cases.values()))


def test_every_step_of_every_model_is_that_of_python(cases: dict[str, Case], results: dict[str, Any]):
    for name, each in cases.items():
        assert_equal_outputs(each, results[name]["outputs"])


def test_values_are_those_of_record(cases: dict[str, Case], results: dict[str, Any]):
    """After the last step, by the same names as `linnet.record` has them."""
    for name in ("LRN-2", "LSTM-3", "SCRN-2", "Leaky-2"):
        recording = linnet.record(cases[name].model, cases[name].inputs[:, None])
        for expected, found in zip(recording, results[name]["values"], strict=True):
            assert set(found) == set(expected)
            for letter, value in found.items():
                torch.testing.assert_close(torch.tensor(value), expected[letter][-1, 0], rtol=1e-5, atol=1e-5)


def test_layers_say_what_values_there_are(results: dict[str, Any]):
    first, second = results["SRU-2"]["layers"]
    assert first == {"unit": "SRU", "values": {"u": 7, "f": 7, "r": 7, "c": 7, "skip": 7, "g": 7, "h": 7}}
    assert second["values"] == first["values"]


INTO = """
import { Model, inputSize, outputSize } from "./model.js";
const input = Array.from({ length: inputSize }, (_, i) => i / 7);
const model = new Model();
const [own, given, into] = [model.start(), model.start(), new Float32Array(outputSize)];
for (let step = 0; step < 3; step++) {
  const output = model.step(own, input);
  if (model.step(given, input, into) !== into) throw new Error("another array was returned");
  console.log(JSON.stringify([Array.from(output), Array.from(into)]));
}
"""


@pytest.mark.parametrize("export", [linnet.export_js, pytest.param(linnet.export_wasm, marks=needs_zig)])
def test_an_output_can_be_written_into_an_array_of_the_caller(export: Any, tmp_path: Path):
    folder = export(linnet.SRU(5, 3), tmp_path / "out")
    (folder / "into.mjs").write_text(INTO, encoding="utf-8")
    lines = checked([str(NODE), str(folder / "into.mjs")]).splitlines()
    new, written = zip(*map(json.loads, lines), strict=True)
    assert new == written
    assert new[0] != new[1]


STATES = """
import { Model, inputSize } from "./model.js";
const model = new Model();
const input = new Float32Array(inputSize);
const { layer0_c: c } = model.start();
for (const state of [
  { layer0_c: c.slice(1) }, { layer0_c: [...c, 0] }, {}, null, undefined, { layer0_c: 3 },
]) {
  try {
    model.step(state, input);
    console.log("accepted");
  } catch (error) {
    console.log(`${error.name}: ${error.message}`);
  }
}
model.step({ layer0_c: c }, input);
"""


@pytest.mark.parametrize("export", [linnet.export_js, pytest.param(linnet.export_wasm, marks=needs_zig)])
def test_a_state_of_another_size_is_refused(export: Any, tmp_path: Path):
    folder = export(linnet.SRU(5, 3), tmp_path / "out")
    (folder / "states.mjs").write_text(STATES, encoding="utf-8")
    lines = checked([str(NODE), str(folder / "states.mjs")]).splitlines()
    message = "RangeError: the part layer0_c of the state is an array of 3 numbers, as start() makes it; got "
    assert lines == [message + got for got in ("2", "4", *["undefined"] * 4)]


def test_int8_is_that_of_python_and_a_quarter_of_the_size(tmp_path: Path):
    each = language_model(100, unit="sru", hidden_size=64, embedding_size=64)
    linnet.export_js(each.model, tmp_path / "whole")
    linnet.export_js(each.model, tmp_path / each.name, int8=True)
    sizes = [(tmp_path / name / "model.js").stat().st_size for name in ("whole", each.name)]
    assert sizes[1] < 0.4 * sizes[0]
    found = torch.tensor(run_modules(tmp_path, [each])[each.name]["outputs"])
    expected = outputs_of(linnet.quantize(each.model), each.inputs)
    # Where a last digit of difference rounds a number to another level, an output differs.
    assert ((found - expected).abs().amax(1) > 1e-5).float().mean() < 0.2
    assert not torch.allclose(found, each.outputs, atol=1e-5)


def test_int8_with_block_diagonal_matrices_is_that_of_python(tmp_path: Path):
    cases = with_heads(40)
    for each in cases:
        linnet.export_js(each.model, tmp_path / each.name, int8=True)
    results = run_modules(tmp_path, cases)
    for each in cases:
        found = torch.tensor(results[each.name]["outputs"])
        expected = outputs_of(linnet.quantize(each.model), each.inputs)
        assert ((found - expected).abs().amax(1) > 1e-5).float().mean() < 0.2, each.name


def test_the_folder_has_types_and_a_record(tmp_path: Path):
    each = language_model(1, unit="lrn")
    folder = linnet.export_js(each.model, tmp_path / "web", vocabulary=[chr(97 + n) for n in range(19)])
    assert {path.name for path in folder.iterdir()} == {
        "model.js",
        "model.d.ts",
        "package.json",
        "linnet.json",
        "README.md",
    }
    assert "input: number | ArrayLike<number>" in (folder / "model.d.ts").read_text()
    assert json.loads((folder / "linnet.json").read_text())["target"] == "js"
    assert 'vocabulary = ["a", "b",' in (folder / "model.js").read_text()
