"""A race: equal seconds for all, and torch's own nn.LSTM as a run that Linnet can load."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import same
from torch import nn

import linnet
from linnet.cli import main
from linnet.cli import race as command
from linnet.runs.config import RunConfig, override
from linnet.runs.load import load
from linnet.tasks.evaluation import collect
from linnet.train.fabric import make_fabric
from linnet.train.race import TORCH, Spread, TorchLayer, race, speed_ratio

SMALL = {"hidden_size": 12, "embedding_size": 6, "num_layers": 2, "batch": 4, "length": 16}


def text(folder: Path) -> dict[str, Any]:
    path = folder / "text.txt"
    path.write_text("In the beginning, a linnet is a small bird, and what a voice it has!\n" * 300)
    return {"corpus": "text", "path": str(path)}


def config(folder: Path) -> RunConfig:
    return override(RunConfig(task="lm"), {**command.SETTINGS, **SMALL, **text(folder), "threads": 1})


def test_all_models_train_for_the_same_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("linnet.train.race.TURN", 0.1)
    seen = []
    lanes = race(config(tmp_path), ["sru"], tmp_path / "race", 0.4, 2, lambda lanes: seen.append(len(lanes)))
    assert [lane.name for lane in lanes] == [TORCH, "sru"]
    assert seen == [2, 2]
    for lane in lanes:
        assert len(lane.speeds) == 4
        # A model stops after the update with which its time is over.
        assert lane.result["seconds"] >= 0.4
        assert [
            round(point.seconds / 0.4, 1) >= share for point, share in zip(lane.curve, (0.5, 1), strict=True)
        ]
        # How much is learnt in so short a time depends on the machine.
        assert 0 < lane.curve[-1].bits < 6
    assert speed_ratio(lanes[0], lanes[0]) == Spread(1.0, 1.0, 1.0)
    # A turn in which there was no time for an update does not count.
    lanes[1].speeds, lanes[0].speeds = [20.0, None, 30.0], [10.0, 10.0, 10.0]
    assert speed_ratio(lanes[1], lanes[0]).median == 2.5


def test_the_seconds_are_those_of_the_clock_that_is_given(tmp_path: Path):
    """An update takes an eighth of a second by this clock."""
    readings = count()
    lanes = race(
        config(tmp_path), [], tmp_path / "race", 2.0, 1, lambda lanes: None, clock=lambda: next(readings) / 8
    )
    assert [lane.run.context.here.step for lane in lanes] == [16]


def test_the_rate_falls_over_the_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("linnet.train.race.TURN", 0.1)
    (lane, _) = race(config(tmp_path), ["sru"], tmp_path / "race", 0.4, 1, lambda lanes: None)
    assert lane.run.updater.rate(1.0) == 0.0
    assert lane.result["stopped_by"] == "minutes"


def test_torch_s_own_layer_is_saved_as_a_run_of_linnet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("linnet.train.race.TURN", 0.1)
    (lane, _) = race(config(tmp_path), ["lrn"], tmp_path / "race", 0.2, 1, lambda lanes: None)
    assert all(type(layer) is TorchLayer for layer in lane.run.updater.model.layers)
    trained = load(tmp_path / "race" / TORCH)
    assert all(type(layer) is linnet.LSTM for layer in trained.model.layers)
    test = collect(trained.task, trained.model, "test", make_fabric(trained.config.loop)).compute()
    assert test["loss"] == pytest.approx(lane.result["test"]["loss"], rel=1e-4)


def test_torch_s_layer_starts_with_the_weights_of_linnet_s():
    torch.manual_seed(1)
    ours, x = linnet.LSTM(3, 4), torch.randn(5, 2, 3)
    layer = TorchLayer.like(ours)
    assert isinstance(layer, nn.LSTM)
    same(layer(x)[0], ours(x)[0], rtol=1e-5, atol=1e-6)
    other = TorchLayer(3, 4)
    other.load_state_dict(layer.state_dict())
    same(other(x)[0], layer(x)[0], rtol=1e-5, atol=1e-6)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """It prints the table, writes the program and the pages, and opens them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "SETTINGS", {**command.SETTINGS, **text(tmp_path)})
    monkeypatch.setattr(command, "TIMED", 100)
    monkeypatch.setattr(command, "ROUNDS", 3)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    size = ["--hidden-size", "12", "--num-layers", "1", "--seconds", "1"]
    assert main(["race", "--units", "sru", *size, "--open"]) == 0
    said = capsys.readouterr().out
    (head,) = (line.split("  ") for line in said.splitlines() if line.startswith("model "))
    columns = ["bits per character", "parameters", "characters/s", "speed, nn.LSTM = 1", "µs of a step"]
    assert [each.strip() for each in head if each] == ["model", *columns, "kB in int8"]
    assert "Counts alone need " in said
    assert "linnet export runs/race/sru --to c --int8" in said
    assert "\n\nIn the beginning" in said if shutil.which("cc") else "no C compiler" in said
    page = Path("runs/race/race.html").read_text(encoding="utf-8")
    assert "lens.html" in page
    assert "SRU without Python" in page
    assert Path("runs/race/lens.html").exists()
    assert Path("runs/race/c/model.c").exists()
    assert [Path(each).name for each in opened] == ["race.html", "lens.html"]


def test_a_page_opens_where_there_is_a_display(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not command.has_display()
    monkeypatch.setenv("DISPLAY", ":0")
    assert command.has_display()
