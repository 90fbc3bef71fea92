"""Tiny atlases from the command line: a unit or two, a few updates."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from linnet.atlas import make, measure, samples
from linnet.atlas.measure import Times
from linnet.atlas.plan import PARAMETERS, TIME, Place, folder_of, updates_in_time
from linnet.atlas.problems import FORMS, PROBLEMS, Form, Problem, find_problems, problem_names
from linnet.atlas.record import Atlas, read_atlas, write_atlas
from linnet.atlas.table import circumstances, shown
from linnet.cli import main
from linnet.runs import records
from linnet.runs.records import read_result

ARGUMENTS = [*("atlas", "--quick", "--units", "sru", "eurnn", "--seeds", "3")]
ARGUMENTS += ["--tasks", "parity", "characters", "permuted-mnist"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("atlas")
    with pytest.MonkeyPatch.context() as patch:
        for name, steps in (("parity", 3), ("characters", 4)):
            patch.setitem(PROBLEMS, name, with_few_updates(PROBLEMS[name], steps, budget=3000, lr=0.001))
        missing = {**PROBLEMS["permuted MNIST"].shared, "data_dir": str(root / "missing")}
        patch.setitem(PROBLEMS, "permuted MNIST", replace(PROBLEMS["permuted MNIST"], shared=missing))
        patch.setattr(samples, "LINES", 60)
        patch.setattr(measure, "SECONDS", 0.1)
        assert main([*ARGUMENTS, "--run-dir", str(root / "atlas")]) == 0
        yield root / "atlas"


def with_few_updates(problem: Problem, steps: int, budget: int = 0, **changed: float) -> Problem:
    form = problem.quick
    settings = {**form.settings, "steps": steps, **changed}
    return replace(problem, quick=Form(budget or form.budget, settings))


@pytest.fixture
def record_alone(folder: Path, tmp_path: Path) -> Path:
    """A folder with the record of the atlas and without its runs."""
    shutil.copy(folder / "atlas.json", tmp_path)
    return tmp_path


def continued(folder: Path, *arguments: str) -> Atlas:
    assert main([*ARGUMENTS, *arguments, "--run-dir", str(folder)]) == 0
    return read_atlas(folder / "atlas.json")


@pytest.fixture(scope="module")
def atlas(folder: Path) -> Atlas:
    return read_atlas(folder / "atlas.json")


def test_a_row_has_what_was_measured(atlas: Atlas):
    assert [row.unit for row in atlas.of("parity", PARAMETERS)] == ["sru", "eurnn"]
    for row in atlas.of("parity", PARAMETERS) + atlas.of("characters", PARAMETERS):
        assert abs(row.parameters - 3000) < 600
        assert len(row.results) == len(row.int8) == 1
        assert None not in (*row.results, *row.int8, row.update_ms, row.step_us)
        assert 0 < (row.int8_bytes or 0) < 4 * row.parameters
        assert row.updates == atlas.problem(row.problem).updates


def test_what_is_unusual_is_said(atlas: Atlas):
    notes = {row.unit: row.notes for row in atlas.of("parity", PARAMETERS)}
    assert notes["sru"] == ()
    assert "reference loop" in notes["eurnn"][0]


def test_equal_time_gives_a_faster_unit_more_updates(atlas: Atlas, folder: Path):
    assert updates_in_time(300, update_ms=1.0, usual_ms=2.0) == 600
    for row in atlas.of("characters", TIME):
        usual = 4
        place = Place(TIME, "characters", row.unit, 3)
        result = read_result(folder_of(folder, place, row.updates, usual))
        assert result is not None
        assert result["step"] == row.updates


def test_a_run_that_is_the_same_in_both_views_is_made_once(tmp_path: Path):
    places = [Place(view, "parity", "lstm", 1) for view in (PARAMETERS, TIME)]
    assert len({folder_of(tmp_path, place, 300, 300) for place in places}) == 1
    assert len({folder_of(tmp_path, place, 301, 300) for place in places}) == 2


def test_the_levels_of_the_baselines_are_in_the_record(atlas: Atlas):
    assert 0.5 <= (atlas.problem("parity").level or 0) < 0.6
    assert (
        3.5 < (atlas.problem("characters").level or 0) < 5
    )  # bits per character, from the counts of characters


def test_each_unit_has_a_lens_and_the_page_links_to_it(folder: Path):
    page = (folder / "atlas.html").read_text(encoding="utf-8")
    for unit in ("sru", "eurnn"):
        assert (folder / "lenses" / f"{unit}.html").exists()
        assert f'"lens": "lenses/{unit}.html"' in page


def test_a_task_without_its_data_is_left_out(atlas: Atlas):
    assert [each.name for each in atlas.problems] == ["parity", "characters"]
    assert "which is not a folder" in atlas.left_out["permuted MNIST"]


def test_a_folder_of_the_other_form_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["atlas", "--tasks", "parity", "--run-dir", str(folder)]) == 1
    assert "has an atlas of the quick form" in capsys.readouterr().err


def test_an_unknown_task_gets_the_nearest_name():
    with pytest.raises(ValueError, match="did you mean 'even-pairs'"):
        find_problems(["even pair"])


def test_what_the_record_has_is_not_made_again(record_alone: Path):
    """A part of the units and of the tasks: the rest of the record stays in it."""
    before = (record_alone / "atlas.json").read_bytes()
    assert continued(record_alone, "--units", "eurnn", "--tasks", "parity").units == ["sru", "eurnn"]
    assert (record_alone / "atlas.json").read_bytes() == before
    assert not list(record_alone.glob("*/*/result.json"))


def test_workers_make_what_is_missing(folder: Path, record_alone: Path):
    """One run was interrupted, and the others of parity were not made: the results are the same."""
    atlas = read_atlas(folder / "atlas.json")
    of_parity = [replace(row, results=(), made=(), int8=()) for row in atlas.rows if row.problem == "parity"]
    others = [row for row in atlas.rows if row.problem != "parity"]
    write_atlas(record_alone / "atlas.json", replace(atlas, rows=(*of_parity, *others)))
    shutil.copytree(folder / "parity" / "sru-3", record_alone / "parity" / "sru-3")
    (record_alone / "parity" / "sru-3" / "result.json").unlink()
    assert continued(record_alone, "--launcher", "local:2") == atlas


def test_a_run_of_another_commit_is_listed(record_alone: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(records, "loaded_commit", lambda: "fedcba9")
    atlas = continued(record_alone, "--units", "sru", "--tasks", "parity", "--seeds", "4")
    assert atlas.seeds == (3, 4)
    first, second = atlas.circumstances
    assert second == replace(first, commit="fedcba9", date=second.date)
    (own,) = [row for row in atlas.of("parity", PARAMETERS) if row.unit == "sru"]
    assert own.made == (0, 1)
    (other,) = [row for row in atlas.of("parity", PARAMETERS) if row.unit == "eurnn"]
    assert shown(atlas, other).endswith(" (1 of 2 seeds)")
    assert f"commit {first.commit} and fedcba9" in circumstances(atlas)


def test_times_of_another_machine_are_refused(record_alone: Path, capsys: pytest.CaptureFixture[str]):
    atlas = read_atlas(record_alone / "atlas.json")
    elsewhere = replace(atlas.circumstances[0], processor="another processor")
    write_atlas(record_alone / "atlas.json", replace(atlas, circumstances=(elsewhere,)))
    assert main([*ARGUMENTS, "--units", "lrn", "--run-dir", str(record_alone)]) == 1
    assert "were measured on another processor with torch" in capsys.readouterr().err


def test_other_settings_of_a_task_are_refused(
    record_alone: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(PROBLEMS, "parity", with_few_updates(PROBLEMS["parity"], 5))
    assert main([*ARGUMENTS, "--run-dir", str(record_alone)]) == 1
    assert "has parity with other settings: reads was" in capsys.readouterr().err


def test_every_quick_task_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The times, which take most of the time, are not measured."""
    for name in problem_names("quick"):
        monkeypatch.setitem(PROBLEMS, name, with_few_updates(PROBLEMS[name], 2))
    monkeypatch.setattr(samples, "LINES", 100)
    monkeypatch.setattr(samples, "VERSES", 300)
    for name in ("update_times", "step_times"):
        monkeypatch.setattr(make, name, lambda configs, task: Times(dict.fromkeys(configs, 1.0), {}))
    assert main(["atlas", "--quick", "--units", "elrn", "--seeds", "1", "--run-dir", str(tmp_path)]) == 0
    atlas = read_atlas(tmp_path / "atlas.json")
    assert [each.name for each in atlas.problems] == problem_names("quick")
    for row in atlas.rows:
        assert None not in row.results
        assert atlas.problem(row.problem).level is not None


@pytest.mark.parametrize("form", FORMS)
def test_every_problem_has_its_figure(form: str, tmp_path: Path):
    for problem in find_problems(problem_names(form)):
        config = problem.config(form, tmp_path)
        assert problem.main_figure(config).name == problem.figure
        assert config.loop.steps > 0
