"""Linnet: light recurrent networks behind the interface of nn.LSTM."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import linnet.fuse.ops as _registered  # noqa: F401, a saved program needs its operations
from linnet.deploy.onnx import export_onnx
from linnet.fuse.backend import FallbackWarning, backend
from linnet.layers.checkpoints import load_foreign
from linnet.layers.crf import CRF
from linnet.layers.recurrent import Recurrent
from linnet.layers.stacks import (
    ATR,
    ELRN,
    EURNN,
    GLRN,
    GORU,
    GRU,
    JANET,
    LRN,
    LSTM,
    NRU,
    OLRN,
    QRNN,
    RAN,
    RNN,
    SCRN,
    SRU,
    UNITS,
    StatisticalRU,
)
from linnet.units import (
    ATRCell,
    Cell,
    ELRNCell,
    EURNNCell,
    GLRNCell,
    GORUCell,
    GRUCell,
    JANETCell,
    LRNCell,
    LSTMCell,
    NRUCell,
    OLRNCell,
    Projection,
    QRNNCell,
    RANCell,
    RNNCell,
    SCRNCell,
    SRUCell,
    StatisticalRUCell,
)

if TYPE_CHECKING:
    from linnet.runs.load import TrainedRun

__version__ = "0.1.0"


def load(folder: str | Path, checkpoint: str = "best") -> TrainedRun:
    """Return the trained run in a directory, with `config`, `task`, `model`, `predict` and `evaluate`.

    checkpoint   "best" or "last"
    """
    # Imported here, not above: reading runs needs packages that recurrent layers do not need.
    from linnet.runs.load import load

    return load(folder, checkpoint)


__all__ = [
    "backend",
    "ATR",
    "ATRCell",
    "Cell",
    "CRF",
    "ELRN",
    "ELRNCell",
    "EURNN",
    "EURNNCell",
    "export_onnx",
    "FallbackWarning",
    "GLRN",
    "GLRNCell",
    "GORU",
    "GORUCell",
    "GRU",
    "GRUCell",
    "JANET",
    "JANETCell",
    "load",
    "load_foreign",
    "LRN",
    "LRNCell",
    "LSTM",
    "LSTMCell",
    "NRU",
    "NRUCell",
    "OLRN",
    "OLRNCell",
    "Projection",
    "QRNN",
    "QRNNCell",
    "RAN",
    "RANCell",
    "Recurrent",
    "RNN",
    "RNNCell",
    "SCRN",
    "SCRNCell",
    "SRU",
    "SRUCell",
    "StatisticalRU",
    "StatisticalRUCell",
    "UNITS",
]
