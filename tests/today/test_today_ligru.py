"""LiGRU and SLi-GRU, and batch norm over frames."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from golden_cases import Vectors, recorded_mask
from golden_today import check, over_files, run
from helpers import randn
from torch import Tensor

import linnet
from linnet.recurrent.frame_norm import FrameNorm

NORMS = {"batchnorm": "batch", "layernorm": "layer"}


def build(v: Vectors) -> linnet.LiGRU:
    meta = v.meta
    rnn = linnet.LiGRU(
        meta["input_size"],
        meta["hidden_size"],
        meta["num_layers"],
        bidirectional=meta["bidirectional"],
        normalization=NORMS[meta["normalization"]],
        activation=meta["nonlinearity"],
        stable=meta["unit"] == "sligru",
        cell_dropout=meta["dropout"],
        dtype=torch.double,
    )
    return rnn.train(meta["training"])


def parameters_of(v: Vectors, rnn: linnet.LiGRU) -> dict[str, Tensor]:
    """Both directions of a layer of the source have the same weights."""
    parameters = {}
    for number in range(len(rnn.directions)):
        theirs, ours = f"w.rnn.{number // rnn.num_directions}", f"directions.{number}.cell"
        parameters[f"{ours}.input.weight"] = v[f"{theirs}.w.weight"]
        parameters[f"{ours}.recurrent.weight"] = v[f"{theirs}.u.weight"]
        for kind in ("weight", "bias"):
            parameters[f"{ours}.input.norm.{kind}"] = v[f"{theirs}.norm.{kind}"]
    return parameters


@torch.no_grad()
def load_running_means(v: Vectors, rnn: linnet.LiGRU) -> None:
    for key, tensor in v.tensors.items():
        if key.startswith("buf.rnn.") and "running" in key:
            _, _, layer, _, name = key.split(".")
            for direction in rnn.layer(int(layer)):
                getattr(direction.cell.input.norm, name).copy_(tensor)


@over_files("ligru")
def test_ligru_computes_what_speechbrain_does(path: Path, backend: str | None):
    compare(Vectors(path), backend)


@over_files("sligru")
def test_sligru_computes_what_speechbrain_does(path: Path, backend: str | None):
    compare(Vectors(path), backend)


def compare(v: Vectors, backend: str | None) -> None:
    rnn = build(v)
    load_running_means(v, rnn)
    masks = [v[f"mask.{layer}"] for layer in range(rnn.num_layers) if f"mask.{layer}" in v]
    with ExitStack() as patches:
        if masks:
            patches.enter_context(patch("linnet.units.ligru.keep_mask", each_in_turn(masks)))
        start = v.tensors.get("s0.h")
        y, state = run(rnn, parameters_of(v, rnn), v["x"], start, backend=backend)
    check(v, y, {"h": state} if "sT.h" in v else {})


def each_in_turn(masks: list[Tensor]):
    """The masks of the file, one for each layer that draws one."""
    left = list(masks)

    def draw(shape: list[int], rate: float, like: Tensor) -> Tensor:
        if like.is_meta:
            return torch.empty(shape, device="meta")
        return recorded_mask(left.pop(0), shape, rate, like)

    return partial(draw)


def test_ligru_has_the_parameters_of_its_source():
    d, h = 5, 7
    assert sum(p.numel() for p in linnet.LiGRU(d, h).parameters()) == 2 * h * (d + h + 2)


# --------------------------------------------------------------------------------------- batch norm


@pytest.fixture
def rnn() -> linnet.LiGRU:
    torch.manual_seed(0)
    return linnet.LiGRU(3, 4, dtype=torch.double)


@pytest.mark.parametrize("backend", [None, "reference"])
def test_padding_is_no_frame(rnn: linnet.LiGRU, backend: str | None):
    """The statistics are those of the real steps: more padding changes nothing."""
    x = randn(6, 3, 3)
    longer = torch.cat([x, 9 * randn(4, 3, 3)])
    with linnet.backend(backend):
        short, _ = rnn(x, lengths=[6, 4, 2])
        first = rnn.cells[0].input.norm.running_mean.clone()
        long, _ = rnn(longer, lengths=[6, 4, 2])
    torch.testing.assert_close(long[:6], short)
    rows = torch.cat([x[:6, 0], x[:4, 1], x[:2, 2]]) @ rnn.cells[0].input.weight.T
    torch.testing.assert_close(first, 0.05 * rows.mean(0).detach())


@pytest.mark.parametrize("backend", [None, "reference"])
def test_padding_can_count_as_frames_of_zeros(backend: str | None):
    """As in the source: by hand, the statistics of all steps with zeros in place of padding."""
    torch.manual_seed(0)
    rnn = linnet.LiGRU(3, 4, frames="all", dtype=torch.double)
    x = randn(6, 2, 3)
    with linnet.backend(backend):
        y, _ = rnn(x, lengths=[6, 3])
        x[3:, 1] = 0
        expected, _ = rnn(x)
    torch.testing.assert_close(y[:, 0], expected[:, 0])
    torch.testing.assert_close(y[:3, 1], expected[:3, 1])


def test_frame_norm_is_torchs_batch_norm():
    ours, theirs = FrameNorm(4, dtype=torch.double), torch.nn.BatchNorm1d(4, dtype=torch.double)
    x = randn(5, 3, 4)
    for _ in range(2):
        torch.testing.assert_close(ours(x), theirs(x.flatten(0, 1)).view_as(x))
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x.flatten(0, 1)).view_as(x))
