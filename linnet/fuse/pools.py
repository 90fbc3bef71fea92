"""Objects that are prepared for calls of one kind, and that one thread uses at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from linnet.fuse.unit import CannotFuse

Kept = TypeVar("Kept")
Result = TypeVar("Result")


class Pools(Generic[Kept]):
    """Prepared objects by what they depend on: those that no thread is using.

    most     for how many keys objects are kept
    reason   why none can be made, or None
    """

    def __init__(self, most: int):
        self.most = most
        self.free: dict[tuple, list[Kept]] = {}
        self.reason: str | None = None

    def of(self, key: tuple) -> list[Kept]:
        if key not in self.free and len(self.free) >= self.most:
            self.free.clear()
        return self.free.setdefault(key, [])

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
        pool = self.of(key)
        taken = self.take(pool, make)
        if taken is None:
            return None
        result = job(taken)
        pool.append(taken)
        return result
