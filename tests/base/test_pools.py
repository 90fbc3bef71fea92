"""What calls share is kept for many batch sizes; the least recently used is deleted first."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch

import linnet
from linnet.base.pools import FEW_KINDS, MOST_BYTES, MOST_KINDS, Pools
from linnet.cpu.backward import BackwardScan
from linnet.cpu.cell_step import CellStep
from linnet.cpu.forward import ForwardScan

SIZES = range(1, 17)


class Kept:
    def __init__(self, nbytes: int = 0):
        self.nbytes = nbytes


def use(pools: Pools[Kept], *kinds: int, nbytes: int = 0) -> list[int]:
    """Use these kinds in turn; return those for which an object was made."""
    made: list[int] = []
    for kind in kinds:
        pool = pools.of(kind)
        kept = pool.take()
        if kept is None:
            made.append(kind)
        pool.append(Kept(nbytes) if kept is None else kept)
    return made


def test_the_least_recently_used_kind_is_deleted_first():
    pools: Pools[Kept] = Pools()
    kinds = list(range(MOST_KINDS))
    assert use(pools, *kinds) == kinds
    assert use(pools, *kinds, 0) == []
    assert use(pools, -1) == [-1]
    assert use(pools, 0, *kinds[2:]) == []
    assert use(pools, 1) == [1]


def test_objects_that_take_much_memory_are_kept_for_a_few_kinds():
    pools: Pools[Kept] = Pools()
    kinds = list(range(FEW_KINDS))
    assert use(pools, *kinds, nbytes=MOST_BYTES) == kinds
    assert use(pools, *kinds) == []
    assert use(pools, 10, nbytes=MOST_BYTES) == [10]
    assert len(pools.pools) == FEW_KINDS
    assert use(pools, *kinds[1:]) == []


def calls(module: Any, steps: int) -> None:
    for batch in SIZES:
        x = torch.randn(*((steps,) if steps else ()), batch, 5)
        y, *_ = torch.utils._pytree.tree_leaves(module(x))
        if y.requires_grad:
            y.sum().backward()


@pytest.mark.parametrize("gradients", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize(("module", "steps"), [("LSTMCell", 0), ("GRU", 1), ("SRU", 6), ("SCRN", 6)])
def test_many_batch_sizes_in_turn_are_bound_once(module: str, steps: int, gradients: bool):
    """No object is made in the second round."""
    rnn, made = getattr(linnet, module)(5, 5), []
    kinds = (CellStep, ForwardScan, BackwardScan)
    with torch.set_grad_enabled(gradients):
        calls(rnn, steps)
        patches = [patch.object(kind, "__init__", lambda *_: made.append(1)) for kind in kinds]
        for each in patches:
            each.start()
        try:
            calls(rnn, steps)
        finally:
            for each in patches:
                each.stop()
    assert not made
