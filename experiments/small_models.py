"""Train three small models, compare them in float32 and in int8, and write them as folders for the Hub.

    python -m experiments.small_models --data-dir DIR             # about forty minutes on one core
    python -m experiments.small_models --data-dir DIR --out models

The models are two language models of Penn Treebank (SRU and SCRN, 6 epochs) and a classifier of questions
(SRU on TREC, 8 epochs). For each, the script prints the figure of the test and the size of the weights: in
float32, in int8, and with only the weights in int8 (linnet.quantize).
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import linnet
from linnet.cli import main as run_command
from linnet.deploy.hub import export_hub
from linnet.runs.load import TrainedRun

LANGUAGE = "lm --corpus ptb --hidden-size 200 --output-dropout 0.2 --tied --epochs 6"
MODELS = {
    "ptb-sru": (f"{LANGUAGE} --unit sru --num-layers 2", "perplexity"),
    "ptb-scrn": (f"{LANGUAGE} --unit scrn --num-layers 1", "perplexity"),
    "trec-sru": ("classify --set trec --unit sru --hidden-size 128 --epochs 8", "accuracy"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", default=None, help="where the files of the data sets are")
    parser.add_argument("--runs", type=Path, default=Path("runs/small_models"))
    parser.add_argument("--out", type=Path, help="also write a folder for the Hub for each model, in int8")
    options = parser.parse_args()
    print("| model | figure | float32 | int8 | int8 weights | size |\n| --- | --- | --- | --- | --- | --- |")
    for name, (settings, figure) in MODELS.items():
        trained = train(name, settings, options)
        print(row(name, trained, figure, data(options)), flush=True)
        if options.out is not None:
            export_hub(trained, options.out / name, int8=True)


def data(options: argparse.Namespace) -> dict[str, str]:
    return {"data_dir": options.data_dir} if options.data_dir else {}


def train(name: str, settings: str, options: argparse.Namespace) -> TrainedRun:
    where = [f"--{key.replace('_', '-')}={value}" for key, value in data(options).items()]
    command = ["train", *settings.split(), "--threads", "1", "--run-dir", str(options.runs / name), *where]
    if run_command(command):
        raise SystemExit(f"the training of {name} failed")
    return linnet.load(options.runs / name)


def row(name: str, trained: TrainedRun, figure: str, given: dict[str, str]) -> str:
    models = [
        trained.model,
        linnet.quantize(trained.model),
        linnet.quantize(trained.model, activations=False),
    ]
    figures = [
        dataclasses.replace(trained, model=model).evaluate("test", **given)[figure] for model in models
    ]
    sizes = [sum(tensor.nbytes for tensor in model.state_dict().values()) for model in models]
    cells = [name, figure, *(f"{value:.5g}" for value in figures), f"{sizes[1] / sizes[0]:.3f}"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
