"""Train small models, and compare them in float32, in int8 and in whole numbers.

    python -m experiments.whole_numbers          # about two minutes on one core

Each model reads the 8 x 8 digits of scikit-learn, row by row (8 steps of 8 pixels) or pixel by pixel (64
steps of one), and names the digit after the last step. The script prints the accuracy on the 597 digits of
the test, and how far the scores are from those in float32: the root of the mean square of the differences,
relative to that of the scores. `python -m tools.pages` writes the record, whole_numbers.csv, to docs/int8.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import linnet
from benchmarks.records import COMMIT, DATE, NUMBER, WORDS, RecordFile, Row
from linnet.base.checkout import commit
from linnet.base.files import write_atomically
from linnet.base.tables import markdown

RESULTS = Path(__file__).parent / "whole_numbers.csv"
FIGURES = ("float32", "int8", "whole numbers", "int8: scores", "whole numbers: scores")
RECORD = RecordFile(
    {"date": DATE, "commit": COMMIT, "unit": WORDS, "reads": WORDS, **dict.fromkeys(FIGURES, NUMBER)},
    key=("unit", "reads"),
)
UNITS = ("LSTM", "GRU", "SRU", "MinGRU", "FastGRNN")
SHAPES = {"rows": (8, 8), "pixels": (64, 1)}
TRAINED, UPDATES, BATCH = 1200, 1500, 64


class Reader(nn.Module):
    """Scores after each step: [T, B, input_size] -> [T, B, 10]."""

    def __init__(self, unit: str, size: int):
        super().__init__()
        self.layers = nn.Sequential(getattr(linnet, unit)(size, 32), nn.Linear(32, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[1](self.layers[0](x)[0])


def digits(shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """All digits [T, B, size], and which they are."""
    images, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(images).float().view(-1, *shape) / 8 - 1
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return x[order].transpose(0, 1).contiguous(), torch.from_numpy(labels)[order]


def train(model: Reader, x: Tensor, labels: Tensor) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, UPDATES)
    source = torch.Generator().manual_seed(0)
    for _ in range(UPDATES):
        chosen = torch.randint(0, TRAINED, (BATCH,), generator=source)
        loss = F.cross_entropy(model(x[:, chosen])[-1], labels[chosen])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()


@torch.no_grad()
def row(unit: str, what: str) -> Row:
    torch.manual_seed(0)
    (x, labels), model = digits(SHAPES[what]), Reader(unit, SHAPES[what][1])
    with torch.enable_grad():
        train(model, x, labels)
    model.eval()
    tested, truth = x[:, TRAINED:], labels[TRAINED:]
    whole = linnet.quantize_integer(model.layers, x[:, :200])
    scores = [model(tested)[-1], linnet.quantize(model)(tested)[-1], whole(tested)[0][-1]]
    accuracies = [f"{float((each.argmax(-1) == truth).float().mean()):.4f}" for each in scores]
    size = scores[0].square().mean().sqrt()
    apart = [f"{float((each - scores[0]).square().mean().sqrt() / size):.4f}" for each in scores[1:]]
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    figures = dict(zip(FIGURES, [*accuracies, *apart], strict=True))
    return {"date": day, "commit": commit(), "unit": unit, "reads": what, **figures}


def table(rows: Sequence[Row]) -> str:
    days = " to ".join(dict.fromkeys((min(row["date"] for row in rows), max(row["date"] for row in rows))))
    commits = ", ".join(dict.fromkeys(row["commit"] or "unknown" for row in rows))
    body = [[row[name] for name in ("unit", "reads", *FIGURES)] for row in rows]
    return f"Measured on {days}, commit {commits}.\n\n{markdown(['unit', 'reads', *FIGURES], body)}"


def main() -> None:
    torch.set_num_threads(1)
    rows = [row(unit, what) for what in SHAPES for unit in UNITS]
    write_atomically(RESULTS, RECORD.content(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
