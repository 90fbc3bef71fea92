"""The site builds without a warning: links lead somewhere, every page is listed, every unit has a page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import linnet

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quick build, which does not run the examples of the gallery; `make docs` does."""
    pages = tmp_path_factory.mktemp("site")
    quick = ["-D", "plot_gallery=0", "-D", "unit_lenses=lrn", "-D", "lens_steps=1"]
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", *quick]
    built = subprocess.run(
        [*command, "-b", "html", str(ROOT / "docs"), str(pages)], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return pages


def test_every_unit_has_a_page_with_its_picture(site: Path):
    for name, unit in linnet.UNITS.items():
        page = (site / "units" / f"{name}.html").read_text(encoding="utf-8")
        assert f"<h1>{unit.__name__}<" in page
        assert '<svg class="cell"' in page
        assert "Choose it for" in page


def test_a_unit_has_the_lens_of_a_model_that_the_build_trains(site: Path):
    page = (site / "units" / "lrn.html").read_text(encoding="utf-8")
    assert 'src="../lenses/lrn.html"' in page
    lens = (site / "lenses" / "lrn.html").read_text(encoding="utf-8")
    assert "1 layer of LRN, 48 channels" in lens
    assert "trained on kjv for 1 updates" in lens
    assert "Lens of a trained" not in (site / "units" / "sru.html").read_text(encoding="utf-8")


def test_everything_public_is_in_the_reference(site: Path):
    page = (site / "reference.html").read_text(encoding="utf-8")
    missing = [name for name in linnet.__all__ if f'id="linnet.{name}"' not in page]
    assert missing == ["UNITS"]


def test_links_to_files_outside_of_the_docs_lead_to_pages(site: Path):
    page = (site / "ten_minutes.html").read_text(encoding="utf-8")
    assert 'href="benchmarks.html"' in page
    text = "".join(path.read_text(encoding="utf-8") for path in site.glob("*.html"))
    assert not re.search(r'href="[^":]*\.md"', text)


def test_the_page_of_a_unit_links_to_the_guides(site: Path):
    page = (site / "units" / "nru.html").read_text(encoding="utf-8")
    assert 'href="../which_unit.html#what-we-measured"' in page
    assert 'href="../log.html"' in page


def test_the_picture_of_a_cell_has_its_inputs_and_outputs(site: Path):
    page = (site / "units" / "lstm.html").read_text(encoding="utf-8")
    labels = re.findall(r"<text [^>]*>([^<]+)</text>", page)
    assert {"xₜ", "hₜ₋₁", "cₜ₋₁", "yₜ = hₜ", "cₜ"} <= set(labels)
    # Two products, three sigmoids and two tanh: LSTM.
    assert [labels.count(label) for label in ("W", "σ", "tanh")] == [2, 3, 2]


def test_the_recorded_atlas_is_a_page(site: Path):
    assert 'href="atlas_page.html"' in (site / "atlas.html").read_text(encoding="utf-8")
    page = (site / "atlas_page.html").read_text(encoding="utf-8")
    assert all(f'"label": "{unit.__name__}"' in page for unit in linnet.UNITS.values())
    assert '"lens": "lenses/lrn.html"' in page


def test_results_begin_with_the_claims_and_the_rows_are_behind_links(site: Path):
    page = (site / "results.html").read_text(encoding="utf-8")
    (table,) = re.findall(r"<table.*?</table>", page, re.DOTALL)
    head = re.findall(r"<th class=.*?<p>(.*?)</p>", table, re.DOTALL)
    assert head == ["where", "what the paper says", "paper", "ours", "verdict"]
    for further, wanted in (
        ("results_figures", "SRU without its parts"),
        ("results_tables", "circumstances"),
    ):
        assert f'href="{further}.html"' in page
        assert wanted in (site / f"{further}.html").read_text(encoding="utf-8")
