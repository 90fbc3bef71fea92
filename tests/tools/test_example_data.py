"""The small files of examples/data are those that the program makes, and are small."""

from __future__ import annotations

import csv
from collections import Counter

from tools import example_data


def test_the_files_are_those_that_the_program_makes():
    """If this fails after a change, run python -m tools.example_data."""
    made = example_data.files()
    assert {path.name for path in example_data.FOLDER.iterdir()} == set(made)
    for name, text in made.items():
        assert (example_data.FOLDER / name).read_text(encoding="utf-8") == text
        assert 5_000 < len(text) < 100_000


def test_every_class_is_there_often_enough_to_be_learnt():
    for name, column in (("reviews.csv", "stars"), ("gestures.csv", "kind"), ("sales.csv", "shop")):
        with (example_data.FOLDER / name).open(encoding="utf-8", newline="") as file:
            counts = Counter(row[column] for row in csv.DictReader(file))
        assert len(counts) >= 3
        assert min(counts.values()) >= 50
