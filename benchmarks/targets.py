"""The project's targets: ratios of times, or milliseconds."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.settings import RACED, SOFTMAXES, Shape

ANY = Shape(0, 0, 0)
LIGHT, MATRIX = ("sru", "lrn"), ("ran", "scrn", "atr")
WITH_MATRICES = ("ran", "scrn", "atr", "janet", "gru", "lstm", "slstm", "fastgrnn")
TODAY = ("mingru", "minlstm", "indrnn", "hgrn", "rglru", "lru", "unicornn", "linoss")
RACED_TODAY = ("mingru", "minlstm", "slstm", "cfc", "lem")
PACKAGES = ("minGRU-pytorch", "xlstm", "ncps", "loop in torch")
LOSSES = tuple(dict.fromkeys(map(str, SOFTMAXES)))
# Bytes: recurrences that fit into the cache are not limited by the bandwidth of the memory.
BEYOND_CACHE = 64e6
# The time is linear in the length if a step of the longest sequence takes at most this multiple.
LINEAR = 1.2


# Modes and peers of one sequence on one thread.
ALONE = ("one thread", "one thread, both directions")
PEERS = ("nn.LSTM", "nn.GRU", "ONNX Runtime", "OpenVINO", "LiteRT")


class Target(NamedTuple):
    """A ratio of at most `figure` for these units and modes, at hidden sizes from `least` to `most`."""

    units: tuple[str, ...]
    modes: tuple[str, ...]
    to: str
    figure: float
    least: int = 0
    most: int = 1 << 30
    batch: int = 0  # 0: any

    def fits(self, unit: str, mode: str, shape: Shape, to: str) -> bool:
        fits = self.least <= shape.d <= self.most and self.batch in (0, shape.B)
        return unit in self.units and mode in self.modes and to == self.to and fits


TARGETS = (
    Target(LIGHT, ("step",), "nn.LSTMCell", 0.7),
    Target(("ran", "gru", "lstm"), ("step",), "nn.LSTMCell", 1.0),
    Target(("lstm",), ("step with gradients",), "nn.LSTM", 1.0),
    Target(LIGHT, ("step",), "reading its weights", 1.2, least=512),
    Target(("sru", "lstm"), ("median under load", "p99 under load"), "one thread", 1.2),
    Target(("lstm",), ("inference",), "nn.LSTM", 0.8, batch=1),
    Target(("ran",), ("inference",), "nn.LSTM", 0.5, batch=1),
    Target(("gru",), ("inference",), "nn.GRU", 0.5, batch=1),
    Target(LIGHT, ("inference",), "limit", 1.15, batch=1),
    Target(LIGHT, ("step",), "limit", 1.5),
    Target(LIGHT, ("inference",), "nn.LSTM", 0.30),
    Target(LIGHT, ("training",), "nn.LSTM", 0.33),
    Target(LIGHT, ("inference",), "limit", 1.10),
    Target(LIGHT, ("training",), "limit", 1.20, least=256),
    Target(LIGHT, ("training",), "limit", 1.30, most=255),
    Target(WITH_MATRICES, ("inference",), "own products", 1.25),
    Target(WITH_MATRICES, ("training",), "own products", 1.40),
    Target(TODAY, ("inference",), "own products", 1.15),
    Target(TODAY, ("training",), "own products", 1.30),
    *(Target(RACED_TODAY, ("training",), to, 1 / 3) for to in PACKAGES),
    Target(("lrn",), ("training",), "sru", 1.0),
    Target(MATRIX, ("inference", "training"), "nn.LSTM", 0.55),
    Target(("lstm",), ("inference", "training"), "nn.LSTM", 1.0),
    Target(("gru",), ("inference", "training"), "nn.GRU", 1.0),
    Target(("nru",), ("training",), "reference", 0.33),
    Target(("eurnn", "goru"), ("inference", "training"), "reference", 0.2),
    Target(("sru",), ("inference",), "sru package", 1 / 2.5),
    Target(("sru",), ("training",), "sru package", 1 / 3),
    Target(LIGHT, ("forward", "backward"), "DRAM limit", 1.2),
    Target(LIGHT, ("inference", "training"), "a step at the shortest L", LINEAR),
    Target(("sru",), ("memory",), "nn.LSTM", 0.6),
    Target(RACED, ("inference", "training"), "its call", 0.02, least=256),
    # At least 90 % of the speed of the model alone.
    Target(("sru", "lstm", "scrn"), ("training",), "forward, backward and step", 1 / 0.9),
    # In tokens a second: 1.15 and 1.5 times those of nn.LSTM.
    Target(("lstm",), ("training",), "language model with nn.LSTM", 1 / 1.15),
    Target(("sru",), ("training",), "language model with nn.LSTM", 1 / 1.5),
    Target(("sru",), ("training",), "classifier with nn.LSTM", 0.5),
    Target(("sru",), ("training",), "tagger with nn.LSTM", 0.5),
    Target(("sru",), ("training",), "encoder with nn.LSTM", 0.4),
    # At least 1.5 times as many sentences in the same time.
    Target(("lrn",), ("decoding",), "translator with nn.GRU", 1 / 1.5),
    Target(RACED, ("inference", "training"), "its products", 1.3),
    Target(("crf",), ("training", "inference"), "pytorch-crf", 1 / 3),
    Target(RACED, ("step",), "float32", 0.6, least=512),
    Target(RACED, ("inference",), "the same in float32", 1.0),
    Target(("lstm", "gru", "rnn"), ("inference",), "its Scan", 0.5),
    *(Target(("lstm", "lstm frozen", "gru", "gru frozen"), ALONE, to, 1.0) for to in PEERS),
    Target(("lstm int8", "gru int8"), ALONE, "torch int8", 1.0),
    # Half of the steps are real.
    Target(RACED, ("inference", "training"), "all steps real", 0.72, least=128),
    Target(RACED, ("training",), "all steps real", 1.03, most=127),
    Target(RACED, ("inference", "training"), "its lengths", 1.05),
    Target(("sru",), ("step by step",), "its cell", 0.5, least=512),
    Target(("sru",), ("step by step",), "onnxruntime", 0.7, least=512),
    Target(RACED, ("step by step",), "float32 in C", 0.45, least=512),
    Target(RACED, ("step by step",), "native C", 3.0),
    Target(LOSSES, ("training",), "F.cross_entropy", 1.0),
    Target(LOSSES, ("training",), "limit", 1.25),
)
MILLISECONDS = {"stream": 0.015, "import": 300.0, "first call": 1000.0, "cold compile": 6000.0}


def target_of(unit: str, mode: str, shape: Shape, to: str) -> float | None:
    return next((t.figure for t in TARGETS if t.fits(unit, mode, shape, to)), None)


def judged(ratio: float, to: str, figure: float | None) -> dict[str, object]:
    """Return the columns of a ratio: its target, and whether it is met."""
    met = None if figure is None else bool(ratio <= figure)
    return {"ratio": ratio, "ratio_to": to, "target": figure, "met": met}
