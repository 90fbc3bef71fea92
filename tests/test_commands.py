"""Structure: every command that a page prints exists, with its options, and finds the runs that it reads."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from linnet import cli
from linnet.cli.folders import records_of
from linnet.cli.options import run_config
from linnet.cli.train import default_folder
from linnet.runs.records import open_run, read_config
from linnet.tasks import TASKS
from linnet.tasks.registry import VARIABLE
from tools.commands import Command, commands, pages
from tools.follow import RECORD, FailedError, Shell, follow, record, rows_of

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [page for page in pages() if commands(page.read_text(encoding="utf-8"))]
READ_RUNS = ("eval", "predict", "generate", "export", "lens")
# A file of the Python block before it, which this page registers as a task.
OWN_TASK = ROOT / "docs" / "own_task.md"


def words_of(page: Path) -> Iterator[list[str]]:
    """Each command of a page as words, without its comment; also those behind a launcher such as srun."""
    for command in commands(page.read_text(encoding="utf-8")):
        words = shlex.split(command.text, comments=True)
        starts = [number for number, word in enumerate(words) if word in ("linnet", "make", "python")]
        if starts:
            yield words[starts[0] :]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the data sets that options of pages name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "DIR").mkdir()
    np.save(tmp_path / "DIR" / "glove.6B.50d.subset.npy", np.zeros((1, 50), np.float32))
    (tmp_path / "data").mkdir()
    return tmp_path


def register(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Define the task of docs/own_task.md as the page says."""
    source = re.search(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert source
    (folder / "brackets.py").write_text(source[1], encoding="utf-8")
    monkeypatch.setenv(VARIABLE, str(folder / "brackets.py"))
    monkeypatch.setattr(TASKS, "known", dict(TASKS.known))
    monkeypatch.setattr(TASKS, "files_read", False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_commands_have_options_that_exist_and_runs_that_were_trained_before(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """A training only writes its settings here, by which later commands know its options."""
    if page == OWN_TASK:
        register(page, folder, monkeypatch)
    for words in words_of(page):
        if words[0] == "linnet":
            check(words[1:])
        elif words[0] == "make":
            assert words[1] in targets(), words
        elif words[1] == "-m":
            assert importlib.util.find_spec(words[2]), words


def check(words: list[str]) -> None:
    if any("://" in word for word in words):
        return  # a store or a database, which is away
    options = cli.parser().parse_args(words)
    if options.command == "train":
        config = run_config(options, options.task)
        open_run(options.folder or default_folder(options.recipe, config), config)
    elif options.command in READ_RUNS:
        for folder in getattr(options, "folders", None) or [options.folder]:
            assert read_config(records_of(folder)), words


def targets() -> set[str]:
    return set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


# ------------------------------------------------------------------------------------- README, run

TINY = ["--hidden-size", "6", "--steps", "2", "--threads", "1"]
# Commands with tests of their own, or of data that takes seconds to read: tools.follow runs them.
ELSEWHERE = ("race", "bench", "compare", "lens")


def test_commands_of_the_readme_run_in_order(folder: Path, capsys: pytest.CaptureFixture[str]):
    """Those on the files of examples/data, with tiny models."""
    (folder / "examples").symlink_to(ROOT / "examples")
    ran = []
    for words in words_of(README):
        if words[0] == "linnet" and is_quick(words):
            more = TINY if words[1] == "train" else []
            assert cli.main([*words[1:], *more]) == 0, words
            ran.append(words[1])
    assert {"train", "generate", "predict", "export", "runs"} <= set(ran)
    assert "next.html" in os.listdir(folder)
    capsys.readouterr()
    if shutil.which("cc"):
        with Shell(folder, dict(os.environ)) as shell:
            follow("README.md", [Command(0, line) for line in compiled()], shell)
        assert "exit 0  cd bird" in capsys.readouterr().out


def is_quick(words: list[str]) -> bool:
    runs = ("examples/data", "proverbs", "reviews", "sales")
    return words[1] == "runs" or (words[1] not in ELSEWHERE and any(run in " ".join(words) for run in runs))


def compiled() -> list[str]:
    return [each.text for each in commands(README.read_text(encoding="utf-8")) if " cc " in each.text]


# ------------------------------------------------------------------------------------ tools.follow


def test_commands_over_several_lines_are_one():
    text = "a\n```sh\none \\\n    two   # why\n\nthree\n```\n```python\nx\n```\n```sh\nfour\n```\n"
    assert commands(text) == [Command(3, "one     two   # why"), Command(6, "three"), Command(12, "four")]


def test_a_shell_keeps_its_folder_and_variables(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    lines = [
        "mkdir new && cd new  # a comment",
        "export WORD=bird",
        "cat",
        "echo $WORD > song",
        "printf no-newline",
    ]
    with Shell(tmp_path, dict(os.environ)) as shell:
        seconds = follow("page.md", [Command(1, line) for line in lines], shell)
    assert list(seconds) == lines
    assert (tmp_path / "new" / "song").read_text() == "bird\n"
    assert len(capsys.readouterr().out.splitlines()) == len(lines)


@pytest.mark.parametrize("line", ["echo so && false", "exit 1"])
def test_the_first_command_that_fails_is_named(line: str, tmp_path: Path):
    lines = ["true", line, "touch never"]
    wanted = [Command(number, text) for number, text in enumerate(lines, 7)]
    with (
        Shell(tmp_path, dict(os.environ)) as shell,
        pytest.raises(FailedError, match=r"page\.md, line 8: .* ended with 1"),
    ):
        follow("page.md", wanted, shell)
    assert not (tmp_path / "never").exists()


def test_a_page_that_is_followed_again_replaces_its_rows(tmp_path: Path):
    path = tmp_path / "follow.csv"
    record(path, "a.md", rows_of("a.md", "abcdef0", {"one": 1.0, "two": 2.0}, ""))
    record(path, "b.md", rows_of("b.md", "abcdef0", {"one": 1.0}, ""))
    record(path, "a.md", rows_of("a.md", "abcdef1", {"one": 3.04}, "busy"))
    found = [(row["page"], row["command"], row["seconds"], row["commit"]) for row in RECORD.read(path)]
    assert found == [("b.md", "one", "1.0", "abcdef0"), ("a.md", "one", "3.0", "abcdef1")]
