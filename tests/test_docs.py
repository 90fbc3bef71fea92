"""Structure: what the documents say is so. Their examples run, their tables agree with the code."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import math
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import linnet
from linnet.tasks import TASKS

ROOT = Path(__file__).parent.parent
README, API, UNITS_PAGE = ROOT / "README.md", ROOT / "docs" / "api.md", ROOT / "docs" / "units.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
# Pages of the site that only include another file.
INCLUDED = (
    "benchmarks.md",
    "changelog.md",
    "contributing.md",
    "diary.md",
    "results_figures.md",
    "results_tables.md",
    "results.md",
)
FURTHER = [ROOT / "benchmarks" / "README.md", ROOT / "experiments" / "README.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SIZES = [(1, 1), (2, 7), (3, 3), (5, 1), (6, 12), (10, 80), (13, 32), (33, 33)]
STACKS = {unit.__name__: unit for unit in linnet.UNITS.values()}


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language, each with the number of its first line."""
    text = page.read_text(encoding="utf-8")
    found = BLOCK.finditer(text)
    return [(text.count("\n", 0, m.start()) + 2, m[2]) for m in found if m[1] == language]


def rows(text: str) -> list[list[str]]:
    """The cells of the rows of the tables in a text, without their heads."""
    lines = [line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line] for line in lines]
    rules = [number for number, row in enumerate(cells) if set("".join(row)) <= set("-: ")]
    return [row for number, row in enumerate(cells) if number not in rules and number + 1 not in rules]


def section(page: Path, title: str) -> str:
    text = page.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page.name} has no section {title!r}"
    return found[1]


def code(cell: str) -> str:
    """What stands between the first pair of backticks."""
    return cell.split("`")[1]


# ------------------------------------------------------------------------------------ examples


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page: Path, monkeypatch: pytest.MonkeyPatch):
    """The blocks of one page share their names, in order."""
    torch.manual_seed(0)
    # Dataclasses look up the module in which they are defined.
    module = ModuleType(f"example_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(TASKS, "known", dict(TASKS.known))
    for line, source in blocks(page, "python"):
        # The empty lines make an error point into the page.
        code = compile("\n" * (line - 1) + source, str(page), "exec", dont_inherit=True)
        exec(code, module.__dict__)


def test_every_guide_has_examples():
    without = {page.name for page in PAGES if not blocks(page, "python")}
    prose = {
        "CHANGELOG.md",
        "gpu.md",
        "how_it_works.md",
        "install.md",
        "log.md",
        "processes.md",
        "units.md",
        "which_unit.md",
    }
    assert without <= {*prose, *INCLUDED, "reference.md"}


def test_readme_begins_with_six_lines_of_code():
    _, first = blocks(README, "python")[0]
    assert len(first.strip().splitlines()) == 6


def test_a_units_own_definition_takes_about_twenty_lines():
    _, unit = blocks(ROOT / "docs" / "own_unit.md", "python")[0]
    assert sum(bool(line.strip()) for line in unit.splitlines()) <= 22


# ------------------------------------------------------------------------------- table of units


def table_of_units() -> dict[str, list[str]]:
    head, _, _ = UNITS_PAGE.read_text(encoding="utf-8").partition("\n## ")
    return {code(row[0]): row[1:] for row in rows(head)}


FUNCTIONS = {"max": max, "round": round, "floor": math.floor, "ceil": math.ceil, "log2": math.log2}
TOKEN = re.compile(r"\s*(\d+\.?\d*|[a-z]\w*|[-+/(),=])")


def to_python(formula: str) -> str:
    """3h(d + 1) -> 3 * h * ( d + 1 ), of nothing but numbers, known functions and single letters."""
    words: list[str] = []
    operand = False  # whether the last token can be multiplied with the next
    position = 0
    while position < len(formula.rstrip()):
        found = TOKEN.match(formula, position)
        assert found, f"cannot read {formula[position:]!r}"
        token, position = found[1], found.end()
        known = token in FUNCTIONS or token in ("if", "else") or len(token) == 1 or token[0].isdigit()
        assert known, f"{token!r} is no function of a formula"
        starts = token[0].isalnum() or token == "("
        if operand and starts and token not in ("if", "else"):
            words.append("*")
        words.append("==" if token == "=" else token)
        operand = (token[0].isalnum() or token == ")") and token not in (*FUNCTIONS, "if", "else")
    return " ".join(words)


def evaluate(formula: str, **sizes: float) -> float:
    """A formula of the table; letters of its own are explained after it: c(h + 1), c = h/6."""
    main, *explained = re.split(r",\s*(?=[a-z] = )", formula)
    for explanation in explained:
        letter, _, value = explanation.partition(" = ")
        sizes[letter] = evaluate(value, **sizes)
    return eval(to_python(main), {"__builtins__": {}}, {**FUNCTIONS, **sizes})


def test_formulas_are_read_as_written():
    assert evaluate("3h(d + 1)", d=2, h=5) == 45
    assert evaluate("h(3d + 4) if d = h else h(4d + 4)", d=2, h=5) == 60
    assert evaluate("d(h + c), c = max(1, round(h/6))", d=2, h=12) == 28
    assert evaluate("floor(h/2) ceil(log2(h))", h=5) == 6
    with pytest.raises(AssertionError, match="no function"):
        evaluate("open(h)", h=1)


def test_the_table_lists_every_unit():
    assert list(table_of_units()) == [unit.__name__ for unit in linnet.UNITS.values()]


@pytest.mark.parametrize("name", STACKS)
def test_the_table_describes_the_unit(name: str):
    paper, recurrence, state, _, formula = table_of_units()[name]
    unit = STACKS[name]
    (cell,) = unit(2, 3).cells
    assert paper in str(unit.__doc__)
    assert state.split(", ") == list(cell.states)
    assert recurrence in ("elementwise", "matrix", "own")
    # The neurons of LTC read each other, but not by a matrix product.
    assert (recurrence == "elementwise" or unit is linnet.LTC) == refuses_state_dropout(unit)
    for d, h in SIZES:
        counted = sum(weight.numel() for weight in unit(d, h).parameters())
        assert evaluate(formula, d=d, h=h) == counted, (d, h)


@pytest.mark.parametrize("name", STACKS)
def test_the_table_says_which_state_the_output_is(name: str):
    output = table_of_units()[name][3]
    rnn = STACKS[name](2, 3)
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.add_(0.1)  # that of an output may start as one that changes nothing
    y, final = rnn(torch.randn(4, 1, 2))
    states = dict(
        zip(rnn.first_cell.states, (final,) if isinstance(final, torch.Tensor) else final, strict=True)
    )
    if output == "no state":
        assert not any(torch.equal(y[-1:], state) for state in states.values())
    else:
        assert torch.equal(y[-1:], torch.cat([states[each] for each in output.split(" and ")], -1))


def refuses_state_dropout(unit: type[linnet.Recurrent]) -> bool:
    """As those do, and only those, whose state meets no matrix."""
    try:
        unit(2, 3, state_dropout=0.1)
    except ValueError as error:
        return "has no recurrent matrix" in str(error)
    return False


# ------------------------------------------------------------------------------- tree and links


def test_the_tree_in_contributing_is_there():
    _, tree = blocks(ROOT / "CONTRIBUTING.md", "text")[0]
    folders = [line.split()[0] for line in tree.splitlines()]
    assert all((ROOT / folder).is_dir() for folder in folders)
    packages = {f"linnet/{path.parent.name}/" for path in (ROOT / "linnet").glob("*/__init__.py")}
    assert packages <= set(folders)


def slug(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", [*PAGES, *FURTHER], ids=lambda page: f"{page.parent.name}/{page.name}")
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        titles = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in map(slug, titles), target


# ---------------------------------------------------------------------------------------- docs


def test_units_page_has_a_section_for_each_unit():
    titles = re.findall(r"^## (.*)$", UNITS_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert titles == list(STACKS)


@pytest.mark.parametrize("name", STACKS)
def test_options_are_documented_with_their_defaults(name: str):
    listed = {code(option): ast.literal_eval(code(default)) for option, default, _ in options_of(name)}
    assert listed == {key: option.default for key, option in STACKS[name].options().items()}


def options_of(name: str) -> list[list[str]]:
    return rows(section(UNITS_PAGE, name))


def test_shared_options_are_documented_with_their_defaults():
    listed = {
        code(row[0]): ast.literal_eval(code(row[1])) for row in rows(section(API, "Options all units share"))
    }
    parameters = inspect.signature(linnet.Recurrent.__init__).parameters.values()
    assert listed == {p.name: p.default for p in parameters if p.default is not p.empty}


@pytest.mark.parametrize("name", STACKS)
def test_equations_are_those_of_the_unit_file(name: str):
    """They stand in the docstring of the file, line by line; a copy that drifts away fails here."""

    def squeeze(line: str) -> str:
        return " ".join(line.split())

    (cell,) = STACKS[name](2, 3).cells
    told = {squeeze(line) for line in str(sys.modules[type(cell).__module__].__doc__).splitlines()}
    (equations,) = [body for language, body in BLOCK.findall(section(UNITS_PAGE, name)) if language == "text"]
    assert {squeeze(line) for line in equations.splitlines()} <= told


# ---------------------------------------------------------------------------------- first look


@pytest.fixture(scope="module")
def first_look() -> ModuleType:
    """The program that shows every unit at work."""
    spec = importlib.util.spec_from_file_location("first_look", ROOT / "examples" / "first_look.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(text: str) -> dict[str, list[str]]:
    split = [line.split() for line in text.splitlines()]
    return {words[0]: words[1:] for words in split if words and words[0] in linnet.UNITS}


def test_first_look_prints_a_row_for_each_unit(first_look: ModuleType, capsys: pytest.CaptureFixture[str]):
    first_look.main(["--steps", "2", "--length", "4", "--hidden", "6"])
    found = table(capsys.readouterr().out)
    assert list(found) == list(linnet.UNITS)
    for name, (size, before, after, baseline, rate) in found.items():
        model = first_look.Adder(name, 6)
        assert int(size.replace(",", "")) == sum(weight.numel() for weight in model.parameters())
        assert float(before) != float(after)
        assert baseline == "0.1667"
        assert float(rate) > 0


def test_first_look_gives_the_same_losses_again(first_look: ModuleType, capsys: pytest.CaptureFixture[str]):
    runs = []
    for _ in range(2):
        first_look.main(["--units", "sru", "--steps", "3", "--length", "8", "--seed", "7"])
        runs.append(table(capsys.readouterr().out)["sru"][:-1])
    assert runs[0] == runs[1]


def test_first_look_poses_the_adding_problem(first_look: ModuleType):
    x, y = first_look.adding_problem(20_000, 9, torch.Generator().manual_seed(0))
    values, markers = x.unbind(-1)
    assert x.shape == (9, 20_000, 2)
    assert (markers[:4].sum(0) == 1).all()
    assert (markers[4:].sum(0) == 1).all()
    torch.testing.assert_close((values * markers).sum(0), y)
    assert float(y.var()) == pytest.approx(first_look.BASELINE, abs=0.005)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["--units", "srru"], "no unit 'srru'; did you mean 'sru'? the units are sru, lrn, "),
        (["--units", "LSTM"], "no unit 'LSTM'; did you mean 'lstm'?"),
        (["--units", "zzz"], "no unit 'zzz'; the units are sru, lrn, "),
        (["--steps", "0"], "expected a whole number of at least 1; got '0'"),
        (["--length", "1"], "expected a whole number of at least 2; got '1'"),
    ],
)
def test_first_look_answers_a_wrong_argument(
    first_look: ModuleType, capsys: pytest.CaptureFixture[str], arguments: list[str], answer: str
):
    with pytest.raises(SystemExit):
        first_look.main(arguments)
    assert answer in capsys.readouterr().err


def test_every_entry_of_the_log_is_in_its_index():
    """And the index names no others."""
    _, index, *entries = re.split(r"^## ", (ROOT / "docs" / "log.md").read_text("utf-8"), flags=re.MULTILINE)
    assert index.startswith("Index by subject\n")
    titles = [entry.partition("\n")[0] for entry in entries]
    assert all(re.match(r"\d{4}-\d\d-\d\d: ", title) for title in titles)
    assert len(set(titles)) == len(titles)
    named = {anchor: text for text, anchor in re.findall(r"\[([^\]]*)\]\(#([^)]*)\)", index)}
    assert named == {slug(title): title.partition(": ")[2] for title in titles}
