"""Linnet: light recurrent networks behind the interface of nn.LSTM."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import linnet.base.command as _command  # noqa: F401, Ctrl-C during the imports that follow
import linnet.run.ops as _registered  # noqa: F401, a saved program needs its operations
from linnet.base.memory import reuse_memory
from linnet.base.version import __version__ as __version__
from linnet.blocks.griffin import GriffinBlock
from linnet.blocks.xlstm import SLSTMBlock
from linnet.convert.convert import convert, restore
from linnet.deploy.c import export_c
from linnet.deploy.checkpoints import load_foreign
from linnet.deploy.javascript import export_js
from linnet.deploy.onnx import export_onnx
from linnet.deploy.policy import export_policy
from linnet.deploy.quantize import quantize
from linnet.deploy.read.errors import UnreadableModel
from linnet.deploy.read.files import read_model
from linnet.deploy.wasm import export_wasm
from linnet.layers.crf import CRF
from linnet.recurrent.cell import Cell
from linnet.recurrent.explain import explain
from linnet.recurrent.freeze import freeze, unfreeze
from linnet.recurrent.groups import parameter_groups
from linnet.recurrent.projection import Projection
from linnet.recurrent.recorded_values import record
from linnet.recurrent.recurrent import Recurrent
from linnet.recurrent.stream import Stream, stream
from linnet.run.choose import FallbackWarning, backend
from linnet.units import *  # noqa: F403, every unit and its cell
from linnet.units import UNITS

if TYPE_CHECKING:
    from torch import Tensor, nn

    from linnet.analysis.lens.page import Lens
    from linnet.deploy.integer.model import IntegerModel
    from linnet.runs.load import TrainedRun


def lens(model: nn.Module | TrainedRun, vocabulary: Any = None, **options: Any) -> Lens:
    """Return a page in which you type and watch the model read; see linnet.analysis.lens.page.lens.

        linnet.lens(linnet.load("runs/book-sru"))
        linnet.lens(model, vocabulary)

    model        a trained run, as linnet.load returns it, or a model
    vocabulary   of a model: a Vocabulary of linnet.data, or a list of the tokens, characters or words
                 between spaces. A run has its own
    options      of a model: text, name, about, labels, counts, int8; of a run: text, int8
    """
    # Imported here, not above: a page needs the models of all tasks.
    from linnet.analysis.lens.runs import lens_of_any

    return lens_of_any(model, vocabulary, **options)


def quantize_integer(
    model: nn.Module, calibration: Tensor, example: tuple[Tensor, Any] | None = None
) -> IntegerModel:
    """Return `model` in whole numbers: int8 weights, int16 values and states, and no float in its step.

        small = linnet.quantize_integer(model, calibration=x)
        outputs, state = small(x)
        linnet.export_c(small, "device")

    calibration   typical inputs [T, B, input_size], or tokens [T, B]: the largest values that the model
                  computes from them decide where the binary point of each number is. Values of more than
                  twice that size saturate
    example       x and state, for a module of your own, as for `linnet.export_c`; the numbers of a frame lie
                  in one dimension in `calibration`

    The model is one of those that docs/deploy.md lists, in float32 or quantised by `linnet.quantize`, without
    norms: sums over channels, and quotients of two variables, have no form in whole numbers. The result
    computes the same numbers in Python and in exported C, bit for bit.
    """
    # Imported here, not above: recording a step needs the models of all tasks.
    from linnet.deploy.integer.model import integer_model

    return integer_model(model, calibration, example)


def load(folder: str | Path, checkpoint: str = "best") -> TrainedRun:
    """Return the trained run in a directory, with `config`, `task`, `model`, `predict` and `evaluate`.

    folder       the directory, or the URL of a run in a store: "s3://bucket/kjv-sru"
    checkpoint   "best" or "last"
    """
    # Imported here, not above: reading runs needs packages that recurrent layers do not need.
    from linnet.runs.load import load

    return load(folder, checkpoint)


__all__ = [
    "backend",
    "explain",
    "Cell",
    "convert",
    "CRF",
    "export_c",
    "export_js",
    "export_onnx",
    "export_policy",
    "export_wasm",
    "FallbackWarning",
    "freeze",
    "GriffinBlock",
    "lens",
    "load",
    "load_foreign",
    "parameter_groups",
    "Projection",
    "quantize",
    "quantize_integer",
    "read_model",
    "record",
    "Recurrent",
    "restore",
    "reuse_memory",
    "SLSTMBlock",
    "stream",
    "Stream",
    "unfreeze",
    "UnreadableModel",
    "UNITS",
    *(each.__name__ for unit in UNITS.values() for each in (unit, unit.cell_class)),
]
