"""Trains or evaluates a row of a table, and returns its line of the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from statistics import mean
from typing import Any

from experiments.results import COLUMNS, Result, text
from experiments.tables import Row, Table, config_of, only_evaluates
from linnet.analysis.board import Board
from linnet.analysis.runs import updates_to_solve
from linnet.base.checkout import commit
from linnet.launch import Job, run_jobs
from linnet.launch.job import RunsFailed
from linnet.launch.launchers import IN_THIS_PROCESS
from linnet.runs.config import RunConfig, differences, override
from linnet.runs.records import read_environment, read_metrics
from linnet.runs.stored import within
from linnet.tasks import TASKS
from linnet.train.compare import repeats

RUNS = Path("runs") / "experiments"
# Settings that do not change what a run computes, and `start_from`, which the row determines.
NOT_CHANGES = (
    *("data_dir", "path", "threads", "device", "start_from", "tensorboard", "context_file"),
    *("log_every", "checkpoint_steps", "checkpoint_seconds", "store", "store_checkpoints"),
)


def folder_of(table: Table, row: str) -> Path:
    return RUNS / table.name / row


def make_run(
    table: Table,
    row: Row,
    given: dict[str, Any],
    folder: Path | None,
    note: str,
    launcher: str = IN_THIS_PROCESS,
) -> Result:
    """Train this row, or resume it, and return its line of the results; `launcher` makes its repetitions."""
    if only_evaluates(row):
        evaluate = evaluate_dynamically if row.dynamic is not None else evaluate_otherwise
        return evaluate(table, row, given, folder or folder_of(table, row.after), note)
    folder, commit_at_start = folder or folder_of(table, row.name), commit()
    if row.after:
        given = {"start_from": str(folder_of(table, row.after)), **given}
    config = config_of(table, row, given)
    jobs = [Job(*each) for each in repeated(table, row, config, folder)]
    results, first = trained(jobs, launcher), jobs[0].folder
    valid = read_metrics(first, "valid")
    measured = {
        "changed": shown_changes(differences(config_of(table, row), config, ignore=NOT_CHANGES)),
        "epochs": valid[-1]["epoch"],
        "steps": results[0]["step"],
        "parameters": results[0]["parameters"],
        **{split: mean(figure(table, each[split]) for each in results) for split in ("valid", "test")},
        "tokens_per_second": round(mean(each["tokens_per_second"] for each in results)),
        **solving(table, valid),
        "also": ", ".join(
            filter(None, [further(table, [each["test"] for each in results]), beside(table, results)])
        ),
    }
    if len(results) > 1:
        measured["repeats"] = " ".join(text(figure(table, each["test"])) for each in results)
    return line(table, row, {**measured, "commit": commit_at_start, "note": note}, first)


def trained(jobs: Sequence[Job], launcher: str) -> list[dict[str, Any]]:
    """Return the results of runs in their order; all are made before the failure of one is raised."""
    config, results, failed = jobs[0].config, dict[Path, dict[str, Any]](), []
    board = Board([job.folder.name for job in jobs], TASKS[config.task].figures(config.data)[0])
    with board, closing(run_jobs(jobs, launcher, board.progress)) as outcomes:
        for outcome in outcomes:
            board.ended(outcome)
            if outcome.result is None:
                failed.append(outcome)
            else:
                results[outcome.job.folder] = outcome.result
    if failed:
        raise RunsFailed(failed, len(jobs))
    return [results[job.folder] for job in jobs]


def repeated(table: Table, row: Row, config: RunConfig, folder: Path) -> Iterator[tuple[RunConfig, Path]]:
    """Yield the run itself, or a run for each seed or fold, each with its folder."""
    if not table.folds:
        yield config, folder
        return
    for label, settings in repeats(config, row.seeds, 0 if row.seeds else table.folds):
        name = label.strip("-")
        yield within(override(config, settings), name), folder / name


def repetitions(table: Table, row: Row, config: RunConfig, folder: Path) -> dict[str, Path]:
    """Return the folder of each repetition of a row by its name, such as fold0 (a single run: "")."""
    folders = [run_folder for _, run_folder in repeated(table, row, config, folder)]
    return {"" if each == folder else each.name: each for each in folders}


def figure(table: Table, numbers: dict[str, float]) -> float:
    """Return the metric of the table; accuracy, error and F1 in %, as in papers."""
    return 100 * (1 - numbers["accuracy"]) if table.metric == "error" else named_figure(table.metric, numbers)


def named_figure(name: str, numbers: dict[str, float]) -> float:
    return numbers[name] * (100 if name in ("accuracy", "f1", "em") else 1)


def further(table: Table, tests: Sequence[dict[str, float]]) -> str:
    """Return the other figures of the tests that the table wants, such as "em 12.5"."""
    return ", ".join(
        f"{name} {text(mean(named_figure(name, each) for each in tests))}" for name in table.also
    )


def beside(table: Table, results: Sequence[dict[str, Any]]) -> str:
    """Return the metric of the table, and `also`, of baselines: "linear mse 0.03, linear mae 0.14"."""
    found = {each["name"]: each["figures"] for each in results[0]["baselines"]}
    return ", ".join(
        f"{name} {figure} {text(named_figure(figure, found[name]))}"
        for name in table.beside
        for figure in (table.metric, *table.also)
        if name in found
    )


def solving(table: Table, valid: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the memoryless baseline of a memory task, and the updates until it was solved."""
    if table.metric != "loss":
        return {}
    steps = updates_to_solve(valid)
    return {"baseline": valid[-1]["baseline"], "solved": "never" if steps is None else steps}


def evaluate_dynamically(table: Table, row: Row, given: dict[str, Any], folder: Path, note: str) -> Result:
    """Return the line of a trained model that keeps learning while it is tested."""
    from linnet.runs.load import load
    from linnet.train import dynamic

    run: Any = load(folder).on(**given)
    corpus, model, settings = run.task.corpus, run.model, dynamic.DynamicConfig(**(row.dynamic or {}))
    known = dynamic.statistics(model, corpus.train, settings)
    test = dynamic.evaluate(model, corpus.test, known, settings, run.task.metrics())[table.metric]
    return line(
        table, row, {"parameters": model.count(), "test": test, "commit": commit(), "note": note}, folder
    )


def evaluate_otherwise(table: Table, row: Row, given: dict[str, Any], folder: Path, note: str) -> Result:
    """Return the line of a trained model that is evaluated with other settings."""
    import torch

    from linnet.runs.load import load
    from linnet.tasks.evaluation import evaluate

    run = load(folder).on(**given, **row.evaluated)
    model = run.task.build()
    model.load_state_dict(run.model.state_dict())
    torch.manual_seed(run.config.loop.seed)
    numbers = {split: evaluate(run.task, model, split) for split in ("valid", "test")}
    measured = {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        **{split: figure(table, found) for split, found in numbers.items()},
        "also": further(table, [numbers["test"]]),
    }
    return line(table, row, {**measured, "commit": commit(), "note": note}, folder)


def line(table: Table, row: Row, measured: dict[str, Any], folder: Path) -> Result:
    environment = read_environment(folder)
    if environment is None:
        raise FileNotFoundError(f"{folder} has no environment.json, which names the machine of the run")
    today = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    conditions = {"date": today, "cpu": environment["processor"], "threads": environment["threads"]}
    values = {**conditions, "table": table.name, "row": row.name, **measured}
    return {column: text(values.get(column, "")) for column in COLUMNS}


def shown_changes(changes: dict[str, tuple[Any, Any]]) -> str:
    return " ".join(f"{name}={new}" for name, (_, new) in changes.items())
