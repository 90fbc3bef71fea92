"""Linnet: light recurrent networks behind the interface of nn.LSTM."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import linnet.base.command as _command  # noqa: F401, Ctrl-C during the imports that follow
import linnet.fuse.ops as _registered  # noqa: F401, a saved program needs its operations
from linnet.base.memory import reuse_memory
from linnet.base.version import __version__ as __version__
from linnet.deploy.c import export_c
from linnet.deploy.checkpoints import load_foreign
from linnet.deploy.javascript import export_js
from linnet.deploy.onnx import export_onnx
from linnet.deploy.quantize import quantize
from linnet.deploy.wasm import export_wasm
from linnet.fuse.choose import FallbackWarning, backend
from linnet.layers.cell import Cell
from linnet.layers.crf import CRF
from linnet.layers.explain import explain
from linnet.layers.freeze import freeze, unfreeze
from linnet.layers.projection import Projection
from linnet.layers.record import record
from linnet.layers.recurrent import Recurrent
from linnet.layers.stream import Stream, stream
from linnet.units import *  # noqa: F403, every unit and its cell
from linnet.units import UNITS

if TYPE_CHECKING:
    from torch import nn

    from linnet.analysis.lens.page import Lens
    from linnet.runs.load import TrainedRun


def lens(model: nn.Module, vocabulary: Any, **options: Any) -> Lens:
    """Return a page in which you type and watch the model read; see linnet.analysis.lens.page.lens.

    vocabulary   a Vocabulary of linnet.data, or a list of the tokens: characters, or words between spaces
    options      text, name, about, labels, counts, int8
    """
    # Imported here, not above: a page needs the models of all tasks.
    from linnet.analysis.lens.page import lens

    return lens(model, vocabulary, **options)


def load(folder: str | Path, checkpoint: str = "best") -> TrainedRun:
    """Return the trained run in a directory, with `config`, `task`, `model`, `predict` and `evaluate`.

    checkpoint   "best" or "last"
    """
    # Imported here, not above: reading runs needs packages that recurrent layers do not need.
    from linnet.runs.load import load

    return load(folder, checkpoint)


__all__ = [
    "backend",
    "explain",
    "Cell",
    "CRF",
    "export_c",
    "export_js",
    "export_onnx",
    "export_wasm",
    "FallbackWarning",
    "freeze",
    "lens",
    "load",
    "load_foreign",
    "Projection",
    "quantize",
    "record",
    "Recurrent",
    "reuse_memory",
    "stream",
    "Stream",
    "unfreeze",
    "UNITS",
    *(each.__name__ for unit in UNITS.values() for each in (unit, unit.cell_class)),
]
