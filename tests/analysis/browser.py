"""A page measured in a real Chromium, headless."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
DARK = ("--force-dark-mode", "--blink-settings=preferredColorScheme=0")

SCRIPT = """<script>
const box = each => each.getBoundingClientRect(), all = what => [...document.querySelectorAll(what)];
const style = each => getComputedStyle(each);
document.documentElement.dataset.measured = JSON.stringify({
  width: innerWidth,
  scrolls: document.documentElement.scrollWidth,
  background: style(document.body).backgroundColor,
  cells: all("td").map(each => [box(each).left, box(each).right, each.scrollWidth - each.clientWidth]),
  plots: all("figure").map(each => [box(each).left, box(each).right, box(each).height]),
  fills: all("figure svg path").map(each => [style(each).fill, box(each).width * box(each).height]),
  inks: all("figure svg text").map(each => style(each).fill),
  letters: all("figure svg text").map(each => box(each).height),
  legends: all('figure svg [id*="legend_1"]').map(
    each => new Set([...each.querySelectorAll("text")].map(text => Math.round(box(text).top))).size),
  requests: performance.getEntriesByType("resource").map(each => each.name),
});
</script>"""


def measure(page: Path, folder: Path, width: int, dark: bool = False) -> dict[str, Any]:
    """What a browser of this width says about the sizes and colours of a page."""
    copy = folder / f"{page.stem}-{width}-{dark}.html"
    copy.write_text(page.read_text(encoding="utf-8").replace("</body>", f"{SCRIPT}</body>"), encoding="utf-8")
    command = [str(CHROMIUM), *QUIET, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},2000"]
    command += [*(DARK if dark else ()), "--dump-dom", copy.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'data-measured="([^"]*)"', done.stdout)
    assert found, done.stderr[-500:]
    return json.loads(html.unescape(found[1]))


@contextmanager
def opened_browser() -> Iterator[Any]:
    """A Chromium that playwright drives, for pages that are clicked and typed in."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()
