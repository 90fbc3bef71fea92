"""Runs exported models step by step: JavaScript by Node, C by a compiler and ctypes."""

from __future__ import annotations

import ctypes
import html
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tools.step_cases import Case

NODE, CC = shutil.which("node"), shutil.which("cc")
# The options with which C must compile without a warning.
STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror")

# For each module of the folder: the outputs of all steps, and the values of the last.
SCRIPT = """
import { readFileSync } from "fs";
const inputs = JSON.parse(readFileSync(0));
const results = {};
const pairs = (values) => Object.entries(values).map(([name, value]) => [name, Array.from(value)]);
const plain = (values) => Object.fromEntries(pairs(values));
for (const name in inputs) {
  const { Model, layers } = await import(`./${name}/model.js`);
  const model = new Model();
  const state = model.start();
  const outputs = inputs[name].map((input) => Array.from(model.step(state, input)));
  results[name] = { outputs, layers, values: model.values ? model.values().map(plain) : null };
}
console.log(JSON.stringify(results));
"""


def run_modules(folder: Path, cases: Sequence[Case]) -> dict[str, Any]:
    """Run the modules of `cases`, each in the folder of its name, in one process of Node."""
    (folder / "run.mjs").write_text(SCRIPT, encoding="utf-8")
    inputs = json.dumps({case.name: case.inputs.tolist() for case in cases})
    return json.loads(checked([str(NODE), str(folder / "run.mjs")], given=inputs))


def checked(command: Sequence[str], given: str | None = None, folder: Path | None = None) -> str:
    """Return what a command prints; an error contains its stderr."""
    done = subprocess.run(
        command, input=given, cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode or done.stderr:
        raise RuntimeError(f"{' '.join(command)[:500]}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def shared_library(sources: Sequence[Path], folder: Path, *options: str) -> ctypes.CDLL:
    library = folder / "steps.so"
    checked([str(CC), *STRICT, *options, "-shared", "-fPIC", "-o", str(library), *map(str, sources)])
    return ctypes.CDLL(str(library))


def run_compiled(library: ctypes.CDLL, header: Path, inputs: Tensor) -> Tensor:
    """The outputs [T, output_size] of the model of a header, whose name is that of the file."""
    name, text = header.stem, header.read_text(encoding="utf-8")
    sizes = {key: int(value) for key, value in re.findall(rf"#define {name.upper()}_(\w+) (\d+)", text)}
    state, scratch = (ctypes.create_string_buffer(sizes[f"{each}_BYTES"]) for each in ("STATE", "SCRATCH"))
    output = (ctypes.c_float * sizes["OUTPUT_SIZE"])()
    init, step = getattr(library, f"{name}_init"), getattr(library, f"{name}_step")
    init(state)
    outputs = []
    for each in inputs.tolist():
        given = ctypes.c_int32(each) if sizes["TOKENS"] else (ctypes.c_float * len(each))(*each)
        step(state, scratch, given, output)
        outputs.append(list(output))
    return torch.tensor(outputs)


def assert_equal_outputs(case: Case, outputs: Any, tolerance: float = 1e-5) -> None:
    found = torch.as_tensor(outputs, dtype=torch.float32)
    torch.testing.assert_close(
        found, case.outputs, rtol=tolerance, atol=tolerance, msg=lambda text: f"{case.name}: {text}"
    )


PAGE = """<!doctype html><meta charset="utf-8"><script type="module">
MODULE
const model = new Model();
const state = model.start();
const outputs = INPUTS.map((input) => Array.from(model.step(state, input)));
document.documentElement.dataset.outputs = JSON.stringify(outputs);
</script>"""


def run_page(browser: Sequence[str], module: Path, folder: Path, inputs: Tensor) -> Any:
    """The outputs of a module in a page of its own, in a browser without a window."""
    page = folder / "page.html"
    code = module.read_text(encoding="utf-8")
    text = PAGE.replace("MODULE", code).replace("INPUTS", json.dumps(inputs.tolist()))
    page.write_text(text, encoding="utf-8")
    options = [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000", "--dump-dom"]
    done = subprocess.run(
        [*browser, *options, page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    found = re.search(r'data-outputs="([^"]*)"', done.stdout)
    if not found:
        raise RuntimeError(done.stderr[-500:])
    return json.loads(html.unescape(found[1]))
