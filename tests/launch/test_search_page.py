"""The page of a search follows its runs: the best ones, and those under way in any process."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from launched import config

import linnet.cli.search as command
from linnet.cli.live_page import Followed
from linnet.cli.search import SearchPage
from linnet.runs.errors import Pruned
from linnet.runs.records import read_result, write_result
from linnet.runs.status import RUNNING, STOPPED, read_status, write_status
from linnet.tasks import TASKS
from linnet.train.loop import train
from linnet.train.progress import Silent


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search_page") / "run"
    train(config(steps=2, evaluate_every=1), folder)
    return folder


def add(run: Path, folder: Path, loss: float) -> Path:
    """Add a run with this validation loss."""
    shutil.copytree(run, folder)
    result = read_result(folder) or {}
    result["valid"] |= {"loss": loss, "mse": loss}
    write_result(folder, result)
    return folder


def become(folder: Path, state: str, error: str = "") -> None:
    status = read_status(folder)
    assert status is not None
    (folder / "result.json").unlink(missing_ok=True)
    write_status(folder, dataclasses.replace(status, state=state, error=error))


def page_of(folder: Path, launcher: str) -> SearchPage:
    given = config()
    selects = TASKS[given.task].selected_by(given.data)
    return SearchPage(folder, "a search", 5, launcher, selects=selects)


def test_the_best_runs_and_those_under_way_are_drawn(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(command, "BEST", 2)
    made = [
        add(run, tmp_path / f"000{number}", loss) for number, loss in enumerate([0.3, 0.1, 0.2, 0.4, 0.5])
    ]
    become(made[3], STOPPED, str(Pruned("by the pruner")))
    become(made[4], RUNNING)
    page = page_of(tmp_path, "local:2")
    followed = Followed(Silent(), page)
    followed.step(1, 1, 1.0, 1.0, 0.1)
    assert not page.path.exists()
    followed.row({"split": "valid"}, 1.0)
    assert f"the first curves are in {page.path}" in capsys.readouterr().out
    text = page.path.read_text(encoding="utf-8")
    assert [path.name for path in page.runs()] == ["0001", "0002", "0004"]
    assert "4 of 5 models are trained" in text
    assert "<td class=text>running</td>" in text
    assert ">0000<" not in text
    shutil.copy(run / "result.json", made[4])
    followed.step(2, 2, 2.0, 1.0, 0.1)
    assert "5 of 5 models are trained" in page.path.read_text(encoding="utf-8")
    page.finish()
    assert "http-equiv" not in page.path.read_text(encoding="utf-8")


def test_a_process_that_ends_leaves_the_page_to_the_others(run: Path, tmp_path: Path):
    add(run, tmp_path / "0000", 0.3)
    become(add(run, tmp_path / "0001", 0.3), RUNNING)
    page = page_of(tmp_path, "local:1")
    Followed(Silent(), page).end()
    page.finish()
    assert "1 of 5 models are trained" in page.path.read_text(encoding="utf-8")
