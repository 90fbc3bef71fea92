"""Objects that calls of one kind use, one thread at a time, and give back."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count
from typing import Generic, Protocol, TypeVar

from linnet.base.forks import compiling

# For how many kinds of call (batch sizes, mostly) objects are kept, and how much memory they may take
# together. Those of the last few kinds are kept however large they are.
MOST_KINDS, MOST_BYTES, FEW_KINDS = 64, 1 << 25, 4


class WithMemory(Protocol):
    """An object that keeps this much memory."""

    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=WithMemory)


class Pool(list[T]):
    """The objects for calls of one kind that no thread is using; `append` gives one back."""

    last_use: int

    def take(self) -> T | None:
        """One of them; None if there is none."""
        try:
            return self.pop()
        except IndexError:
            return None


class Pools(Generic[T]):
    """A pool for each kind of call. The one that was used longest ago is dropped first."""

    def __init__(self) -> None:
        self.clock = count()
        self.pools: dict[Hashable, Pool[T]] = {}

    def of(self, kind: Hashable) -> Pool[T]:
        pool = self.pools.get(kind)
        if pool is None:
            pool = self.add(kind)
        pool.last_use = next(self.clock)
        return pool

    def add(self, kind: Hashable) -> Pool[T]:
        new: Pool[T] = Pool()
        new.last_use = next(self.clock)
        with compiling:  # a fork waits for this lock
            pools = sorted(self.pools.items(), key=lambda item: item[1].last_use)
            sizes = [sum(kept.nbytes for kept in list(pool)) for _, pool in pools]
            while len(pools) >= MOST_KINDS or (len(pools) >= FEW_KINDS and sum(sizes) > MOST_BYTES):
                oldest, _ = pools.pop(0)
                sizes.pop(0)
                del self.pools[oldest]
            return self.pools.setdefault(kind, new)
