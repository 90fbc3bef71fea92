"""RG-LRU against recurrentgemma's numbers, and what is its own: the first step, the root, the start."""

from __future__ import annotations

from pathlib import Path

import golden_today
import pytest
import torch
from golden_cases import Vectors
from torch import Tensor

import linnet
from linnet.units.rglru import a_param_of

Named = dict[str, Tensor]
UNITS = "[!b]*.npz"  # all but those of a block


def gates(v: Vectors, prefix: str = "") -> Named:
    """The parameters of the cell; the source's blocks are [heads, in, out]."""
    pairs = [(v[f"w.{prefix}{name}.w"], v[f"w.{prefix}{name}.b"]) for name in ("input_gate", "a_gate")]
    return {
        "input.weight": torch.cat([w.transpose(1, 2).flatten(0, 1) for w, _ in pairs]),
        "input.bias": torch.cat([b.flatten() for _, b in pairs]),
        "a_param": v[f"w.{prefix}a_param"],
    }


@golden_today.over_files("rglru")
def test_recorded_numbers(path: Path, backend: str | None):
    v = Vectors(path)
    if "w.a_param" not in v:
        pytest.skip("not of the unit")
    width = v["x"].shape[-1]
    rnn = linnet.RGLRU(width, width, heads=v.meta["num_heads"])
    parameters = {f"directions.0.cell.{name}": value for name, value in gates(v).items()}
    state = None
    if "s0.h" in v:
        h = v["s0.h"][None]
        state = (h, torch.ones_like(h))
    y, final = golden_today.run(rnn, parameters, v["x"], state, resets=v["reset"].bool(), backend=backend)
    golden_today.check(v, y, {"h": final.h[0]})
