"""What a user of torch writes first: nn.LSTM 2x256 over characters, Adam with a constant rate.

python -m benchmarks.lstm_script FILE SECONDS SEED      # prints the bits per character of the test text
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linnet.data.text import cut_lines

State = tuple[Tensor, Tensor]
BATCH, LENGTH, SIZE, RATE = 32, 100, 256, 0.002


class Model(nn.Module):
    def __init__(self, characters: int):
        super().__init__()
        self.embedding = nn.Embedding(characters, SIZE)
        self.lstm = nn.LSTM(SIZE, SIZE, 2)
        self.output = nn.Linear(SIZE, characters)

    def forward(self, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        y, state = self.lstm(self.embedding(x), state)
        return self.output(y), state


def train(model: Model, ids: Tensor, seconds: float) -> None:
    optimiser, end = torch.optim.Adam(model.parameters(), RATE), time.perf_counter() + seconds
    columns = ids[: len(ids) // BATCH * BATCH].reshape(BATCH, -1).T
    while True:
        state: State | None = None
        for start in range(0, len(columns) - 1, LENGTH):
            if time.perf_counter() > end:
                return
            x, wanted = columns[start : start + LENGTH], columns[start + 1 : start + LENGTH + 1]
            logits, state = model(x[: len(wanted)], state)
            state = state[0].detach(), state[1].detach()
            optimiser.zero_grad()
            F.cross_entropy(logits.flatten(0, 1), wanted.flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()


@torch.no_grad()
def bits(model: Model, ids: Tensor) -> float:
    logits, _ = model(ids[:-1, None], None)
    return float(F.cross_entropy(logits[:, 0], ids[1:])) / math.log(2)


def main(path: str, seconds: str, seed: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(int(seed))
    text = Path(path).read_text(encoding="utf-8")
    known = {character: number for number, character in enumerate(sorted(set(text)))}
    # The split of `linnet train lm --path FILE`.
    first, _, last = (
        torch.tensor([known[each] for each in part]) for part in cut_lines(path, text, 0.9, 0.95)
    )
    model = Model(len(known))
    train(model, first, float(seconds))
    print(f"{bits(model, last):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
