"""The tests of a project itself, from its source distribution, with a unit in place of nn.LSTM."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.compat.contestants import RNN, as_lstm_of_torch
from tools.compat.environments import SOURCE


def run_own_tests(path: str, rnn: RNN) -> None:
    (file,) = Path(sys.prefix, SOURCE).glob(f"*/{path}")
    with as_lstm_of_torch(rnn):
        code = pytest.main(["-q", "-m", "not slow", "-p", "no:cacheprovider", str(file)])
    assert code == pytest.ExitCode.OK, f"tests of {path} fail"
