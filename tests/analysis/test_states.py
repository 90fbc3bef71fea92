"""`linnet runs`: what runs do now, from what they have written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from linnet import cli
from linnet.analysis.report import page, write_progress
from linnet.analysis.runs import read_run
from linnet.analysis.states import HEAD, find_states, states
from linnet.runs.config import RunConfig, override
from linnet.runs.status import FAILED, LOG, RUNNING, STATUS, STOPPED, Status, write_status
from linnet.runs.untrusted import harmless
from linnet.train.loop import train
from tools import small_tasks

ESCAPE = "the disk is \x1b[7m full"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "lrn"
    settings = {**small_tasks.settings_of("memory.adding", Path()), "steps": 4, "evaluate_every": 2}
    train(override(RunConfig(task="memory.adding"), settings), folder, launcher="local:2")
    return folder


def state_of(folder: Path) -> dict[str, str]:
    (found,) = find_states(folder)
    return dict(zip(HEAD, found.cells, strict=True))


def in_state(finished: Path, folder: Path, **changes: object) -> Path:
    """Return a copy of a run that has noted something else."""
    shutil.copytree(finished, folder)
    noted = json.loads((finished / STATUS).read_text())
    write_status(folder, Status(**{**noted, "changed": time.time(), **changes}))
    return folder


def test_a_finished_run_says_where_it_was_and_how_far(finished: Path):
    found = state_of(finished)
    assert (found["run"], found["state"], found["updates"]) == ("lrn", "finished", "4/4")
    assert found["valid"].startswith("loss 0.")
    assert found["where"] == f"{os.uname().nodename}, process {os.getpid()}"
    assert found["launcher"] == "local:2"
    assert int(found["tokens/s"].replace(",", "")) > 0


def test_a_run_whose_process_is_gone_was_killed(finished: Path, tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    assert state_of(in_state(finished, tmp_path / "a", state=RUNNING, pid=gone.pid))["state"] == "killed"
    assert state_of(in_state(finished, tmp_path / "b", state=RUNNING))["state"] == "running"
    elsewhere = {"state": RUNNING, "pid": gone.pid, "host": "elsewhere"}
    assert state_of(in_state(finished, tmp_path / "c", **elsewhere))["state"] == "running"
    quiet = in_state(finished, tmp_path / "d", **elsewhere, changed=time.time() - 300)
    assert (state_of(quiet)["state"], state_of(quiet)["noted"]) == ("silent", "5 min ago")


def test_the_command_shows_all_runs_and_what_was_wrong(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    failed = in_state(finished, tmp_path / "one" / "sru", state=FAILED, error=ESCAPE)
    (failed / LOG).write_text("".join(f"line {number}\n" for number in range(40)))
    in_state(finished, tmp_path / "one" / "lrn", state=STOPPED)
    (in_state(finished, tmp_path / "two") / STATUS).write_text("[]")
    (in_state(finished, tmp_path / "old") / STATUS).unlink()
    write_status(tmp_path / "begun", Status(FAILED, error="no such file"))
    assert cli.main(["runs", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[1] for line in said.splitlines()[1:6]}
    assert rows == {
        **{"begun": "failed", "old": "finished", "two": "damaged"},
        **{"one/lrn": "stopped", "one/sru": "failed"},
    }
    assert f"one/sru (failed): {harmless(ESCAPE)}\n    line 28\n" in said
    assert "\x1b" not in said
    assert "    line 39\n" in said
    assert "begun (failed): no such file" in said
    assert "status.json" in said.split("two (damaged): ")[1]


def test_a_folder_without_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["runs", str(tmp_path)]) == 1
    assert "there are no runs in" in capsys.readouterr().err


def test_the_page_of_an_unfinished_comparison_shows_all_runs(finished: Path, tmp_path: Path):
    shutil.copytree(finished, tmp_path / "lrn")
    begun = in_state(finished, tmp_path / "sru", state=RUNNING)
    (begun / "result.json").unlink()
    now = states([tmp_path / name for name in ("lrn", "sru", "ran")], tmp_path)
    text = page([read_run(tmp_path / "lrn"), read_run(begun)], "three", 3, states=now)
    assert "1 of 3 models are trained" in text
    assert 'http-equiv="refresh"' in text
    assert all(f"<td class=text>{word}</td>" in text for word in ("finished", "running", "waiting"))
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    write_progress(path, 2, 3, states([tmp_path / "lrn"], tmp_path))
    later = path.read_text(encoding="utf-8")
    assert "2 of 3 models are trained" in later
    assert ("waiting" in text, "waiting" in later) == (True, False)
    assert later[later.index("</section>") :] == text[text.index("</section>") :]
    assert "linnet runs" not in page([read_run(tmp_path / "lrn")], "one", 1, states=now)
