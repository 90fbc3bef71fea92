"""The smoke test of an installed Linnet, without anything else of the repository.

python smoke.py            layers, kernels, files and commands
python smoke.py --ready    the models of the package; needs the extra lm
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import torch

import linnet


def run() -> None:
    rnn = linnet.SRU(8, 16, num_layers=2, bidirectional=True)
    y, state = rnn(torch.randn(5, 3, 8), lengths=[5, 2, 1])
    y.sum().backward()
    assert (y.shape, state.shape) == ((5, 3, 32), (4, 3, 16))
    stack = linnet.LSTM(8, 16).eval()
    x = torch.randn(30, 2, 8)
    with torch.no_grad():
        expected, _ = stack(x)
        with linnet.backend("reference"):
            assert torch.allclose(stack(x)[0], expected, atol=1e-5)
        stepped = linnet.stream(stack, batch=2).run(x)
    assert torch.allclose(stepped, expected, atol=1e-5)
    report = linnet.convert(torch.nn.Sequential(torch.nn.LSTM(8, 16)))
    assert isinstance(report.model[0], linnet.LSTM)


def check_files() -> None:
    """What is no Python has to be in the wheel, too."""
    package = files("linnet")
    pages = ("analysis/lens/page.html", "analysis/lens/page.js")
    models = [f"ready/{name}/best/model.safetensors" for name in ("punctuate", "translate", "kjv")]
    needed = ("py.typed", "units/__init__.pyi", *pages, *models)
    assert [name for name in needed if not package.joinpath(name).is_file()] == []
    assert version("linnet-rnn") == linnet.__version__


def run_commands(folder: Path) -> None:
    linnet.export_c(linnet.SRU(8, 16).eval(), folder / "c")
    assert (folder / "c" / "model.c").is_file()
    for arguments in (["list"], ["bench", "--help"]):
        command = [sys.executable, "-m", "linnet", *arguments]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)


def ask_models() -> None:
    text = "in the beginning god created the heaven and the earth"
    (answer,) = linnet.load("ready:punctuate").predict(text)
    assert answer["text"].startswith("In the beginning God created the heaven")
    (answer,) = linnet.load("ready:translate").predict("Thou shalt not steal.")
    assert answer["translation"] == "You shall not steal."
    (answer,) = linnet.load("ready:kjv").predict("And it came to pas", tokens=1, temperature=0)
    assert answer == "And it came to pass"


if __name__ == "__main__":
    if "--ready" in sys.argv:
        ask_models()
    else:
        run()
        check_files()
        with tempfile.TemporaryDirectory() as folder:
            run_commands(Path(folder))
    where = f"Python {sys.version.split()[0]}, torch {torch.__version__}, {os.path.dirname(linnet.__file__)}"
    print(f"linnet {linnet.__version__} works: {where}")
