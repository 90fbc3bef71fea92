"""Write the small files in examples/data, with which the commands of README.md and docs/ run as printed.

python -m tools.example_data

All but the text are made up: a random number generator with a fixed seed draws them, so that the files are
always the same. The text is the Book of Proverbs of the World English Bible, which is in the public domain.
"""

from __future__ import annotations

import csv
import io
import math
import random
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path

from linnet.base.files import write_atomically
from linnet.data.kjv import verse_texts

FOLDER = Path(__file__).parents[1] / "examples" / "data"
PROVERBS = 20  # the number of the book
REVIEWS, DAYS, GESTURES = 360, 364, 90

THINGS = ("book", "song", "film", "concert", "recording", "little opera", "radio play")
PLACES = ("on the train", "with my sister", "on a rainy evening", "twice", "at the library", "in one go")
# What people say, from one star to five.
OPINIONS = (
    ("a waste of an evening", "dull from the first minute", "I left early", "nothing in it works"),
    ("rather slow", "too long for what it says", "I expected more", "the middle part drags"),
    ("neither good nor bad", "fine, but no more than that", "it has its moments", "soon forgotten"),
    ("well made and worth your time", "I liked the quiet parts", "a good voice", "clever and warm"),
    ("a small wonder", "what a voice", "I would go again tomorrow", "perfect from start to end"),
)
SHOPS = {"Abbey": 40.0, "Bridge": 90.0, "Castle": 150.0}  # with the mean sales of a day
WEEK = (0.8, 0.85, 0.9, 1.0, 1.25, 1.5, 0.7)  # Monday to Sunday
KINDS = ("circle", "line", "zigzag")


def proverbs() -> str:
    """One verse a line."""
    found = verse_texts("web")
    return "".join(f"{text}\n" for number, text in found.items() if number // 1_000_000 == PROVERBS)


def reviews(draw: random.Random) -> Iterator[Sequence[object]]:
    """Reviews of two opinions, the second of which may be a star away."""
    yield "review", "stars"
    for _ in range(REVIEWS):
        stars = draw.randrange(5)
        near = min(4, max(0, stars + draw.choice((-1, 0, 0, 1))))
        first, second = draw.choice(OPINIONS[stars]), draw.choice(OPINIONS[near])
        start = f"The {draw.choice(THINGS)}, {draw.choice(PLACES)}"
        yield f"{start}: {first}; {second}.", stars + 1


def sales(draw: random.Random) -> Iterator[Sequence[object]]:
    """Sales by shop and day: a level that grows slowly, the day of the week, and chance."""
    yield "date", "shop", "sales"
    for shop, level in SHOPS.items():
        growth = draw.uniform(0.0, 0.4)
        for day in range(DAYS):
            when = date(2025, 1, 6) + timedelta(days=day)
            expected = level * WEEK[when.weekday()] * (1 + growth * day / DAYS)
            yield when.isoformat(), shop, round(expected * draw.gauss(1.0, 0.08))


def gestures(draw: random.Random) -> Iterator[Sequence[object]]:
    """The places of a finger by time: circles, lines and zigzags of different lengths, speeds and sizes."""
    yield "id", "x", "y", "kind"
    for number in range(GESTURES):
        kind = KINDS[number % len(KINDS)]
        length, size, speed = draw.randrange(12, 25), draw.uniform(0.6, 1.4), draw.uniform(0.25, 0.45)
        for step in range(length):
            x, y = position(kind, speed * step)
            x, y = (size * each + draw.gauss(0, 0.08) for each in (x, y))
            yield number, f"{x:.2f}", f"{y:.2f}", kind


def position(kind: str, t: float) -> tuple[float, float]:
    if kind == "circle":
        return math.cos(t), math.sin(t)
    return t / 4, (0.0 if kind == "line" else abs(t % 2 - 1))


def table(rows: Iterator[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def files() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {
        "proverbs.txt": proverbs(),
        "reviews.csv": table(reviews(random.Random(1))),
        "sales.csv": table(sales(random.Random(2))),
        "gestures.csv": table(gestures(random.Random(3))),
    }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        write_atomically(FOLDER / name, text.encode())
