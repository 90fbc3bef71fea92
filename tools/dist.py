"""Build the wheel and the source distribution, check them, and try both in a clean environment: `make dist`.

    python -m tools.dist                        with the Python that runs it
    python -m tools.dist --python python3.13    with another one, or several
    python -m tools.dist --tag v0.2.0           only if the version is that of a tag

With the Python that runs it, versions are those of constraints.txt; another one gets the newest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from linnet.base.version import __version__

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
BIN = "Scripts" if os.name == "nt" else "bin"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.dist", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", nargs="+", default=[sys.executable], metavar="PYTHON", help="try these")
    parser.add_argument("--tag", metavar="TAG", help="the tag of the release, v and the version")
    options = parser.parse_args()
    if options.tag is not None and options.tag != f"v{__version__}":
        parser.error(f"the tag is {options.tag}, and linnet/base/version.py says {__version__}")
    files = build()
    for python in options.python:
        try_out(python, files)


def build() -> list[Path]:
    """The source distribution, and the wheel built from it."""
    shutil.rmtree(DIST, ignore_errors=True)
    call([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(ROOT)])
    files = sorted(DIST.iterdir())
    call([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)])
    return files


def try_out(python: str, files: Sequence[Path]) -> None:
    """Install each file in a new environment, and run the smoke test in an empty folder."""
    same = Path(python) == Path(sys.executable)
    constraints = ["--constraint", str(ROOT / "constraints.txt")] if same else []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        call([python, "-m", "venv", str(folder / "env")])
        own = str(folder / "env" / BIN / "python")
        smoke = shutil.copy(ROOT / "tools" / "smoke.py", folder)
        for number, file in enumerate(files):
            # The second finds the packages of the first, and replaces Linnet.
            how = ["--force-reinstall", "--no-deps"] if number else constraints
            call([own, "-m", "pip", "install", "--quiet", *how, str(file)])
            call([own, "-W", "error", str(smoke)], cwd=folder)
        # The models of the package need the packages for training, and nothing else of the checkout.
        (wheel,) = (file for file in files if file.suffix == ".whl")
        call([own, "-m", "pip", "install", "--quiet", *constraints, f"{wheel}[lm]"])
        call([own, str(smoke), "--ready"], cwd=folder)


def call(command: Sequence[str], cwd: Path = ROOT) -> None:
    print("+", *(part.replace(str(ROOT), ".") for part in command), flush=True)
    # The checkout must not be found instead of what is installed.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, cwd=cwd, env=variables, check=True)


if __name__ == "__main__":
    main()
