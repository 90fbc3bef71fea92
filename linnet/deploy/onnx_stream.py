"""One step of a run that reads numbers as an ONNX file, with the names of its numbers and its first state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from linnet.deploy.onnx import export_onnx
from linnet.deploy.source.stream import names_of
from linnet.deploy.step.example import named_parts, put_together
from linnet.models.stream_step import StreamStep
from linnet.program.unit import Named


class NamedState(nn.Module):
    """The step with its state as tensors by name; torch cannot write the names of tuples in tuples."""

    def __init__(self, step: StreamStep):
        super().__init__()
        self.step, self.like = step, step.initial_state()

    def forward(self, x: Tensor, before: Named) -> tuple[Tensor, Named]:
        answer, state = self.step(x, put_together(self.like, iter(before.values())))
        return answer, named_parts(state)


@torch.no_grad()
def write_stream_onnx(step: StreamStep, folder: Path) -> None:
    """Write step.onnx and step.json: the names of inputs and outputs, and the state before the first step."""
    x, state = step.example
    start = named_parts(state)
    shapes: Any = {"x": None, "before": dict.fromkeys(start)}
    names = ["answer", *(f"after_{name}" for name in start)]
    export_onnx(NamedState(step), folder / "step.onnx", x, start, dynamic_shapes=shapes, output_names=names)
    known = {**names_of(step), "start": {f"before_{name}": part.tolist() for name, part in start.items()}}
    (folder / "step.json").write_text(json.dumps(known, ensure_ascii=False), encoding="utf-8")
