"""LSTM in onnxruntime: by ONNX's own operator, relative to the Scan that every other unit becomes."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from unittest.mock import patch

import torch

from benchmarks.contestants import Contestant
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Comparison, Race
from linnet.bench.timing import Call
from linnet.deploy import onnx_operators
from linnet.deploy.onnx import export_onnx
from linnet.units import UNITS

OPERATORS = ("lstm", "gru", "rnn")


def measure(settings: Settings, book: Book) -> list[Row]:
    units = [unit for unit in OPERATORS if unit in settings.units]
    return [row for unit in units for row in race_of(unit, settings).run(settings, book)]


def race_of(unit: str, settings: Settings) -> Race:
    shape, threads = settings.exported, settings.threads
    entrants = {
        "operator": Contestant(unit, "onnxruntime", lambda: session_call(unit, shape, threads, True)),
        "Scan": Contestant(unit, "Scan", lambda: session_call(unit, shape, threads, False)),
    }
    return Race("onnx", shape, "inference", entrants, [Comparison("operator", "Scan", "its Scan")])


def session_call(unit: str, shape: Shape, threads: int, by_operator: bool) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(exported(unit, shape.d, by_operator), options)
    inputs = {"x": torch.randn(shape).numpy()}
    return lambda: session.run(None, inputs)


@cache  # a few models, which take seconds to export
def exported(unit: str, size: int, by_operator: bool) -> bytes:
    """The model as onnxruntime reads it, for sequences of any length."""
    layer = UNITS[unit](size, size)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        if by_operator:
            export_onnx(layer, path)
        else:
            with patch.object(onnx_operators, "use_operators"):
                export_onnx(layer, path)
        return path.read_bytes()
