"""The recorded numbers of the newer units: which files there are, and how a run is compared with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import FOLDER, OURS, Vectors
from torch import Tensor, nn
from torch.func import functional_call

import linnet

Named = dict[str, Tensor]
OUTPUT, GRADIENT = 1e-12, 1e-10


def paths(unit: str, *patterns: str) -> list[Path]:
    """The files of a unit in our folder and in LINNET_GOLDEN; those of an initialisation only if named."""
    folders = sorted({OURS.resolve(), FOLDER.resolve()})
    found = [path for folder in folders for path in sorted((folder / unit).glob("*.npz"))]
    if patterns:
        return [path for path in found if any(path.match(pattern) for pattern in patterns)]
    return [path for path in found if "out" in Vectors(path)]


def over_files(unit: str, *patterns: str) -> Any:
    """Run a test for each of these files, with kernels and with the reference loop."""
    return over_both_ways(paths(unit, *patterns))


def over_files_with(unit: str, key: str) -> Any:
    """Run a test for each file of a unit that has this tensor, with kernels and with the reference loop."""
    return over_both_ways([path for path in paths(unit) if key in Vectors(path)])


def over_both_ways(found: list[Path]) -> Any:
    def marked(test: Any) -> Any:
        over_backends = pytest.mark.parametrize("backend", [None, "reference"], ids=["kernels", "loop"])
        over = pytest.mark.parametrize("path", found, ids=lambda path: path.stem)
        return over_backends(over(test))

    return marked


def run(
    module: nn.Module, parameters: Named, *inputs: Any, backend: str | None = None, **options: Any
) -> Any:
    """Call the module in float64 with these parameters, which have to be all that it has."""
    assert set(parameters) == {name for name, _ in module.named_parameters()}
    with linnet.backend(backend):
        return functional_call(module.double(), parameters, inputs, options)


def check(v: Vectors, y: Tensor, finals: Named) -> None:
    """Compare the output, the final states (by name, without "sT.") and all gradients with a file's."""
    close(y, v["out"], OUTPUT, "output")
    loss = (y * v["R"]).sum()
    for name, final in finals.items():
        close(final, v[f"sT.{name}"], OUTPUT, f"final state {name}")
        if f"R.sT.{name}" in v:
            loss = loss + (final * v[f"R.sT.{name}"]).sum()
    weighted = {key.removeprefix("R.sT.") for key in v.tensors if key.startswith("R.sT.")}
    assert weighted <= set(finals), f"the file has the final states {weighted}"
    leaves = [v[key] if key in v else v[f"w.{key}"] for key in v.gradients]
    found = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    for (key, theirs), ours in zip(v.gradients.items(), found, strict=True):
        close(ours, theirs, GRADIENT, f"gradient of {key}")


def close(ours: Tensor, theirs: Tensor, tolerance: float, what: str) -> None:
    torch.testing.assert_close(
        ours, theirs, rtol=tolerance, atol=tolerance, msg=lambda text: f"{what}: {text}"
    )
