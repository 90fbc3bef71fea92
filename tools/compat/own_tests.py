"""The tests of a project itself, with a unit in place of nn.LSTM."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.compat.contestants import RNN, as_lstm_of_torch
from tools.compat.environments import SOURCE


def run_own_tests(path: str, rnn: RNN) -> None:
    """Run a file of the source distribution."""
    (file,) = Path(sys.prefix, SOURCE).glob(f"*/{path}")
    with as_lstm_of_torch(rnn):
        run_tests(file, "-m", "not slow")


def run_tests(file: Path, *options: str) -> None:
    code = pytest.main(["-q", "-p", "no:cacheprovider", *options, str(file)])
    assert code == pytest.ExitCode.OK, f"tests of {file.name} fail"
