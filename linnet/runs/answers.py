"""A file of answers that is written part by part: after a kill, the same command continues where it was.

    answers = AnswerFile(Path("out.txt"), fingerprint(inputs), len(inputs))
    answers.add(["ein Vogel", "zwei Vögel"])       # answers to the inputs from answers.done on
    answers.finish()                               # now out.txt exists

Until the last answer, they are in `out.txt.part`, and `out.txt.part.json` says how many of them are complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from linnet.runs.errors import Mismatch, room_for
from linnet.runs.records import sync, write_json


class AnswerFile:
    """The file `path`, with one text for each of `total` inputs.

    inputs   a fingerprint of the inputs and of what answers them: a part of other answers is not continued
    """

    def __init__(self, path: Path, inputs: str, total: int):
        self.path, self.inputs, self.total = path, inputs, total
        self.part, self.state = (path.with_name(f"{path.name}.part{end}") for end in ("", ".json"))
        if path.exists():
            raise FileExistsError(f"{path} exists already; delete it, or give another --out")
        self.done, size = self.saved() if self.state.exists() else (0, 0)
        with room_for(self.part), self.part.open("ab") as file:
            # What was written after the last complete part is written again.
            file.truncate(size)

    def saved(self) -> tuple[int, int]:
        """Return the number of complete answers and their size in bytes."""
        try:
            found = json.loads(self.state.read_bytes())
            same = found["inputs"] == self.inputs and self.part.stat().st_size >= found["bytes"]
            if same:
                return found["done"], found["bytes"]
        except (ValueError, KeyError, TypeError, FileNotFoundError):
            pass
        raise Mismatch(
            f"{self.part} has the answers to other inputs, of other options or of another model; delete it "
            f"and {self.state.name} to start over, or give another --out"
        )

    def add(self, answers: Sequence[str]) -> None:
        with room_for(self.part), self.part.open("ab") as file:
            file.write("".join(f"{each}\n" for each in answers).encode())
            sync(file)
            size = file.tell()
        self.done += len(answers)
        write_json(self.state, {"inputs": self.inputs, "done": self.done, "bytes": size})

    def finish(self) -> None:
        os.replace(self.part, self.path)
        self.state.unlink(missing_ok=True)
