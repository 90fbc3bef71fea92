"""Training from the command line: train, eval, generate, compare, search."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from linnet.cli.options import LazyParser, add_run_options, changed, given_options, parsed, run_config
from linnet.cli.parser import at_least_one, unit_name
from linnet.train.errors import NotFinite
from linnet.train.kinds import KINDS
from linnet.train.untrusted import harmless

TASK = "lm"
RUNS = Path("runs")


def add_commands(commands: Any) -> None:
    """Their options come from linnet.train, and are made when one of these commands is given."""
    train = commands.add_parser("train", help="train a model, or go on with a run")
    tasks = train.add_subparsers(dest="task", required=True, metavar="TASK", parser_class=LazyParser)
    for name, make in KINDS.items():
        later(tasks.add_parser(name, help=make.__doc__), partial(add_train, task=name))
    later(commands.add_parser("eval", help="the figures of a trained model"), add_eval)
    later(commands.add_parser("generate", help="text from a trained model"), add_generate)
    later(commands.add_parser("compare", help="several units under one budget of parameters"), add_compare)
    later(commands.add_parser("search", help="random search whose ranges shrink"), add_search)


def later(command: LazyParser, fill: Callable[[argparse.ArgumentParser], None]) -> None:
    command.fill = fill


def add_sources(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--recipe", metavar="NAME", help="start from a paper's recipe (`linnet list recipes`)"
    )
    command.add_argument("--config", type=Path, metavar="JSON", help="start from the config.json of a run")


def say(*words: object) -> None:
    """Of several processes, the first one speaks."""
    if int(os.environ.get("RANK", 0)) == 0:
        print(*map(harmless, words), flush=True)


# ----------------------------------------------------------------------------------------- train


def add_train(command: argparse.ArgumentParser, task: str = TASK) -> None:
    command.description = (
        f"Train {task}: {KINDS[task].__doc__}. The run is a directory; when it is there already and its "
        "settings are these, the run goes on from its last checkpoint."
    )
    add_sources(command)
    command.add_argument(
        "--run-dir", type=Path, dest="folder", metavar="DIR", help="(runs/<recipe or data-unit>)"
    )
    command.add_argument("--overwrite", action="store_true", help="delete the existing run and start over")
    add_run_options(command, task)
    command.set_defaults(run=train)


def train(options: argparse.Namespace) -> None:
    from linnet.analysis.report import write_report
    from linnet.analysis.runs import read_run
    from linnet.train.loop import train
    from linnet.train.progress import choose

    config = run_config(options, options.task)
    folder = options.folder or RUNS / (options.recipe or f"{data_name(config)}-{config.model.unit}")
    if options.overwrite:
        overwrite(folder)
    result = train(config, folder, choose())
    if int(os.environ.get("RANK", 0)) == 0:
        write_report(folder / "report.html", [read_run(folder)], f"{folder.name}")
    say(result_line("valid", result["valid"]))
    say(result_line("test", result["test"]))
    say(f"{result['tokens_per_second']:,.0f} tokens/s; the run is in {folder}")


def data_name(config: Any) -> str:
    return getattr(config.data, "corpus", config.task)


def overwrite(folder: Path) -> None:
    """Only a run is removed, by one process, and not while another one trains in it."""
    from linnet.train.records import claim, looks_like_a_run

    if not folder.exists() or int(os.environ.get("RANK", 0)):
        return
    if not looks_like_a_run(folder):
        raise ValueError(f"{folder} is no run, so it is not overwritten; give another --run-dir")
    with claim(folder):
        # What is in it, not the folder, which may be reached through a link.
        for path in folder.iterdir():
            path.unlink() if path.is_symlink() or not path.is_dir() else shutil.rmtree(path)


def result_line(split: str, numbers: dict[str, float]) -> str:
    return f"{split}: " + "  ".join(f"{name} {value:.5g}" for name, value in numbers.items())


# ------------------------------------------------------------------------------------------ eval


def add_eval(command: argparse.ArgumentParser) -> None:
    from linnet.train.config import options, parts
    from linnet.train.dynamic import DynamicConfig

    command.description = "Evaluate a run's weights, on its own text or another one of the same vocabulary."
    command.add_argument("folder", type=Path, metavar="RUN")
    command.add_argument("--checkpoint", choices=("best", "last"), default="best", help="(best)")
    command.add_argument("--splits", nargs="+", choices=("train", "valid", "test"), default=["valid", "test"])
    command.add_argument("--dynamic", action="store_true", help="go on learning while evaluating")
    others = tuple(field.name for part, field, _ in options(TASK) if part != "data")
    add_run_options(command, TASK, without=others)
    add_dataclass(command, DynamicConfig)
    assert "data" in parts(TASK)
    command.set_defaults(run=evaluate)


def add_dataclass(command: argparse.ArgumentParser, cls: Any) -> None:
    import dataclasses
    import typing

    from linnet.cli.options import add_option

    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        add_option(command, field, hints[field.name])


def evaluate(options: argparse.Namespace) -> None:
    from linnet.train.kinds import kind
    from linnet.train.language import load_run, refuse_other_vocabulary
    from linnet.train.records import read_config

    if read_config(options.folder).task != TASK:
        return evaluate_memory(options)
    config, model, vocabulary = load_run(options.folder, options.checkpoint)
    given = given_options(options, TASK)
    if given.get("corpus", config.data.corpus) != config.data.corpus:
        # The path is that of the run's own text.
        given = {"path": None, **given}
    config = changed(config, given)
    task = kind(TASK).build(config.data, config.model, config.loop.seed)
    refuse_other_vocabulary(options.folder / "vocabulary.json", vocabulary, task.corpus.vocabulary)
    judge = dynamically(options, task, model) if options.dynamic else task.evaluate
    for split in options.splits:
        say(result_line(split, judge(model, split)))
    return None


def evaluate_memory(options: argparse.Namespace) -> None:
    from linnet.train.memory import load_run

    given = given_options(options, TASK)
    if given or options.dynamic:
        raise ValueError(f"{options.folder} is no language model: the options of a text do not go with it")
    _, task, model = load_run(options.folder, options.checkpoint)
    for split in options.splits:
        say(result_line(split, task.evaluate(model, split)))


def dynamically(options: argparse.Namespace, task: Any, model: Any) -> Callable[[Any, str], dict[str, float]]:
    import dataclasses

    from linnet.train import dynamic

    if not task.carry:
        raise ValueError(
            "--dynamic learns from short windows, each from where the last one ended, and this run was "
            "trained on windows that begin from zeros (--no-carry); evaluate it without --dynamic"
        )
    names = [field.name for field in dataclasses.fields(dynamic.DynamicConfig)]
    given = {name: getattr(options, name) for name in names if hasattr(options, name)}
    settings = dynamic.DynamicConfig(**given)
    known = dynamic.statistics(model, task.corpus.train, settings)
    batch = task.data.test_batch or 1
    return lambda model, split: dynamic.evaluate(model, getattr(task.corpus, split), known, settings, batch)


# -------------------------------------------------------------------------------------- generate


def add_generate(command: argparse.ArgumentParser) -> None:
    command.description = "Write on from a prompt, a token at a time."
    command.add_argument("folder", type=Path, metavar="RUN")
    command.add_argument("--prompt", default="", help="what to go on from (the beginning of a line)")
    command.add_argument("--tokens", type=int, default=100, help="how many to write (100)")
    command.add_argument("--temperature", type=float, default=1.0, help="0: always the likeliest (1)")
    command.add_argument(
        "--top-p", type=float, default=1.0, help="draw from the likeliest with this mass (1)"
    )
    command.add_argument("--seed", type=int, default=1, help="of the draws (1)")
    command.add_argument("--checkpoint", choices=("best", "last"), default="best", help="(best)")
    command.set_defaults(run=write)


def write(options: argparse.Namespace) -> None:
    from linnet.analysis.generate import generate
    from linnet.train.language import load_run

    config, model, vocabulary = load_run(options.folder, options.checkpoint)
    how = {"temperature": options.temperature, "top_p": options.top_p, "seed": options.seed}
    how["window"] = config.data.window
    for piece in generate(model, vocabulary, options.prompt, tokens=options.tokens, **how):
        sys.stdout.write(harmless(piece))
        sys.stdout.flush()
    print()


# --------------------------------------------------------------------------------------- compare


def add_compare(command: argparse.ArgumentParser) -> None:
    from linnet.train.compare import comparison

    first = getattr(command, "first_word", None)
    task = first if first in KINDS else TASK
    how = comparison(task)
    command.description = (
        "Train a model of each unit, all with as many parameters, and write a table, samples and a page. "
        "With --vary it is one model, of a recipe or a config.json, with one option changed in each run. "
        "Runs that are there already are not made again. The task comes first: `linnet compare memory.copy "
        "--help` has its options."
    )
    add = command.add_argument
    add("task", nargs="?", choices=list(KINDS), default=TASK, metavar="TASK", help=", ".join(KINDS))
    add_sources(command)
    # Of other tasks than text there are variants of units too, which have names of their own.
    kind = unit_name if task == TASK else str
    add(
        "--units",
        nargs="+",
        type=kind,
        default=list(how.units),
        metavar="UNIT",
        help=f"({' '.join(how.units)})",
    )
    add("--vary", nargs="+", type=values, metavar="NAME=VALUE,...", help=VARY_HELP)
    add("--seeds", nargs="+", type=int, default=[], metavar="N", help="a run for each unit and seed (--seed)")
    add("--budget", type=at_least_one, default=how.budget, help=f"parameters of each model ({how.budget})")
    add("--run-dir", type=Path, dest="folder", metavar="DIR", help="(runs/compare-<data>)")
    add("--overwrite", action="store_true", help="delete these runs and start over")
    add("--sample-tokens", type=at_least_one, default=60, help="of the text each model writes (60)")
    add_run_options(
        command, task, without=("unit", "unit_options", "hidden_size", "hidden_sizes", "start_from")
    )
    command.set_defaults(run=compare, filled_for=task)


VARY_HELP = (
    "instead of --units and --budget: hidden_size=50,100 num_heads=1,4 runs the model with each of them"
)


def values(text: str) -> tuple[str, list[Any]]:
    """num_heads=1,4,9"""
    name, equals, listed = text.partition("=")
    if not (name and equals and all(listed.split(","))):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE,VALUE,..., like num_heads=1,4,9; got {text!r}")
    return name.replace("-", "_"), [parsed(value) for value in listed.split(",")]


def compare(options: argparse.Namespace) -> None:
    from linnet.analysis.table import Board
    from linnet.train.compare import comparison, plans, variations

    task = options.task
    if task != options.filled_for:
        raise ValueError(f"the task comes first: linnet compare {task} ...")
    config = run_config(options, task, {} if options.recipe or options.config else comparison(task).settings)
    folder = options.folder or RUNS / f"compare-{data_name(config)}"
    if options.vary:
        runs = list(variations(config, dict(options.vary), folder, options.seeds))
    else:
        runs = list(plans(config, options.units, options.budget, folder, options.seeds))
    for _, place in runs if options.overwrite else ():
        overwrite(place)
    with Board([run.name for _, run in runs]) as board:
        for one, place in runs:
            compare_one(one, place, board, options.sample_tokens)
    name = data_name(config)
    told = f"variations of {config.model.unit} on {name}"
    told = told if options.vary else f"units on {name}, {options.budget:,} parameters each"
    conclude(folder, [place for _, place in runs], f"{len(runs)} {told}")


def compare_one(config: Any, folder: Path, board: Any, tokens: int) -> None:
    from linnet.train.loop import train
    from linnet.train.records import write_atomically

    result = train(config, folder, board.progress(folder.name))
    board.finished(folder.name, result)
    if config.task == TASK:
        write_atomically(folder / "sample.txt", sample(folder, tokens).encode())


def sample(folder: Path, tokens: int) -> str:
    from linnet.analysis.generate import generate
    from linnet.train.language import load_run

    config, model, vocabulary = load_run(folder)
    how = {"temperature": 0.8, "top_p": 0.95, "window": config.data.window}
    return "".join(generate(model, vocabulary, tokens=tokens, **how))


def conclude(folder: Path, places: list[Path], title: str) -> None:
    from linnet.analysis.report import write_report
    from linnet.analysis.runs import read_run
    from linnet.analysis.table import text_table

    runs = [read_run(place) for place in places]
    write_report(folder / "report.html", runs, title)
    say(f"\n{title}\n\n{text_table(runs)}")
    for run in runs if runs[0].sample else ():
        say(f"\n{run.name} writes:\n  {run.sample.strip()}")
    say(f"\nThe page is {folder / 'report.html'}")


# ---------------------------------------------------------------------------------------- search


def add_search(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Draw settings at random and train with each; after a round, shrink the ranges around the best. "
        "Several processes or machines that are given the same folder (and --storage) work on one study. "
        "A run that was broken off is gone on with."
    )
    add_sources(command)
    add = command.add_argument
    add(
        "--ranges",
        nargs="+",
        type=span,
        metavar="NAME=LOW:HIGH",
        help="names joined by + share a value (SCRN's)",
    )
    add("--runs", type=at_least_one, default=100, help="in all (100)")
    add("--per-round", type=at_least_one, default=100, help="runs before the ranges shrink (100)")
    add("--shrink", type=float, default=0.5, help="the share of a range that is kept (0.5)")
    add("--storage", help="a journal file, or the address of a database: sqlite:///study.db (in the folder)")
    add("--run-dir", type=Path, dest="folder", default=RUNS / "search", metavar="DIR", help="(runs/search)")
    add_run_options(command, TASK)
    command.set_defaults(run=look)


def span(text: str) -> tuple[str, tuple[float, float]]:
    """lr=0.5:0.99"""
    name, _, ends = text.partition("=")
    try:
        low, high = map(float, ends.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected NAME=LOW:HIGH, like lr=0.5:0.99; got {text!r}") from None
    return name.replace("-", "_"), (low, high)


def look(options: argparse.Namespace) -> None:
    from linnet.train.progress import choose
    from linnet.train.search import SCRN_RANGES, Plan, search

    plan = Plan(dict(options.ranges or SCRN_RANGES.items()), options.runs, options.per_round, options.shrink)
    study = search(run_config(options, TASK), options.folder, plan, storage=options.storage, progress=choose)
    tell_best(study, options.folder)


def tell_best(study: Any, folder: Path) -> None:
    counts = Counter(trial.state.name.lower() for trial in study.get_trials(deepcopy=False))
    if counts["running"]:
        say(f"{counts['running']} runs are still made by other processes")
    if not counts["complete"]:
        raise NotFinite(f"no run in {folder} came to its end with a finite loss: try ranges of smaller rates")
    best = study.best_trial
    place = folder / f"{best.number:04}"
    say(f"the best of {counts['complete']} runs is {place}: valid loss {best.value:.5g}")
    drawn = best.user_attrs["settings"]
    say("  ".join(f"--{name.replace('_', '-')} {value:.4g}" for name, value in drawn.items()))
