"""The tests of what changed, for daily work: `make quick`.

    python -m tools.quick                  since the branch left main; on main, since HEAD~1
    python -m tools.quick --base HEAD~3    since another commit
    python -m tools.quick --list           print the tests and the reasons, and run nothing

Changes that are not committed count as well. The nearest tests run first: those that changed and those that
have the name of a changed file, then those that import it, then those of its folder. When the time is over,
the files that are left are named; `make test` runs everything.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.imports import import_graph, module_name

ROOT = Path(__file__).parents[1]
SECONDS = 110.0
CODE = ("linnet", "tools", "benchmarks", "experiments")
# Tests that no import leads to, by the beginning of a changed path: laws of all units, pages, structure.
FURTHER = {
    "linnet/": ("tests/test_structure.py",),
    "linnet/units/": (
        "tests/test_laws.py",
        "tests/test_golden.py",
        "tests/test_counts.py",
        "tests/test_types.py",
    ),
    "linnet/recurrent/": ("tests/test_types.py",),
    "linnet/layers/": ("tests/test_laws.py",),
    **dict.fromkeys(
        ("linnet/program/", "linnet/cpu/", "linnet/run/"), ("tests/test_laws.py", "tests/run/test_parity.py")
    ),
    "linnet/cli/": ("tests/test_cli.py",),
    "linnet/tasks/": ("tests/test_predict.py", "tests/test_toy_task.py"),
    "tests/golden/": ("tests/test_golden.py",),
    "tests/conftest.py": ("tests/test_structure.py",),
    **dict.fromkeys((".github/", "CITATION.cff", "constraints.txt"), ("tests/test_project.py",)),
    "docs/": ("tests/test_docs.py", "tests/test_project.py"),
    "README.md": ("tests/test_docs.py", "tests/test_project.py"),
    "CONTRIBUTING.md": ("tests/test_docs.py", "tests/test_structure.py"),
    "CHANGELOG.md": ("tests/test_docs.py",),
    "pyproject.toml": ("tests/test_structure.py", "tests/test_project.py"),
    "Makefile": ("tests/test_structure.py", "tests/test_project.py"),
    "benchmarks/": ("tests/tools/test_pages.py",),
    "experiments/": ("tests/test_experiments.py",),
}
TOP = "linnet"
NAMED, IMPORTS, DISTANT, FOLDER = range(4)


class Reason(NamedTuple):
    """Why a test file is selected; the nearest reasons have the lowest rank."""

    rank: int
    text: str


# ------------------------------------------------------------------------------------ what changed


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def base_of_branch() -> str:
    """Return the commit at which the branch left main; on main itself, the commit before the last."""
    (left,), (head,) = git("merge-base", "main", "HEAD"), git("rev-parse", "HEAD")
    return "HEAD~1" if left == head else left


def changed_since(base: str) -> list[str]:
    """Return the paths that differ from `base`, committed or not, and new files."""
    return sorted({*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")})


# --------------------------------------------------------------------------------------- selecting


def modules() -> dict[str, Path]:
    """Return the files of the repository by the names by which they are imported."""
    code = {
        module_name(path, ROOT): path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py"))
    }
    return code | {path.stem: path for path in sorted((ROOT / "tests").rglob("*.py"))}


def select(
    changed: Iterable[str], paths: Mapping[str, Path], importers: Mapping[str, set[str]]
) -> dict[str, Reason]:
    """Return the test files for the changed paths, each with its nearest reason, the nearest first."""
    names = {path.relative_to(ROOT).as_posix(): name for name, path in paths.items()}
    tests = [path for path in names if is_test(path)]
    found: dict[str, Reason] = {}
    for path in changed:
        for test, reason in (
            *named(path, tests),
            *importing(names.get(path), importers, paths),
            *further(path),
        ):
            if test in tests and (test not in found or reason < found[test]):
                found[test] = reason
    return dict(sorted(found.items(), key=lambda item: (item[1].rank, item[0])))


def is_test(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_")


def reverse(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the modules that import each module; not the top of the package, which imports everything."""
    result: dict[str, set[str]] = {name: set() for name in graph}
    for name, imports in graph.items():
        for module in imports - {TOP} if name != TOP else ():
            result[module].add(name)
    return result


def named(path: str, tests: Sequence[str]) -> Iterator[tuple[str, Reason]]:
    """Yield the test that changed, or those of the mirrored folder: first those with the name of the file."""
    if is_test(path):
        yield path, Reason(NAMED, "changed")
        return
    folder, stem = mirrored(path), Path(path).stem
    for test in (test for test in tests if folder and test.startswith(f"{folder}/")):
        is_named = Path(test).stem.removeprefix("test_").startswith(stem)
        yield (
            test,
            Reason(NAMED, f"tests {path}") if is_named else Reason(FOLDER, f"is in the folder of {path}"),
        )


def mirrored(path: str) -> str | None:
    """Return the folder of tests that mirrors that of a file: tests/cpu for linnet/cpu/jit.py."""
    parts = Path(path).parts
    if parts[0] == "linnet" and len(parts) > 2:
        return f"tests/{parts[1]}"
    return f"tests/{parts[0]}" if parts[0] in CODE[1:] and len(parts) > 1 else None


def importing(
    name: str | None, importers: Mapping[str, set[str]], paths: Mapping[str, Path]
) -> Iterator[tuple[str, Reason]]:
    """Yield the tests that import a module, and those that import a module that imports it."""
    for near in importers.get(name or "", ()):
        yield relative(paths[near]), Reason(IMPORTS, f"imports {name}")
        for distant in importers[near]:
            yield relative(paths[distant]), Reason(DISTANT, f"imports {near}, which imports {name}")


def further(path: str) -> Iterator[tuple[str, Reason]]:
    for start, tests in FURTHER.items():
        if path.startswith(start):
            yield from ((test, Reason(DISTANT, f"is for every change of {start}")) for test in tests)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# ----------------------------------------------------------------------------------------- running


class Budget:
    """A plugin of pytest that starts no test after `seconds`, and notes the files that it did not finish."""

    def __init__(self, seconds: float):
        self.end = time.monotonic() + seconds
        self.left: list[str] = []
        self.is_over = False

    def pytest_runtestloop(self, session: pytest.Session) -> None:
        self.left = [item.nodeid.partition("::")[0] for item in session.items]

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.left.remove(nodeid.partition("::")[0])

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        if time.monotonic() > self.end and not item.session.shouldfail:
            item.session.shouldstop = "the time is over"
            self.is_over = True


def run(tests: Sequence[str], seconds: float) -> int:
    budget = Budget(seconds)
    code = int(pytest.main(["-x", "-q", "-rf", *(str(ROOT / test) for test in tests)], plugins=[budget]))
    if not budget.is_over:
        return code
    print(
        f"after {seconds:.0f} s, not finished: {', '.join(dict.fromkeys(budget.left))}; `make test` runs all"
    )
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.quick", description="Run the tests of what changed."
    )
    parser.add_argument("--base", help="compare with this commit (where the branch left main, or HEAD~1)")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"start no test after this ({SECONDS:g})"
    )
    parser.add_argument("--list", action="store_true", help="print the tests and the reasons only")
    options = parser.parse_args(arguments)
    base = options.base or base_of_branch()
    changed = changed_since(base)
    paths = modules()
    selected = select(changed, paths, reverse(import_graph(paths)))
    print(
        f"{len(changed)} files changed since {base[:12]}; {len(selected)} files of tests, the nearest first:"
    )
    for test, reason in selected.items():
        print(f"  {test}  {reason.text}")
    return 0 if options.list or not selected else run(list(selected), options.seconds)


if __name__ == "__main__":
    sys.exit(main())
