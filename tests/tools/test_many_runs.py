"""The check of launchers reports a run that differs, a command that fails, a worker that was not killed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tools import many_runs


def written(folder: Path, wrong: str = "") -> None:
    for unit in many_runs.UNITS:
        for seed in many_runs.SEEDS:
            run = folder / f"{unit}-{seed}"
            run.mkdir(parents=True)
            (run / "metrics.jsonl").write_text("other\n" if run.name == wrong else f"{run.name}\n")


@pytest.mark.parametrize(("wrong", "code"), [("", 0), ("sru-2", 1)])
def test_a_difference_is_reported(
    wrong: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def run(launcher: str, folder: Path, *given: object) -> float:
        written(folder, wrong if launcher == "ray" else "")
        return 4.0 if launcher == "local:1" else 2.0

    monkeypatch.setattr(many_runs, "run", run)
    assert many_runs.check_all(["local:2", "ray"], tmp_path, steps=3, kills=1, seed=0) == code
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [
        "local:1: 18 runs in 4.0 s",
        "local:2: 18 of 18 runs the same after 1 kills, in 2.0 s, 0.50 of the time of one after the other",
    ]
    assert said[2].startswith(f"ray: {18 - code} of 18 runs the same")


def test_a_command_that_fails_or_ends_before_the_kill_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(many_runs, "command", lambda *given: ["false"])
    with pytest.raises(AssertionError, match="local:2 ended with 1"):
        many_runs.run("local:2", tmp_path / "a", 3, 0, random.Random(0))
    monkeypatch.setattr(many_runs, "command", lambda *given: ["true"])
    with pytest.raises(AssertionError, match="0 of 1 workers were killed"):
        many_runs.run("local:2", tmp_path / "b", 3, 1, random.Random(0))
