"""Something to do as soon as a module has been imported, if it ever is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Call `action` now if the module `name` has been imported, and otherwise after its import."""
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, Finder(name, action))


class Finder(MetaPathFinder):
    """Finds one module, once, by the finders after it."""

    def __init__(self, name: str, action: Callable[[], None]):
        self.name, self.action = name, action

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = ThenActs(spec.loader, self.action)
        return spec


class ThenActs(Loader):
    """A loader with something to do after it has loaded a module."""

    def __init__(self, loader: Loader, action: Callable[[], None]):
        self.loader, self.action = loader, action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module shall see its own loader, as without this one.
        module.__spec__.loader = module.__loader__ = self.loader  # type: ignore[union-attr]
        self.loader.exec_module(module)
        self.action()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)
