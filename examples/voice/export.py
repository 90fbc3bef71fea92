"""Export Silero's voice detector: a folder of C, and a web page that draws when somebody speaks.

    pip install silero-vad
    python -m examples.voice.export voice                       # voice/c, voice/wasm and voice/index.html
    python -m examples.voice.export voice --sound speech.wav    # the page shows this sound when it opens

The page reads WAV files of 16 kHz, one channel and 16 bits. It needs no server and sends nothing anywhere.
"""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import linnet
from examples.voice.detector import FRAME, RATE, Detector, trained

PAGE = Path(__file__).with_name("page.html")


def export(detector: Detector, folder: Path, sound: bytes | None = None, int8: bool = False) -> Path:
    """Write the detector in C and WebAssembly, and a page; return the page."""
    example = (torch.zeros(1, FRAME), detector.start())
    # Speech is full of pauses: the state must not decay to denormal numbers.
    # In float32, the third convolution lowers the error of int8 on four of five voices (docs/log.md).
    options: dict[str, Any] = {"int8": int8, "skip": ["conv3"] if int8 else (), "flush_denormals": True}
    linnet.export_c(detector, folder / "c", example=example, name="voice", **options)
    web = linnet.export_wasm(detector, folder / "wasm", example=example, **options)
    page = folder / "index.html"
    page.write_text(page_text((web / "model.js").read_text(encoding="utf-8"), sound), encoding="utf-8")
    return page


def page_text(module: str, sound: bytes | None) -> str:
    """The page with the module in it: a browser does not let a page that is a file read other files."""
    given = "null" if sound is None else json.dumps(base64.b64encode(sound).decode())
    text = PAGE.read_text(encoding="utf-8")
    return text.replace("@RATE@", str(RATE)).replace("@SOUND@", given).replace("@MODULE@", module)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sound", type=Path, metavar="WAV", help="what the page shows when it opens")
    parser.add_argument("--int8", action="store_true", help="weights of eight bits")
    options = parser.parse_args(arguments)
    sound = None if options.sound is None else options.sound.read_bytes()
    print(export(trained(), options.folder, sound, options.int8))


if __name__ == "__main__":
    main()
