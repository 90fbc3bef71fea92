"""`linnet compare --launcher`: the runs that can be made are made, and the summary says which cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from launched import TINY

from linnet import cli
from linnet.runs.records import read_result
from linnet.runs.status import read_status


def test_a_run_that_fails_ends_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    settings = {**TINY, "steps": 20}
    del settings["hidden_size"]
    options = [
        word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    command = ["compare", "memory.adding", "--units", "lrn", "ran", "--seeds", "1", "2", "--budget", "500"]
    (tmp_path / "lrn-2").mkdir()
    (tmp_path / "lrn-2" / "precious").write_text("x")
    words = [*command, *options, "--run-dir", str(tmp_path), "--launcher", "local:2"]
    assert cli.main(words) == 1
    said = capsys.readouterr()
    made = [tmp_path / name for name in ("lrn-1", "ran-1", "ran-2")]
    assert all((read_result(folder) or {})["step"] == 20 for folder in made)
    assert "1 of 4 runs failed" in said.err
    assert f"{tmp_path / 'lrn-2'} on " in said.err
    assert "is not a run and has other files (precious)" in said.err
    assert [path.name for path in (tmp_path / "lrn-2").iterdir()] == ["precious"]
    assert "ran-2" in said.out.split("units on memory.adding")[1]
    status = read_status(tmp_path / "ran-2")
    assert status is not None
    assert status.launcher == "local:2"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "http-equiv" not in page
    assert "lrn-2" not in page


def test_an_unknown_launcher_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        cli.main(["compare", "memory.adding", "--launcher", "cloud"])
    assert "argument --launcher: the launchers are local:N" in capsys.readouterr().err
