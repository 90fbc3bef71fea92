"""linnet search: search over settings, at random with ranges that shrink, or by a sampler of Optuna."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from linnet.cli.folders import RUNS, data_name
from linnet.cli.live_page import Followed, LivePage
from linnet.cli.options import (
    add_launcher,
    add_run_options,
    add_sources,
    add_task,
    check_task_is_first,
    pair,
    parsed,
    run_config,
)
from linnet.cli.output import say
from linnet.cli.parser import at_least_one, path_name
from linnet.launch.launchers import IN_THIS_PROCESS
from linnet.launch.search import search_by
from linnet.runs.config import RunConfig
from linnet.runs.errors import Damaged, NotFinite
from linnet.runs.records import read_result
from linnet.runs.status import RUNNING, read_status
from linnet.tasks import TASKS
from linnet.tasks.results import Metric
from linnet.train.progress import Plain, Progress, choose
from linnet.train.ranges import LogRange, Range
from linnet.train.samplers import NO_PRUNER, SHRINKING, Method
from linnet.train.search import Plan, ranges_of
from linnet.train.study import DEAD_AFTER

BEST = 10
"""How many of the runs that have finished the page shows."""


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Draw settings at random and train with each; after a round, shrink the ranges around the best. "
        "--sampler draws by a sampler of Optuna instead, and --pruner stops runs that are worse than others. "
        "Several processes or machines with the same folder (and --storage) work on one study. "
        "An interrupted run is resumed. The task comes first: `linnet search memory.copy --help` shows its "
        "options."
    )
    task = add_task(command)
    add_sources(command)
    add = command.add_argument
    shown = " ".join(
        f"{name}={low:g}:{high:g}" for name, (low, high) in ranges_of(RunConfig(task=task)).items()
    )
    ranges_help = (
        "what to draw from: lr=1e-4:0.1:log has a logarithmic range, optimiser=adam,sgd a list of values; "
        f"names joined by + share a value ({shown})"
    )
    add("--ranges", nargs="+", type=span, metavar="NAME=LOW:HIGH", help=ranges_help)
    add("--runs", type=at_least_one, default=100, help="total number of runs (100)")
    add("--per-round", type=at_least_one, default=100, help="runs before the ranges shrink (100)")
    add("--shrink", type=float, default=0.5, help="the fraction of a range that is kept (0.5)")
    sampler_help = "shrinking, or a sampler of Optuna by its name: tpe, cmaes, gp (shrinking)"
    add("--sampler", default=SHRINKING, metavar="NAME", help=sampler_help)
    add("--pruner", default=NO_PRUNER, metavar="NAME", help="of Optuna: median, hyperband (nop: none)")
    for kind, example in (("sampler", "multivariate=true"), ("pruner", "min_resource=2")):
        text = f"options of Optuna's {kind}, such as {example}"
        add(f"--{kind}-options", nargs="+", type=pair, default=[], metavar="NAME=VALUE", help=text)
    storage_help = (
        "a journal file, or a database: sqlite:///study.db, postgresql://user@host/name (study.log)"
    )
    add("--storage", help=storage_help)
    dead_help = "with a database on a server: take over runs that were not heard of for so long"
    add(
        "--dead-after",
        type=float,
        default=DEAD_AFTER,
        metavar="SECONDS",
        help=f"{dead_help} ({DEAD_AFTER:g})",
    )
    add(
        "--run-dir",
        type=path_name,
        dest="folder",
        default=RUNS / "search",
        metavar="DIR",
        help="(runs/search)",
    )
    add_launcher(command)
    add_run_options(command, task)
    command.set_defaults(run=run)


def span(text: str) -> tuple[str, Any]:
    """lr=0.5:0.99, lr=0.0001:0.1:log or optimiser=adam,sgd"""
    name, _, space = text.partition("=")
    try:
        return name.replace("-", "_"), space_from(space)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected NAME=LOW:HIGH, like lr=0.5:0.99, NAME=LOW:HIGH:log, or NAME=VALUE,VALUE; got {text!r}"
        ) from None


def space_from(text: str) -> Any:
    if "," in text:
        return [parsed(value) for value in text.split(",")]
    low, high, *more = text.split(":")
    if more not in ([], ["log"]):
        raise ValueError(text)
    return (LogRange if more else Range)(float(low), float(high))


def run(options: argparse.Namespace) -> None:
    check_task_is_first(options)
    config = run_config(options, options.task)
    ranges = dict(options.ranges or ranges_of(config))
    sampler, pruner = (
        Method(name, dict(given))
        for name, given in (
            (options.sampler, options.sampler_options),
            (options.pruner, options.pruner_options),
        )
    )
    plan = Plan(ranges, options.runs, options.per_round, options.shrink, sampler, pruner)
    # Of several runs at the same time, each has lines of its own: one terminal has one bar.
    progress = choose if options.launcher == IN_THIS_PROCESS else plain
    how: dict[str, Any] = {"storage": options.storage, "dead_after": options.dead_after}
    selects = TASKS[options.task].selected_by(config.data)
    page = SearchPage(options.folder, title_of(config, plan), plan.runs, options.launcher, selects=selects)

    def followed(name: str) -> Followed:
        return Followed(progress(name), page)

    study = search_by(options.launcher, config, options.folder, plan, progress=followed, **how)
    say_best(study, options.folder, selects)
    page.finish()


def plain(name: str) -> Progress:
    return Plain(name=name)


def title_of(config: RunConfig, plan: Plan) -> str:
    """Return the title of the page of a search."""
    searched = " and ".join(name.replace("+", ", ") for name in plan.ranges)
    return f"A search over {searched}: {plan.runs} runs of {config.model.unit} on {data_name(config)}"


class SearchPage(LivePage):
    """The page of a search: its best runs, and those under way."""

    draws_each = False

    def __init__(self, *page: Any, selects: Metric):
        super().__init__(*page)
        self.selects, self.costs = selects, dict[Path, float]()

    def runs(self) -> Sequence[Path]:
        under_way = self.look()
        best = sorted(self.costs, key=self.costs.__getitem__)[:BEST]
        return sorted([*best, *under_way])

    def look(self) -> list[Path]:
        """Return the runs under way, of all processes of this folder, and count those that have ended."""
        under_way, stopped = [], 0
        for path in self.folder.glob("[0-9]*/"):
            # A damaged run is the affair of the process that trains it.
            with suppress(Damaged, OSError):
                if path not in self.costs and (result := read_result(path)):
                    self.costs[path] = self.selects.cost(result["valid"])
                if path not in self.costs and (status := read_status(path)):
                    stopped += bool(status.error)
                    if status.state == RUNNING and not status.was_killed:
                        under_way.append(path)
        self.done = len(self.costs) + stopped
        return under_way

    def count_end(self) -> None:
        self.look()

    def finish(self) -> None:
        """Write the page for the last time in this process; others may still train."""
        if not self.look():
            self.count = self.done
        if self.costs:
            self.write()
            say(f"The page is {self.path}")


def say_best(study: Any, folder: Path, selects: Metric) -> None:
    counts = Counter(trial.state.name.lower() for trial in study.get_trials(deepcopy=False))
    if counts["running"]:
        say(f"{counts['running']} runs are still being trained by other processes")
    if counts["pruned"]:
        say(f"{counts['pruned']} runs were stopped early")
    if not counts["complete"]:
        raise NotFinite(
            f"no run in {folder} finished with a finite loss: try a range of smaller learning rates"
        )
    best = study.best_trial
    path = folder / f"{best.number:04}"
    if not path.exists():
        path = best.user_attrs.get("where", path)
    value = selects.value(best.value)
    say(f"the best of {counts['complete']} runs is {path}: valid {selects.name} {value:.5g}")
    drawn = best.user_attrs["settings"]
    say("  ".join(f"--{name.replace('_', '-')} {shown(value)}" for name, value in drawn.items()))


def shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
