"""Follow pages as a new user does: a fresh clone, a new environment, every command as printed.

python -m tools.follow README.md docs/ten_minutes.md

The commit of this checkout is cloned into an empty folder, and the commands of the pages run there, from top
to bottom, with nothing installed but what they install themselves. Each page begins in the folder of the
clone, in a shell of its own, so that `cd` and `export` last to the end of the page. The first command that
fails ends it. The seconds of each command are recorded in benchmarks/follow.csv. --skip leaves out commands
that begin so, such as `make`, whose targets the workflows run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.records import COMMIT, NUMBER, TEXT, TIME, WORDS, RecordFile, Row
from linnet.base.checkout import commit
from linnet.base.files import write_atomically
from linnet.base.machine import processor_name
from linnet.cli.parser import Parser, path_name
from tools.commands import Command, commands

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "follow.csv"
RECORD = RecordFile(
    {
        **{"date": TIME, "commit": COMMIT, "page": WORDS, "command": WORDS, "seconds": NUMBER},
        **{"note": TEXT, "python": WORDS, "cpu": WORDS},
    },
    key=("page", "command"),
)
DONE = "the command has ended with code "
LAST = 30  # lines of the output of a command that failed


class FailedError(Exception):
    """A command of a page that does not work as printed."""


class Shell:
    """A shell in a folder, which keeps its directory and variables from one command to the next."""

    def __init__(self, folder: Path, environment: dict[str, str]):
        fixed: dict[str, Any] = {"text": True, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        fixed |= {"stderr": subprocess.STDOUT, "errors": "replace"}
        self.process = subprocess.Popen(["bash"], cwd=folder, env=environment, **fixed)

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def run(self, command: str) -> tuple[int, list[str]]:
        """Return the exit code of a command, and the lines that it printed."""
        assert self.process.stdin
        assert self.process.stdout
        # Braces, not parentheses: the command runs in this shell, and reads nothing from it.
        self.process.stdin.write(f'{{ {command}\n}} < /dev/null; code=$?; echo; echo "{DONE}$code"\n')
        self.process.stdin.flush()
        printed: list[str] = []
        for line in self.process.stdout:
            if line.startswith(DONE):
                return int(line.removeprefix(DONE)), printed
            printed.append(line)
        return self.process.wait(), printed


def follow(page: str, wanted: Sequence[Command], shell: Shell) -> dict[str, float]:
    """Run the commands, and return the seconds of each; FailedError names the first that does not work."""
    seconds: dict[str, float] = {}
    for command in wanted:
        start = time.monotonic()
        code, printed = shell.run(command.text)
        seconds[command.text] = time.monotonic() - start
        print(f"{seconds[command.text]:7.1f} s  exit {code}  {command.text}", flush=True)
        if code:
            last = "".join(printed[-LAST:]).strip()
            raise FailedError(f"{page}, line {command.line}: {command.text!r} ended with {code}:\n{last}")
    return seconds


def fresh(folder: Path) -> dict[str, str]:
    """Clone this commit and make an environment; return the variables of a shell that uses it."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "clone")], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LINNET", "PYTHON"))}
    path = os.pathsep.join([str(folder / "env" / "bin"), kept["PATH"]])
    return {**kept, "PATH": path, "VIRTUAL_ENV": str(folder / "env"), "XDG_CACHE_HOME": str(folder / "cache")}


def rows_of(page: str, followed: str, seconds: dict[str, float], note: str) -> list[Row]:
    shared = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **{"commit": followed, "page": page, "note": note},
        **{"python": sys.version.split()[0], "cpu": processor_name()},
    }
    return [{**shared, "command": text, "seconds": f"{taken:.1f}"} for text, taken in seconds.items()]


def record(path: Path, page: str, new: Sequence[Row]) -> None:
    """Write the rows of a page in place of its older ones."""
    known = RECORD.read(path) if path.exists() else []
    kept = [row for row in known if row["page"] != page]
    write_atomically(path, RECORD.content([*kept, *new]))


def parser() -> Parser:
    command = Parser(prog="python -m tools.follow", description=(__doc__ or "").partition("\n\n")[2])
    add = command.add_argument
    add("pages", nargs="+", metavar="PAGE", help="below the folder of the checkout, such as README.md")
    add("--skip", nargs="+", default=[], metavar="START", help="leave out commands that begin so")
    add("--note", default="", help="what else the machine did, for the rows")
    add("--results", type=path_name, default=RESULTS, help="the rows")
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    # The clone has this commit, without changes, whatever is committed here meanwhile.
    followed = commit().rstrip("+")
    with tempfile.TemporaryDirectory() as name:
        folder, environment = Path(name), fresh(Path(name))
        for page in options.pages:
            text = (folder / "clone" / page).read_text(encoding="utf-8")
            wanted = [each for each in commands(text) if not each.text.startswith(tuple(options.skip))]
            with Shell(folder / "clone", environment) as shell:
                try:
                    seconds = follow(page, wanted, shell)
                except FailedError as error:
                    print(error, file=sys.stderr)
                    return 1
            record(options.results, page, rows_of(page, followed, seconds, options.note))
    return 0


if __name__ == "__main__":
    sys.exit(main())
