"""recurrentgemma, of the authors of Griffin: its recurrent block in torch, its weights, and training."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

import linnet
from tools.compat.contestants import RNN
from tools.compat.examples import BlockClassifier, check_plainly, drawn, work_plainly


@cache
def torch_modules() -> Any:
    """Import the part for torch alone: the package as a whole imports JAX."""
    spec, package = find_spec("recurrentgemma"), ModuleType("recurrentgemma")
    assert spec
    package.__path__ = list(spec.submodule_search_locations or ())
    sys.modules["recurrentgemma"] = package
    return import_module("recurrentgemma.torch.modules")


class Block(nn.Module):
    """Their block with the layout of Linnet's: x [T, B, width]."""

    def __init__(self, width: int, lru_width: int | None = None, heads: int = 1):
        super().__init__()
        self.block = torch_modules().RecurrentBlock(width, heads, lru_width)

    def forward(self, x: Tensor, resets: Tensor | None = None) -> tuple[Tensor, None]:
        flags = torch.zeros(x.shape[:2], dtype=torch.bool) if resets is None else resets
        y, _ = self.block(x.transpose(0, 1), positions(flags).T, return_cache=False)
        return y.transpose(0, 1), None


def positions(resets: Tensor) -> Tensor:
    """[T, B]: the number of each step in its sequence, from 0."""
    rows, now = [], torch.zeros(resets.shape[1], dtype=torch.long)
    for flags in resets:
        now = now.masked_fill(flags, 0)
        rows.append(now)
        now = now + 1
    return torch.stack(rows)


CONTESTANTS: dict[str, RNN] = {"recurrentgemma.RecurrentBlock": Block, "GriffinBlock": linnet.GriffinBlock}


def check(rnn: RNN, folder: Path) -> None:
    check_plainly(partial(BlockClassifier, rnn), folder)
    x, resets = torch.randn(9, 3, 12), torch.rand(9, 3) < 0.2
    for sizes in ((12, 12, 4), (12, 20, 1)):
        theirs, ours = drawn(Block(*sizes)), rnn(*sizes)
        if isinstance(ours, linnet.GriffinBlock):
            linnet.load_foreign(ours, theirs.block.state_dict(), source="recurrentgemma")
            torch.testing.assert_close(ours(x, resets=resets)[0], theirs(x, resets)[0])


def work(rnn: RNN) -> Callable[[], object]:
    return work_plainly(partial(BlockClassifier, rnn))
