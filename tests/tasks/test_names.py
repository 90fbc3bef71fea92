"""Runs are named after the files of the user, and files of one name do not share a run."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from linnet.cli import main
from linnet.cli.options import changed
from linnet.cli.train import default_folder
from linnet.runs.config import RunConfig
from linnet.tasks import TASKS

OWN = dict.fromkeys(("lm", "classify", "nli", "tag", "read", "forecast", "series"), "path") | {
    "translate": "source"
}
SMALL = "--level char --hidden-size 4 --embedding-size 4 --batch 2 --length 8 --unit sru"


@pytest.mark.parametrize("task", OWN)
@pytest.mark.parametrize("path", ["book.txt", "data/book.tar.gz", "/a/b/book", "../.book.txt", "book/"])
def test_a_run_is_named_after_the_file_of_the_user(task: str, path: str):
    config = changed(RunConfig(task=task), {OWN[task]: path, "unit": "sru"})
    assert default_folder(None, config) == Path("runs/book-sru")


def test_every_task_that_reads_files_is_tested():
    reading = {
        name for name in TASKS if {"path", "source"} & {each.name for each in fields(TASKS[name].Data)}
    }
    assert reading == set(OWN)


def test_the_current_folder_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "poems").mkdir()
    monkeypatch.chdir(tmp_path / "poems")
    config = changed(RunConfig(task="lm"), {"path": ".", "unit": "sru"})
    assert default_folder(None, config) == Path("runs/poems-sru")


def test_two_files_of_one_name_do_not_share_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    for name, line in (("one", "the linnet sings\n"), ("two", "a bird is in the tree\n")):
        Path(name).mkdir()
        Path(name, "birds.txt").write_text(line * 50, encoding="utf-8")
    assert main(["train", "lm", "--path", "one/birds.txt", "--steps", "2", *SMALL.split()]) == 0
    assert main(["train", "lm", "--path", "two/birds.txt", "--steps", "2", *SMALL.split()]) == 5
    assert "path was 'one/birds.txt' and is now 'two/birds.txt'" in capsys.readouterr().err


def test_a_file_that_has_changed_does_not_resume_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    command = ["train", "lm", "--path", "birds.txt", *SMALL.split()]
    Path("birds.txt").write_text("the linnet sings\n" * 50, encoding="utf-8")
    assert main([*command, "--steps", "2"]) == 0
    assert main([*command, "--steps", "3"]) == 0
    # The same characters, so that the vocabulary is the same.
    Path("birds.txt").write_text("sings the linnet\n" * 50, encoding="utf-8")
    for steps in ("3", "4"):
        assert main([*command, "--steps", steps]) == 5
        assert "birds.txt has other contents than when this run was trained" in capsys.readouterr().err
    assert main([*command, "--steps", "3", "--overwrite"]) == 0
