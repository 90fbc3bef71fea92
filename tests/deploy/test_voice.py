"""The example of a voice detector: a page that reads a sound, in a real browser."""

from __future__ import annotations

import base64
import html
import io
import json
import re
import subprocess
import wave
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import linnet
from examples.voice.detector import FRAME, RATE, Detector, trained
from examples.voice.export import page_text
from linnet.deploy.step.build import outputs_of
from tests.analysis.browser import CHROMIUM, QUIET, needs_chromium

needs_package = pytest.mark.skipif(find_spec("silero_vad") is None, reason="silero-vad is not installed")

# What a user does: choose a file.
CHOOSE = """<script type="module">
const bytes = Uint8Array.from(atob("@SOUND@"), (letter) => letter.charCodeAt(0));
const files = new DataTransfer();
files.items.add(new File([bytes], "sound.wav"));
const input = document.getElementById("file");
input.files = files.files;
input.dispatchEvent(new Event("change"));
</script>"""


def sound(rate: int = RATE) -> tuple[Tensor, bytes]:
    """A chirp of a second that becomes louder: its samples, and a WAV file."""
    time = np.arange(rate) / rate
    samples = (np.sin(2 * np.pi * 300 * time * (1 + time)) * time * 20000).astype(np.int16)
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return torch.from_numpy(samples / np.float32(32768)), written.getvalue()


def shown(page: str, folder: Path) -> tuple[str, list[float]]:
    """What the page says in Chromium, and the probabilities that it draws."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    options = [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=10000", "--dump-dom"]
    command = [str(CHROMIUM), *QUIET, *options, path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    said = re.search(r'<p id="status"[^>]*>([^<]*)<', done.stdout)
    found = re.search(r'data-probabilities="([^"]*)"', done.stdout)
    assert said, done.stderr[-500:]
    return html.unescape(said[1]), json.loads(html.unescape(found[1])) if found else []


@needs_chromium
def test_the_page_draws_the_probabilities_of_a_chosen_file(tmp_path: Path):
    """In JavaScript, which needs no compiler; with weights that give probabilities of all sizes."""
    torch.manual_seed(0)
    detector = Detector().eval()
    with torch.no_grad():
        detector.final_conv.weight.mul_(100)
    example = (torch.zeros(1, FRAME), detector.start())
    folder = linnet.export_js(detector, tmp_path / "js", example=example)
    page = page_text((folder / "model.js").read_text(encoding="utf-8"), None)
    samples, file = sound()
    frames = torch.nn.functional.pad(samples, (0, -len(samples) % FRAME)).view(-1, FRAME)
    choose = CHOOSE.replace("@SOUND@", base64.b64encode(file).decode())
    said, found = shown(page.replace("</body>", f"{choose}</body>"), tmp_path)
    assert said.startswith("1.0 s of sound in ")
    expected = outputs_of(detector, frames, example)[:, 0]
    torch.testing.assert_close(torch.tensor(found), expected, rtol=1e-5, atol=1e-5)
    assert expected.std() > 0.01
    # A sound that it shows when it opens, which it cannot read.
    said, found = shown(page.replace("const sound = null", f"const sound = {wrong_sound()}"), tmp_path)
    assert "16000 Hz, 16 bits; got format, channels, rate and bits: 1,1,8000,16" in said
    assert not found


def wrong_sound() -> str:
    return json.dumps(base64.b64encode(sound(8000)[1]).decode())


@needs_package
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TorchScript
@torch.no_grad()
def test_the_detector_is_that_of_the_package():
    from silero_vad import load_silero_vad

    detector, theirs = trained(), load_silero_vad()
    state = detector.start()
    for frame in sound()[0][: 20 * FRAME].view(-1, 1, FRAME):
        found, state = detector(frame, state)
        torch.testing.assert_close(found, theirs(frame, RATE), rtol=1e-6, atol=1e-6)
