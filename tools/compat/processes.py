"""Run the case of a project in its own process, with a time limit."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from benchmarks.rows import Row
from tools.compat.environments import FOLDER, ROOT, python_of
from tools.compat.projects import Project
from tools.compat.record import failure, rows_of

# Checks are quick on one thread, and models of the table of conversions run on one; other times are
# measured with torch's own settings.
ENVIRONMENT = {"check": {"OMP_NUM_THREADS": "1"}, "time": {}, "convert": {"OMP_NUM_THREADS": "1"}}


def run_case(project: Project, what: str) -> list[Row]:
    """Return the rows of a project; a project that cannot be installed or run has one row with the reason."""
    try:
        python = python_of(project)
    except RuntimeError as error:
        return failure(project, what, f"cannot be installed: {last_line(str(error))}")
    log = FOLDER / f"{project.name}-{what}.log"
    see = f", see {FOLDER.name}/{log.name}"
    with tempfile.TemporaryDirectory() as folder, log.open("w", encoding="utf-8") as output:
        results = Path(folder) / "results.json"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **ENVIRONMENT[what]}
        command = [str(python), "-m", "tools.compat.inside", what, project.case, str(results)]
        try:
            limit = 60 * project.minutes
            subprocess.run(
                command, cwd=ROOT, env=environment, stdout=output, stderr=output, timeout=limit, check=True
            )
        except subprocess.TimeoutExpired:
            return failure(project, what, f"took more than {project.minutes:g} minutes{see}")
        except subprocess.CalledProcessError as error:
            return failure(project, what, f"ended with exit code {error.returncode}{see}")
        return rows_of(project, what, json.loads(results.read_text(encoding="utf-8")))


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]
