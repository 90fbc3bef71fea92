"""LEM: the authors' numbers, its initial values, its constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import Vectors, of_cell
from golden_today import check, over_files, run
from helpers import liven, randn, same

import linnet


@over_files("lem")
def test_the_authors_numbers(path: Path, backend: str | None):
    v = Vectors(path)
    rnn = linnet.LEM(v["x"].shape[-1], v["out"].shape[-1], dt=v.meta["dt"])
    parameters = of_cell(
        {
            "input.weight": v["w.inp2hid.weight"],
            "input.bias": v["w.inp2hid.bias"],
            "recurrent.weight": v["w.hid2hid.weight"],
            "recurrent.bias": v["w.hid2hid.bias"],
            "inner.weight": v["w.transform_z.weight"],
            "inner.bias": v["w.transform_z.bias"],
        }
    )
    start = linnet.LEMCell.State(v["s0.y"][None], v["s0.z"][None]) if "s0.y" in v else None
    y, state = run(rnn, parameters, v["x"], start, backend=backend)
    check(v, y, {"y": state.y[0], "z": state.z[0]})


@pytest.mark.parametrize("bias", [True, False])
def test_every_parameter_starts_within_one_by_root_of_h(bias: bool):
    torch.manual_seed(0)
    rnn = linnet.LEM(3, 64, bias=bias)
    for parameter in rnn.parameters():
        assert 0.95 / 8 < parameter.abs().max() <= 1 / 8


def test_dt_0_keeps_the_state_and_a_small_dt_slows_it():
    """The change of one step is proportional to dt, as long as z and y do not read each other's change."""
    x, start = randn(1, 2, 3), (randn(1, 2, 4, seed=1), randn(1, 2, 4, seed=2))
    changes = []
    for dt in (0.0, 1e-6, 2e-6):
        _, state = liven(linnet.LEM(3, 4, dt=dt))(x, start)
        changes.append((state.y - start[0], state.z - start[1]))
    assert not any(change.any() for change in changes[0])
    same(changes[2][1], 2 * changes[1][1], atol=1e-15, rtol=1e-8)
    same(changes[2][0], 2 * changes[1][0], atol=1e-11, rtol=1e-8)


@pytest.mark.parametrize(("dt", "error"), [(-0.1, ValueError), (float("nan"), ValueError), ("1", TypeError)])
def test_dt_must_be_a_number(dt: Any, error: type[Exception]):
    with pytest.raises(error, match="dt must be"):
        linnet.LEM(3, 4, dt=dt)
