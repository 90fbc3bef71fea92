"""New processes, for times and peaks that can be measured only once per process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# `python -m benchmarks` finds this package here only: it is not installed.
ROOT = Path(__file__).parents[1]


def run_python(*arguments: str, **environment: str) -> str:
    """Return the output of python with these arguments; raise RuntimeError with its last line if it fails."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise RuntimeError(f"exit code {done.returncode}: {last[-1] if last else 'no output'}")
    return done.stdout.strip()
