"""sLSTM against xlstm's numbers, and what is its own: the stabiliser, the biases, the norm of heads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import golden_today
import pytest
import torch
from golden_cases import Vectors
from helpers import each, identical, liven, randn, same
from torch import Tensor, nn

import linnet
from linnet.deploy.checkpoints import convert

Named = dict[str, Tensor]
STATES = ("h", "c", "n", "m")


def gate_major(kernel: Tensor) -> Tensor:
    """[heads, 4 hd, hd], the gates within each head -> the rows of Linnet: the heads within each gate."""
    return kernel.unflatten(1, (4, -1)).transpose(0, 1).flatten(0, 2)


@golden_today.over_files_with("slstm", "w._bias_")
def test_recorded_numbers_of_the_cell(path: Path, backend: str | None):
    """x has the products of the input. A file without m is of the LSTM with the same matrices."""
    v = Vectors(path)
    names = [name for name in STATES if f"sT.{name}" in v]
    hidden = v["out"].shape[-1]
    unit = linnet.SLSTM if "m" in names else linnet.LSTM
    rnn = unit(4 * hidden, hidden, heads=v.meta["num_heads"])
    given = (torch.eye(4 * hidden, dtype=torch.double), v["w._bias_"], gate_major(v["w._recurrent_kernel_"]))
    parameters = dict(zip(dict(rnn.named_parameters()), given, strict=True))
    start = tuple(v[f"s0.{name}"][None] for name in names) if "s0.h" in v else None
    resets = {"resets": v["reset"].bool()} if "reset" in v else {}
    y, final = golden_today.run(rnn, parameters, v["x"], start, backend=backend, **resets)
    golden_today.check(v, y, {name: getattr(final, name)[0] for name in names})


@golden_today.over_files_with("slstm", "w.fgate.weight")
def test_recorded_numbers_of_the_block(path: Path, backend: str | None):
    v = Vectors(path)
    kernel = v.meta["conv1d_kernel_size"]
    block = linnet.SLSTMBlock(v["x"].shape[-1], v.meta["num_heads"], kernel)
    start = block.initial_state(v["x"])
    if "s0.h" in v:
        start = start._replace(**{name: v[f"s0.{name}"] for name in STATES})
    resets = v["reset"].bool() if "reset" in v else None
    y, final = golden_today.run(
        block, convert(block, v.weights(), "xlstm"), v["x"], start, resets, backend=backend
    )
    golden_today.check(v, y, {name: getattr(final, name) for name in STATES})
