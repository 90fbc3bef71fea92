"""Shared by all tests."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _same_weights_each_time() -> None:
    """A test that fails on one machine should fail again when it is run alone."""
    torch.manual_seed(0)
