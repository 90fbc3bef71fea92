"""An environment for each project, below .compat/. Torch is installed once, and all of them see it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.compat.projects import Project

ROOT = Path(__file__).parents[2]
FOLDER, CONSTRAINTS = ROOT / ".compat", ROOT / "constraints.txt"
SOURCE = "source"
PIP = (sys.executable, "-m", "pip")
# What Linnet itself needs, and what runs a project's own tests.
BASE = ("torch", "numpy", "llvmlite", "pytest")


def python_of(project: Project) -> Path:
    """Return the interpreter of a project's environment; create it if its requirements have changed."""
    base = prepared(FOLDER / "base", ["-c", str(CONSTRAINTS), *BASE])
    first = pinned_torch() if project.has_dependencies else "--no-deps"
    made = prepared(FOLDER / project.name, [first, *project.requirements], sees=base)
    if project.has_tests and not (made / SOURCE).exists():
        unpack_source(project.requirements[0], made / SOURCE)
    return made / "bin" / "python"


def pinned_torch() -> str:
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def prepared(folder: Path, requirements: Sequence[str], sees: Path | None = None) -> Path:
    ready, wanted = folder / "ready", "\n".join(requirements)
    if not ready.exists() or ready.read_text(encoding="utf-8") != wanted:
        run(sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder))
        if sees is not None:
            # As venv's option --system-site-packages does, for the packages of another environment.
            (packages_of(folder) / "base.pth").write_text(f"{packages_of(sees)}\n", encoding="utf-8")
        python = str(folder / "bin" / "python")
        run(*PIP, "--python", python, "install", "--quiet", "--no-compile", *requirements)
        ready.write_text(wanted, encoding="utf-8")
    return folder


def unpack_source(requirement: str, folder: Path) -> None:
    """Download the source distribution, which has the project's own tests."""
    run(*PIP, "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(folder), requirement)
    (archive,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder, filter="data")


def packages_of(folder: Path) -> Path:
    (found,) = folder.glob("lib/python*/site-packages")
    return found


def run(*command: str) -> None:
    """Run a command; an error has what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
