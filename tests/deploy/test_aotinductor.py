"""torch's AOTInductor compiles Linnet's modules (docs/onnx.md)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import linnet

# The shortest compilation: the code around the operations is not optimised.
QUICK = {"aot_inductor.compile_wrapper_opt_level": "O0"}


@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs g++")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # of torch about itself
def test_a_package_computes_what_the_module_computes(tmp_path: Path):
    rnn = linnet.SRU(8, 8, num_layers=2).eval().requires_grad_(False)
    x = torch.randn(5, 3, 8)
    program = torch.export.export(rnn, (x,), strict=False)
    package = str(tmp_path / "rnn.pt2")
    path = torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=QUICK)
    output, state = torch._inductor.aoti_load_package(path)(x)
    expected, last = rnn(x)
    assert torch.equal(output, expected)
    assert torch.equal(state, last)
