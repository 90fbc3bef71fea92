"""PyTorch: the inputs of its own tests of recurrent modules, and the options of its tests of cuDNN."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from torch import nn

import linnet
from tools.compat.contestants import RNN
from tools.compat.environments import ROOT
from tools.compat.examples import Classifier, check_plainly, work_plainly
from tools.compat.own_tests import run_tests

CONTESTANTS: dict[str, RNN] = {"nn.LSTM": nn.LSTM, "LSTM": linnet.LSTM}


def check(rnn: RNN, folder: Path) -> None:
    check_plainly(partial(Classifier, rnn), folder)
    if rnn is linnet.LSTM:
        # They compare Linnet's LSTM, GRU, RNN and their cells with torch's.
        run_tests(ROOT / "tests" / "layers" / "test_module_db.py")


def work(rnn: RNN) -> Callable[[], object]:
    return work_plainly(partial(Classifier, rnn))
