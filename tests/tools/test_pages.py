"""The tables of the pages come from the recorded rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from linnet.bench import rows
from linnet.bench.run import run
from linnet.bench.settings import Settings, quick
from tools import pages


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "results.csv"
    settings = replace(quick(Settings(threads=1)), rounds=1, units=("sru", "lrn"), references=())
    run(settings, "speed", path, again=False, say=lambda text: None)
    return path


def test_the_readme_tables_come_from_the_last_rows(tmp_path: Path, measured: Path):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{pages.BEGIN}\nold\n{pages.END}\nafter\n", encoding="utf-8")
    found = rows.read(measured)
    key = {"what": "speed", "unit": "sru", "mode": "inference", "ratio_to": "nn.LSTM"}
    old = next(row for row in found if key.items() <= row.items())
    pages.write_readme(readme, [*found, {**old, "ratio": "0.1234", "met": "yes"}])
    text = readme.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{pages.BEGIN}\n\nMeasured on 20")
    assert text.endswith(f"\n\n{pages.END}\nafter\n")
    assert "old" not in text
    assert "| unit | 6, 3, 16 | step 1, 1, 16 |" in text
    assert "| SRU | 0.12 / " in text
    pages.write_readme(readme, [*found, {**old, "ratio": "0.1234", "met": "yes"}])
    assert readme.read_text(encoding="utf-8") == text


def test_what_was_asked_and_reached_is_on_a_page_of_its_own(tmp_path: Path, measured: Path):
    page = tmp_path / "README.md"
    page.write_text(f"before\n{pages.BEGIN}\nold\n{pages.END}\nafter\n", encoding="utf-8")
    pages.write_targets(page, rows.read(measured))
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{pages.BEGIN}\n\n| what | of | reached | asked | met |")
    assert text.endswith(f"\n\n{pages.END}\nafter\n")
    assert "old" not in text
    assert "| SRU, LRN training, d = 16 | the limit | " in text


def test_a_readme_without_markers_is_left_alone(tmp_path: Path, measured: Path):
    readme = tmp_path / "README.md"
    readme.write_text("nothing here\n")
    with pytest.raises(ValueError, match="must hold once each"):
        pages.write_readme(readme, rows.read(measured))
    assert readme.read_text() == "nothing here\n"


@pytest.mark.parametrize("page", [pages.README, pages.TARGETS], ids=lambda page: page.parent.name)
def test_the_pages_of_this_repository_have_the_markers(page: Path):
    text = page.read_text(encoding="utf-8")
    assert (text.count(pages.BEGIN), text.count(pages.END)) == (1, 1)


def test_the_plot_is_shown_if_there_is_one(tmp_path: Path, measured: Path):
    readme, plot = tmp_path / "README.md", tmp_path / "folder" / "speed.png"
    plot.parent.mkdir()
    plot.write_bytes(b"")
    readme.write_text(f"{pages.BEGIN}{pages.END}")
    pages.write_readme(readme, rows.read(measured), plot)
    assert "](folder/speed.png)" in readme.read_text(encoding="utf-8")
