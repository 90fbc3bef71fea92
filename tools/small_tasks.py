"""Settings and data of every task in TASKS with which it trains in a second.

The conformance tests of the tasks (tests/tasks) and the kill test (kills.py) run over this list. A new task
needs a line in SETTINGS and, if it reads files, one in FILES.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RUN: dict[str, Any] = {"device": "cpu", "threads": 1, "hidden_size": 6}
SYMBOLS = {"span": 6, "recalled": 3, "batch": 4, "eval_examples": 10}
LENGTHS = {"longest": 6, "test_longest": 9, "batch": 4, "eval_batch": 5, "eval_examples": 15}
IMAGES = {"images": "digits", "batch": 4, "eval_batch": 5, "eval_examples": 12}
SETTINGS: dict[str, dict[str, Any]] = {
    "lm": {"corpus": "text", "level": "char", "batch": 4, "length": 5, "eval_batch": 3, "embedding_size": 6},
    "classify": {"set": "own", "batch": 4, "eval_batch": 3, "embedding_size": 6},
    "nli": {"set": "own", "batch": 4, "eval_batch": 3, "embedding_size": 6},
    "memory.copy": SYMBOLS,
    "memory.variable": SYMBOLS,
    "memory.denoise": SYMBOLS,
    "memory.selective": SYMBOLS,
    "memory.adding": {"span": 6, "batch": 4, "eval_examples": 10},
    "memory.parity": LENGTHS,
    "memory.pairs": LENGTHS,
    "memory.cycle": LENGTHS,
    "memory.modular": LENGTHS,
    "memory.fitzhugh": {"span": 20, "sequences": 13, "batch": 4, "eval_batch": 3, "eval_examples": 5},
    "memory.smnist": IMAGES,
    "memory.psmnist": IMAGES,
    "memory.rows": IMAGES,
    "tag": {"set": "own", "batch": 5, "eval_batch": 3, "embedding_size": 4, "character_hidden": 3},
    "translate": {"set": "own", "pieces": 260, "tokens": 60, "heads": 1, "num_layers": 1},
    "read": {"set": "own", "batch": 5, "eval_batch": 3, "embedding_size": 4, "num_layers": 1},
    "forecast": {
        "set": "own",
        "horizon": 3,
        "context": 8,
        "season": 4,
        "batch": 5,
        "eval_batch": 3,
        "origins": 2,
    },
    "series": {"set": "own", "group": "id", "label": "kind", "num_layers": 1, "batch": 5, "eval_batch": 3},
}

ASKED = {"question": "Who sang?", "id": "1", "answers": [{"text": "bird", "answer_start": 2}]}
# The options of a task that name files, with the name and the text of each.
SERIES = "".join(f"{day},{3 * day % 5 + 1},{day % 4 + 20}\n" for day in range(1, 41))
# A gesture goes up, another down, in 2 to 5 steps of two channels.
GESTURES = "".join(
    f"{number},{step * (1 - 2 * (number % 2))},{(number + step) % 3},{'up' if number % 2 == 0 else 'down'}\n"
    for number in range(40)
    for step in range(2 + number % 4)
)
FILES: dict[str, dict[str, tuple[str, str]]] = {
    "forecast": {"path": ("series.csv", f"step,small,large\n{SERIES}")},
    "series": {"path": ("gestures.csv", f"id,x,y,kind\n{GESTURES}")},
    "lm": {"path": ("text.txt", "the light unit sang a song of memory and of time.\n" * 20)},
    "classify": {"path": ("texts.csv", "text,label\n" + "a song of light,bird\na unit of time,clock\n" * 20)},
    "nli": {
        "path": (
            "pairs.tsv",
            "premise\thypothesis\tlabel\n"
            + "a bird sings\tit is loud\tyes\na fish swims\tit sings\tno\n" * 20,
        )
    },
    "tag": {
        "path": (
            "tagged.txt",
            "Anna B-PER\nsang O\nin O\nNew B-LOC\nYork I-LOC\n\nBen B-PER\nsang O\n\n" * 12,
        )
    },
    "translate": {
        "source": ("birds.en", "a bird sings\na small bird sings a song\ntwo birds\n" * 10),
        "target": ("birds.de", "ein Vogel singt\nein kleiner Vogel singt ein Lied\nzwei Vögel\n" * 10),
    },
    "read": {
        "path": (
            "questions.json",
            json.dumps({"data": [{"paragraphs": [{"context": "A bird sang.", "qas": [ASKED] * 2}] * 20}]}),
        )
    },
}


def write_files(folder: Path) -> None:
    """Write the data of all tasks."""
    folder.mkdir(parents=True, exist_ok=True)
    for named in FILES.values():
        for name, text in named.values():
            (folder / name).write_text(text, encoding="utf-8")


def settings_of(task: str, files: Path) -> dict[str, Any]:
    """Return the settings of a task whose data is in the folder `files`."""
    paths = {option: str(files / name) for option, (name, _) in FILES.get(task, {}).items()}
    return {**RUN, **SETTINGS[task], **paths}
