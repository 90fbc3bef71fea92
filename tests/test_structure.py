"""Structure: imports point one way, every unit is listed, and importing does no work."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import linnet
from linnet.run import ways
from tools.imports import import_graph, imported, module_name

PACKAGE = Path(linnet.__file__).parent

# From low to high; a folder may import from those below it and from itself. `data` imports `base` only.
FOLDERS = (
    *("base", "data", "program", "cpu", "run", "recurrent", "layers", "units", "blocks", "models"),
    *("tasks", "runs", "train", "launch", "analysis", "atlas", "cli"),
)
RANK = {folder: rank for rank, folder in enumerate(FOLDERS)} | {
    "program": FOLDERS.index("data"),
    "triton": FOLDERS.index("cpu"),  # neither knows the other
    "contrib": FOLDERS.index("models"),
    "deploy": FOLDERS.index("analysis") - 0.5,  # analysis shows models by the code that deploy writes
    "bench": FOLDERS.index("analysis"),
    "convert": FOLDERS.index("analysis") + 0.5,  # times a model before and after
}

UNITS = [unit.__name__ for unit in linnet.UNITS.values()]


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
        ("layers", "from linnet.units.sru import SRU", True),
        ("layers", "import linnet.units", True),
        ("layers", "from linnet import units", True),
        ("layers", "from linnet import SRU", True),
        ("layers", "from ..units import sru", True),
        ("layers", "def later():\n    from linnet.train import loop", True),
        ("units", "from . import lrn\nfrom .lrn import LRNCell", False),
        ("units", "import torch\nfrom linnet.program import trace", False),
        ("units", "from linnet import layers", False),
        ("run", "from linnet.recurrent.cell import Cell", True),
        ("program", "from linnet.cpu import jit", True),
        ("cpu", "from linnet.triton import kernels", True),
        ("models", "from linnet.data import text", False),
        ("data", "from linnet.units import LRNCell", True),
        ("data", "from linnet.base.files import write_atomically", False),
        ("base", "from linnet.data.files import read_any", True),
        ("program", "from linnet.data.files import read_any", True),
        ("runs", "from linnet.train.loop import Run", True),
        ("train", "from linnet.runs.records import Rows", False),
        ("deploy", "from linnet.analysis import plots", True),
        ("data", "from linnet.data.text import read", False),
        ("train", "from linnet.analysis import plots", True),
        ("bench", "from linnet.analysis import plots", True),
        ("cli", "from linnet.bench import timing\nfrom linnet.analysis import plots", False),
    ],
)
def test_an_import_that_points_up_is_found(folder: str, line: str, wrong: bool):
    """A check that finds nothing shows nothing unless it would have found something."""
    assert bool(pointing_up(line, folder, f"linnet.{folder}")) is wrong


def test_every_folder_has_its_place_in_the_order():
    # A folder without Python, such as that of the trained models, imports nothing.
    here = {path.name for path in PACKAGE.iterdir() if any(path.glob("*.py"))}
    assert here <= set(RANK)


# What a checkout has beside the package; none of it is in the wheel.
CHECKOUT = {"benchmarks", "experiments", "tests", "tools"}


def test_the_package_imports_nothing_that_is_not_in_the_wheel():
    assert {path.name for path in PACKAGE.parent.iterdir()} >= CHECKOUT
    for path in PACKAGE.rglob("*.py"):
        roots = {name.partition(".")[0] for name in imported(path.read_text(encoding="utf-8"), "linnet")}
        assert not roots & CHECKOUT, path


def test_no_two_files_of_tests_have_the_same_name():
    """pytest imports them as modules of their names alone."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("*.py"))
    assert [name for name, count in names.items() if count > 1] == []


# ---------------------------------------------------------------------------- circles


def imports_of_package() -> dict[str, set[str]]:
    return import_graph({module_name(path, PACKAGE.parent): path for path in PACKAGE.rglob("*.py")})


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle, if there is one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_modules_import_each_other_in_a_circle():
    """An import inside a function only hides a circle, so these count as well."""
    assert circle_in(imports_of_package()) == []


def test_a_circle_is_found():
    graph = imports_of_package()
    assert "linnet.deploy.onnx_scan" in graph["linnet.deploy.onnx"]  # imported in a function
    graph["linnet.program.trace"].add("linnet.recurrent.cell")
    assert "linnet.recurrent.cell" in circle_in(graph)


# ---------------------------------------------------------------------------- the one choice


def words_in(path: Path) -> set[str]:
    """The names and texts that the code of a file reads; not the names that it defines."""
    words = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        words |= {getattr(node, field, None) for field in ("id", "attr", "value") if not is_store(node)}
    return {word for word in words if isinstance(word, str)}


def is_store(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def files_with(*words: str) -> set[str]:
    paths = [
        path
        for folder in ("program", "cpu", "triton", "run", "recurrent", "layers", "units")
        for path in (PACKAGE / folder).rglob("*.py")
    ]
    return {path.relative_to(PACKAGE).as_posix() for path in paths if words_in(path) & set(words)}


def test_imports_have_a_line_of_their_own():
    hidden = [str(path) for path in sorted(PACKAGE.rglob("*.py")) if "__import__(" in path.read_text("utf-8")]
    assert hidden == []


def test_one_module_chooses_the_backend():
    """Everything else runs what was chosen there."""
    assert files_with("choose_kernels", "kernels_for", "fall_back", "requested") == {"run/choose.py"}
    assert files_with("opaque_to_kernels", "can_compile") == {"run/choose.py"}
    # A backend knows its devices, operations are registered by device, and Triton compiles for one.
    known = {"run/ways.py", "run/ops.py", "triton/kernels.py"}
    assert files_with("cuda") == known
    # A rotation caches no tensors of a tracer.
    assert files_with("is_recorded") == {"run/choose.py", "recurrent/rotation.py"}


def private_names(source: str) -> list[str]:
    """The private names of torch that a file reads: `torch._C`, `from torch.x import _y`, `torch.x._y`."""
    tree = ast.parse(source)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            found.append(ast.unparse(node))
    names = [name for name in found if name.startswith(("torch.", "forward_ad."))]
    return [name for name in names if re.search(r"\._(?!_)", name)]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_private_torch_is_read_in_one_file(path: Path):
    """tests/base/test_torch_private.py calls all that is there, and names what a new torch has changed."""
    allowed = path.relative_to(PACKAGE).as_posix() == "base/torch_private.py"
    assert allowed or not private_names(path.read_text())


@pytest.mark.parametrize(
    ("line", "private"),
    [
        ("import torch._C", True),
        ("from torch._C import _functorch", True),
        ("from torch.utils import _pytree", True),
        ("from torch.nn.modules.module import _has_any_global_hook", True),
        ("torch.autograd.forward_ad._current_level", True),
        ("forward_ad._current_level", True),
        ("torch._foreach_lerp_([], [], 0)", True),
        ("torch.__version__", False),
        ("from torch import Tensor", False),
        ("x._version", False),
    ],
)
def test_a_private_name_is_found(line: str, private: bool):
    assert bool(private_names(line)) is private


def test_every_backend_has_the_one_interface():
    three = (ways.REFERENCE, ways.CPU, ways.TRITON)
    assert [each.name for each in three] == list(ways.BACKENDS)
    assert all(isinstance(each, ways.Way) for each in (*three, ways.STEP))


# ---------------------------------------------------------------------------- the one list


def test_names_of_units_are_those_of_their_classes():
    assert list(linnet.UNITS) == [name.lower() for name in UNITS]


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_one_file_with_its_cell_and_its_stack(name: str):
    unit, cell = getattr(linnet, name), getattr(linnet, f"{name}Cell")
    assert issubclass(unit, linnet.Recurrent)
    assert issubclass(cell, linnet.Cell)
    assert type(unit(2, 3).first_cell) is cell
    assert unit.__module__ == cell.__module__
    assert {name, f"{name}Cell"} <= set(linnet.__all__)


def test_every_file_in_units_is_a_unit_of_the_list():
    files = {f"linnet.units.{path.stem}" for path in (PACKAGE / "units").glob("*.py")}
    assert files - {"linnet.units.__init__"} == {unit.__module__ for unit in linnet.UNITS.values()}


def test_the_package_exports_its_units_and_no_modules():
    public = {name for name, value in vars(linnet.units).items() if name[0] != "_" and inspect.isclass(value)}
    assert public | {"UNITS"} == set(linnet.units.__all__)
    assert set(linnet.__all__) <= set(dir(linnet))
    assert not hasattr(linnet, "sru")


def test_help_on_a_unit_shows_its_paper_and_all_options():
    text = inspect.getdoc(linnet.SRU) or ""
    assert text.startswith("The simple recurrent unit (Lei et al. 2018).\n\nOne step of SRU")
    assert "\nhighway_bias " in text
    assert "\nvariational " in text
    assert {"rank", "num_layers"} <= set(inspect.signature(linnet.SRU).parameters)


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


def test_importing_brings_no_compiler_and_no_plots_and_needs_no_extra():
    """In a process of its own: others may have imported anything here."""
    heavy = ("numba", "llvmlite", "triton", "hypothesis")
    extras = ("matplotlib", "safetensors", "tokenizers", "transformers", "lightning_fabric", "pooch", "rich")
    absent = f"import sys; sys.modules.update(dict.fromkeys({(*extras, 'sklearn', 'optuna', 'pandas')}))"
    code = f"{absent}; import linnet; print([name for name in {heavy} if name in sys.modules])"
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
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", linnet.__version__)
    assert (PACKAGE / "py.typed").is_file()
