"""A file of the vectors of many texts, which is written in order and continues where it ended.

The first bytes are a header in JSON: what the vectors are of. Rows of float16 follow, [layers, size] each.
The length of the file says how many rows there are, so a process that is killed loses one group at most.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from linnet.base.files import write_new
from linnet.data.errors import DataError

HEADER = 4096  # bytes
ABOUT = {"encoder": "of another encoder", "texts": "of other texts", "how": "taken in another way"}
KIND = "linnet vectors 1"


@dataclass(frozen=True)
class VectorFile:
    """about   what the vectors are of: codes of the `encoder` and of the `texts`, and `how` they were taken
    rows    how many there are in the end
    """

    path: Path
    about: Mapping[str, str]
    rows: int
    layers: int
    size: int

    @property
    def row_bytes(self) -> int:
        return 2 * self.layers * self.size

    @property
    def total(self) -> int:
        """The bytes of the whole file."""
        return HEADER + self.rows * self.row_bytes

    @property
    def header(self) -> bytes:
        values = {"kind": KIND, **self.about, "rows": self.rows, "layers": self.layers, "size": self.size}
        return json.dumps(values).encode().ljust(HEADER - 1) + b"\n"

    def check(self) -> None:
        """Raise if the file has other vectors, or if there is no room for the rest of it."""
        if self.path.exists():
            self.check_header()
        folder = next(each for each in self.path.resolve().parents if each.is_dir())
        free, needed = shutil.disk_usage(folder).free, self.total - self.bytes_done
        if needed > free:
            raise DataError(
                f"{self.path} will have {megabytes(self.total)}, and the disk has room for "
                f"{megabytes(free)}; free some space, or give --context-file a place on another disk"
            )

    def check_header(self) -> None:
        with self.path.open("rb") as file:
            found = file.read(HEADER)
        if found == self.header:
            return
        try:
            there = json.loads(found)
        except ValueError:
            there = {}
        if not isinstance(there, dict) or there.get("kind") != KIND:
            raise DataError(f"{self.path} is not a file of vectors; give another --context-file")
        wrong = [text for name, text in ABOUT.items() if there.get(name) != self.about[name]]
        raise DataError(
            f"{self.path} has vectors {' and '.join(wrong) or 'of another size'}; delete it, or give another "
            "--context-file"
        )

    @property
    def bytes_done(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def done(self) -> int:
        """How many whole rows there are."""
        return max(self.bytes_done - HEADER, 0) // self.row_bytes

    def begin(self) -> None:
        """Write the header of a new file."""
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_new(self.path, self.header, 0o666)

    def write(self, first: int, rows: Tensor) -> None:
        """Write the rows from `first` on; what a killed process left after it is replaced."""
        if not rows.isfinite().all():
            raise DataError(f"{self.path}: the encoder gave a vector that is not finite in 16 bits")
        with self.path.open("r+b") as file:
            file.seek(HEADER + first * self.row_bytes)
            file.truncate()
            file.write(rows.contiguous().numpy().tobytes())
            file.flush()
            os.fsync(file.fileno())

    @cached_property
    def table(self) -> np.ndarray:
        shape = (self.rows, self.layers, self.size)
        return np.memmap(self.path, np.float16, "r", HEADER, shape)

    def read(self, first: int, count: int) -> Tensor:
        """Return `count` rows."""
        return torch.from_numpy(np.array(self.table[first : first + count]))


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
