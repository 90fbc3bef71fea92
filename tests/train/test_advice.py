"""What a run is told to try when its loss or gradient is no longer a number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from linnet.cli import main
from linnet.runs.config import RunConfig, override
from linnet.runs.errors import NotFinite
from linnet.train.advice import GENERAL, advice
from linnet.train.loop import train
from linnet.train.update import Updater

CARRIED = {"unit": "nru", "carry": True}


def told(task: str = "lm", **settings: Any) -> str:
    return advice(override(RunConfig(task=task), settings))


def test_a_unit_whose_state_is_bounded_is_given_the_general_advice():
    assert told(unit="lstm") == told(unit="gru", carry=False) == GENERAL


def test_nru_that_carries_its_state_is_told_not_to():
    assert "--no-carry or --unit-options layer_norm=True," in told(**CARRIED)
    assert "--reset-every 1 or" in told("memory.copy", unit="nru", reset_every=5)


def test_nru_is_not_told_what_it_does_already():
    assert "carry" not in told(unit="nru", carry=False)
    assert "reset-every" not in told("memory.copy", unit="nru")
    assert "layer_norm" not in told(**CARRIED, unit_options={"layer_norm": True})


def small_run(folder: Path, **settings: Any) -> RunConfig:
    (folder / "birds.txt").write_text("the linnet sings in the tree\n" * 400)
    return override(
        RunConfig(),
        {
            **{"corpus": "text", "path": str(folder / "birds.txt"), "level": "char", "unit": "nru"},
            **{"hidden_size": 32, "embedding_size": 8, "batch": 4, "optimiser": "adam", "lr": 0.01},
            **{"steps": 200, "epochs": 10, "threads": 1, **settings},
        },
    )


def test_the_error_of_a_run_has_the_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Updater, "clip", lambda updater: float("nan"))
    with pytest.raises(NotFinite, match=r"its state is carried on: try --no-carry or .*, with --overwrite"):
        train(small_run(tmp_path), tmp_path / "run")


@pytest.mark.parametrize("settings", [{"carry": False}, {"unit_options": {"layer_norm": True}}])
def test_what_nru_is_advised_keeps_a_run_finite(tmp_path: Path, settings: dict[str, Any]):
    """With a state that is carried on and no norm, this run ended in NaN after 105 updates."""
    result = train(small_run(tmp_path, **settings), tmp_path / "run")
    assert result["valid"]["loss"] < 3
    assert result["step"] == 200


@pytest.mark.parametrize("config", [{"carry": True}, {"carry": False}])
def test_the_advice_names_options_that_there_are(config: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["train", "lm", "--help", "--all"])
    known = capsys.readouterr().out
    for option in re.findall(r"--[a-z-]+", told(unit="nru", **config)):
        assert option in known
