"""Train a small model with each unit: the same data and the same number of steps for all of them.

The task is the adding problem (Hochreiter and Schmidhuber 1997). Each input is a value in [0, 1] and a
marker. Two steps are marked, one in each half of the sequence, and the model must output the sum of the
two marked values after the last step. A model that always outputs 1, the mean, has a squared error of 1/6.

    python examples/first_look.py
    python examples/first_look.py --units sru lrn lstm --steps 1000
"""

from __future__ import annotations

import argparse
import difflib
import time
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

import linnet

BASELINE = 1 / 6  # the variance of the sum of two values, each uniform in [0, 1]
BATCH, UNSEEN, LEARNING_RATE, CLIP = 64, 1000, 0.01, 1.0
CLOSING = """\
This table shows that every unit trains. A unit whose loss ends near the baseline has learned the mean
only. The table does not rank the units: it uses few steps, one seed and one learning rate, the same
hidden size gives different numbers of parameters, and steps/second is for one small size on one
machine. Units without a fused kernel run on the reference loop, which is slow."""


class Adder(nn.Module):
    """A recurrent layer, and a linear layer that reads its last output."""

    def __init__(self, unit: str, hidden_size: int):
        super().__init__()
        self.rnn = linnet.UNITS[unit](2, hidden_size)
        self.answer = nn.Linear(self.rnn.output_size, 1)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.rnn(x)
        return self.answer(output[-1])[:, 0]


def adding_problem(count: int, length: int, source: Generator) -> tuple[Tensor, Tensor]:
    """Return x [length, count, 2], values and markers, and the sums [count]."""
    values = torch.rand(length, count, generator=source)
    early = torch.randint(0, length // 2, (1, count), generator=source)
    late = torch.randint(length // 2, length, (1, count), generator=source)
    markers = torch.zeros(length, count).scatter_(0, torch.cat([early, late]), 1.0)
    return torch.stack([values, markers], -1), (values * markers).sum(0)


@torch.no_grad()
def loss_on(model: Adder, x: Tensor, y: Tensor) -> float:
    return F.mse_loss(model(x), y).item()


def train(model: Adder, steps: int, length: int, source: Generator) -> float:
    """Train the model and return the steps per second."""
    optimiser = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    start = time.perf_counter()
    for _ in range(steps):
        x, y = adding_problem(BATCH, length, source)
        optimiser.zero_grad()
        F.mse_loss(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
    return steps / (time.perf_counter() - start)


def try_unit(unit: str, options: argparse.Namespace) -> str:
    """Return one row of the table. Every unit uses the same seed and the same sequences."""
    torch.manual_seed(options.seed)
    source = Generator().manual_seed(options.seed)
    unseen = adding_problem(UNSEEN, options.length, source)
    model = Adder(unit, options.hidden)
    size = sum(weight.numel() for weight in model.parameters())
    before = loss_on(model, *unseen)
    rate = train(model, options.steps, options.length, source)
    after = loss_on(model, *unseen)
    return f"{unit:<14}{size:>11,}{before:>13.4f}{after:>12.4f}{BASELINE:>10.4f}{rate:>14.1f}"


def unit_name(name: str) -> str:
    if name in linnet.UNITS:
        return name
    near = difflib.get_close_matches(name.lower(), linnet.UNITS, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise argparse.ArgumentTypeError(f"no unit {name!r}; {hint}the units are {', '.join(linnet.UNITS)}")


def at_least(least: int):
    def check(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}; got {text!r}")
        return int(text)

    return check


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small model with each unit on the adding problem.")
    parser.add_argument("--units", nargs="+", type=unit_name, default=list(linnet.UNITS), metavar="UNIT")
    parser.add_argument("--steps", type=at_least(1), default=300, help="training steps (300)")
    parser.add_argument("--hidden", type=at_least(1), default=32, help="hidden size of every unit (32)")
    parser.add_argument("--length", type=at_least(2), default=30, help="time steps per sequence (30)")
    parser.add_argument("--seed", type=at_least(0), default=1, help="seed of the weights and the data (1)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    print(f"The adding problem: {options.length} steps, batches of {BATCH}, {options.steps} training steps,")
    print(f"hidden size {options.hidden}, Adam at {LEARNING_RATE}, seed {options.seed}. Squared error on")
    print(f"{UNSEEN} unseen sequences, before and after training; the baseline always outputs the mean.\n")
    print("unit           parameters  loss before  loss after  baseline  steps/second")
    for unit in options.units:
        print(try_unit(unit, options), flush=True)
    print(f"\n{CLOSING}")


if __name__ == "__main__":
    main()
