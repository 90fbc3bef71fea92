"""RG-LRU against recurrentgemma's numbers, and what is its own: the first step, the root, the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import golden_today
import pytest
import torch
from golden_cases import Vectors
from helpers import identical, liven, randn, same
from torch import Tensor

import linnet
from linnet.deploy.checkpoints import convert
from linnet.units.rglru import a_param_of

Named = dict[str, Tensor]


@golden_today.over_files_with("rglru", "w.a_param")
def test_recorded_numbers_of_the_unit(path: Path, backend: str | None):
    v = Vectors(path)
    width = v["x"].shape[-1]
    rnn = linnet.RGLRU(width, width, heads=v.meta["num_heads"])
    # A state that is given is one after some steps.
    start = (v["s0.h"][None], torch.ones_like(v["s0.h"])[None]) if "s0.h" in v else None
    parameters = convert(rnn, v.weights(), "recurrentgemma")
    y, final = golden_today.run(rnn, parameters, v["x"], start, resets=v["reset"].bool(), backend=backend)
    golden_today.check(v, y, {"h": final.h[0]})


@golden_today.over_files_with("rglru", "w.linear_x.weight")
def test_recorded_numbers_of_the_block(path: Path, backend: str | None):
    v = Vectors(path)
    sizes = v.meta["width"], v.meta["lru_width"], v.meta["num_heads"], v.meta["conv1d_temporal_width"]
    block = linnet.GriffinBlock(*sizes)
    start = block.initial_state(v["x"])
    if "s0.h" in v:
        start = start._replace(h=v["s0.h"], started=torch.ones_like(v["s0.h"]))
    parameters = convert(block, v.weights(), "recurrentgemma")
    y, final = golden_today.run(block, parameters, v["x"], start, v["reset"].bool(), backend=backend)
    golden_today.check(v, y, {"h": final.h})
