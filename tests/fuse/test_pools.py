"""What is prepared is kept for many batch sizes; the least recently used is deleted first."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch

import linnet
from linnet.fuse import pools
from linnet.fuse.cpu.cell_step import CellStep
from linnet.fuse.pools import FEW_KEYS, MOST_BYTES, MOST_KEYS, Pools
from linnet.fuse.prepared_backward import PreparedBackward
from linnet.fuse.prepared_scan import PreparedScan
from linnet.fuse.recorded_step import RecordedStep

SIZES = range(1, 17)


class Kept:
    def __init__(self, nbytes: int = 0):
        self.nbytes = nbytes


def use(pool: Pools[Kept], *keys: int, nbytes: int = 0) -> list[int]:
    """Use these keys in turn; return those for which an object was made."""
    made: list[int] = []
    for key in keys:
        pool.run((key,), lambda: made.append(key) or Kept(nbytes), lambda kept: kept)  # type: ignore[func-returns-value] # noqa: B023
    return made


def test_the_least_recently_used_key_is_deleted_first():
    pool: Pools[Kept] = Pools()
    keys = list(range(MOST_KEYS))
    assert use(pool, *keys) == keys
    assert use(pool, 0, *keys) == []
    assert pool.find((0,)) is not None  # used again, as a step that runs again does
    assert use(pool, -1) == [-1]
    assert use(pool, 0, *keys[2:]) == []
    assert use(pool, 1) == [1]


def test_objects_that_take_much_memory_are_kept_for_a_few_keys():
    pool: Pools[Kept] = Pools()
    keys = list(range(FEW_KEYS))
    assert use(pool, *keys, nbytes=MOST_BYTES) == keys
    assert use(pool, *keys) == []
    assert use(pool, 10, nbytes=MOST_BYTES) == [10]
    assert len(pool.free) == FEW_KEYS
    assert use(pool, *keys[1:]) == []
    half: Pools[Kept] = Pools()
    use(half, *range(20), nbytes=MOST_BYTES // 10)
    assert list(half.free) == [(key,) for key in range(10, 20)]


def calls(module: Any, steps: int) -> None:
    for batch in SIZES:
        x = torch.randn(*((steps,) if steps else ()), batch, 5)
        y, *_ = torch.utils._pytree.tree_leaves(module(x))
        if y.requires_grad:
            y.sum().backward()


@pytest.mark.parametrize("gradients", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize(("module", "steps"), [("LSTMCell", 0), ("GRU", 1), ("SRU", 6)])
def test_many_batch_sizes_in_turn_are_prepared_once(module: str, steps: int, gradients: bool):
    """No object is made in the second round."""
    rnn, made = getattr(linnet, module)(5, 5), []
    kinds = (CellStep, RecordedStep, PreparedScan, PreparedBackward)
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


@pytest.mark.parametrize("gradients", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize("steps", [1, 6])
def test_what_is_prepared_says_how_much_memory_it_keeps(gradients: bool, steps: int):
    rnn, batch = linnet.LSTM(32, 32), 40
    with torch.set_grad_enabled(gradients):
        y, _ = rnn(torch.randn(steps, batch, 32))
        if gradients:
            y.sum().backward()
    prepared = rnn.directions[0].plan_cache.prepared
    kept = [
        each
        for name in ("steps", "recorded", "scans")
        for p in getattr(prepared, name).free.values()
        for each in p
    ]
    (one,) = kept
    # The projections of one step of four gates, at least; of a sequence with gradients, the matrices.
    least = 32 * 4 * 32 * 4 if gradients and steps > 1 else batch * 4 * 32 * 4
    assert least <= one.nbytes < 100 * least
    assert one.nbytes < pools.MOST_BYTES
