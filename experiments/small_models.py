"""Train four small models, compare them in float32 and in int8, and write them as folders for the Hub.

    python -m experiments.small_models --data-dir DIR             # about forty minutes on one core
    python -m experiments.small_models --data-dir DIR --out models

The models are two language models of Penn Treebank (SRU and SCRN, 6 epochs), a classifier of questions (SRU
on TREC, 8 epochs), and one of subjectivity (SRU on SUBJ in both directions, 4 epochs). For each, the script
prints and records the figure of the test and the size of the weights: in float32, in int8, and with only the
weights in int8 (linnet.quantize). `python -m tools.pages` writes the record, small_models.csv, to
docs/int8.md.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import linnet
from benchmarks.records import COMMIT, DATE, NUMBER, TEXT, WORDS, RecordFile, Row
from linnet.base.checkout import commit
from linnet.base.files import write_atomically
from linnet.base.tables import markdown
from linnet.cli import main as run_command
from linnet.deploy.hub import export_hub
from linnet.runs.load import TrainedRun

HERE = Path(__file__).parent
RESULTS = HERE / "small_models.csv"
FIGURES = ("float32", "int8", "int8 weights", "size")
RECORD = RecordFile(
    {
        **{"date": DATE, "commit": COMMIT, "model": WORDS, "figure": WORDS},
        **dict.fromkeys(FIGURES, NUMBER),
        "note": TEXT,
    },
    key=("model",),
)


class Model(NamedTuple):
    """What is trained, the figure of its test, and what the page calls it."""

    settings: str
    figure: str
    about: str


LANGUAGE = "lm --corpus ptb --hidden-size 200 --output-dropout 0.2 --tied --epochs 6"
CLASSES = "classify --unit sru --hidden-size 128"
MODELS = {
    "ptb-sru": Model(
        f"{LANGUAGE} --unit sru --num-layers 2", "perplexity", "SRU, 2 x 200, Penn Treebank, 6 epochs"
    ),
    "ptb-scrn": Model(
        f"{LANGUAGE} --unit scrn --num-layers 1", "perplexity", "SCRN, 200, Penn Treebank, 6 epochs"
    ),
    "trec-sru": Model(
        f"{CLASSES} --set trec --no-bidirectional --epochs 8", "accuracy", "SRU, 2 x 128, TREC, 8 epochs"
    ),
    "subj-sru": Model(
        f"{CLASSES} --set subj --bidirectional --epochs 4",
        "accuracy",
        "SRU, 2 x 128 in both directions, SUBJ, 4 epochs",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", default=None, help="where the files of the data sets are")
    parser.add_argument("--runs", type=Path, default=Path("runs/small_models"))
    parser.add_argument("--only", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="MODEL")
    parser.add_argument("--out", type=Path, help="also write a folder for the Hub for each model, in int8")
    options = parser.parse_args()
    for name in options.only:
        trained = train(name, MODELS[name].settings, options)
        store(row(name, trained, data(options)))
        if options.out is not None:
            export_hub(trained, options.out / name, int8=True)
    print(table(RECORD.read(RESULTS)))


def data(options: argparse.Namespace) -> dict[str, str]:
    return {"data_dir": options.data_dir} if options.data_dir else {}


def train(name: str, settings: str, options: argparse.Namespace) -> TrainedRun:
    where = [f"--{key.replace('_', '-')}={value}" for key, value in data(options).items()]
    command = ["train", *settings.split(), "--threads", "1", "--run-dir", str(options.runs / name), *where]
    if run_command(command):
        raise SystemExit(f"the training of {name} failed")
    return linnet.load(options.runs / name)


def row(name: str, trained: TrainedRun, given: dict[str, str]) -> Row:
    models = [
        trained.model,
        linnet.quantize(trained.model),
        linnet.quantize(trained.model, activations=False),
    ]
    figure = MODELS[name].figure
    figures = [
        dataclasses.replace(trained, model=model).evaluate("test", **given)[figure] for model in models
    ]
    sizes = [sum(tensor.nbytes for tensor in model.state_dict().values()) for model in models]
    shown = [*(f"{value:.5g}" for value in figures), f"{sizes[1] / sizes[0]:.3f}"]
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    about = {"date": day, "commit": commit(), "model": name, "figure": figure, "note": ""}
    return {**about, **dict(zip(FIGURES, shown, strict=True))}


def store(new: Row, path: Path = RESULTS) -> None:
    """Add a row, or replace that of the same model."""
    known = {old["model"]: old for old in (RECORD.read(path) if path.exists() else [])} | {new["model"]: new}
    write_atomically(path, RECORD.content([known[name] for name in MODELS if name in known]))


def table(rows: Sequence[Row]) -> str:
    body = [
        [MODELS[row["model"]].about, row["figure"], *(row[name] for name in FIGURES), when(row)]
        for row in rows
    ]
    return markdown(["model", "figure", *FIGURES, "measured"], body)


def when(row: Row) -> str:
    return f"{row['date']}, commit {row['commit'] or 'unknown'}"


if __name__ == "__main__":
    main()
