"""Whether code has changed since a figure was measured."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import fresh
from linnet.base import checkout as base

CODE = '''"""A gate."""

from typing import TYPE_CHECKING


class Gate:
    size: int = 3

    def open(self, x: float) -> float:
        """Open it."""
        return x * 2  # twice
'''
OTHER_WORDS = '''"""Another text."""

from typing import Any


class Gate:
    size = 3

    def open(self, x: Any):
        return x * 2
'''


def git(folder: Path, *arguments: str) -> str:
    settings = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *settings, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository with one file of kernels and one of models, both committed."""
    for name in ("cpu/gate.py", "models/lm.py"):
        (tmp_path / "linnet" / name).parent.mkdir(parents=True)
        (tmp_path / "linnet" / name).write_text(CODE)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    monkeypatch.setattr(base, "PACKAGE", tmp_path / "linnet")
    monkeypatch.setattr(fresh, "ROOT", tmp_path)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    fresh.has_changed.cache_clear()
    fresh.has_history.cache_clear()


def measured(folder: Path, what: str = "speed") -> dict[str, str]:
    return {"commit": git(folder, "rev-parse", "--short", "HEAD"), "what": what}


def said(*found: dict[str, str]) -> str:
    forget()
    return fresh.since(found)


def test_a_page_says_that_code_has_changed_since(checkout: Path):
    row = measured(checkout)
    gate = checkout / "linnet" / "cpu" / "gate.py"
    assert said(row) == ""
    gate.write_text(OTHER_WORDS)
    assert said(row) == ""
    gate.write_text(CODE.replace("x * 2", "x * 3"))
    assert said(row) == "; the code has changed since"
    git(checkout, "commit", "-qam", "second")
    assert said(row, measured(checkout)) == f"; the code has changed since {row['commit']}"
    assert said(measured(checkout)) == ""


def test_each_kind_of_measurement_has_its_code(checkout: Path):
    (checkout / "linnet" / "models" / "lm.py").write_text("x = 1")
    assert said(measured(checkout)) == ""
    assert said(measured(checkout, "update")) == "; the code has changed since"
    (checkout / "linnet" / "cpu" / "gate.pyi").write_text("x: int")
    assert said(measured(checkout)) == ""
    (checkout / "linnet" / "cpu" / "gate.py").unlink()
    assert said(measured(checkout)) == "; the code has changed since"


def test_a_commit_that_is_not_in_the_history_is_not_the_code_of_now(checkout: Path):
    git(checkout, "checkout", "-q", "-b", "other")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "second")
    row = measured(checkout)
    assert said(row) == ""
    git(checkout, "checkout", "-q", "-")
    assert said(row) == "; the code has changed since"


def test_nothing_is_said_without_a_history(checkout: Path):
    row = measured(checkout)
    (checkout / ".git").rename(checkout / "gone")
    (checkout / "linnet" / "cpu" / "gate.py").unlink()
    assert said(row) == ""
    assert said({"commit": "", "what": "speed"}) == ""


def test_the_paths_of_the_code_exist():
    paths = {path for known in fresh.CODE.values() for path in known}
    assert [path for path in paths if not (fresh.ROOT / path).is_dir()] == []
