"""Shared by all tests."""

import gc
import sys
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet

sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_finish() -> None:
    """Leave modules and test items, a million objects that stay, out of each later garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup() -> None:
    """Let onnxscript analyse its five hundred operators once, not for each export: half a second of each."""
    if "onnxscript" in sys.modules:
        functions = sys.modules["onnxscript._internal.values"].TracedOnnxFunction
        if not hasattr(functions.function_ir.fget, "cache_info"):
            functions.function_ir = property(cache(functions.function_ir.fget))


@pytest.fixture(autouse=True)
def _same_weights_each_time() -> None:
    """A test that fails on one machine should fail again when it is run alone."""
    torch.manual_seed(0)


@pytest.fixture(params=["kernels", "reference"])
def _backends(request: pytest.FixtureRequest):
    """Run a test by the kernels, where there are any, and by the reference loop."""
    with linnet.backend("reference") if request.param == "reference" else nullcontext():
        yield


LINES = ("the linnet sings in the tree", "a light wing beats in the wind", "the wind is in the tree")
SMALL: dict[str, Any] = {
    **{"corpus": "text", "path": "birds.txt", "level": "char", "batch": 4, "length": 8},
    **{"unit": "ran", "embedding_size": 4, "hidden_size": 6, "num_layers": 1, "input_dropout": 0.1},
    **{"lr": 0.02, "schedule": "constant", "steps": 6, "evaluate_every": 2, "log_every": 2},
    **{"device": "cpu", "threads": 1},
}


@pytest.fixture(scope="session")
def small_language_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a language model of characters, `run`, beside its text, `birds.txt`: only to read."""
    from linnet.runs.config import RunConfig, override
    from linnet.train.loop import train

    folder = tmp_path_factory.mktemp("birds")
    text = "\n".join(LINES[i * i % 3] for i in range(120)) + "\n"
    (folder / "birds.txt").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train(override(RunConfig(task="lm"), SMALL), folder / "run")
    return folder / "run"
