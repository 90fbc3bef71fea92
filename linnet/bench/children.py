"""Fresh processes, for what can be measured only once in each."""

from __future__ import annotations

import os
import subprocess
import sys


def run_python(*arguments: str, **environment: str) -> str:
    """What python with these arguments prints; RuntimeError with its last words if it fails."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise RuntimeError(f"exit code {done.returncode}: {last[-1] if last else 'it said nothing'}")
    return done.stdout.strip()
