"""What is to be reached: the project's own figures, each a ratio of times unless it says otherwise."""

from __future__ import annotations

from typing import NamedTuple

from linnet.bench.settings import RACED, SOFTMAXES, Shape

ANY = Shape(0, 0, 0)
LIGHT, MATRIX = ("sru", "lrn"), ("ran", "scrn", "atr")
LOSSES = tuple(dict.fromkeys(map(str, SOFTMAXES)))
# Recurrences that fit the cache are not bound by the memory beyond it.
BEYOND_CACHE = 64e6
# A step of a long sequence may cost so much more than one of a short sequence and still be called linear.
LINEAR = 1.2


class Target(NamedTuple):
    """At most `figure` for these units and modes; `least` and `most` bound the width d."""

    units: tuple[str, ...]
    modes: tuple[str, ...]
    to: str
    figure: float
    least: int = 0
    most: int = 1 << 30

    def fits(self, unit: str, mode: str, shape: Shape, to: str) -> bool:
        wide = self.least <= shape.d <= self.most
        return unit in self.units and mode in self.modes and to == self.to and wide


TARGETS = (
    Target(LIGHT, ("inference",), "nn.LSTM", 0.30),
    Target(LIGHT, ("step",), "nn.LSTM", 0.05),
    Target(LIGHT, ("training",), "nn.LSTM", 0.33),
    Target(LIGHT, ("inference", "step"), "limit", 1.05, least=256),
    Target(LIGHT, ("inference", "step"), "limit", 1.25, most=255),
    Target(LIGHT, ("training",), "limit", 1.15, least=256),
    Target(LIGHT, ("training",), "limit", 1.30, most=255),
    Target(("lrn",), ("training",), "sru", 1.0),
    Target(MATRIX, ("inference", "step", "training"), "nn.LSTM", 0.55),
    Target(("lstm",), ("inference", "step", "training"), "nn.LSTM", 1.0),
    Target(("gru",), ("inference", "step", "training"), "nn.GRU", 1.0),
    Target(("nru",), ("training",), "reference", 0.33),
    Target(("sru",), ("inference",), "sru package", 1 / 2.5),
    Target(("sru",), ("training",), "sru package", 1 / 3),
    Target(LIGHT, ("forward", "backward"), "DRAM limit", 1.2),
    Target(LIGHT, ("inference", "training"), "a step at the shortest L", LINEAR),
    Target(("sru",), ("memory",), "nn.LSTM", 0.6),
    Target(RACED, ("inference", "training"), "its call", 0.02, least=256),
    # At least 90 % of what the model alone would do.
    Target(("sru", "lstm", "scrn"), ("training",), "forward, backward and step", 1 / 0.9),
    Target(("sru",), ("training",), "classifier with nn.LSTM", 0.5),
    Target(("sru",), ("training",), "tagger with nn.LSTM", 0.5),
    Target(("crf",), ("training", "inference"), "pytorch-crf", 1 / 3),
    Target(LOSSES, ("training",), "F.cross_entropy", 1.0),
    Target(LOSSES, ("training",), "limit", 1.25),
)
MILLISECONDS = {"import": 300.0, "first call": 1000.0, "cold compile": 6000.0}


def target_of(unit: str, mode: str, shape: Shape, to: str) -> float | None:
    return next((t.figure for t in TARGETS if t.fits(unit, mode, shape, to)), None)


def judged(ratio: float, to: str, figure: float | None) -> dict[str, object]:
    """The columns that say what was reached and whether that is enough."""
    met = None if figure is None else bool(ratio <= figure)
    return {"ratio": ratio, "ratio_to": to, "target": figure, "met": met}
