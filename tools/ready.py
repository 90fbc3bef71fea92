"""The trained models of the package: train them by their recipes, round them, write them to linnet/ready.

    python -m tools.ready                  all of them; finished runs in runs/ are not trained again
    python -m tools.ready translate        some of them

A model is a run folder with its best weights in int8. The figures in result.json and on the card, README.md,
are those of the rounded weights, measured here.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import linnet
from linnet.base.tables import markdown, short
from linnet.deploy.hub import changed, settings_table
from linnet.runs import checkpoints
from linnet.runs.config import RunConfig, override
from linnet.runs.load import TrainedRun, keep_assets
from linnet.runs.ready import FOLDER, NAMES, PREFIX
from linnet.runs.records import (
    Row,
    read_config,
    read_result,
    write_atomically,
    write_json,
    write_result,
)
from linnet.runs.untrusted import read_json
from linnet.train.loop import train
from linnet.train.recipes import recipe

RUNS = Path("runs")
SPLITS = ("valid", "test")
# Of environment.json: the rest, such as the command, is of the machine that trained the model.
KEPT = ("started", "python", "machine", "processor", "packages")
TERMS = (
    "The King James Bible (1769) and the World English Bible are in the public domain. In the United "
    "Kingdom, letters patent of the Crown reserve the printing of the King James Bible. The model has the "
    "licence of Linnet, Apache-2.0."
)
FIGURES = {"punctuate": "f1", "translate": "bleu", "kjv": "bpc"}
"""The figure of each model in the table of docs/ready.md."""
USES: dict[str, str] = {
    "punctuate": 'linnet predict ready:punctuate "in the beginning god created the heaven and the earth"',
    "translate": 'linnet predict ready:translate "Thou shalt not covet thy neighbour\'s house."',
    "kjv": """\
linnet generate ready:kjv --prompt "In the beginning"
linnet lens ready:kjv
linnet export ready:kjv --to c""",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.ready", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "names", nargs="*", default=NAMES, choices=NAMES, metavar="NAME", help=", ".join(NAMES)
    )
    for name in parser.parse_args().names:
        run = RUNS / f"ready-{name}"
        train(settings(name), run)
        pack(name, run, FOLDER / name)


def settings(name: str) -> RunConfig:
    found = recipe(f"ready-{name}")
    return override(RunConfig(task=found.task), found.settings)


def pack(name: str, run: Path, folder: Path) -> None:
    """Write the folder of a model: the run without its last checkpoint, its weights rounded."""
    trained = linnet.load(run)
    weights = checkpoints.rounded(trained.model.state_dict())
    trained.model.load_state_dict(checkpoints.expanded(folder, weights))
    figures = {split: trained.evaluate(split) for split in SPLITS}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_atomically(folder / "config.json", (run / "config.json").read_bytes())
    write_json(folder / "environment.json", environment(run))
    keep_assets(folder, trained.task.assets())
    publish(run, folder, weights, figures["valid"])
    write_result(folder, {**(read_result(run) or {}), **figures})
    write_atomically(folder / "README.md", card(name, linnet.load(folder)).encode())


def environment(run: Path) -> Row:
    return {name: value for name, value in read_json(run / "environment.json").items() if name in KEPT}


def publish(run: Path, folder: Path, weights: dict[str, Any], valid: dict[str, float]) -> None:
    """Write the rounded weights as the best checkpoint."""
    best = checkpoints.must_find(run, "best")
    about = {each: best.manifest[each] for each in ("step", "guard", "settings")}
    checkpoints.write_weights(checkpoints.stage(folder, "best") / checkpoints.WEIGHTS, weights)
    checkpoints.publish(folder, "best", {**about, "metrics": valid})


# ------------------------------------------------------------------------------------------ the card


def card(name: str, trained: TrainedRun) -> str:
    """The text of README.md."""
    config, result = trained.config, read_result(trained.folder) or {}
    sections = [
        f"# {PREFIX}{name}\n\n{about(name, trained)}\n\n```sh\n{USES[name]}\n```",
        f"## Figures\n\n{figures(result)}",
        f"## Data\n\n{settings_table(config.data)}\n\n{TERMS}",
        f"## Model\n\n{settings_table(config.model)}",
        f"## Training\n\n{training(name, trained, result)}",
    ]
    return "\n\n".join(sections) + "\n"


def about(name: str, trained: TrainedRun) -> str:
    words, size = recipe(f"ready-{name}").about, megabytes(trained.folder / "best")
    unit, result = trained.task.unit_name(trained.config.model), read_result(trained.folder) or {}
    return (
        f"{words[0].upper()}{words[1:]}: {unit.upper()}, {result['parameters']:,} parameters in int8 with a "
        f"scale for each row, {size:.2f} MB. They are expanded to float32 when the model is loaded."
    )


def megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def figures(result: Row) -> str:
    """The figures of the rounded weights, with the baselines of the test."""
    names = [name for name in result["test"] if name != "tokens"]
    columns = {"validation": result["valid"], "test": result["test"]}
    columns |= {f"test, {each['name']}": each["figures"] for each in result.get("baselines", ())}
    rows = [[name, *(short_or_none(column, name) for column in columns.values())] for name in names]
    notes = [f"- {each['name']}: {each['about']}" for each in result.get("baselines", ())]
    words = "Measured with the rounded weights"
    return f"{markdown(('', *columns), rows)}\n\n{words}; baselines, in the test:\n\n" + "\n".join(notes)


def short_or_none(column: dict[str, float], name: str) -> str:
    return short(column[name], 4) if name in column else "-"


def training(name: str, trained: TrainedRun, result: Row) -> str:
    made = read_json(trained.folder / "environment.json")
    config = trained.config
    rows = [row for part in (config.optimiser, config.schedule, config.loop) for row in changed(part)]
    where = f"one thread of {made['processor']}, torch {made['packages']['torch']}, {made['started'][:10]}"
    return (
        f"`linnet train {config.task} --recipe ready-{name}`: {result['step']:,} updates, of which update "
        f"{result['best_step']:,} was the best in validation; {where}. Then `python -m tools.ready {name}` "
        "rounded the weights. Settings that are not in the tables have their default values.\n\n"
        f"{markdown(('setting', 'value'), rows)}"
    )


# ----------------------------------------------------------------------------------------- the page


def table() -> str:
    """The table of docs/ready.md."""
    head = ("model", "about", "unit", "parameters", "MB", "in the test", "baselines")
    return markdown(head, [*map(row, NAMES)])


def row(name: str) -> tuple[str, ...]:
    folder, figure = FOLDER / name, FIGURES[name]
    result: Row = read_result(folder) or {}
    baselines = ", ".join(
        f"{each['name']} {short(each['figures'][figure], 4)}"
        for each in result["baselines"]
        if figure in each["figures"]
    )
    return (
        *(f"[`{PREFIX}{name}`](../linnet/ready/{name}/README.md)", recipe(f"ready-{name}").about),
        *(read_config(folder).model.unit.upper(), f"{result['parameters']:,}", f"{megabytes(folder):.2f}"),
        *(f"{figure} {short(result['test'][figure], 4)}", baselines),
    )


if __name__ == "__main__":
    main()
