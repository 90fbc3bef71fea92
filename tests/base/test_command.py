"""Ctrl-C before the command line runs: while linnet and the modules of a command are imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import linnet
from linnet import cli

ROOT = str(Path(linnet.__file__).parents[1])


def run_interrupted(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a torch that interrupts the process instead of being imported."""
    (folder / "torch.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)"
    )
    path = os.pathsep.join([str(folder), ROOT])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_an_interrupted_import_ends_the_command_quietly(tmp_path: Path):
    script = tmp_path / "linnet"
    script.write_text("import sys\nfrom linnet.cli import main\nsys.exit(main())\n")
    for words in (["-m", "linnet", "list"], [str(script), "list"]):
        done = run_interrupted(tmp_path, *words)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_a_program_that_imports_linnet_ends_as_python_does(tmp_path: Path):
    done = run_interrupted(tmp_path, "-c", "import linnet")
    assert done.returncode not in (0, 130)
    assert "KeyboardInterrupt" in done.stderr


def test_an_interrupt_while_a_command_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "import_module", interrupted)
    assert cli.main(["list"]) == 130
    assert capsys.readouterr().err == "linnet: stopped; the same command resumes from the last checkpoint\n"
