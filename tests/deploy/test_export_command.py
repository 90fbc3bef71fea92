"""linnet export: a trained run in another language."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import linnet
from linnet.cli import main
from linnet.models.generate import generate
from tools.run_steps import CC, STRICT, checked


@pytest.fixture
def run(small_language_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_language_run, tmp_path / "run"))


def test_a_language_model_comes_with_its_vocabulary(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["export", str(run), "--to", "c"]) == 0
    folder = run / "export" / "c"
    assert str(folder) in capsys.readouterr().out
    assert '{1, "l", 0},' in (folder / "main.c").read_text()
    assert main(["export", str(run), "--to", "js", "--out", str(run / "web")]) == 0
    assert 'vocabulary = [" ", "' in (run / "web" / "model.js").read_text()


@pytest.mark.skipif(CC is None, reason="there is no C compiler")
def test_its_program_continues_a_text(run: Path):
    assert main(["export", str(run), "--to", "c", "--weights", "file"]) == 0
    folder = run / "export" / "c"
    checked([str(CC), *STRICT, "model.c", "main.c", "-lm", "-o", "speak"], folder=folder)
    trained = linnet.load(run)
    pieces = generate(trained.model, trained.vocabulary, "the lin", tokens=20, temperature=0)
    assert checked(["./speak", "the lin", "20", "0"], folder=folder) == f"{''.join(pieces)}\n"


def test_an_option_of_another_target_is_an_error(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["export", str(run), "--to", "js", "--weights", "file"]) == 1
    assert "--weights is an option of --to c" in capsys.readouterr().err
    assert not (run / "export").exists()
