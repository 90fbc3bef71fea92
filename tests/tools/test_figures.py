"""The figures of the pages, in tables and in sentences, are those of the records."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import rows
from experiments import results
from linnet.atlas.record import read_atlas
from tools import figures, microcontroller, pages, targets
from tools.compat import models_page, page, record
from tools.compat.projects import MODELS, PROJECTS

MARK = "<!-- benchmarks/compat.csv: sb3-contrib, time, {}, ratio -->"


def write_readme(path: Path) -> None:
    pages.write_readme(path, rows.read(pages.RESULTS))
    pages.write_engines(path, rows.read(pages.RESULTS))


WRITERS: dict[Path, Callable[[Path], object]] = {
    pages.README: write_readme,
    pages.BENCHMARKS: lambda path: pages.write_benchmarks(
        path, rows.read(pages.RESULTS), path.with_name(pages.PLOT.name)
    ),
    pages.WHICH_UNIT: lambda path: pages.write_which_unit(
        path, rows.read(pages.RESULTS), read_atlas(pages.ATLAS_RECORD)
    ),
    pages.ATLAS: lambda path: pages.write_atlas(path, read_atlas(pages.ATLAS_RECORD)),
    pages.DEPLOY: lambda path: pages.write_deploy(path, targets.read_results()),
    pages.INT8: lambda path: pages.write_int8(path, rows.read(pages.RESULTS), microcontroller.read_results()),
    page.PAGE: lambda path: page.write(path, record.read(record.RESULTS), PROJECTS.values()),
    models_page.PAGE: lambda path: models_page.write(path, record.read(record.RESULTS), MODELS.values()),
}


@pytest.mark.parametrize("written", WRITERS, ids=lambda path: path.relative_to(figures.ROOT).as_posix())
def test_the_tables_of_a_page_are_those_of_the_records(written: Path, tmp_path: Path):
    """If this fails after a new record, run python -m tools.pages or python -m tools.compat."""
    copy = shutil.copy(written, tmp_path)
    (tmp_path / pages.PLOT.name).touch()
    WRITERS[written](Path(copy))
    assert Path(copy).read_text(encoding="utf-8") == written.read_text(encoding="utf-8")


def test_the_figures_of_all_pages_are_those_of_the_records():
    """If this fails after a new record, run python -m tools.pages."""
    texts = {page: page.read_text(encoding="utf-8") for page in figures.PAGES}
    assert sum(len(figures.MARK.findall(text)) for text in texts.values()) > 2
    assert {page: figures.updated(text) for page, text in texts.items()} == texts


def test_a_figure_is_written_again_with_its_decimals():
    key = {"project": "sb3-contrib", "what": "time", "contestant": "SRU"}
    ratio = next(float(row["ratio"]) for row in record.read(record.RESULTS) if key.items() <= row.items())
    mark = MARK.format("SRU")
    assert figures.updated(f"took 7.0{mark}, 9{mark}") == f"took {ratio:.1f}{mark}, {ratio:.0f}{mark}"


def test_a_figure_of_several_rows_is_their_mean():
    seeds = ["lrn-seed1", "lrn-seed2"]
    both = [float(row["test"]) for row in results.read_results() if row["row"] in seeds]
    mark = f"<!-- experiments/results.csv: lrn_table6, {'+'.join(seeds)}, , test -->"
    assert len(both) == 2
    assert figures.updated(f"F1 0.00{mark}") == f"F1 {sum(both) / 2:.2f}{mark}"


def test_a_row_that_is_not_recorded_is_named():
    with pytest.raises(ValueError, match=r"compat\.csv has no ratio of sb3-contrib, time, FOO"):
        figures.updated(f"0.5{MARK.format('FOO')}")
