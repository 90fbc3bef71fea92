"""linnet train: a run of a task, new or resumed."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from linnet.analysis.report import write_report
from linnet.analysis.runs import read_run, unit_name
from linnet.analysis.verdict import verdict
from linnet.cli.folders import RUNS, data_name, overwrite, send_again
from linnet.cli.options import add_run_options, add_sources, run_config
from linnet.cli.output import is_first_process, result_line, say
from linnet.cli.parser import LazyParser, path_name
from linnet.runs.config import RunConfig
from linnet.tasks import TASKS
from linnet.train.progress import choose


def add_options(command: argparse.ArgumentParser) -> None:
    tasks = command.add_subparsers(dest="task", required=True, metavar="TASK", parser_class=LazyParser)
    for name, task in TASKS.items():
        tasks.add_parser(name, help=task.about).fill = partial(add_task_options, task=name)


def add_task_options(command: argparse.ArgumentParser, task: str) -> None:
    command.description = (
        f"Train {task}: {TASKS[task].about}. A run is a directory. If it exists and has the same "
        "settings, training resumes from its last checkpoint."
    )
    add_sources(command)
    add = command.add_argument
    add("--run-dir", type=path_name, dest="folder", metavar="DIR", help="(runs/<recipe or data-unit>)")
    add("--overwrite", action="store_true", help="delete the files of the existing run and start over")
    add_run_options(command, task)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    # Imported here, not above: `linnet train lm --help` needs no Fabric.
    from linnet.train.loop import train

    config = run_config(options, options.task)
    folder = options.folder or default_folder(options.recipe, config)
    if options.overwrite:
        overwrite(folder, config)
    result = train(config, folder, choose())
    report = folder / "report.html"
    if is_first_process():
        write_report(report, [read_run(folder)], f"{folder.name}")
    say(result_line("valid", result["valid"]))
    say(result_line("test", result["test"]))
    for baseline in result.get("baselines", ()):
        say(result_line(f"baseline, {baseline['name']}", baseline["figures"]))
    for line in verdict(config, result):
        say(line)
    say(f"{result['tokens_per_second']:,.0f} tokens/s; the run is in {folder}, its report in {report}")
    if TASKS[config.task].answers_tables:
        say(f"next: linnet predict {folder} --plot next.html")
    send_again(config, folder)


def default_folder(recipe: str | None, config: RunConfig) -> Path:
    return RUNS / (recipe or f"{data_name(config)}-{unit_name(config)}")
