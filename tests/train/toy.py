"""A task of a few hundred tokens, for tests of the loop: what it is does not matter, that it is fast does."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from linnet.data.batches import TimeBatch
from linnet.tasks import TASKS
from linnet.tasks.base import Task
from linnet.tasks.results import Metrics, StepResult


@dataclass(frozen=True)
class ToyData:
    batch: int = 4
    length: int = 5
    tokens: int = 244
    poison: int = -1  # the batch whose loss is not a number


@dataclass(frozen=True)
class ToyModel:
    hidden_size: int = 6
    dropout: float = 0.2


class ToyState(NamedTuple):
    h: Tensor


@dataclass(frozen=True, eq=False)
class Batch(TimeBatch):
    inputs: Tensor
    targets: Tensor
    index: int


class Net(nn.Module):
    def __init__(self, settings: ToyModel):
        super().__init__()
        self.embedding = nn.Embedding(7, settings.hidden_size)
        self.rnn = nn.RNN(settings.hidden_size, settings.hidden_size)
        self.dropout = nn.Dropout(settings.dropout)
        self.out = nn.Linear(settings.hidden_size, 7)

    def forward(self, tokens: Tensor, state: ToyState | None) -> tuple[Tensor, ToyState]:
        y, h = self.rnn(self.dropout(self.embedding(tokens)), state and state.h)
        return self.out(y), ToyState(h.detach())


class ToyMetrics(Metrics):
    def compute(self) -> dict[str, float]:
        loss = super().compute()["loss"]
        return {"loss": loss, "perplexity": math.exp(loss)}


class ToyTask(Task):
    name, about = "toy", "the next number of a noisy sequence"
    Data, Model = ToyData, ToyModel

    def __init__(self, data: ToyData, model: ToyModel, seed: int = 1, assets: Any = None):
        super().__init__(data, model, seed)
        tokens = torch.arange(data.tokens) * 3 % 7
        noise = torch.randint(7, (data.tokens,), generator=torch.Generator().manual_seed(0))
        self.columns = torch.where(noise < 2, noise, tokens).view(data.batch, -1).T

    def build(self) -> Net:
        return Net(self.model)

    def batches_per_epoch(self, epoch: int) -> int:
        return math.ceil((len(self.columns) - 1) / self.data.length)

    def batches(self, split: str, epoch: int = 0, first: int = 0) -> Iterator[Batch]:
        if not epoch:
            # Three columns: processes share them unequally, or have none.
            yield Batch(self.columns[:-1, :3], self.columns[1:, :3], -2)
            return
        for index in range(first, self.batches_per_epoch(epoch)):
            at = index * self.data.length
            targets = self.columns[at + 1 : at + 1 + self.data.length]
            yield Batch(self.columns[at : at + len(targets)], targets, index)

    def step(self, model: Net, batch: Batch, carry: ToyState | None) -> StepResult:  # type: ignore[override]
        logits, state = model(batch.inputs, carry)
        nll = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="sum")
        if batch.index == self.data.poison:
            nll = nll * float("nan")
        count = batch.targets.numel()
        extra = {"norm": float(state.h.norm())}
        return StepResult(nll / count, nll.detach(), count, batch.inputs.numel(), extra, state)

    def metrics(self) -> ToyMetrics:
        return ToyMetrics()

    def predict(self, model: Net, raw: Any, **options: Any) -> list[int]:  # type: ignore[override]
        return [int(model(torch.tensor(each)[:, None], None)[0][-1].argmax()) for each in raw]

    def describe(self) -> dict[str, Any]:
        return {"vocabulary": "seven"}


TASKS["toy"] = ToyTask


def main(words: list[str]) -> None:
    """Runs in a process of their own, to be killed: python toy.py RUN name=value ... then RUN ..."""
    import os

    import lightning_fabric  # noqa: F401, which takes its time: killed before it is there, nothing is tested

    torch.set_num_threads(1)
    if workers := int(os.environ.pop("TOY_WORKERS", "0")):
        each_in_a_fork(words, workers)
        return
    forks = int(os.environ.pop("TOY_FORKS", "0"))
    if forks and not become_one_of(forks):
        return
    if int(os.environ.get("RANK", 0)):
        only_the_first_writes()
    print(f"ready {os.environ.get('RANK', 0)} {os.getpid()}", flush=True)
    while words:
        end = words.index("then") if "then" in words else len(words)
        one_run(*words[:end])
        words = words[end + 1 :]


def each_in_a_fork(words: list[str], workers: int) -> None:
    """Make the same run in several processes, each with its number in the place of {worker}."""
    import os

    children = []
    for number in range(workers):
        child = os.fork()
        if child == 0:
            one_run(*(word.replace("{worker}", str(number)) for word in words))
            return
        children.append(child)
    print(*children, flush=True)
    for child in children:
        os.waitpid(child, 0)


def become_one_of(processes: int) -> bool:
    """Fork, as srun starts processes, so that they share what was imported; False in the parent."""
    import os

    from linnet.base.slurm import join_step

    children = []
    for rank in range(processes):
        child = os.fork()
        if child == 0:
            count = str(processes)
            os.environ |= {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_JOB_ID": "7"}
            os.environ |= {"SLURM_STEP_NUM_TASKS": count, "SLURM_STEP_NODELIST": "localhost"}
            join_step()
            return True
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    if failed:
        sys.exit(f"{len(failed)} of {processes} processes failed")
    return False


def one_run(folder: str, *words: str) -> None:
    import json

    from linnet.runs.config import RunConfig, override
    from linnet.train.loop import train

    given = {name: json.loads(value) for name, _, value in (text.partition("=") for text in words)}
    runs, how = given.pop("runs", None), {k: given.pop(k) for k in ("storage", "dead_after") if k in given}
    config = override(RunConfig(task="toy"), given)
    if runs:
        look(config, Path(folder), runs, **how)
    else:
        train(config, folder)


def look(config: Any, folder: Path, runs: int, **how: Any) -> None:
    from linnet.train.search import Plan, search

    search(config, folder, Plan({"lr": (0.1, 2.0)}, runs=runs), **how)


def only_the_first_writes() -> None:
    from linnet.runs import checkpoints, records

    def refuse(*arguments: object) -> None:
        raise AssertionError("another process than the first writes")

    checkpoints.write_synced = checkpoints.write_tensors = refuse  # type: ignore[assignment]
    records.append = records.write_atomically = refuse  # type: ignore[assignment]


if __name__ == "__main__":
    # By its name, so that the state is of toy.ToyState and another process knows it.
    import toy

    toy.main(sys.argv[1:])
