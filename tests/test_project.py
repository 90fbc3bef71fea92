"""What the next maintainer finds: addresses, versions, workflows and pages that say the same."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import linnet
from linnet.base import project
from tools import install, notebook

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
SETTINGS: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


# ------------------------------------------------------------------------------ one place for each


def test_the_repository_has_one_address():
    assert set(SETTINGS["urls"]) == {"Repository", "Documentation", "Changelog", "Issues"}
    assert all(address.startswith(project.REPOSITORY) for address in SETTINGS["urls"].values())
    assert read(ROOT / "CITATION.cff")["repository-code"] == project.REPOSITORY
    assert SETTINGS["name"] == project.NAME


def test_the_citation_names_the_version():
    assert read(ROOT / "CITATION.cff")["version"] == linnet.__version__


@pytest.mark.parametrize("page", install.pages(), ids=lambda page: f"{page.parent.name}/{page.name}")
def test_pages_install_linnet_from_where_it_is(page: Path):
    text = page.read_text(encoding="utf-8")
    assert text == install.written(text), "run python -m tools.install"


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_page_says_how_to_install_before_its_code(page: str):
    first, second = re.findall(
        r"^```(\w+)\n(.*?)\n```", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S
    )[:2]
    assert first[0] == "sh"
    assert first[1].startswith(project.install())
    assert second[0] == "python"
    assert "as_lstm=True" in second[1]


def test_commands_that_install_follow_one_constant(monkeypatch: pytest.MonkeyPatch):
    text = (
        "pip install .  pip install '.[lm]' `pip install linnet-rnn[bench]`; pip install ./a pip install peft"
    )
    here = "pip install .  pip install '.[lm]' `pip install '.[bench]'`; pip install ./a pip install peft"
    assert install.written(text) == here
    assert project.advice("lm") == "pip install '.[lm]' in a checkout of Linnet"
    monkeypatch.setattr(project, "ON_INDEX", True)
    assert install.written(here).startswith("pip install linnet-rnn  pip install 'linnet-rnn[lm]' `pip")
    assert install.written(install.written(here)) == install.written(here)
    assert project.advice("lm") == "pip install 'linnet-rnn[lm]'"


def test_badges_and_the_notebook_s_link_wait_for_the_release(monkeypatch: pytest.MonkeyPatch):
    begin, end = install.markers("badges")
    before = f"{begin}\n\n{end}\n"
    assert install.written(before) == before
    monkeypatch.setattr(project, "ON_INDEX", True)
    public = install.written(before)
    assert f"pypi/v/{project.NAME})" in public
    assert "badge/torch-2.10_to_" in public
    assert install.written(public) == public
    assert f"github/linnet-rnn/linnet/blob/main/{install.NOTEBOOK}" in install.notebook()
    assert (ROOT / install.NOTEBOOK).exists()
    assert project.REPOSITORY in install.citation()
    monkeypatch.setattr(project, "ON_INDEX", False)
    assert install.written(public) == before
    assert project.REPOSITORY not in install.citation()


def test_the_workflow_of_the_badge_exists(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(project, "ON_INDEX", True)
    (name,) = re.findall(r"workflows/([\w.]+)/badge", install.badges())
    assert GITHUB / "workflows" / name in WORKFLOWS


def test_messages_say_it_by_the_constant():
    """No file of the package names an extra of the package behind `pip install` itself."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "linnet").rglob("*.py")}
    assert [name for name, text in texts.items() if f"{project.NAME}[" in text] == []
    assert [name for name, text in texts.items() if install.COMMAND.search(text)] == []


def test_the_notebook_is_the_page():
    assert notebook.NOTEBOOK.read_text(encoding="utf-8") == notebook.text(), "run python -m tools.notebook"
    cells = json.loads(notebook.text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    blocks = re.findall(r"^```python\n(.*?)^```", notebook.PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) > 5
    assert all(block.strip() in code for block in blocks)


# ------------------------------------------------------------------------------- versions of torch


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")[:2]))


def test_torch_is_within_the_versions_that_were_tried():
    (bounds,) = [each for each in SETTINGS["dependencies"] if each.startswith("torch")]
    least, above = re.fullmatch(r"torch>=([\d.]+),<([\d.]+)", bounds).groups()  # type: ignore[union-attr]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    tried = sorted({numbers(found) for found in re.findall(r"^\| torch ([\d.]+) \|", page, re.MULTILINE)})
    assert tried[0] == numbers(least)
    major, minor = tried[-1]
    assert (major, minor + 1) == numbers(above)
    assert numbers(least) <= numbers(torch.__version__) < numbers(above)


def test_the_oldest_torch_and_every_python_are_in_the_workflow():
    matrix = read(GITHUB / "workflows" / "tests.yml")["jobs"]["layers"]["strategy"]["matrix"]
    pythons = [each.rpartition(" ")[2] for each in SETTINGS["classifiers"] if re.search(r":: 3\.\d", each)]
    assert matrix["python"] == pythons
    assert SETTINGS["requires-python"] == f">={pythons[0]}"
    least = re.search(r"torch>=([\d.]+)", " ".join(SETTINGS["dependencies"]))
    assert least
    assert numbers(matrix["torch"][0]) == numbers(least[1])


# -------------------------------------------------------------------------------------- workflows


def commands(workflow: Path) -> list[str]:
    steps = [step for job in read(workflow)["jobs"].values() for step in job["steps"]]
    return [line for step in steps for line in step.get("run", "").splitlines() if line]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_targets_that_exist(workflow: Path):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^(\w+):.*## ", makefile, re.MULTILINE))
    called = [line.split()[1] for line in commands(workflow) if line.startswith("make ")]
    assert called
    assert set(called) <= targets
    named = {name for line in commands(workflow) for name in re.findall(r"\b([A-Z_]+)=", line)}
    assert named <= set(re.findall(r"\$\((\w+)\)", makefile))


def test_only_publishing_may_write():
    for workflow in WORKFLOWS:
        found = read(workflow)
        assert found["permissions"] == {"contents": "read"}
        jobs = found["jobs"].items()
        assert [name for name, job in jobs if "permissions" in job and name != "publish"] == []


def test_workflows_pass_actionlint():
    checker = shutil.which("actionlint", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
    if checker is None:
        pytest.skip("actionlint is not installed")
    subprocess.run([checker, *map(str, WORKFLOWS)], check=True, cwd=ROOT)


@pytest.mark.parametrize("form", sorted((GITHUB / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda f: f.stem)
def test_a_form_asks_for_something(form: Path):
    found = read(form)
    assert {"name", "description", "body"} <= set(found)
    fields = [field for field in found["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_hooks_before_a_commit_are_those_of_make_check():
    (local,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    *checks, _ = local["hooks"]
    assert [hook["name"] for hook in checks] == ["ruff format", "ruff check", "mypy"]


def test_a_hook_refuses_long_subjects():
    hook = read(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"][-1]
    assert (hook["stages"], hook["language"], hook["args"]) == (["commit-msg"], "pygrep", ["--multiline"])
    body = f"\n\n{'y' * 100}"
    assert re.search(hook["entry"], "x" * 73 + body, re.MULTILINE)
    assert not re.search(hook["entry"], "x" * 72 + body, re.MULTILINE)
