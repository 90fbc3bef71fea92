"""The command line: what it prints, and how it answers what it does not know."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from typing import Any

import pytest

import linnet
from linnet import cli
from linnet.analysis.kernel_code import kernel
from linnet.cli import compare, search, train
from linnet.cli.options import run_config
from linnet.cli.parser import LazyParser
from linnet.runs.config import RunConfig, current, differences
from linnet.runs.config import options as options_of
from linnet.tasks import TASKS
from linnet.tasks.language import BY_LETTERS
from linnet.train.ranges import LogRange, Range


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code, and what was said about it."""
    try:
        code = cli.main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    return code, capsys.readouterr().err


# ------------------------------------------------------------------------------------------ list


def test_list_has_every_unit_with_its_paper_and_options(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["list", "units"]) == 0
    lines = capsys.readouterr().out.splitlines()
    units = [line for line in lines if not line.startswith(" ")]
    assert [line.split()[0] for line in units] == list(linnet.UNITS)
    assert "sru            The simple recurrent unit (Lei et al. 2018)." in units
    assert "                 cell_dropout_on='state'" in lines
    count = sum(len(unit.options()) for unit in linnet.UNITS.values())
    assert len(lines) == len(linnet.UNITS) + count


def test_list_shows_first_what_matters(capsys: pytest.CaptureFixture[str]):
    """The units, a line each, and where the rest is; --all shows everything."""
    assert cli.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(linnet.UNITS)]] == list(linnet.UNITS)
    assert len(lines) <= len(linnet.UNITS) + 8
    assert "linnet list --all" in lines[-1]
    assert all(task in "".join(lines) for task in ("classify", "memory.copy"))
    assert cli.main(["list", "--all"]) == 0
    everything = capsys.readouterr().out
    assert all(f"\n{name}:" in f"\n{everything}" for name in ("units", "recipes", "corpora", "plots"))
    assert "cell_dropout_on='state'" in everything


def test_list_of_some(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["list", "lrn", "elrn"]) == 0
    assert re.findall(r"^\w+", capsys.readouterr().out, re.MULTILINE) == ["lrn", "elrn"]


def test_list_has_every_task_with_a_line_about_it(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["list", "tasks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(TASKS)
    assert all(len(line.split()) > 2 for line in lines)


# ------------------------------------------------------------------------------------------ show


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    """In a process of its own: each kernel is made once in a process, and others may have made it here."""
    commands = {
        "forward": ["show", "kernel", "lrn"],
        "backward": ["show", "kernel", "scrn", "--backward", "--assembly", "--dtype", "float64"],
    }
    code = (
        "import sys; from linnet.cli import main\n"
        f"for command in {list(commands.values())}: assert main(command) == 0; print('---')\n"
        "assert 'matplotlib' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return dict(zip(commands, done.stdout.split("---\n"), strict=False))


def test_show_kernel_prints_the_lines_and_then_the_code(shown: dict[str, str]):
    lines, code = shown["forward"].split("LLVM:")
    assert lines.startswith("LRN, forward, float32\n\nthe step, traced:\n    inputs: k, q, v, h\n")
    assert "    v0 = add(k, h)\n    v1 = sigmoid(v0)\n" in lines
    assert 'define void @"forward"' in code


def test_show_kernel_backward_as_assembly(shown: dict[str, str]):
    text = shown["backward"]
    assert text.startswith("SCRN, backward, float64\n\nthe step, traced:\n    inputs: ")
    assert text.count("the step, traced:") == text.count("assembly:") == 2
    assert "d.s = " in text
    assert "backward:" in text


def test_a_unit_without_a_kernel_is_told_so(capsys: pytest.CaptureFixture[str]):
    code, told = answer(capsys, "show", "kernel", "statisticalru", "--device", "cuda")
    assert code == 1
    assert told.startswith("linnet: ")
    assert "StatisticalRU runs on the reference loop on a GPU: " in told


def test_a_step_that_is_not_elementwise_is_shown_line_by_line():
    lines = kernel("statisticalru").split("LLVM:")[0].splitlines()
    assert "    v0 [1, 5] = add(weight.summary.bias, made.0)" in lines
    assert "    new.mu = v6" in lines


def test_a_kernel_is_shown_again_in_the_same_process():
    first = kernel("atr")
    assert "LLVM:" in first
    assert kernel("atr") == first


def test_showing_leaves_the_compiler_as_it_was():
    from linnet.cpu import jit

    before = jit.compile_recipe
    kernel("atr")
    assert jit.compile_recipe is before


def test_whoever_reads_only_the_beginning_is_not_bothered():
    command = f"{sys.executable} -m linnet show kernel lstm | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("LSTM, forward, float32\n", "")


# --------------------------------------------------------------------------------- wrong arguments


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show", "kernel", "sruu"], "no unit 'sruu'; did you mean 'sru'? choose from sru, lrn, "),
        (["show", "kernel", "LSTM"], "no unit 'LSTM'; did you mean 'lstm'?"),
        (["show", "kernl", "sru"], "did you mean 'kernel'?"),
        (["show", "kernel", "sru", "--dtype", "float23"], "did you mean 'float32'?"),
        (["list", "zzz"], "no unit 'zzz'; choose from sru, lrn, "),
        (["benhc"], "did you mean 'bench'?"),
        (["bench", "--units", "jannet"], "no unit 'jannet'; did you mean 'janet'?"),
        (
            ["bench", "--shapes", "3x4"],
            "a shape is LxBxd, steps by sequences by width, like 256x32x512; got '3x4'",
        ),
        (["bench", "--shapes", "0x1x4"], "got '0x1x4'"),
        (["bench", "--threads", "0"], "expected a whole number of at least 1; got '0'"),
        (
            ["train", "lm", "--lrr", "3"],
            "linnet train lm: error: unrecognized arguments: --lrr 3; did you mean '--lr'?",
        ),
        (["compare", "--lr", "fast"], "argument --lr: invalid float value: 'fast'"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_a_mistake_is_answered_in_one_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
):
    code, said = answer(capsys, *arguments)
    assert code == 2
    assert told in said
    assert said.count("\n") == 1
    assert re.search(r"\(see linnet[\w .]* --help\)\n$", said)


def shown_defaults(command: argparse.ArgumentParser) -> dict[str, str]:
    """What help says an option is if it is not given: the last parentheses of its text."""
    texts = {action.dest: action.help or "" for action in command._actions}
    found = {name: re.search(r" \(([^()]*)\)$", text) for name, text in texts.items()}
    return {name: match[1] for name, match in found.items() if match}


@pytest.mark.parametrize("task", ["lm", "tag", "translate", "read", "memory.copy", "memory.psmnist"])
@pytest.mark.parametrize("name", ["train", "compare"])
def test_help_shows_the_defaults_that_are_used(name: str, task: str):
    command = LazyParser(prog=name)
    if name == "train":
        train.add_task_options(command, task)
        config = run_config(command.parse_args([]), task)
    else:
        command.first_word = task
        compare.add_options(command)
        config = compare.base_config(command.parse_args([task]))
    shown, compared = shown_defaults(command), 0
    for part, field, _ in options_of(task):
        value = getattr(getattr(config, part), field.name)
        if isinstance(value, (int, float, str)) and not isinstance(value, bool) and field.name in shown:
            compared += shown[field.name] == str(value)
            assert shown[field.name] == str(value), field.name
    assert compared > 20


def asked(*words: str) -> Any:
    command = LazyParser(prog="train")
    train.add_task_options(command, "lm")
    return run_config(command.parse_args(words), "lm")


@pytest.mark.parametrize("words", ["--level char", "--path a.txt --level byte", "--corpus enwik8"])
def test_letters_have_the_defaults_that_help_names(words: str, capsys: pytest.CaptureFixture[str]):
    config = asked(*words.split())
    assert {name: current(config, name) for name in BY_LETTERS} == BY_LETTERS
    with pytest.raises(SystemExit):
        cli.main(["train", "lm", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert all(f"{name}={value}" in told for name, value in BY_LETTERS.items())


def test_defaults_of_letters_replace_nothing_that_was_asked_for():
    assert asked("--level", "char", "--hidden-size", "7").model.hidden_size == 7
    assert asked("--level", "char", "--unit", "rnn").optimiser.lr == 0.001
    assert asked("--path", "a.txt").model == RunConfig(task="lm").model
    recipe = asked("--recipe", "lrn-ptb")
    assert differences(recipe, asked("--recipe", "lrn-ptb", "--level", "char")).keys() == {"level"}


def test_search_shows_the_ranges_that_it_searches(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        cli.main(["search", "--help"])
    shown = "".join(capsys.readouterr().out.split())
    for name, (low, high) in TASKS["lm"].ranges.items():
        assert f"{name}={low:g}:{high:g}" in shown


def test_a_range_is_of_numbers_of_logarithms_or_of_values():
    assert search.span("lr=0.5:0.99") == ("lr", Range(0.5, 0.99))
    name, space = search.span("a+b=1e-4:0.1:log")
    assert (name, space, type(space)) == ("a+b", (1e-4, 0.1), LogRange)
    assert search.span("optimiser=adam,sgd") == ("optimiser", ["adam", "sgd"])
    assert search.span("hidden-size=50,100") == ("hidden_size", [50, 100])
    with pytest.raises(
        argparse.ArgumentTypeError, match="NAME=LOW:HIGH:log, or NAME=VALUE,VALUE; got 'lr=1:2:lg'"
    ):
        search.span("lr=1:2:lg")


@pytest.mark.parametrize("command", [[], ["list"], ["show"], ["show", "kernel"], ["bench"]])
def test_help(command: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        cli.main([*command, "--help"])
    assert end.value.code == 0
    assert "usage: linnet" in capsys.readouterr().out


@pytest.mark.parametrize("task", list(TASKS))
@pytest.mark.parametrize("command", ["train", "compare", "search"])
def test_every_command_takes_every_task(command: str, task: str, capsys: pytest.CaptureFixture[str]):
    """An option of a task may have the name of one of the command."""
    assert answer(capsys, command, task, "--help") == (0, "")


def test_folds_are_of_a_cross_validation_or_of_the_task():
    for task, cross_validation in (("classify", 3), ("forecast", 0)):
        parser = argparse.ArgumentParser()
        parser.first_word = task  # type: ignore[attr-defined]
        compare.add_options(parser)
        options = parser.parse_args([task, "--folds", "3"])
        assert options.cross_validation == cross_validation
        assert getattr(options, "folds", 0) == 3 - cross_validation


@pytest.mark.parametrize("command", [["train", "lm"], ["train", "classify"], ["compare"], ["search"]])
def test_help_shows_the_common_options_first(command: list[str], capsys: pytest.CaptureFixture[str]):
    """--help --all shows all of them."""
    with pytest.raises(SystemExit):
        cli.main([*command, "--help"])
    first = capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main([*command, "--help", "--all"])
    everything = capsys.readouterr().out
    assert "--num-layers" in first
    assert "--betas" in everything
    assert "--betas" not in first
    assert first.endswith(f"further options: linnet {' '.join(command)} --help --all\n")
    assert len(everything.splitlines()) > 2 * len(first.splitlines())


def test_the_version_needs_no_torch():
    code = "import sys; sys.argv[1:] = ['--version']; sys.orig_argv = ['python', '-m', 'linnet']\n"
    code += "try: import linnet\nexcept SystemExit as end: print(end.code, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"linnet {linnet.__version__}\n0 False\n"


def test_the_version(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"linnet {linnet.__version__}\n"


def test_the_command_is_installed_under_its_name():
    from importlib.metadata import entry_points

    (found,) = entry_points(group="console_scripts", name="linnet")
    assert found.load() is cli.main
