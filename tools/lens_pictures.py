"""Pictures of the lens for README and docs, from trained runs, by Chromium.

    python -m tools.lens_pictures --lm RUN --other RUN --memory RUN --out docs/pictures

lm       a language model of words of a gated unit, such as the row `ran` of experiments/units_on_ptb.toml
other    a second one, to be shown next to it
memory   a run of memory.copy with NRU, such as a row of experiments/nru_copying.toml
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from linnet.analysis.lens.runs import lens_of_runs

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
SENTENCE = "the company said it expects to report a loss for the third quarter because of higher costs"


class Shot(NamedTuple):
    """A picture: the runs by their options, the view, and what of the page it shows."""

    name: str
    runs: tuple[str, ...]
    view: str
    word: int = -1  # the selected one
    text: str | None = SENTENCE
    width: int = 1100
    dark: bool = False
    part: str = ".lens"


SHOTS = (
    Shot("lens.png", ("lm",), "weights", word=12),
    Shot("lens_dark.png", ("lm", "other"), "next", dark=True),
    Shot("lens_phone.png", ("lm",), "decay", word=8, width=390),
    Shot("lens_similar.png", ("lm",), "similar", word=12, part="#view"),
    Shot("lens_memory.png", ("memory",), "memory", text=None, part="#view"),
    Shot("lens_arrows.png", ("lm",), "weights", word=12, part=".panels"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name in ("lm", "other", "memory"):
        parser.add_argument(f"--{name}", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    options = parser.parse_args(arguments)
    # Imported here, not above: only those who make pictures need it.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for shot in SHOTS:
            folders = [getattr(options, name) for name in shot.runs]
            if all(folders):
                take(browser, shot, folders, options.out)
        browser.close()


def take(browser: Any, shot: Shot, folders: list[Path], out: Path) -> None:
    page = browser.new_page(
        viewport={"width": shot.width, "height": 900},
        color_scheme="dark" if shot.dark else "light",
        device_scale_factor=1.5,
        bypass_csp=True,  # wait_for_function evaluates a string in the page
    )
    with tempfile.TemporaryDirectory() as work:
        path = lens_of_runs(folders, shot.text).save(Path(work) / "lens.html")
        page.goto(path.as_uri())
        page.click(f"#tab-{shot.view}")
        page.evaluate(f"lens.select({shot.word} < 0 ? lens.readings[0].length - 1 : {shot.word})")
        # Similar states are searched while the page stays responsive.
        page.wait_for_function("!/…$/.test(document.querySelector('.says').textContent)", timeout=200_000)
        page.wait_for_timeout(300)
        page.locator(shot.part).screenshot(path=out / shot.name)
        compress(out / shot.name)
    page.close()
    print(out / shot.name)


def compress(path: Path) -> None:
    """Write a picture with 128 colours: a third of the size, and no difference that one can see."""
    from PIL import Image

    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    main()
