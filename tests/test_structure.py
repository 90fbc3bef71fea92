"""Structure: imports point one way, every unit is listed, and importing does no work."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import linnet

PACKAGE = Path(linnet.__file__).parent

# From low to high; a folder may import from those below it and from itself. `data` imports `base` only.
FOLDERS = ("base", "data", "fuse", "units", "layers", "models", "tasks", "runs", "train", "analysis", "cli")
RANK = {folder: rank for rank, folder in enumerate(FOLDERS)} | {
    "fuse": FOLDERS.index("data"),  # neither knows the other
    "deploy": FOLDERS.index("analysis"),
    "bench": FOLDERS.index("analysis"),
}

UNITS = [
    *("SRU", "LRN", "OLRN", "GLRN", "ELRN", "RAN", "NRU", "SCRN"),
    *("ATR", "QRNN", "JANET", "LSTM", "GRU", "RNN", "StatisticalRU", "EURNN", "GORU"),
]


def imported(source: str, package: str) -> Iterator[str]:
    """The modules that a file of `package` imports, wherever in the file it does so, by their full names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{base}.{name.name}" for name in node.names)


def pointing_up(source: str, folder: str, package: str) -> list[str]:
    """What a file in `folder` imports from a folder that it must not know, or from the package as a whole."""
    wrong = []
    for name in imported(source, package):
        root, _, rest = name.partition(".")
        target = rest.split(".")[0]
        if root != "linnet":
            continue
        # `from linnet import SRU` reads the top of the package, which knows everything.
        if target not in RANK or (target != folder and RANK[target] >= RANK[folder]):
            wrong.append(name)
    return wrong


def files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in RANK)


def folder_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path):
    package = ".".join(["linnet", *path.relative_to(PACKAGE).parent.parts])
    assert pointing_up(path.read_text(encoding="utf-8"), folder_of(path), package) == []


@pytest.mark.parametrize(
    ("folder", "line", "wrong"),
    [
        ("units", "from linnet.layers.recurrent import Recurrent", True),
        ("units", "import linnet.layers", True),
        ("units", "from linnet import layers", True),
        ("units", "from linnet import SRU", True),
        ("units", "from ..layers import recurrent", True),
        ("units", "def later():\n    from linnet.train import loop", True),
        ("units", "from . import cell\nfrom .activations import pointwise", False),
        ("units", "import torch\nfrom linnet.fuse import trace", False),
        ("fuse", "from linnet.units.cell import Cell", True),
        ("layers", "from linnet import units", False),
        ("models", "from linnet.data import text", False),
        ("data", "from linnet.units import LRNCell", True),
        ("data", "from linnet.base.files import write_atomically", False),
        ("base", "from linnet.data.files import read_any", True),
        ("fuse", "from linnet.data.files import read_any", True),
        ("runs", "from linnet.train.loop import Run", True),
        ("train", "from linnet.runs.records import Rows", False),
        ("deploy", "from linnet.analysis import plots", True),
        ("data", "from linnet.data.text import read", False),
        ("train", "from linnet.analysis import plots", True),
        ("bench", "from linnet.analysis import plots", True),
        ("cli", "from linnet.bench import speed\nfrom linnet.analysis import plots", False),
    ],
)
def test_an_import_that_points_up_is_found(folder: str, line: str, wrong: bool):
    """A check that finds nothing shows nothing unless it would have found something."""
    assert bool(pointing_up(line, folder, f"linnet.{folder}")) is wrong


def test_every_folder_has_its_place_in_the_order():
    here = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert here <= set(RANK)


# ---------------------------------------------------------------------------- the one list


def test_the_units_are_those_of_the_five_papers():
    assert [unit.__name__ for unit in linnet.UNITS.values()] == UNITS
    assert list(linnet.UNITS) == [name.lower() for name in UNITS]


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_exported_with_its_cell(name: str):
    unit, cell = getattr(linnet, name), getattr(linnet, f"{name}Cell")
    assert issubclass(unit, linnet.Recurrent)
    assert issubclass(cell, linnet.Cell)
    assert type(unit(2, 3).first_cell) is cell


def cells_defined() -> dict[str, str]:
    """The classes of linnet/units that are cells by their name, with the module that defines them."""
    found = {}
    for path in sorted((PACKAGE / "units").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith("Cell") and node.name != "Cell":
                found[node.name] = f"linnet.units.{path.stem}"
    return found


def test_every_cell_that_is_written_is_listed():
    found = cells_defined()
    assert sorted(found) == sorted(f"{name}Cell" for name in UNITS)
    for name, module in found.items():
        assert getattr(import_module(module), name) is getattr(linnet, name)


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_file_says_which_paper_it_is_and_what_each_option_means(name: str):
    cell = getattr(linnet, f"{name}Cell")
    source = inspect.getdoc(sys.modules[cell.__module__]) or ""
    assert "(19" in source or "(20" in source
    assert (cell.__doc__ or "").startswith("One step")
    options = [p.name for p in inspect.signature(cell).parameters.values() if p.kind is p.KEYWORD_ONLY]
    documented = "\n".join(c.__doc__ or "" for c in cell.__mro__ if issubclass(c, linnet.Cell))
    assert [option for option in options if f"    {option} " not in documented] == []


# ---------------------------------------------------------------------------- importing


def test_importing_brings_no_compiler_and_no_plots():
    """In a process of its own: others may have imported anything here."""
    heavy = ("numba", "llvmlite", "triton", "matplotlib", "hypothesis")
    code = f"import sys, linnet; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout.strip(), result.stderr, result.returncode) == ("[]", "", 0)


def test_importing_leaves_the_random_numbers_alone():
    code = (
        "import torch; torch.manual_seed(0); a = torch.rand(3); "
        "torch.manual_seed(0); import linnet; assert torch.equal(a, torch.rand(3)); print('same')"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=False
    )
    assert (result.stdout.strip(), result.returncode) == ("same", 0)


def test_the_package_has_a_version_and_is_typed():
    major, minor, patch = linnet.__version__.split(".")
    assert major.isdigit()
    assert minor.isdigit()
    assert patch
    assert (PACKAGE / "py.typed").is_file()
