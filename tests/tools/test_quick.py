"""`make quick` selects the tests of what changed, the nearest first, and keeps its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import quick
from tools.imports import import_graph
from tools.quick import DISTANT, FOLDER, IMPORTS, NAMED, modules, reverse, select


@pytest.fixture(scope="module")
def repository() -> tuple[dict[str, Path], dict[str, set[str]]]:
    paths = modules()
    return paths, reverse(import_graph(paths))


@pytest.mark.parametrize(
    ("changed", "test", "rank", "why"),
    [
        ("tests/cpu/test_jit.py", "tests/cpu/test_jit.py", NAMED, "changed"),
        ("linnet/cpu/jit.py", "tests/cpu/test_jit.py", NAMED, "tests linnet/cpu/jit.py"),
        ("tools/soak.py", "tests/tools/test_soak.py", NAMED, "tests tools/soak.py"),
        ("linnet/runs/errors.py", "tests/runs/test_load.py", IMPORTS, "imports linnet.runs.errors"),
        ("tests/toy_task.py", "tests/test_toy_task.py", IMPORTS, "imports toy_task"),
        (
            "tools/cases.py",
            "tests/tools/test_soak.py",
            IMPORTS,
            "imports tools.cases",
        ),
        (
            "benchmarks/memory.py",
            "tests/tools/test_soak.py",
            DISTANT,
            "imports tools.soak, which imports benchmarks.memory",
        ),
        ("linnet/units/sru.py", "tests/test_laws.py", DISTANT, "is for every change of linnet/units/"),
        ("docs/gpu.md", "tests/test_docs.py", DISTANT, "is for every change of docs/"),
        (
            "linnet/data/corpora.py",
            "tests/data/test_vocabulary.py",
            FOLDER,
            "is in the folder of linnet/data/corpora.py",
        ),
    ],
)
def test_a_test_is_selected_with_its_reason(repository, changed: str, test: str, rank: int, why: str):
    assert select([changed], *repository)[test] == (rank, why)


def test_the_nearest_tests_come_first_and_nothing_but_tests(repository):
    selected = select(["linnet/data/corpora.py", "tests/test_docs.py", "LICENSE"], *repository)
    ranks = [reason.rank for reason in selected.values()]
    assert ranks == sorted(ranks)
    assert all(Path(quick.ROOT, test).is_file() and quick.is_test(test) for test in selected)


def test_what_everything_imports_selects_little(repository):
    """Every test imports `linnet`; its top is only a list of names."""
    assert list(select(["linnet/__init__.py"], *repository)) == ["tests/test_structure.py"]
    assert select(["LICENSE"], *repository) == {}


def test_every_test_that_is_named_here_exists():
    named = {test for tests in quick.FURTHER.values() for test in tests}
    assert [test for test in sorted(named) if not Path(quick.ROOT, test).is_file()] == []


def test_the_base_is_where_the_branch_left_main(monkeypatch: pytest.MonkeyPatch):
    answers = {"merge-base": ["a1"], "rev-parse": ["b2"]}
    monkeypatch.setattr(quick, "git", lambda command, *_: answers[command])
    assert quick.base_of_branch() == "a1"
    answers["rev-parse"] = ["a1"]
    assert quick.base_of_branch() == "HEAD~1"


TESTS = """
import time

def test_first(): pass
def test_second(): time.sleep(0.2)
def test_third(): assert False
"""


@pytest.mark.parametrize(("seconds", "code"), [(0.0, 0), (60.0, 1)])
def test_no_test_starts_after_the_time(
    tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str], seconds: float, code: int
):
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    name = f"test_within_{seconds:.0f}.py"
    (tmp_path / name).write_text(TESTS)
    assert quick.run([name], seconds) == code
    assert ("after 0 s, not finished: test_within_0.py" in capsys.readouterr().out) == (code == 0)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """pytest has the same exit code for it as for a run that was stopped."""
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_wrong.py").write_text("import no_such_module")
    assert quick.run(["test_wrong.py"], 60.0) == 2
