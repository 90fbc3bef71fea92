"""Which modules import which, read from their source: wherever in a file they do so, also in functions."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Mapping
from pathlib import Path


def imported(source: str, package: str) -> Iterator[str]:
    """Return the full names of what a file of `package` imports, wherever in the file it does so."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{base}.{name.name}" for name in node.names)


def module_name(path: Path, root: Path) -> str:
    """Return the name by which a file below `root` is imported: `linnet.units.sru`."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_in(full: str, modules: Container[str]) -> str | None:
    """Return the module that an imported name is in: `linnet.units.sru.SRU` is in `linnet.units.sru`."""
    while full and full not in modules:
        full = full.rpartition(".")[0]
    return full or None


def import_graph(paths: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return the modules that each module imports, of those in `paths`, by name."""
    graph = {}
    for name, path in paths.items():
        package = name if path.stem == "__init__" else name.rpartition(".")[0]
        found = (module_in(full, paths) for full in imported(path.read_text(encoding="utf-8"), package))
        graph[name] = {module for module in found if module is not None} - {name}
    return graph
