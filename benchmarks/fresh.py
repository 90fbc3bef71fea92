"""Whether the code that a figure is about has changed since the figure was measured.

Pages say so next to the date and the commit of recorded rows, so that no time is silently older than code:

    measured on 2026-11-17 with 2 threads of AMD EPYC, commit 8d304e9; the code has changed since

`CODE` has the paths for each kind of measurement. Comments, docstrings, annotations and stubs do not count.
The results of trainings are not in this list: kernels and reference are tested to agree, and a run's settings
say the rest.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from linnet.base.checkout import git

ROOT = Path(__file__).parents[1]
KERNELS = ("linnet/cpu", "linnet/program", "linnet/recurrent", "linnet/run", "linnet/units")
MODELS = (*KERNELS, "linnet/layers", "linnet/models")
EXPORTS = ("linnet/deploy/integer", "linnet/deploy/source", "linnet/deploy/step")
CODE: dict[str, tuple[str, ...]] = {
    # The kinds of benchmarks/results.csv that are about more than layers, by the column `what`.
    **dict.fromkeys(("classifier", "crf", "encoder", "language", "loss", "matching"), MODELS),
    **dict.fromkeys(("tagger", "translator"), MODELS),
    **dict.fromkeys(("exported", "microcontroller"), (*KERNELS, *EXPORTS)),
    "onnx": (*KERNELS, "linnet/deploy"),
    # Other records: compat.csv, targets.csv, atlas.json and race.csv of benchmarks, experiments/times.csv.
    "compat": (*MODELS, "linnet/convert", "linnet/contrib"),
    "target": (*EXPORTS, "linnet/program", "linnet/recurrent", "linnet/units"),
    **dict.fromkeys(("atlas", "race", "update"), MODELS),
}
TYPING = ("__future__", "collections.abc", "types", "typing")
Row = Mapping[str, str]


def since(rows: Iterable[Row], what: str = "") -> str:
    """Return "; the code has changed since" if it has, with the commits if that is so for some of them only.

    what   the kind of measurement, where rows have no column `what`
    """
    kinds: dict[str, set[str]] = {}
    for row in rows:
        kinds.setdefault(row["commit"], set()).add(what or row.get("what", ""))
    old = [commit for commit in kinds if commit and has_history() and is_old(commit, kinds[commit])]
    if not old:
        return ""
    return "; the code has changed since" + ("" if len(old) == len(kinds) else f" {', '.join(old)}")


def when(rows: Sequence[Row], what: str = "") -> str:
    """Return "measured on 2026-11-18, commit 1a0c791", and whether the code has changed since."""
    days = sorted({row["date"][:10] for row in rows})
    commits = dict.fromkeys(row["commit"] or "unknown" for row in rows)
    run = "commits" if len(commits) > 1 else "commit"
    between = " to ".join(dict.fromkeys((days[0], days[-1])))
    return f"measured on {between}, {run} {', '.join(commits)}{since(rows, what)}"


def is_old(commit: str, kinds: Iterable[str]) -> bool:
    paths = {path for kind in kinds for path in CODE.get(kind, KERNELS)}
    return has_changed(commit.rstrip("+"), tuple(sorted(paths)))


@cache
def has_history() -> bool:
    """Return whether this is a checkout with all commits, so that it is known what has changed."""
    return git("rev-parse", "--is-shallow-repository") == "false" and (ROOT / ".git").exists()


@cache
def has_changed(commit: str, paths: Sequence[str]) -> bool:
    """Return whether the files of today compute something else than those of a commit."""
    known = git("rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}")
    if not known or git("merge-base", known, "HEAD") != known:
        # A commit of a branch that was rebased: what was measured is not in the history.
        return True
    names = git("diff", "--name-only", "--no-renames", commit, "--", *paths).splitlines()
    return any(differs(commit, name) for name in names)


def differs(commit: str, name: str) -> bool:
    if name.endswith(".pyi"):
        return False
    path = ROOT / name
    old = git("show", f"{commit}:{name}")
    new = path.read_text(encoding="utf-8").strip() if path.exists() else ""
    return old != new and (not name.endswith(".py") or skeleton(old) != skeleton(new))


# ------------------------------------------------------------------------------ what code computes


def skeleton(code: str) -> str:
    """Return code without comments, docstrings, annotations and what is imported for them."""
    return ast.dump(Stripped().visit(ast.parse(code)))


class Stripped(ast.NodeTransformer):
    """Leaves out what does not change what the code computes."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if node.module in TYPING else node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        is_for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if is_for_types and not node.orelse else self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        # The names of fields are kept: those of a dataclass are its arguments.
        return self.generic_visit(ast.Assign([node.target], node.value or ast.Constant(None)))
