"""Exported WebAssembly computes what the model computes, in Node and in Chromium."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import linnet
from linnet.deploy.step.build import outputs_of
from tests.analysis.browser import CHROMIUM, QUIET, needs_chromium
from tools.run_steps import NODE, assert_equal_outputs, run_modules, run_page
from tools.step_cases import Case, language_model, stack, with_heads

pytestmark = pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is not installed")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """`make targets` runs every unit."""
    return [
        stack(linnet.SRU, 2, 500),
        stack(linnet.NRU, 2, 500),
        *with_heads(30),
        language_model(30, unit="lstm", tied=True, embedding_size=8),
    ]


@needs_node
def test_every_step_is_that_of_python(cases: list[Case], tmp_path: Path):
    for each in cases:
        linnet.export_wasm(each.model, tmp_path / each.name)
    results = run_modules(tmp_path, cases)
    for each in cases:
        assert_equal_outputs(each, results[each.name]["outputs"])


@needs_chromium
@pytest.mark.parametrize("export", [linnet.export_js, linnet.export_wasm])
def test_chromium_runs_it(cases: list[Case], tmp_path: Path, export):
    each = cases[-1]
    folder = export(each.model, tmp_path / "web")
    found = run_page([str(CHROMIUM), *QUIET], folder / "model.js", tmp_path, each.inputs)
    assert_equal_outputs(each, found)


@needs_node
def test_int8_is_that_of_python(tmp_path: Path):
    each = stack(linnet.LRN, 2, 60)
    linnet.export_wasm(each.model, tmp_path / each.name, int8=True)
    found = torch.tensor(run_modules(tmp_path, [each])[each.name]["outputs"])
    expected = outputs_of(linnet.quantize(each.model), each.inputs)
    # Where a last digit of difference rounds a number to another level, an output differs.
    assert ((found - expected).abs().amax(1) > 1e-5).float().mean() < 0.2


def test_without_zig_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("linnet.deploy.wasm.find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"pip install '.*\[wasm\]'"):
        linnet.export_wasm(linnet.SRU(3, 4), tmp_path / "out")
    assert not (tmp_path / "out").exists()
