"""The site builds without a warning: links lead somewhere, every page is listed, every unit has a page.

Chromium, if it is installed, looks at the pages as a reader does: phone and desktop, light and dark.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

import linnet
from tests.analysis.browser import needs_chromium, opened_browser

ROOT = Path(__file__).parent.parent
# The example of the gallery that the quick build runs.
EXAMPLE = "plot_weights_of_words"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quick build, which runs one example of the gallery; `make docs` runs all."""
    pages = tmp_path_factory.mktemp("site")
    quick = ["-D", f"sphinx_gallery_conf.filename_pattern={EXAMPLE}"]
    quick += ["-D", "unit_lenses=lrn", "-D", "lens_steps=1"]
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


def test_an_example_shows_what_it_prints_and_no_value_of_a_last_expression(site: Path):
    page = (site / "gallery" / f"{EXAMPLE}.html").read_text(encoding="utf-8")
    assert "mean squared error 0." in page
    assert "torch._C.Generator" not in page


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


# ------------------------------------------------------------------------------------- links


ATTRIBUTE = re.compile(r"<(?:a|img|iframe|link|script)\b[^>]*?\b(?:href|src)=\"([^\"]*)\"")
ELSEWHERE = re.compile(r"(?:[a-z]+:|//)")


def broken_links(site: Path) -> Iterator[str]:
    """The links of the site's pages to files and sections that do not exist."""
    text = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    sections = {page: set(re.findall(r'\bid="([^"]+)"', text[page])) for page in text}
    for page in text:
        for link in set(ATTRIBUTE.findall(text[page])):
            name, _, section = unquote(link).partition("#")
            target = (page.parent / name.partition("?")[0]).resolve() if name else page
            lost = section and target in sections and section not in sections[target]
            if not ELSEWHERE.match(link) and (lost or not target.exists()):
                yield f"{page.relative_to(site)}: {link}"


def test_no_link_is_broken(site: Path):
    assert list(broken_links(site.resolve())) == []


NETWORK = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^\"]*\"")


def test_no_page_loads_anything_from_a_network(site: Path):
    found = {page.name: NETWORK.findall(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}
    assert {name: loads for name, loads in found.items() if loads} == {}


# ----------------------------------------------------------------------------------- browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with opened_browser() as opened:
        yield opened


GUIDES = {
    "forecast": "forecast.html",
    "packed sequence": "lengths.html#packed-sequences",
    "early stopping": "training.html#early-stopping",
    "convert": "convert.html",
}


@needs_chromium
def test_a_search_leads_to_the_guide_first(site: Path, browser: Any):
    page = browser.new_page()
    found = {}
    for query in GUIDES:
        page.goto(f"{(site / 'search.html').as_uri()}?q={quote(query)}")
        page.wait_for_selector("ul.search li a")
        results = page.eval_on_selector_all("ul.search li a", "all => all.map(a => a.getAttribute('href'))")
        found[query] = results[0]
        if "log.html" in results:
            assert results.index("log.html") > len(results) / 2
    page.close()
    assert found == GUIDES


@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_screen(width: int, site: Path, browser: Any):
    page = browser.new_page(viewport={"width": width, "height": 900})
    for name in ("index", "results", "results_tables", "which_unit", "units/ltc", f"gallery/{EXAMPLE}"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == width, name
    page.close()


FIGURES = ("index.html", "lens.html", f"gallery/{EXAMPLE}.html")
FILTERS = """[...document.querySelectorAll("article img")].map(
    each => [each.src.includes("_dark."), getComputedStyle(each).filter !== "none"])"""


@needs_chromium
def test_figures_follow_the_theme(site: Path, browser: Any):
    """Drawn on white, they are turned round on a dark page; a screenshot of a dark page is not."""
    page = browser.new_page()
    for name, system, chosen in product(FIGURES, ("light", "dark"), ("auto", "light", "dark")):
        if page.url != (site / name).as_uri():
            page.goto((site / name).as_uri())
        page.emulate_media(color_scheme=system)
        page.evaluate(f"document.body.dataset.theme = {chosen!r}")
        dark = "dark" in (chosen, system) and chosen != "light"
        found = page.evaluate(FILTERS)
        assert found
        assert all(turned == (dark and not is_dark) for is_dark, turned in found), (name, system, chosen)
    page.close()


@needs_chromium
def test_no_figure_is_white_in_the_dark(site: Path, browser: Any):
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    page = browser.new_page(color_scheme="dark")
    for name in FIGURES:
        page.goto((site / name).as_uri())
        for figure in page.locator("article img").all():
            picture = images.open(io.BytesIO(figure.screenshot())).convert("L")
            assert picture.getpixel((2, 2)) < 60, figure.get_attribute("src")
    page.close()


@needs_chromium
def test_the_lens_of_a_unit_follows_the_theme_of_the_site(site: Path, browser: Any):
    """The colour scheme is not emulated, since the frame would have that of the emulation."""
    page = browser.new_page(color_scheme="null", bypass_csp=True)
    page.goto((site / "units" / "lrn.html").as_uri())
    page.locator("iframe").scroll_into_view_if_needed()
    page.wait_for_function("frames.length === 1")
    for theme in ("dark", "light"):
        page.evaluate(f"document.body.dataset.theme = {theme!r}")
        page.frames[1].wait_for_function(
            f"matchMedia('(prefers-color-scheme: {theme})').matches", timeout=9000
        )
    page.close()
