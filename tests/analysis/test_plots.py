"""Figures of recorded runs: what is put together, what a figure holds, and what has nothing to show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linnet import cli
from linnet.analysis import bar_plots, colours, drawing, inside_plots, plots
from linnet.analysis.runs import (
    Recorded,
    baseline,
    find_runs,
    groups,
    panels,
    read_run,
    split_by,
    updates_to_solve,
)
from linnet.data.memory import Copying
from linnet.runs.config import RunConfig, override
from linnet.tasks.memory import rival_forms
from linnet.train.compare import variations
from linnet.train.loop import train
from linnet.units import UNITS

pytest.importorskip("matplotlib")

BRIEF = {"span": 5, "symbols": 3, "recalled": 2, "hidden_size": 6, "device": "cpu"}
FAST = {"steps": 6, "log_every": 2, "evaluate_every": 3, "eval_examples": 10}
UNIT_OPTIONS = {
    "nru": {"memory_size": 4, "num_heads": 1},
    "lstm": {"peepholes": True, "init": "orthogonal", "chrono": 9},
}


def config(**given: object) -> RunConfig:
    return override(RunConfig(task="memory.copy"), {**BRIEF, **FAST, **given})


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two units, two seeds."""
    folder = tmp_path_factory.mktemp("comparison")
    for unit, options in UNIT_OPTIONS.items():
        for seed in (1, 2):
            train(config(unit=unit, unit_options=options, seed=seed), folder / f"{unit}-{seed}")
    return folder


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NRU with one option changed at a time."""
    folder, base = tmp_path_factory.mktemp("varied"), config(unit="nru", unit_options={"memory_size": 4})
    for made, place in variations(base, {"num_heads": [1, 4], "hidden_size": [9, 6]}, folder):
        train(made, place)
    return folder


def lines(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.get_lines()}


# ---------------------------------------------------------------------------------------- runs


def test_runs_are_found_alone_and_in_folders(comparison: Path, tmp_path: Path):
    names = ["lstm-1", "lstm-2", "nru-1", "nru-2"]
    assert [run.name for run in find_runs([comparison])] == names
    assert [run.name for run in find_runs([comparison / "nru-1"])] == ["nru-1"]
    assert len(find_runs([comparison, comparison / "nru-1"])) == 4
    with pytest.raises(FileNotFoundError, match="neither a run nor a folder of runs"):
        find_runs([tmp_path])


def test_seeds_go_together_and_a_form_of_a_unit_has_its_name(comparison: Path):
    made = groups(find_runs([comparison]))
    assert [(group.label, len(group.runs)) for group in made] == [("lstm-chrono", 2), ("nru", 2)]


def test_labels_say_what_differs(varied: Path):
    labels = [group.label for group in groups(find_runs([varied]))]
    assert labels == [
        "nru, hidden_size 6, num_heads 4",
        "nru, hidden_size 9, num_heads 4",
        "nru, hidden_size 6, num_heads 1",
    ]


def test_what_was_asked_differently_has_a_panel_of_its_own(comparison: Path):
    runs = find_runs([comparison])
    other = config(unit="nru", span=7, reset_every=2, random_labels=True)
    made = panels([*runs, runs[0]._replace(config=other)])
    assert [panel.title for panel in made] == [
        "memory.copy, T = 5",
        "memory.copy, T = 7, the state kept for 2 sequences, random labels",
    ]
    assert baseline(made[0]) == pytest.approx(Copying(5, 3, 2).baseline)


def test_solved_is_the_first_evaluation_below_a_tenth_of_the_baseline():
    def rows(*losses: float) -> list[dict[str, Any]]:
        return [{"step": 10 * i, "loss": loss, "baseline": 0.5} for i, loss in enumerate(losses, 1)]

    assert updates_to_solve(rows(0.6, 0.051, 0.049, 0.2, 0.01)) == 30
    assert updates_to_solve(rows(0.6, 0.05)) is None
    assert updates_to_solve(rows(0.6, 0.2), share=0.5) == 20
    assert updates_to_solve([]) is None


def test_a_setting_splits_runs_into_panels_by_its_value(varied: Path):
    first, wide, last = find_runs([varied])
    runs = split_by([wide, first, last], "hidden_size")
    made = panels(runs)
    assert [panel.title for panel in made] == [
        "memory.copy, T = 5, hidden_size 6",
        "memory.copy, T = 5, hidden_size 9",
    ]
    assert [[group.label for group in panel.groups] for panel in made] == [
        ["nru, num_heads 4", "nru, num_heads 1"],
        ["nru"],
    ]
    with pytest.raises(ValueError, match="no setting 'hiden_size'; did you mean 'hidden_size'"):
        split_by(runs, "hiden_size")


# ------------------------------------------------------------------------------------- drawing


def test_groups_of_one_unit_have_colours_of_their_own(comparison: Path, varied: Path):
    made = groups(find_runs([varied]))
    assert len({how.color for how in colours.looks(made)}) == len(made) == 3
    (lstm, nru), (other, *_) = groups(find_runs([comparison])), made
    assert colours.looks([nru]) == [colours.look("nru")]
    assert colours.looks([lstm, nru, other])[1:] == [colours.look("nru"), colours.look("nru", 1)]


def test_every_unit_has_a_look_of_its_own():
    names = [*UNITS, *rival_forms(9)]
    seen = [colours.look(name) for name in names]
    assert len(set(seen)) == len(names)
    assert set(names) <= set(colours.LOOKS)
    assert colours.look("mine") == colours.look("mine")
    assert colours.look("nru", 1) != colours.look("nru")


def test_a_curve_is_a_mean_with_a_band_and_goes_on_from_what_has_ended():
    long = [{"step": step, "loss": loss} for step, loss in ((10, 4.0), (20, 3.0), (30, 1.0))]
    short = [{"step": step, "loss": loss} for step, loss in ((10, 2.0), (20, 1.0))]
    made = drawing.curve([long, short, []], "loss")
    assert made == drawing.Curve([10, 20, 30], [3.0, 2.0, 1.0], [2.0, 1.0, 1.0], [4.0, 3.0, 1.0])
    assert drawing.curve([long], "accuracy") is None


def test_a_long_curve_is_thinned_to_means():
    rows = [{"step": step, "loss": float(step)} for step in range(1, 11)]
    assert drawing.thinned(rows, "loss", most=4) == {3: 2.0, 6: 5.0, 9: 8.0, 10: 10.0}


# --------------------------------------------------------------------------------------- plots


def test_the_loss_has_a_curve_for_each_unit_and_the_line_of_no_memory(comparison: Path):
    runs = find_runs([comparison])
    (axes,) = plots.draw_loss(runs).axes
    found, expected = lines(axes), Copying(5, 3, 2).baseline
    assert list(found) == ["lstm-chrono", "nru", "_memoryless baseline", "_solved: 10% of it"]
    assert found["_memoryless baseline"].get_ydata()[0] == pytest.approx(expected)
    assert found["_solved: 10% of it"].get_ydata()[0] == pytest.approx(expected / 10)
    means = [(a["loss"] + b["loss"]) / 2 for a, b in zip(runs[2].train, runs[3].train, strict=True)]
    assert list(found["nru"].get_ydata()) == pytest.approx(means)
    assert list(found["nru"].get_xdata()) == [2, 4, 6]
    # A band for each of the two units.
    assert len(axes.collections) == 2


def test_a_loss_that_has_diverged_does_not_hide_the_others(comparison: Path):
    plain = override(RunConfig(task="lm"), {"unit": "sru"})
    losses = ([0.7, 0.6, 0.5], [0.7, 0.7, 0.7], [0.7, 10.0, 500.0])
    good, flat, bad = (
        read_run(comparison / "nru-1")._replace(
            config=plain, valid=[], train=[{"step": step, "loss": loss} for step, loss in enumerate(each)]
        )
        for each in losses
    )
    assert plots.draw_loss([good, flat]).axes[0].get_yscale() == "linear"
    assert plots.draw_loss([good, flat, bad]).axes[0].get_yscale() == "log"


def test_gradients_are_drawn_as_recorded(comparison: Path):
    run = read_run(comparison / "nru-1")
    (axes,) = plots.draw_gradient([run]).axes
    assert list(lines(axes)["nru"].get_ydata()) == [row["gradient_norm"] for row in run.train]
    assert axes.get_yscale() == "log"


def test_images_are_judged_by_right_answers(comparison: Path):
    images = override(RunConfig(task="memory.psmnist"), {"unit": "nru"})
    run = read_run(comparison / "nru-1")._replace(config=images)
    (axes,) = plots.draw_validation([run]).axes
    assert axes.get_ylabel() == "accuracy"
    assert list(lines(axes)["nru"].get_ydata()) == [row["accuracy"] for row in run.valid]


def solved_after(run: Recorded, step: int | None) -> Recorded:
    rows = [{"step": s, "loss": 0.01 if step is not None and s >= step else 1.0} for s in (10, 20, 30)]
    return run._replace(valid=[{**row, "baseline": 0.5} for row in rows])


def test_bars_are_as_long_as_it_took(comparison: Path):
    first, second, *others = find_runs([comparison])
    runs = [solved_after(first, 20), solved_after(second, 30), *(solved_after(run, None) for run in others)]
    (axes,) = plots.draw_converge(runs).axes
    assert [bar.get_width() for bar in axes.patches] == [25, 30]
    assert [bar.get_hatch() for bar in axes.patches] == [None, "///"]
    assert [text.get_text().strip() for text in axes.texts] == ["25", "0 of 2 solved"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["lstm-chrono", "nru"]


def test_variations_are_found_around_the_one_in_the_middle(varied: Path):
    found = bar_plots.variations(groups(find_runs([varied])))
    values = {
        option: {value: group.runs[0].name for value, group in by.items()} for option, by in found.items()
    }
    assert values == {
        "hidden_size": {6: "nru", 9: "nru-hidden_size-9"},
        "num_heads": {4: "nru", 1: "nru-num_heads-1"},
    }
    figure = plots.draw_sensitivity(find_runs([varied]))
    assert [axes.get_title() for axes in figure.axes] == ["hidden_size", "num_heads"]
    assert list(lines(figure.axes[1])) == ["num_heads = 1", "num_heads = 4"]


def test_the_memory_of_the_first_seed_is_shown(comparison: Path):
    figure = plots.draw_memory(find_runs([comparison]))
    (picture,) = [image for axes in figure.axes for image in axes.get_images()]
    assert picture.get_array().shape == (4, 9)
    with pytest.raises(plots.NothingToShow, match="no run of NRU has a checkpoint"):
        plots.draw_memory([read_run(comparison / "lstm-1")])


def test_units_of_which_nothing_reaches_back_are_named(comparison: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inside_plots, "reach_rows", lambda run: [])
    (axes,) = plots.draw_distance([read_run(comparison / "nru-1")]).axes
    assert list(lines(axes)) == ["nru: 0 at every distance"]


# ------------------------------------------------------------------------------- files, the page


def test_all_pictures_are_written(comparison: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["plot", str(comparison), "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert {path.stem for path in tmp_path.iterdir()} == {*plots.IN_REPORTS} - {
        "answers",
        "sensitivity",
        "attention",
    }
    assert {*plots.PLOTS} - {*plots.IN_REPORTS} == {"variance", "decay"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())
    assert "no sensitivity: no two models differ in exactly one option" in said


def test_a_picture_is_the_same_file_each_time(comparison: Path, tmp_path: Path):
    for place in ("once", "twice"):
        command = [
            "plot",
            str(comparison),
            "--what",
            "loss",
            "--format",
            "svg",
            "--out",
            str(tmp_path / place),
        ]
        assert cli.main(command) == 0
    once, twice = ((tmp_path / place / "loss.svg").read_bytes() for place in ("once", "twice"))
    assert once == twice
    assert b"<svg" in once


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--what", "sensitivity"], 1, "nothing to show in the plot 'sensitivity'"),
        (["--what", "los"], 2, "did you mean 'loss'?"),
        (["--what", "decay", "--text", "a word"], 1, "no run is a classifier with a checkpoint"),
        (["--what", "variance"], 1, "no run with a checkpoint has several layers"),
        (["--text", "a word"], 1, "give --what attention or --what decay as well"),
        (["--by", "lag"], 1, "these runs have no setting 'lag'"),
    ],
)
def test_what_cannot_be_drawn_is_answered(
    words: list[str], code: int, told: str, comparison: Path, capsys: pytest.CaptureFixture[str]
):
    try:
        found = cli.main(["plot", str(comparison), *words])
    except SystemExit as stopped:
        found = stopped.code
    assert found == code
    assert told in capsys.readouterr().err


def test_help_and_list_have_every_plot(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        cli.main(["plot", "--help"])
    help_text = capsys.readouterr().out
    assert cli.main(["list", "plots"]) == 0
    listed = capsys.readouterr().out
    for name, plot in plots.PLOTS.items():
        assert f"{name:<15}{plot.about}\n" in listed
        assert plot.about in help_text


def test_a_page_may_have_letters_that_matplotlib_has_no_font_for():
    """The text of an SVG remains text: the browser has the font. A warning would be an error here."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 2))
    figure.suptitle("敤")
    assert "敤" in drawing.svg_of(figure, "letters")
