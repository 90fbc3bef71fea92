"""The kernels in memory: those that are referenced, and the last few that were compiled.

A kernel takes about 0.2 MB. A call references its kernel, so it is not freed while it runs. Code and tensors
that others know by their addresses only are made by `once`, which never replaces or frees them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from linnet.base.forks import compiling

T = TypeVar("T")


def once(make: Callable[..., T]) -> Callable[..., T]:
    """Decorate a function: like functools.cache, but threads that need the same value get the same object.

    With functools.cache each of them makes a value, and the last one replaces and frees the others, whose
    addresses are in use by then. Arguments are positional.
    """
    values: dict[tuple[Any, ...], T] = {}

    @wraps(make)
    def get(*key: Any) -> T:
        if key in values:
            return values[key]
        with compiling:
            return values[key] if key in values else values.setdefault(key, make(*key))

    return get


class KernelCache(Generic[T]):
    """Values by key, created when first needed; freed when unreferenced and not among the last `recent`."""

    def __init__(self, recent: int):
        self.values: WeakValueDictionary[Hashable, T] = WeakValueDictionary()
        self.recent: deque[T] = deque(maxlen=recent)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        # Under the lock, so that threads that need the same kernel at once wait for one compilation.
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
