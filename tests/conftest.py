"""Shared by all tests."""

import gc
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import linnet

sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_finish() -> None:
    """Leave modules and test items, a million objects that stay, out of each later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_weights_each_time() -> None:
    """A test that fails on one machine should fail again when it is run alone."""
    torch.manual_seed(0)


@pytest.fixture(params=["kernels", "reference"])
def _backends(request: pytest.FixtureRequest):
    """Run a test by the kernels, where there are any, and by the reference loop."""
    with linnet.backend("reference") if request.param == "reference" else nullcontext():
        yield
