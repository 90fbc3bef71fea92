"""Something to do after the import of a module."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from linnet.base.imports import when_imported


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_action_follows_the_import_once(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "imported_late.py").write_text("loader = __spec__.loader\nready = True\n")
    before, calls = list(sys.meta_path), []
    when_imported("imported_late", lambda: calls.append(sys.modules["imported_late"].ready))
    assert not calls
    module = importlib.import_module("imported_late")
    monkeypatch.delitem(sys.modules, "imported_late")
    assert calls == [True]
    assert sys.meta_path == before
    assert type(module.loader).__name__ == "SourceFileLoader"


def test_a_module_that_is_imported_already():
    calls: list[str] = []
    when_imported("sys", lambda: calls.append("sys"))
    assert calls == ["sys"]


def test_a_module_that_does_not_exist():
    before = list(sys.meta_path)
    when_imported("there_is_no_such_module", lambda: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("there_is_no_such_module")
    assert sys.meta_path == before
