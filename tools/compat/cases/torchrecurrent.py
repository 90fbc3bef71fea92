"""torchrecurrent: its RAN, and Linnet's in its place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torchrecurrent

import linnet
from tools.compat.contestants import RNN
from tools.compat.examples import Classifier, check_plainly, work_plainly

CONTESTANTS: dict[str, RNN] = {"torchrecurrent.RAN": torchrecurrent.RAN, "RAN": linnet.RAN}


def check(rnn: RNN, folder: Path) -> None:
    check_plainly(partial(Classifier, rnn), folder)


def work(rnn: RNN) -> Callable[[], object]:
    return work_plainly(partial(Classifier, rnn))
