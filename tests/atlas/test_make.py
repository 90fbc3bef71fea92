"""A tiny atlas from the command line: two problems, two units, a few updates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from linnet.atlas import measure, samples
from linnet.atlas.plan import PARAMETERS, TIME, Place, folder_of, updates_in_time
from linnet.atlas.problems import FORMS, PROBLEMS, find_problems, problem_names
from linnet.atlas.record import Atlas, read_atlas
from linnet.cli import main
from linnet.runs.records import read_result

ARGUMENTS = [*("atlas", "--quick", "--units", "sru", "eurnn", "--seeds", "3")]
ARGUMENTS += ["--tasks", "parity", "characters", "permuted-mnist"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("atlas")
    with pytest.MonkeyPatch.context() as patch:
        for name, steps in (("parity", 3), ("characters", 4)):
            problem = PROBLEMS[name]
            small = {**problem.quick.settings, "steps": steps, "lr": 0.001}
            changed = replace(problem, quick=problem.quick._replace(budget=3000, settings=small))
            patch.setitem(PROBLEMS, name, changed)
        missing = {**PROBLEMS["permuted MNIST"].shared, "data_dir": str(root / "missing")}
        patch.setitem(PROBLEMS, "permuted MNIST", replace(PROBLEMS["permuted MNIST"], shared=missing))
        patch.setattr(samples, "LINES", 60)
        patch.setattr(measure, "SECONDS", 0.1)
        assert main([*ARGUMENTS, "--run-dir", str(root / "atlas")]) == 0
        first = (root / "atlas" / "atlas.json").read_bytes()
        # The same command again makes no run, and writes the same record.
        assert main([*ARGUMENTS, "--run-dir", str(root / "atlas")]) == 0
        assert (root / "atlas" / "atlas.json").read_bytes() == first
    return root / "atlas"


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


@pytest.mark.parametrize("form", FORMS)
def test_every_problem_has_its_figure(form: str, tmp_path: Path):
    for problem in find_problems(problem_names(form)):
        config = problem.config(form, tmp_path)
        assert problem.main_figure(config).name == problem.figure
        assert config.loop.steps > 0
