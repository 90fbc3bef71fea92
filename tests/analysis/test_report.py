"""The report: its table, what it says about its task, and how it looks in a browser, light and dark."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from browser import measure, needs_chromium

from linnet.analysis import colours
from linnet.analysis.plots import IN_REPORTS
from linnet.analysis.report import detail, page
from linnet.analysis.runs import Recorded, find_runs
from linnet.analysis.table import best_run, columns, shared_line, text_table
from linnet.runs.config import RunConfig, override
from linnet.tasks import TASKS
from linnet.tasks.results import Section
from linnet.train.loop import train

pytest.importorskip("matplotlib")

SMALL = {"hidden_size": 6, "device": "cpu", "threads": 1}
SHORT = {"steps": 6, "log_every": 2, "evaluate_every": 3}


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> list[Recorded]:
    """Six units at words, as `linnet compare` trains them."""
    folder = tmp_path_factory.mktemp("language")
    (folder / "text.txt").write_text("the linnet sang in the morning and in the evening\n" * 60)
    text = {
        "corpus": "text",
        "path": str(folder / "text.txt"),
        "level": "word",
        "batch": 4,
        "length": 10,
        "embedding_size": 6,
    }
    for unit in TASKS["lm"].comparison.units:
        config = override(RunConfig(task="lm"), {**text, **SMALL, **SHORT, "unit": unit, "lr": 0.01})
        train(config, folder / unit)
        (folder / unit / "sample.txt").write_text("In the morning the linnet sang <b>in the evening")
    return find_runs([folder])


@pytest.fixture(scope="module")
def language_page(language: list[Recorded]) -> str:
    return page(language, "six units, with a title that is rather long")


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> list[Recorded]:
    folder = tmp_path_factory.mktemp("memory")
    brief = {"span": 5, "symbols": 3, "recalled": 2, "eval_examples": 10}
    for unit in ("nru", "lstm"):
        config = override(RunConfig(task="memory.copy"), {**brief, **SMALL, **SHORT, "unit": unit})
        train(config, folder / unit)
    return find_runs([folder])


def finished(run: Recorded, name: str, figure: str, valid: float) -> Recorded:
    numbers = {**run.result["valid"], figure: valid}
    return run._replace(name=name, result={**run.result, "valid": numbers, "test": numbers})


# ------------------------------------------------------------------------------------------ table


def test_the_best_run_is_found_from_numbers(language: list[Recorded]):
    """As text, "10.00" comes before "9.00" and "1,000.00" is no number."""
    values = {"a": 10.0, "b": 9.0, "c": 1000.0}
    runs = [finished(language[0], name, "perplexity", value) for name, value in values.items()]
    best = best_run(runs)
    assert best is not None
    assert best.name == "b"
    bold = re.findall(r"<tr class=best><td[^>]*>(\w+)</td>", page(runs, "three"))
    assert bold == ["b"]


def test_the_best_run_has_the_highest_value_where_higher_is_better(memory: list[Recorded]):
    images = override(RunConfig(task="memory.psmnist"), {"unit": "nru"})
    runs = [
        finished(memory[0], name, "accuracy", value)._replace(config=images)
        for name, value in (("low", 0.2), ("high", 0.9), ("middle", 0.5))
    ]
    best = best_run(runs)
    assert best is not None
    assert best.name == "high"


def test_words_have_a_perplexity_and_characters_have_bits(language: list[Recorded]):
    run = language[0]
    assert "valid perplexity" in text_table([run])
    assert "bits" not in text_table([run])
    characters = run._replace(config=override(run.config, {"level": "char"}))
    assert "bits per character" in text_table([characters])
    assert "perplexity" not in text_table([characters])


def test_what_all_runs_share_is_said_once(language: list[Recorded]):
    assert "updates" not in [column.label for column in columns(language)]
    assert shared_line(language) == "All runs: updates 6."
    assert "updates" in [column.label for column in columns(language[:1])]


# ------------------------------------------------------------------------------------------- page


def test_a_page_of_language_models_says_nothing_of_memory_tasks(language_page: str):
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", language_page)
    assert len(captions) == 4
    assert not re.search("memory|baseline|symbols", " ".join(captions))
    assert "as uncertain about the next token" in language_page
    assert "&lt;b&gt;in the evening" in language_page


def test_every_plot_of_a_memory_task_has_a_sentence(memory: list[Recorded]):
    content = page(memory, "copying")
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", content)
    assert len(captions) == len(IN_REPORTS) - 3  # no varied option, no attention, no charts of answers
    assert all(len(caption.split()) > 8 and caption.endswith(".") for caption in captions)
    assert "memoryless baseline" in " ".join(captions)


def test_a_single_model_has_no_chart_of_one_bar(language: list[Recorded], language_page: str):
    assert "training speed" in language_page
    assert "training speed" not in page(language[:1], "one unit")


def test_columns_of_text_are_aligned_to_the_left():
    rows = (("0.985", "Old", "-1,204", "0.91 ± 0.02", "12 birds"), ("1.000", "4", "nan", "0.5", "7"))
    made = detail(Section("Mistakes", "About.", ("p", "class", "number", "spread", "text"), rows))
    assert re.findall(r"<th( class=text)?>", made) == ["", " class=text", "", "", " class=text"]
    assert re.findall(r"<td( class=text)?>", made) == ["", " class=text", "", "", " class=text"] * 2
    assert "<tbody></tbody>" in detail(Section("Nothing", "About.", ("p", "class"), ()))


def test_the_page_needs_nothing_else(language_page: str):
    assert "http" not in language_page
    assert "<script" not in language_page
    assert not re.search(r'(src|href)="(?!#|data:image/png)', language_page)
    ids = re.findall(r' id="([^"]*)"', language_page)
    assert len(ids) == len(set(ids))


def test_a_page_of_several_units_says_what_a_unit_is(language: list[Recorded], language_page: str):
    assert "A recurrent unit is the part of a network" in language_page
    assert "A recurrent unit is" not in page(language[:1], "one unit")


def test_a_page_of_an_unfinished_comparison_reloads_itself(language: list[Recorded], language_page: str):
    content = page(language[:1], "six units", expected=6)
    assert "1 of 6 models are trained" in content
    assert 'http-equiv="refresh"' in content
    assert "refresh" not in language_page


# ---------------------------------------------------------------------------------------- colours

# Machado et al. (2009): how linear RGB is seen without one of the three kinds of cones.
VISIONS = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
)


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    x = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(TO_XYZ[1] @ linear(each)) + 0.05 for each in (one, other))
    return high / low


def shades_of_the_default_comparison() -> list[colours.Shade]:
    return [colours.LOOKS[unit][0] for unit in TASKS["lm"].comparison.units]


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("vision", VISIONS)
def test_the_units_of_the_default_comparison_differ_for_every_eye(mode: str, vision: str):
    seen = [
        lab(VISIONS[vision] @ linear(getattr(shade, mode))) for shade in shades_of_the_default_comparison()
    ]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 15


def test_the_units_of_the_default_comparison_differ_without_colours():
    styles = [colours.LOOKS[unit][1] for unit in TASKS["lm"].comparison.units]
    assert len(set(styles)) == len(styles)


@pytest.mark.parametrize(("mode", "paper"), [("light", colours.LIGHT_PAGE), ("dark", colours.DARK_PAGE)])
def test_every_line_stands_out_from_the_page(mode: str, paper: str):
    drawn = [shade for shade in colours.SHADES if shade is not colours.GRID]
    assert min(contrast(getattr(shade, mode), paper) for shade in drawn) >= 3
    text = [getattr(shade, mode) for shade in (colours.INK, colours.FAINT)]
    assert min(contrast(each, paper) for each in text) >= 4.5


# ---------------------------------------------------------------------------------------- browser


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(500, True), (500, False), (1200, True)])
def test_the_page_fits_the_window_and_its_colours(width: int, dark: bool, language_page: str, tmp_path: Path):
    (tmp_path / "report.html").write_text(language_page, encoding="utf-8")
    seen = measure(tmp_path / "report.html", tmp_path, width, dark)
    assert seen["width"] == width
    assert seen["scrolls"] <= width
    assert all(0 <= left < right <= width and not cut for left, right, cut in seen["cells"])
    assert all(0 <= left < right <= width and height > 200 for left, right, height in seen["plots"])
    assert seen["background"] == ("rgb(27, 27, 27)" if dark else "rgb(255, 255, 255)")
    assert set(seen["inks"]) <= ({"rgb(228, 228, 228)"} if dark else {"rgb(34, 34, 34)"})
    assert min(seen["letters"]) >= 9
    assert seen["legends"] == [1, 1, 1]
    assert seen["requests"] == []
    if dark:
        assert "rgb(255, 255, 255)" not in {fill for fill, area in seen["fills"] if area > 100}


@needs_chromium
def test_a_wide_table_becomes_a_list_on_a_phone(memory: list[Recorded], tmp_path: Path):
    runs = [memory[0], memory[1]._replace(name="a-run-with-a-name-that-is-longer-than-most-names-of-runs")]
    made = page(runs, "copying").replace("<table>", "<table class=wide>")
    figures = ("MASE", "sMAPE", "OWA", "WQL", "coverage", "MSE", "MAE")
    many = Section("Baselines", "", ("answers by", *figures), (("seasonal naive", *("0.000123456",) * 7),))
    made = made.replace("</body>", f"{detail(many, listed=True)}</body>")
    (tmp_path / "report.html").write_text(made, encoding="utf-8")
    seen = measure(tmp_path / "report.html", tmp_path, 500)
    assert seen["scrolls"] <= 500
    assert all(0 <= left < right <= 500 and not cut for left, right, cut in seen["cells"])
