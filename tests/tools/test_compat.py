"""tools.compat: a project that fails is shown as failing, and the table comes from the record."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tools import toy_case
from tools.compat import __main__ as command
from tools.compat import environments, inside, models_page, page, processes, record
from tools.compat.models import shared
from tools.compat.projects import MODELS, PROJECTS, Model, Project


class Toy(Project):
    case = "tests.tools.toy_case"


class Missing(Project):
    case = "tests.tools.no_case"


TOY = Toy("skorch", ("skorch==1.0",), "rnn = linnet.LSTM(8, 32)", minutes=1)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Cases run in this environment, and logs are written to a temporary folder."""
    monkeypatch.setattr(processes, "python_of", lambda project: Path(sys.executable))
    monkeypatch.setattr(processes, "FOLDER", tmp_path)
    return tmp_path


def test_a_process_checks_every_contestant(here: Path):
    checks = processes.run_case(TOY, "check")
    assert [(row["contestant"], row["works"]) for row in checks] == [
        ("original", "yes"),
        ("good", "yes"),
        ("bad", "no"),
    ]
    assert checks[2]["why"] == "ZeroDivisionError: division by zero"
    assert "Traceback" in (here / "skorch-check.log").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rounds of a race are enough here."""
    monkeypatch.setattr(inside, "SECONDS", 0.0)


def test_the_contestants_are_timed_relative_to_the_first(capsys: pytest.CaptureFixture[str]):
    times = inside.time(toy_case, toy_case.CONTESTANTS)
    assert list(times) == ["original", "good"]
    assert times["original"]["ratio"] == 1
    assert times["good"]["ratio"] == times["good"]["p50_ms"] / times["original"]["p50_ms"]
    assert capsys.readouterr().out == "skipped: bad: ZeroDivisionError: float division by zero\n"
    with pytest.raises(RuntimeError, match="bad cannot be timed"):
        inside.time(toy_case, {"bad": 0, "good": 1})


def test_a_process_that_ends_or_hangs_is_a_failure_of_the_project(here: Path):
    (row,) = processes.run_case(Missing("skorch", ("skorch==1.0",), ""), "check")
    assert (row["works"], row["contestant"]) == ("no", "")
    assert row["why"].startswith("ended with exit code 1, see ")
    (row,) = processes.run_case(replace(TOY, minutes=0.001), "check")
    assert row["why"].startswith("took more than 0.001 minutes, see ")


def test_an_environment_sees_the_base_and_says_what_cannot_be_installed(tmp_path: Path):
    base = tmp_path / "base" / "lib" / "python3" / "site-packages"
    (base / "toy-1.0.dist-info").mkdir(parents=True)
    (base / "toy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (base / "toy.py").write_text("print('of the base')\n")
    wanted = ["--no-index", "toy==1.0"]
    folder = environments.prepared(tmp_path / "project", wanted, sees=tmp_path / "base")
    python = folder / "bin" / "python"
    done = subprocess.run([python, "-c", "import toy"], capture_output=True, text=True, check=True)
    assert done.stdout == "of the base\n"
    (folder / "kept").touch()
    environments.prepared(folder, wanted)
    assert (folder / "kept").exists()
    with pytest.raises(RuntimeError, match=r"No matching distribution found for toy==2\.0"):
        environments.prepared(folder, ["--no-index", "toy==2.0"])
    assert not (folder / "kept").exists()


def test_a_project_that_cannot_be_installed_is_a_failure(here: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(project: Project) -> Path:
        raise RuntimeError("pip failed:\nERROR: no matching distribution\n")

    monkeypatch.setattr(processes, "python_of", fails)
    (row,) = processes.run_case(TOY, "check")
    assert row["why"] == "cannot be installed: ERROR: no matching distribution"


class ToyModel:
    """A model whose numbers a conversion changes by `shift`."""

    def __init__(self, shift: float):
        self.shift = shift

    def work(self, convert: Any) -> Any:
        converted = convert(None) is not None
        return lambda: (torch.tensor([1.0, 2.0]) + self.shift * converted, torch.tensor([[1], [2]]))


@pytest.mark.parametrize(("shift", "works"), [(1e-6, True), (1e-3, False)])
def test_a_conversion_has_to_give_the_same_numbers(shift: float, works: bool):
    given = {"package": lambda module: None, "float32": lambda module: 1, "int8": lambda module: 1}
    found = inside.convert(ToyModel(shift), given)
    assert [found[name]["works"] for name in given] == [True, works, True]
    assert found["float32"]["difference"] == pytest.approx(shift, rel=0.1)
    assert found["float32"]["why"] == ("" if works else "differs")


class ReadModel(ToyModel):
    """A model that is read from a file: there is no module of torch to compare with."""

    CONVERSIONS = shared.READ

    def own(self) -> Any:
        return self.work(lambda module: None)


class RebuiltModel(ToyModel):
    own = ReadModel.own


@pytest.mark.parametrize(
    ("case", "first"), [(ToyModel, ["package"]), (RebuiltModel, ["rebuilt"]), (ReadModel, [])]
)
def test_the_contestants_of_a_model(case: Any, first: list[str]):
    assert list(inside.conversions_of(case(0))) == [*first, "float32", "int8"]


def test_the_way_of_the_package_comes_first():
    found = inside.convert(ReadModel(1e-3), {"float32": lambda module: 1})
    assert [(name, each["works"]) for name, each in found.items()] == [("package", True), ("float32", False)]


def test_changed_answers_are_counted():
    numbers, answers = torch.zeros(2), torch.tensor([[1, 2], [3, 4], [5, 6]])
    found = inside.compared([numbers, answers], [numbers, answers.clamp(max=4)], may_round=True)
    assert found == {"works": True, "why": "1 of 3 answers change", "difference": 0.0}
    assert not inside.compared([numbers, answers], [numbers, answers + 1], may_round=False)["works"]


def test_the_table_of_models_has_differences_and_times():
    toy = Model("toy", ("toy==1.0",), "linnet.convert(model)", does="a song", way="NumPy")
    results = {
        "package": {"works": True, "p50_ms": 20.0, "ratio": 1.0, "difference": 0.0, "threads": 1},
        "rebuilt": {"works": True, "p50_ms": 12.0, "ratio": 0.6, "difference": 1e-7},
        "float32": {"works": True, "p50_ms": 10.0, "ratio": 0.5, "difference": 1e-7},
        "int8": {
            "works": True,
            "p50_ms": 5.0,
            "ratio": 0.25,
            "difference": 0.01,
            "why": "1 of 3 answers change",
        },
    }
    text = models_page.body(record.rows_of(toy, "convert", results), [toy, Model("later", ("later==1",), "")])
    assert text.splitlines()[-2:] == [
        "| toy 1.0 | a song | random | `linnet.convert(model)` | NumPy, 20 ms; rebuilt in torch 0.60 "
        "| 1.0e-07 | 0.50 | 0.25 (1.0e-02, 1 of 3 answers change) |",
        "| later 1 |  | random | `` | torch | not run yet | - | - |",
    ]
    failed = models_page.line_of(toy, record.failure(toy, "convert", "exit code 1"))
    assert failed[-3] == "**fails**: exit code 1"


# -------------------------------------------------------------------------------- record and table


def results(works: bool) -> list[dict[str, str]]:
    contestants = {"nn.LSTM": {"works": True}, "LSTM": {"works": True}, "SRU": {"works": works, "why": "a|b"}}
    times = {"nn.LSTM": {"p50_ms": 200.0, "ratio": 1.0}, "LSTM": {"p50_ms": 50.0, "ratio": 0.25}}
    return [*record.rows_of(TOY, "check", contestants), *record.rows_of(TOY, "time", times)]


def test_the_record_replaces_the_rows_of_a_project(tmp_path: Path):
    path = tmp_path / "compat.csv"
    other = replace(TOY, name=list(PROJECTS)[-1])
    failed, old, new = record.failure(other, "check", "it fails"), results(works=False), results(works=True)
    for rows in (failed, old, new):
        record.save(path, rows)
    assert record.read(path) == [*new, *failed]


def test_the_table_says_what_works_what_fails_and_what_cannot_be_had():
    absent = replace(TOY, name="absent", line="", unavailable="it needs torch 1.0")
    later, crashed = replace(TOY, name="later"), replace(TOY, name="crashed")
    failures = [row for what in ("check", "time") for row in record.failure(crashed, what, "exit code 1")]
    text = page.body([*results(works=False), *failures], [TOY, absent, later, crashed])
    assert text.startswith("Times are medians of rounds in which the contestants took turns, measured on 20")
    assert text.splitlines()[4:] == [
        "| skorch | 1.0 | `rnn = linnet.LSTM(8, 32)` | LSTM; **SRU fails**: a\\|b "
        "| LSTM 0.25 of nn.LSTM's 200 ms |",
        "| absent | 1.0 | - | not run: it needs torch 1.0 | - |",
        "| later | 1.0 | `rnn = linnet.LSTM(8, 32)` | not run yet | - |",
        "| crashed | 1.0 | `rnn = linnet.LSTM(8, 32)` | **fails**: exit code 1 | **fails**: exit code 1 |",
    ]


@pytest.mark.parametrize("works", [True, False])
def test_the_exit_code_says_whether_everything_works(
    works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        command, "run_case", lambda project, what: [r for r in results(works) if r["what"] == what]
    )
    written = tmp_path / "page.md"
    models = tmp_path / "models.md"
    for path in (written, models):
        path.write_text(f"before\n{page.BEGIN}\n{page.END}\nafter\n", encoding="utf-8")
    pages = ["--page", str(written), "--models-page", str(models)]
    options = ["--results", str(tmp_path / "compat.csv"), *pages]
    assert command.main(["skorch", *options]) == (0 if works else 1)
    assert "| skorch | " in written.read_text(encoding="utf-8")


def test_every_project_is_pinned_and_has_a_case():
    for project in (*PROJECTS.values(), *MODELS.values()):
        assert all("==" in requirement for requirement in project.requirements), project.name
        assert bool(find_spec(project.case)) is not bool(project.unavailable), project.name


def test_the_page_of_this_repository_is_that_of_the_record():
    rows = record.read(record.RESULTS)
    assert page.body(rows, PROJECTS.values()) in page.PAGE.read_text(encoding="utf-8")
    assert models_page.body(rows, MODELS.values()) in models_page.PAGE.read_text(encoding="utf-8")
