"""The list of tasks. A class is imported when it is first used, so that importing the list is fast."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

from linnet.base.suggest import no_such

VARIABLE = "LINNET_TASKS"


class Tasks(MutableMapping):
    """Task classes by name; a value may be a string "module:Class"."""

    def __init__(self, known: dict[str, Any]):
        self.known = known
        self.files_read = False

    def __getitem__(self, name: str) -> Any:
        self.read_files()
        if name not in self.known:
            raise UnknownTask(name, list(self.known))
        task = self.known[name]
        if isinstance(task, str):
            module, _, class_name = task.partition(":")
            task = self.known[name] = getattr(importlib.import_module(module), class_name)
        return task

    def __setitem__(self, name: str, task: Any) -> None:
        self.known[name] = task

    def __delitem__(self, name: str) -> None:
        del self.known[name]

    def __iter__(self) -> Iterator[str]:
        self.read_files()
        return iter(list(self.known))

    def __len__(self) -> int:
        self.read_files()
        return len(self.known)

    def __contains__(self, name: object) -> bool:
        self.read_files()
        return name in self.known

    def read_files(self) -> None:
        """Import the files of LINNET_TASKS, once."""
        if not self.files_read:
            self.files_read = True
            for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
                import_tasks(name)


class UnknownTask(KeyError, ValueError):  # noqa: N818, "Error" would add nothing
    """A name that is not in TASKS."""

    def __init__(self, name: object, known: list[str]):
        hint = "" if VARIABLE in os.environ else f"; to use your own task, set {VARIABLE} to its file"
        super().__init__(f"{no_such('task', name, known)}{hint}")

    # KeyError would show the message in quotes.
    __str__ = Exception.__str__


def import_tasks(name: str) -> None:
    """Import a module, or a file by its path under the name of the file."""
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    path = Path(name).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"{VARIABLE} names {name}, which is not a Python file")
    if path.stem not in sys.modules:
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


TASKS = Tasks(
    {
        "lm": "linnet.tasks.language:Language",
        "classify": "linnet.tasks.classify:Classify",
        "nli": "linnet.tasks.nli:Nli",
        "memory.copy": "linnet.tasks.recall:Copy",
        "memory.variable": "linnet.tasks.recall:VariableCopy",
        "memory.denoise": "linnet.tasks.recall:Denoise",
        "memory.selective": "linnet.tasks.recall:SelectiveCopy",
        "memory.adding": "linnet.tasks.adding:Add",
        "memory.parity": "linnet.tasks.tracking:Parity",
        "memory.pairs": "linnet.tasks.tracking:EvenPairs",
        "memory.cycle": "linnet.tasks.tracking:Cycle",
        "memory.modular": "linnet.tasks.tracking:Modular",
        "memory.fitzhugh": "linnet.tasks.fitzhugh:Predict",
        "memory.smnist": "linnet.tasks.pixels:Pixels",
        "memory.psmnist": "linnet.tasks.pixels:PermutedPixels",
        "memory.rows": "linnet.tasks.pixels:Rows",
        "tag": "linnet.tasks.tag:Tag",
        "translate": "linnet.tasks.translate:Translate",
        "read": "linnet.tasks.read:Read",
        "forecast": "linnet.tasks.forecast:Forecast",
        "series": "linnet.tasks.series:SeriesTask",
    }
)
