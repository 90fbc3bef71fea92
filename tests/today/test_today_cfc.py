"""CfC, and the time between steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import Vectors, of_cell
from golden_today import check, over_files, run
from helpers import randn
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence

import linnet

HEADS = {"a1": "ff1", "a2": "ff2", "ta": "time_a", "tb": "time_b"}


def build(v: Vectors) -> linnet.CfC:
    meta = v.meta
    names = ("mode", "backbone_units", "backbone_layers", "activation", "mixed_memory")
    options = {name: meta[name] for name in names if name in meta}
    return linnet.CfC(meta["input_size"], meta["units"], **options)


def parameters_of(v: Vectors, cell: linnet.CfCCell) -> dict[str, Tensor]:
    size, theirs = cell.input_size, {k.removeprefix("rnn_cell."): w for k, w in v.weights().items()}
    heads = [HEADS[name] for name in (cell.heads or cell.input).parts if name in HEADS]
    joint = {kind: torch.cat([theirs[f"{name}.{kind}"] for name in heads]) for kind in ("weight", "bias")}
    first = joint
    if cell.heads is not None:
        first = {kind: theirs[f"backbone.0.{kind}"] for kind in ("weight", "bias")}
    memory = [theirs["lstm.input_map.weight"]] if cell.mixed_memory else []
    biases = [theirs["lstm.input_map.bias"]] if cell.mixed_memory else []
    parameters = {
        "input.weight": torch.cat([*memory, first["weight"][:, :size]]),
        "input.bias": torch.cat([*biases, first["bias"]]),
        "inner.weight" if cell.mixed_memory else "recurrent.weight": first["weight"][:, size:],
    }
    for number in range(cell.backbone_layers - 1):
        # In the source each layer is followed by its activation.
        for kind in ("weight", "bias"):
            parameters[f"backbone.{number}.{kind}"] = theirs[f"backbone.{2 * number + 2}.{kind}"]
    if cell.heads is not None:
        parameters |= {f"heads.{kind}": tensor for kind, tensor in joint.items()}
    if cell.mode == "pure":
        parameters |= {"w_tau": theirs["w_tau"].flatten(), "a": theirs["A"].flatten()}
    if cell.mixed_memory:
        parameters["recurrent.weight"] = theirs["lstm.recurrent_map.weight"]
    return parameters


@over_files("cfc")
def test_cfc_computes_what_ncps_does(path: Path, backend: str | None):
    v = Vectors(path)
    rnn = build(v)
    names = list(rnn.first_cell.states)
    start = tuple(v[f"s0.{name}"][None] for name in names) if "s0.h" in v else None
    start = start[0] if start and len(names) == 1 else start
    times = {"timespans": v["timespans"]} if "timespans" in v else {}
    parameters = of_cell(parameters_of(v, rnn.first_cell))
    y, state = run(rnn, parameters, v["x"], start, backend=backend, **times)
    states = (state,) if isinstance(state, Tensor) else state
    check(v, y, {name: s[0] for name, s in zip(names, states, strict=True)})


def test_cfc_has_the_parameters_of_its_source():
    d, h, u = 5, 7, 6
    counts = {
        mode: sum(p.numel() for p in linnet.CfC(d, h, backbone_units=u, mode=mode).parameters())
        for mode in ("default", "pure")
    }
    assert counts["default"] == (d + h + 1) * u + 4 * (u + 1) * h
    assert counts["pure"] == (d + h + 1) * u + (u + 3) * h


# --------------------------------------------------------------------------------------- timespans


@pytest.fixture
def rnn() -> Any:
    torch.manual_seed(0)
    return linnet.CfC(3, 4, 2, backbone_units=6, dtype=torch.double)


def test_the_time_between_steps_is_one_if_none_is_given(rnn: Any):
    x = randn(5, 2, 3)
    ones = torch.ones(5, 2, dtype=torch.double)
    torch.testing.assert_close(rnn(x)[0], rnn(x, timespans=ones)[0], rtol=0, atol=0)
    assert not torch.allclose(rnn(x)[0], rnn(x, timespans=2 * ones)[0])


def test_times_go_with_their_steps(rnn: Any):
    """With padding, in packed sequences, by steps, with batch_first and both directions."""
    x, ts = randn(5, 2, 3), torch.rand(5, 2, dtype=torch.double)
    full, _ = rnn(x, timespans=ts)
    padded, _ = rnn(x, lengths=[5, 3], timespans=ts)
    torch.testing.assert_close(padded[:, 0], full[:, 0])
    torch.testing.assert_close(padded[:3, 1], full[:3, 1])
    short = [x[:, 0], x[:3, 1]]
    packed, _ = rnn(pack_sequence(short), timespans=pack_sequence([ts[:, :1], ts[:3, 1:]]))
    assert packed.data.shape == (8, 4)
    torch.testing.assert_close(packed.data[:2], full[0])
    stream = linnet.stream(rnn.eval(), batch=2)
    steps = torch.stack([stream(row, times) for row, times in zip(x, ts, strict=True)])
    torch.testing.assert_close(steps, full)


def test_a_cell_takes_the_time_of_its_step():
    cell = linnet.CfCCell(3, 4, dtype=torch.double)
    x = randn(2, 3)
    later, _ = cell(x, timespans=torch.full((2,), 3.0, dtype=torch.double))
    now, _ = cell(x)
    assert not torch.allclose(later, now)
    alone, _ = cell(x[0], timespans=torch.tensor(3.0, dtype=torch.double))
    torch.testing.assert_close(alone, later[0])


def test_batch_first_and_both_directions_read_times():
    torch.manual_seed(0)
    rnn = linnet.CfC(3, 4, batch_first=True, bidirectional=True, dtype=torch.double)
    x, ts = randn(2, 5, 3), torch.rand(2, 5, dtype=torch.double)
    y, _ = rnn(x, timespans=ts)
    back, _ = rnn(x.flip(1), timespans=ts.flip(1))
    forth = rnn.directions
    forth[0].load_state_dict(forth[1].state_dict())
    mirrored, _ = rnn(x.flip(1), timespans=ts.flip(1))
    torch.testing.assert_close(mirrored[..., :4].flip(1), y[..., 4:])
    assert back.shape == (2, 5, 8)


def test_gradients_reach_the_times(rnn: Any):
    ts = torch.rand(5, 2, dtype=torch.double, requires_grad=True)
    rnn(randn(5, 2, 3), timespans=ts)[0].sum().backward()
    assert ts.grad is not None
    assert (ts.grad != 0).all()


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (torch.tensor([[1.0, 1.0], [1.0, -1.0]]), "at least 0; got -1"),
        (torch.ones(2, 3), "one number for each step"),
        (1.0, "as a Tensor; got float"),
        (torch.tensor([[1.0, 1.0], [1.0, float("nan")]]), "at least 0"),
    ],
    ids=["negative", "shape", "number", "nan"],
)
def test_times_that_are_none_are_refused(times: Any, message: str):
    with pytest.raises((ValueError, TypeError), match=message):
        linnet.CfC(3, 4)(torch.randn(2, 2, 3), timespans=times)


def test_a_unit_that_does_not_read_time_says_which_does():
    with pytest.raises(TypeError, match=r"linnet\.CfC"):
        linnet.SRU(3, 4)(torch.randn(2, 2, 3), timespans=torch.ones(2, 2))
    with pytest.raises(TypeError, match=r"linnet\.CfCCell"):
        linnet.SRUCell(3, 4)(torch.randn(2, 3), timespans=torch.ones(2))
