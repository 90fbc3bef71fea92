"""Train small models, and compare them in float32, in int8 and in whole numbers.

    python -m experiments.whole_numbers          # about two minutes on one core

Each model reads the 8 x 8 digits of scikit-learn, row by row (8 steps of 8 pixels) or pixel by pixel (64
steps of one), and names the digit after the last step. The script prints the accuracy on the 597 digits of
the test, and how far the scores are from those in float32: the root of the mean square of the differences,
relative to that of the scores.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import linnet

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
def row(unit: str, what: str) -> str:
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
    return f"| {' | '.join([unit, what, *accuracies, *apart])} |"


def main() -> None:
    torch.set_num_threads(1)
    head = ["unit", "reads", "float32", "int8", "whole numbers", "int8: scores", "whole numbers: scores"]
    print(f"| {' | '.join(head)} |\n| {' | '.join(['---'] * len(head))} |")
    for what in SHAPES:
        for unit in UNITS:
            print(row(unit, what), flush=True)


if __name__ == "__main__":
    main()
