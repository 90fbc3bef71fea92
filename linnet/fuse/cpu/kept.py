"""Which kernels stay in memory: those that somebody uses, and a few that were used last.

A kernel takes about 0.2 MB. Whoever runs it holds it, so it cannot be freed while it runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from linnet.fuse.forks import compiling

T = TypeVar("T")


class Kept(Generic[T]):
    """Values by key, made when asked for; freed when nobody holds them and `recent` newer ones are there."""

    def __init__(self, recent: int):
        self.values: WeakValueDictionary[Hashable, T] = WeakValueDictionary()
        self.recent: deque[T] = deque(maxlen=recent)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        # Under the lock, so that threads that ask for the same kernel at once wait for one compilation.
        with compiling:
            value = self.values.get(key)
            if value is None:
                value = self.values[key] = make()
                self.recent.append(value)
            return value

    def clear(self) -> None:
        with compiling:
            self.values.clear()
            self.recent.clear()

    def __len__(self) -> int:
        return len(self.values)
