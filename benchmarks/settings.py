"""The settings of a benchmark: units, shapes, repetitions."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import NamedTuple

from linnet.bench.layers import Shape, check_device
from linnet.units import UNITS


class Words(NamedTuple):
    """A softmax over `words` words, of d features."""

    d: int
    words: int

    def __str__(self) -> str:
        return f"softmax of {self.words}"


# Penn Treebank and WikiText-2, with the feature sizes of the papers' small and large models.
SOFTMAXES = tuple(Words(d, words) for words in (10_000, 33_278) for d in (200, 650))
STEP, GROWING, PEAK = Shape(1, 1, 512), Shape(0, 8, 256), Shape(1024, 8, 512)
WRITTEN = Shape(35, 20, 200)  # steps, columns and hidden size of a small language model
SENTENCES = Shape(32, 32, 128)  # words, sentences and hidden size of a classifier
TAGGED = Shape(32, 32, 100)  # the same of a tagger
CHAINS = Shape(50, 32, 10)  # words, sentences and tags of a CRF
PASSAGES = tuple(
    Shape(200, 32, d) for d in (179, 679)
)  # words, passages and input size of a reader's encoder
PAIRS = Shape(8, 128, 300)  # words, pairs and hidden size of word-by-word attention
# Words and sentences to translate, and the hidden size of the translator: a batch, and one sentence alone.
TRANSLATED = tuple(Shape(20, batch, 512) for batch in (16, 1))
ONE_ROW = (Shape(128, 1, 512), Shape(1000, 1, 256))  # sequences of a batch of one
SHAPES = (
    Shape(32, 32, 256),
    Shape(256, 32, 512),
    PEAK,
    Shape(784, 100, 128),
    *ONE_ROW,
    STEP,
    Shape(1, 16, 512),
)
RACED = ("sru", "lrn", "ran", "scrn", "atr", "lstm", "gru", "nru", "janet", "qrnn", "rnn")
QUANTISED, EXPORTED = (STEP, Shape(100, 8, 512)), Shape(1000, 1, 128)
OPTIONAL = (Shape(100, 32, 128), Shape(100, 32, 256))  # of options with kernels, relative to the loop
# One sequence on one thread.
ALONE = tuple(Shape(steps, 1, d) for d in (32, 64, 128, 256) for steps in (16, 50, 100, 500))
TODAY = (Shape(256, 32, 512), Shape(1024, 8, 512))  # of newer units, relative to their own products
BLOCKS = Shape(200, 1, 64)
PADDED = (Shape(32, 32, 64), Shape(100, 32, 128), Shape(100, 32, 256))  # sequences of different lengths
MODES = ("inference", "training")


@dataclass(frozen=True)
class Settings:
    """What to measure. The defaults are those of the project's targets; `quick` is for trying things out."""

    units: tuple[str, ...] = RACED
    shapes: tuple[Shape, ...] = SHAPES
    modes: tuple[str, ...] = MODES
    rounds: int = 11
    seconds: float = 30.0  # for the rounds of one race, after which it ends early
    threads: int = min(2, os.cpu_count() or 1)
    references: tuple[str, ...] = ("nru",)  # units that are compared with their reference loop
    peers: bool = False
    device: str = "cpu"  # or "cuda"
    memory: str = "new"  # or "reused"
    lengths: tuple[int, ...] = tuple(256 << i for i in range(6))
    growing: Shape = GROWING  # at each of the lengths
    peak: Shape = PEAK
    checked: Shape = SHAPES[0]
    starting: tuple[str, ...] = ("sru", "lstm", "nru")
    softmaxes: tuple[Words, ...] = SOFTMAXES
    classified: Shape = SENTENCES
    tagged: Shape = TAGGED
    chained: Shape = CHAINS
    read: tuple[Shape, ...] = PASSAGES
    translated: tuple[Shape, ...] = TRANSLATED
    matched: Shape = PAIRS
    step_sizes: tuple[int, ...] = (64, 128, 256, 512)  # of cells and streams
    loaded: Shape = STEP  # of a step while other processes are busy
    loaded_steps: int = 200  # in each round
    written: Shape = WRITTEN
    vocabulary: int = 10_000
    quantised: tuple[Shape, Shape] = QUANTISED  # one step, and a sequence
    halved: Shape = SHAPES[1]  # in bfloat16
    exported: Shape = EXPORTED  # in onnxruntime
    optional: tuple[Shape, ...] = OPTIONAL
    alone: tuple[Shape, ...] = ALONE
    padded: tuple[Shape, ...] = PADDED
    blocked: Shape = BLOCKS  # of frames of one stream, with the sizes of steps
    today: tuple[Shape, ...] = TODAY
    repeats: int = 3  # of measurements that need a new process

    def __post_init__(self) -> None:
        unknown = [name for name in (*self.units, *self.references) if name not in UNITS]
        if unknown:
            raise ValueError(f"no unit {unknown[0]!r}; the units are {', '.join(UNITS)}")
        check_device(self.device)

    def elementwise(self, *units: str) -> list[str]:
        """Return those of `units` that are measured and have no recurrent matrix."""
        return [name for name in units if name in self.units and UNITS[name](2, 2).first_cell.is_elementwise]


def quick(settings: Settings) -> Settings:
    """Return the settings with small sizes, to see whether everything runs."""
    small = [Shape(min(s.L, 6), 1 if s.is_step else 3, min(s.d, 16)) for s in settings.shapes]
    return replace(
        settings,
        shapes=tuple(dict.fromkeys(small)),
        rounds=min(settings.rounds, 2),
        seconds=1.0,
        lengths=(4, 8),
        growing=Shape(0, 2, 16),
        peak=Shape(16, 2, 16),
        checked=Shape(6, 3, 16),
        starting=settings.starting[:1],
        softmaxes=(Words(8, 50),),
        classified=Shape(6, 3, 16),
        tagged=Shape(6, 3, 16),
        chained=Shape(6, 3, 4),
        read=(Shape(6, 3, 9),),
        translated=(Shape(4, 2, 16),),
        matched=Shape(3, 2, 8),
        step_sizes=(16,),
        loaded=Shape(1, 1, 16),
        loaded_steps=3,
        written=Shape(4, 2, 16),
        vocabulary=50,
        quantised=(Shape(1, 1, 16), Shape(6, 3, 16)),
        halved=Shape(6, 3, 16),
        exported=Shape(6, 2, 16),
        optional=(Shape(6, 3, 16),),
        alone=(Shape(9, 1, 16),),
        padded=(Shape(6, 5, 16),),
        blocked=Shape(5, 1, 16),
        today=(Shape(6, 3, 16),),
        repeats=1,
    )
