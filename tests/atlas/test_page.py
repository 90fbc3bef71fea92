"""The page of an atlas in a real Chromium: what is chosen decides what is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from linnet.atlas.page import page, write_page
from linnet.atlas.plan import PARAMETERS, VIEWS
from linnet.atlas.record import Atlas, read_atlas
from linnet.atlas.table import ranked, unit_label
from tests.analysis.browser import needs_chromium, opened_browser
from tests.atlas.example import ATLAS
from tools.pages import ATLAS_RECORD


@pytest.fixture(scope="module")
def open_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path, logged = tmp_path_factory.mktemp("atlas") / "atlas.html", []
    with opened_browser() as browser:

        def opened(width: int = 1280, dark: bool = False, atlas: Atlas = ATLAS) -> Any:
            write_page(path, atlas, {"sru": "lenses/sru.html"})
            scheme = "dark" if dark else "light"
            shown = browser.new_page(
                viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
            )
            shown.on("console", lambda message: logged.append(message.text))
            shown.on("pageerror", lambda error: logged.append(str(error)))
            shown.goto(path.as_uri())
            return shown

        yield opened
    assert logged == []


def units(shown: Any) -> list[str]:
    return shown.locator("#table tbody td:first-child").all_inner_texts()


@needs_chromium
def test_the_table_is_sorted_and_filtered(open_page: Any):
    shown = open_page()
    assert units(shown) == ["LSTM", "SRU", "EURNN"]
    shown.get_by_role("button", name="µs of a step").click()
    assert units(shown) == ["SRU", "LSTM", "EURNN"]  # a unit without a value is the last
    shown.get_by_role("button", name="µs of a step").click()
    assert units(shown) == ["LSTM", "SRU", "EURNN"]
    shown.fill("#most", "10")
    assert units(shown) == ["SRU"]
    shown.fill("#most", "")
    shown.fill("#names", "eurnn, lst")
    assert units(shown) == ["LSTM", "EURNN"]
    shown.check("#better")
    assert units(shown) == ["LSTM", "EURNN"]  # 0.505 is better than 0.5
    shown.select_option("#view", "time")
    assert units(shown) == ["LSTM"]


@needs_chromium
def test_the_verdict_and_the_card_follow_what_is_chosen(open_page: Any):
    shown = open_page()
    verdict = shown.inner_text("#verdict")
    assert verdict.startswith("Best: LSTM, 0.990 ± 0.043. The interval of one other unit meets its own.")
    assert "SRU has the fastest step (9.0 µs)" in verdict
    shown.locator("#plot circle").first.click()
    shown.select_option("#unit", "sru")
    assert shown.get_by_role("link", name=re.compile("watch SRU")).get_attribute("href") == "lenses/sru.html"
    assert "2 of 3" in shown.inner_text("#card")
    shown.select_option("#unit", "eurnn")
    assert "no stream: it has none" in shown.inner_text("#card")


@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_the_screen_and_follows_its_colours(open_page: Any, width: int):
    backgrounds = set()
    for dark in (False, True):
        shown = open_page(width, dark)
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        assert shown.locator("#plot circle").count() == 2  # one has no time of a step
        backgrounds.add(shown.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2


@needs_chromium
def test_all_units_of_the_recorded_atlas_are_shown(open_page: Any):
    """In every task and view, on a phone: the best first, and those with the same result in their order."""
    recorded = read_atlas(ATLAS_RECORD)
    shown = open_page(390, atlas=recorded)
    for problem in recorded.problems:
        shown.select_option("#problem", problem.name)
        for view in VIEWS:
            shown.select_option("#view", view)
            rows = ranked(recorded, problem, view)
            assert len(units(shown)) == len(recorded.units)
            assert units(shown)[: len(rows)] == [unit_label(row.unit) for row in rows]
            steps = steps_of(recorded, problem.name)
            assert shown.locator("#plot circle").count() == sum(steps[row.unit] is not None for row in rows)
            assert shown.inner_text("#verdict").startswith("Best: " if rows else "No run")
            if shown.locator("#plot circle").count():
                assert shown.evaluate(SPREAD) > 100
            assert shown.evaluate("document.documentElement.scrollWidth") <= 390


@needs_chromium
def test_the_table_of_all_tasks_fits_a_large_screen(open_page: Any):
    shown = open_page(1280, atlas=read_atlas(ATLAS_RECORD))
    assert shown.evaluate("matrix.offsetWidth <= matrix.parentElement.clientWidth")


SPREAD = """(() => {
  const heights = [...document.querySelectorAll("#plot circle")].map((each) => each.cy.baseVal.value);
  return Math.max(...heights) - Math.min(...heights);
})()"""
"""The pixels between the highest and the lowest dot."""


def steps_of(atlas: Atlas, problem: str) -> dict[str, float | None]:
    return {row.unit: row.step_us for row in atlas.of(problem, PARAMETERS)}


def test_the_page_says_what_is_not_in_it():
    text = page(ATLAS, {})
    assert "the files of MNIST were not found" in text
    assert "Without a result: EURNN on parity at equal parameters, seed 2." in text
    assert "3 units, 1 task, 3 seeds" in text
