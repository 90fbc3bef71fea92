"""LSTM in onnxruntime: ONNX's own operator relative to the Scan that every other unit becomes, and int8."""

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
from linnet.deploy.quantize import quantize
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
    comparisons = [Comparison("operator", "Scan", "its Scan")]
    if unit == "lstm":
        entrants["int8"] = Contestant(
            unit, "onnxruntime, int8", lambda: session_call(unit, shape, threads, True, in_int8=True)
        )
        entrants["int8 Scan"] = Contestant(
            unit, "Scan, int8", lambda: session_call(unit, shape, threads, False, in_int8=True)
        )
        comparisons += [Comparison(name, "operator", "float32") for name in ("int8", "int8 Scan")]
    return Race("onnx", shape, "inference", entrants, comparisons)


def session_call(unit: str, shape: Shape, threads: int, by_operator: bool, in_int8: bool = False) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(exported(unit, shape.d, by_operator, in_int8), options)
    inputs = {"x": torch.randn(shape).numpy()}
    return lambda: session.run(None, inputs)


@cache  # a few models, which take seconds to export
def exported(unit: str, size: int, by_operator: bool, in_int8: bool = False) -> bytes:
    """The model as onnxruntime reads it, for sequences of any length."""
    layer = UNITS[unit](size, size)
    layer = quantize(layer) if in_int8 else layer
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        if by_operator:
            export_onnx(layer, path, onnxruntime_operators=in_int8)
        else:
            with patch.object(onnx_operators, "source_of", return_value=None):
                export_onnx(layer, path)
        return path.read_bytes()
