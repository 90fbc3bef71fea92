"""The memory tasks from the command line: train, go on, eval, compare; the recipes of the NRU paper."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from linnet import cli
from linnet.models.sequence import SequenceModel
from linnet.runs.config import RunConfig, differences, from_json, options, override, to_json
from linnet.runs.load import load
from linnet.runs.records import read_config, read_metrics, read_result
from linnet.tasks import TASKS
from linnet.tasks.memory import EndlessData, rival_forms
from linnet.train.compare import plans, shared_task, variations
from linnet.train.loop import train
from linnet.train.recipes import RECIPES, recipe
from linnet.train.recipes.tracking import TRACKED

BRIEF = {"span": 5, "symbols": 3, "recalled": 2, "hidden_size": 6, "unit": "ran", "device": "cpu"}
FAST = {"steps": 8, "log_every": 2, "evaluate_every": 4, "eval_examples": 20}
CHECKS = ("nru-forget-5", "nru-stable-500")
QUICK = {"memory.selective", "memory.parity", "memory.pairs", "memory.cycle", "memory.modular"}
ENDLESS = [name for name, task in TASKS.items() if issubclass(task.Data, EndlessData)]
RATES = {**dict.fromkeys(QUICK, 3e-3), "memory.rows": 0.01}


def run_of(task: str = "memory.copy", **given: object) -> RunConfig:
    settings = {**BRIEF, **FAST, **given}
    known = {field.name for _, field, _ in options(task)}
    return override(RunConfig(task=task), {name: settings[name] for name in settings if name in known})


def words(**given: object) -> list[str]:
    return [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def test_memory_tasks_have_settings_of_their_own():
    for name in (name for name in TASKS if name.startswith("memory.")):
        config = RunConfig(task=name)
        assert (config.optimiser.optimiser, config.optimiser.clip) == ("adam", 1.0)
        assert config.optimiser.lr == RATES.get(name, 1e-3)
        assert from_json(to_json(config)) == config
    assert RunConfig().optimiser.lr == 3e-3


@pytest.mark.parametrize("task", ENDLESS)
def test_a_run_is_recorded_and_read_again(task: str, tmp_path: Path):
    result = train(run_of(task), tmp_path / "run")
    assert [row["step"] for row in read_metrics(tmp_path / "run", "train")] == [2, 4, 6, 8]
    assert [row["step"] for row in read_metrics(tmp_path / "run", "valid")] == [4, 8]
    assert load(tmp_path / "run").evaluate("test") == result["test"]
    assert set(result["test"]) == {"loss", "accuracy", "baseline"}


@pytest.mark.parametrize("given", [{}, {"reset_every": 5, "unit": "nru"}], ids=["plain", "kept state"])
def test_a_run_that_was_broken_off_goes_on_exactly(given: dict, tmp_path: Path):
    """Checkpoints at 4 (in the middle of 5 sequences with one state) and at the end of the shorter run."""
    train(run_of(**given), tmp_path / "whole")
    train(run_of(**given, **{"steps": 4}), tmp_path / "halves")
    train(run_of(**given), tmp_path / "halves")
    whole, halves = (read_metrics(tmp_path / name) for name in ("whole", "halves"))
    # The shorter run tested its weights, too.
    assert [row for row in halves if (row["split"], row["step"]) != ("test", 4)] == whole


def test_a_task_without_end_asks_for_steps(tmp_path: Path):
    with pytest.raises(ValueError, match=r"never end; give the number of updates \(--steps\)"):
        train(run_of(steps=0), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="scale_by_length needs windows of text"):
        run_of(scale_by_length=True)


def test_a_run_stops_once_it_is_good_enough(tmp_path: Path):
    train(run_of(), tmp_path / "whole")
    first, second = (row["loss"] for row in read_metrics(tmp_path / "whole", "valid"))
    assert second < first, "the test needs a loss that falls"
    for limit, steps in ((first + 1e-6, 4), (first, 8)):
        result = train(run_of(stop_below=limit), tmp_path / str(steps))
        assert result["step"] == steps
    # Asked again, it has been good enough already; asked for more, it goes on.
    assert train(run_of(stop_below=first + 1e-6), tmp_path / "4")["step"] == 4
    assert train(run_of(), tmp_path / "4")["step"] == 8


def test_random_labels_do_not_make_training_diverge(tmp_path: Path):
    result = train(run_of(unit="nru", random_labels=True, span=60, steps=60), tmp_path / "run")
    # At least as good as taking all four answers for equally likely.
    assert result["valid"]["loss"] < math.log(4)
    assert all(math.isfinite(row["gradient_norm"]) for row in read_metrics(tmp_path / "run", "train"))


def test_the_sequences_follow_the_seed_unless_they_have_one():
    def seed(**given: object) -> int:
        config = run_of(**given)
        return TASKS[config.task](config.data, config.model, config.loop.seed).seed

    assert (seed(), seed(seed=7), seed(seed=7, data_seed=5)) == (1, 7, 5)


def test_train_and_eval_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    place = tmp_path / "run"
    command = ["train", "memory.variable", *words(**BRIEF, **FAST), "--run-dir", str(place)]
    assert cli.main(command) == 0
    assert (place / "report.html").exists()
    assert read_config(place).data.span == 5
    capsys.readouterr()
    assert cli.main(["eval", str(place), "--splits", "test"]) == 0
    test = (read_result(place) or {})["test"]
    assert capsys.readouterr().out.startswith(
        f"test: loss {test['loss']:.5g}  accuracy {test['accuracy']:.5g}"
    )
    assert cli.main(["eval", str(place), "--dynamic"]) == 1
    assert "--dynamic is for language models" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "given", "told"),
    [
        ("memory.denoise", ["--span", "3"], "span T must be from 10 to"),
        ("memory.copy", ["--symbols", "20000"], "symbols, n, must be from 2 to 10,000; got 20,000"),
        ("memory.copy", ["--unit-options", "heads=3"], "NRU has no option 'heads'"),
        ("memory.copy", ["--recipe", "nru-psmnist"], "nru-psmnist is a recipe of the task memory.psmnist"),
        ("memory.smnist", ["--permutation", "order.npy"], "--permutation is for memory.psmnist"),
        ("memory.psmnist", ["--data-dir", "nowhere"], "data_dir is 'nowhere', which is not a folder"),
    ],
)
def test_what_cannot_be_is_answered(
    task: str, given: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(
        ["train", task, *given, "--images", "mnist"] if "mnist" in task else ["train", task, *given]
    )
    assert told in capsys.readouterr().err


def test_help_shows_the_defaults_of_the_task(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        cli.main(["train", "memory.copy", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "the learning rate before the schedule (0.001)" in said
    assert "--span" in said
    assert "--corpus" not in said


# ---------------------------------------------------------------------------------------- compare


def test_compare_over_units_and_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    settings = {
        name: value for name, value in {**BRIEF, **FAST}.items() if name not in ("unit", "hidden_size")
    }
    command = ["compare", "memory.copy", "--units", "ran", "lstm-chrono", "--seeds", "1", "2"]
    assert cli.main([*command, "--budget", "500", *words(**settings), "--run-dir", str(tmp_path)]) == 0
    places = ["ran-1", "ran-2", "lstm-chrono-1", "lstm-chrono-2"]
    assert all((read_result(tmp_path / place) or {})["step"] == 8 for place in places)
    assert [read_config(tmp_path / place).loop.seed for place in places] == [1, 2, 1, 2]
    # T + 2k
    assert read_config(tmp_path / "lstm-chrono-1").model.unit_options["chrono"] == 9
    assert "units on memory.copy, 500 parameters each" in capsys.readouterr().out
    assert 'href="lens.html"' in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "lens.html").stat().st_size > 20_000


def test_what_is_compared_has_as_many_parameters(tmp_path: Path):
    config = RunConfig(task="memory.copy")
    names, task = ["nru", "lstm", "janet", *rival_forms(120)], shared_task(config)
    made = dict(zip(names, plans(config, task, names, 23_500, tmp_path), strict=True))
    for each, _ in made.values():
        assert SequenceModel(10, 9, each.model, device="meta").count() == pytest.approx(23_500, rel=0.01)
    assert made["nru"][0].model.hidden_size == 80
    with pytest.raises(ValueError, match=r"here also rnn-orth, .*did you mean 'lstm-chrono'"):
        list(plans(config, task, ["lstm-chron"], 23_500, tmp_path))


def test_compare_varies_one_option_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    settings = {
        name: value for name, value in {**BRIEF, **FAST}.items() if name not in ("unit", "hidden_size")
    }
    command = ["compare", "memory.copy", *words(**settings), "--run-dir", str(tmp_path)]
    assert cli.main([*command, "--vary", "num-heads=1,4", "hidden_size=6"]) == 0
    found = {place.parent.name: read_config(place.parent).model for place in tmp_path.glob("*/config.json")}
    assert {name: (model.hidden_size, model.unit_options) for name, model in found.items()} == {
        "nru": (80, {}),
        "nru-num_heads-1": (80, {"num_heads": 1}),
        "nru-hidden_size-6": (6, {}),
    }
    assert "3 variations of nru on memory.copy" in capsys.readouterr().out
    assert cli.main([*command, "--vary", "num_head=1"]) == 1
    assert "nru has an option 'num_head'; did you mean 'num_heads'?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main([*command, "--vary", "num_heads=1,"])
    assert "expected NAME=VALUE,VALUE,..." in capsys.readouterr().err


def test_variations_of_several_seeds_have_a_run_each(tmp_path: Path):
    made = list(variations(run_of(unit="nru"), {"num_heads": [4, 1]}, tmp_path, (1, 2)))
    assert [(place.name, config.loop.seed) for config, place in made] == [
        *(("nru-1", 1), ("nru-2", 2), ("nru-num_heads-1-1", 1), ("nru-num_heads-1-2", 2))
    ]


def test_the_task_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["compare", "--steps", "5", "memory.copy"]) == 1
    assert "the task comes first" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------- recipes


def test_the_recipes_of_the_paper_are_there():
    own = {
        "nru-copy-100",
        "nru-copy-200",
        "nru-variable-100",
        "nru-variable-200",
        "nru-denoise",
        "nru-psmnist",
    }
    memory = {name for name, found in RECIPES.items() if name.startswith("nru-") and "memory." in found.task}
    checks = {*(f"nru-forget-{kept}" for kept in (2, 5, 10)), *(f"nru-stable-{T}" for T in (100, 200, 500))}
    assert own | checks <= memory
    assert len(memory) == len(own) * 10 + len(checks)


def test_the_checks_of_the_paper_are_those_of_its_model():
    forget, stable = (override(RunConfig(task="memory.copy"), recipe(n).settings) for n in CHECKS)
    plain = override(RunConfig(task="memory.copy"), recipe("nru-copy-100").settings)
    assert differences(plain, forget) == {"reset_every": (1, 5)}
    assert differences(plain, stable) == {"span": (100, 500), "random_labels": (False, True)}


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith("nru-psmnist")])
def test_the_rivals_at_permuted_mnist_have_as_many_parameters(name: str):
    config = override(RunConfig(task="memory.psmnist"), recipe(name).settings)
    count = SequenceModel(1, 10, config.model, device="meta").count()
    assert count == (17_418 if name.endswith("eurnn") else pytest.approx(165_000, rel=0.01))


@pytest.mark.parametrize("name", [n for n in RECIPES if n.startswith("nru-copy-100")])
def test_the_rivals_at_copying_have_as_many_parameters(name: str):
    config = override(RunConfig(task="memory.copy"), recipe(name).settings)
    count = SequenceModel(10, 9, config.model, device="meta").count()
    assert count == pytest.approx(23_500, rel=0.022)
    assert (config.loop.seed, config.data.data_seed, config.loop.steps) == (5, 5, 200_000)
    assert config.optimiser.amsgrad == (name == "nru-copy-100")
    assert config.model.unit_options.get("chrono") == (120 if name.endswith(("chrono", "janet")) else None)


@pytest.mark.parametrize(("name", "count"), [("fastgrnn-rows", 1932), ("fastrnn-rows", 1900)])
def test_digits_by_rows_have_the_settings_of_the_authors_example(name: str, count: int):
    """The example says that FastGRNN has 1,932 parameters for the 16 columns of USPS."""
    config = override(RunConfig(task="memory.rows"), recipe(name).settings)
    assert SequenceModel(16, 10, config.model, device="meta").count() == count
    assert (config.data.batch, config.loop.epochs) == (100, 300)
    schedule = config.schedule
    assert (schedule.schedule, schedule.decay, schedule.decay_after) == ("once", 0.1, 200)


def test_digits_by_rows_can_be_learned_and_have_no_permutation(tmp_path: Path):
    pytest.importorskip("sklearn")
    settings = {"images": "digits", "epochs": 20, "threads": 1}
    result = train(override(RunConfig(task="memory.rows"), settings), tmp_path / "run")
    assert result["test"]["accuracy"] > 0.85
    with pytest.raises(ValueError, match="permutation"):
        override(RunConfig(task="memory.rows"), {"permutation": "order.npy"})


def test_the_recipes_of_newer_papers_are_there():
    settings = {name: found.settings for name, found in RECIPES.items() if found.task in QUICK}
    units = {f"{unit}-{task}" for unit in ("mingru", "minlstm") for task in ("selective", *TRACKED)}
    assert set(settings) == {*units, "slstm-parity"}
    copying = settings["mingru-selective"]
    assert (copying["span"] + copying["recalled"], copying["symbols"] + 2) == (4096 + 16, 16)
    parity = settings["slstm-parity"]
    assert [parity[name] + 1 for name in ("shortest", "longest", "test_longest")] == [3, 40, 256]


def test_the_command_needs_no_training_package_to_show_its_tasks():
    code = (
        "import sys; from linnet.cli import parser; parser().format_help(); "
        "names = ('lightning_fabric', 'linnet.train.loop', 'sklearn'); "
        "print([name for name in names if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
