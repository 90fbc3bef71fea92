"""Objects that are prepared for calls of one kind, and that one thread uses at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from linnet.fuse.forks import compiling
from linnet.fuse.unit import CannotFuse

# For how many keys (batch sizes, mostly) objects are kept, and how much memory they may take together. Those
# of the last few keys are kept however large they are.
MOST_KEYS, MOST_BYTES, FEW_KEYS = 64, 1 << 25, 4


class WithMemory(Protocol):
    """An object that keeps this much memory."""

    @property
    def nbytes(self) -> int: ...


Kept = TypeVar("Kept", bound=WithMemory)
Result = TypeVar("Result")


class Pools(Generic[Kept]):
    """Prepared objects by what they depend on: those that no thread is using.

    free     by key; the least recently used key is the first one, and is deleted first
    reason   why none can be made, or None
    """

    def __init__(self) -> None:
        self.free: OrderedDict[tuple, list[Kept]] = OrderedDict()
        self.reason: str | None = None

    def find(self, key: tuple) -> list[Kept] | None:
        """The pool of this key, or None."""
        try:
            self.free.move_to_end(key)
            return self.free[key]
        except KeyError:
            return None

    def take(self, pool: list[Kept], make: Callable[[], Kept]) -> Kept | None:
        """One from the pool, or a new one."""
        try:
            return pool.pop()
        except IndexError:
            pass
        try:
            return make()
        except CannotFuse as error:
            self.reason = error.reason
            return None

    def run(self, key: tuple, make: Callable[[], Kept], job: Callable[[Kept], Result]) -> Result | None:
        """`job` with an object that no other thread uses meanwhile; None if there is none."""
        pool = self.find(key)
        if pool is None:
            pool = self.free.setdefault(key, [])
        is_empty = not pool
        taken = self.take(pool, make)
        if taken is None:
            return None
        result = job(taken)
        pool.append(taken)
        if is_empty:
            self.delete_oldest()
        return result

    def delete_oldest(self) -> None:
        """Called when a new object is in a pool."""
        with compiling:  # a fork waits for this lock
            sizes = [sum(kept.nbytes for kept in list(pool)) for pool in list(self.free.values())]
            while len(sizes) > MOST_KEYS or (len(sizes) > FEW_KEYS and sum(sizes) > MOST_BYTES):
                self.free.popitem(last=False)
                sizes.pop(0)
