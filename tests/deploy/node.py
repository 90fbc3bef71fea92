"""Exported modules, run by Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.deploy.cases import Case

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")

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
    """Run the exports of `cases`, each in the folder of its name, in one process."""
    assert NODE is not None
    (folder / "run.mjs").write_text(SCRIPT, encoding="utf-8")
    inputs = json.dumps({case.name: case.inputs.tolist() for case in cases})
    done = subprocess.run(
        [NODE, str(folder / "run.mjs")],
        input=inputs,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_equal_outputs(case: Case, outputs: Any, tolerance: float = 1e-5) -> None:
    found = torch.as_tensor(outputs, dtype=torch.float32)
    torch.testing.assert_close(
        found, case.outputs, rtol=tolerance, atol=tolerance, msg=lambda m: f"{case.name}: {m}"
    )
