"""The vectors of the words of a task's texts by an encoder of `transformers`.

A task that reads words gives each text to `Contexts.numbers`, which returns a number for each word; batches
have these numbers. `look_up` returns the vectors of a batch by number. It takes them from a file, which
`compute` writes before training, or else runs the encoder.

The vectors of an encoder that is not tuned are rounded to 16 bits, in the file and without it, so that both
ways give the same results.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor, nn

from linnet.data.encoders import Encoder, describe, load
from linnet.data.pieces import Key
from linnet.data.vector_file import VectorFile, megabytes
from linnet.layers.context import Context, ContextShape, How, encode
from linnet.models.config import ContextConfig

CONTEXT = "context.json"
GROUP = 2048
"""The most words that the encoder reads at once while the file is written; a longer text is alone."""
NOTHING: Key = ((),)
"""Text 0, which has no words: that of padding."""

Report = Callable[[str, int, int], None]
"""Called with what is done, how much of it is done, and how much there is."""


class Contexts:
    """config    the options of the model
    encoder   what the run keeps of the encoder
    """

    def __init__(self, config: ContextConfig, encoder: Encoder):
        self.config, self.encoder = config, encoder
        mixes = config.context_layers == "mix"
        self.how = How(mixes, config.context_words == "mean", encoder.pooler)
        self.texts: dict[Key, int] = {NOTHING: 0}
        self.keys = [NOTHING]  # by their places in `texts`
        self.starts = [0]  # the number of each text; those of its words follow
        self.end = 1
        self.file: VectorFile | None = None
        self.rows: list[int] = []  # the first row of each text in the file

    @classmethod
    def of(cls, config: ContextConfig) -> Contexts:
        assert config.context is not None
        return cls(config, describe(config.context))

    @property
    def shape(self) -> ContextShape:
        settings = self.encoder.settings if self.config.context_tuned else None
        return ContextShape(self.encoder.size, self.encoder.depth if self.how.every_layer else 1, settings)

    def apart(self) -> Contexts:
        """The same encoder with texts of its own: a service that reads new texts for weeks keeps none."""
        return Contexts(self.config, self.encoder)

    def start(self, model: Any) -> None:
        """Give the encoder of a new model, which is tuned with it, its weights."""
        encoder = model.context.encoder
        if encoder is not None and not next(encoder.parameters()).is_meta:
            encoder.load_state_dict(load(self.encoder).state_dict())

    # ------------------------------------------------------------------------------- texts and numbers

    def numbers(self, *texts: Sequence[str]) -> list[Tensor]:
        """Return the numbers of the words of a text, or of both texts of a pair."""
        key = tuple(map(tuple, texts))
        if not any(key):
            return [torch.zeros(0, dtype=torch.int64) for _ in key]
        if key not in self.texts:
            self.texts[key] = len(self.keys)
            self.keys.append(key)
            self.starts.append(self.end)
            self.end += rows_of(key)
        first = self.starts[self.texts[key]] + 1
        ends = accumulate(map(len, key), initial=first)
        return [torch.arange(end, end + len(text)) for end, text in zip(ends, key, strict=False)]

    def look_up(self, numbers: Sequence[Tensor], model: nn.Module) -> list[Context]:
        """Return the vectors of the words with these numbers [T, B], for each of the texts of an example."""
        example = next(each for each in model.parameters() if each.is_floating_point())
        asked = [[bisect_right(self.starts, first) - 1 for first in each[0].tolist()] for each in numbers]
        texts = sorted({text for each in asked for text in each})
        found = self.vectors(texts, model)
        table = torch.cat(found).to(example)
        firsts = dict(zip(texts, accumulate(map(len, found), initial=0), strict=False))
        return [
            self.context(
                table, each.to(example.device), [(firsts[text], self.starts[text]) for text in columns]
            )
            for each, columns in zip(numbers, asked, strict=True)
        ]

    @staticmethod
    def context(table: Tensor, numbers: Tensor, firsts: Sequence[tuple[int, int]]) -> Context:
        """firsts   of each column, the row of its text in the table and the number of its text."""
        rows, starts = torch.tensor(firsts, device=numbers.device).T
        padded = numbers == 0
        words = table[torch.where(padded, 0, numbers - starts + rows)]
        return Context(words.masked_fill(padded[..., None, None], 0), table[rows, 0])

    def vectors(self, texts: Sequence[int], model: nn.Module) -> list[Tensor]:
        """Return the vectors of some texts, each [1 + words, layers, size]."""
        if self.file is not None and max(texts) < len(self.rows):
            return [self.read(self.file, text) for text in texts]
        wanted = [self.keys[text] for text in texts]
        if self.config.context_tuned:
            return self.run(wanted, model.context.encoder)  # type: ignore[union-attr, arg-type]
        return self.frozen(wanted)

    def read(self, file: VectorFile, text: int) -> Tensor:
        first = self.starts[text + 1] if text + 1 < len(self.starts) else self.end
        return file.read(self.rows[text], first - self.starts[text])

    @torch.no_grad()
    def frozen(self, keys: Sequence[Key]) -> list[Tensor]:
        return [rows.half() for rows in self.run(keys, load(self.encoder))]

    def run(self, keys: Sequence[Key], encoder: nn.Module) -> list[Tensor]:
        """Run the encoder once over each text that has words."""
        wanted = [*dict.fromkeys(key for key in keys if key != NOTHING)]
        readings = self.encoder.pieces.read(wanted)
        found = dict(zip(wanted, encode(encoder, readings, self.how) if wanted else [], strict=True))
        shape = self.shape
        zeros = next(encoder.parameters()).new_zeros(1, shape.layers, shape.size)
        return [found.get(key, zeros) for key in keys]

    # -------------------------------------------------------------------------------------- the file

    def compute(self, path: Path, report: Report) -> None:
        """Write the file of the vectors of all texts so far, or the rest of it, and use it from now on."""
        order = sorted(self.texts, key=lambda key: (rows_of(key), key))
        file = self.file_of(path, order)
        file.check()
        # Another run that needs the same file waits.
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            self.write(file, order, report)
        places = dict(zip(order, accumulate(map(rows_of, order), initial=0), strict=False))
        self.file, self.rows = file, [places[key] for key in self.texts]

    def write(self, file: VectorFile, order: Sequence[Key], report: Report) -> None:
        if file.done >= file.rows:
            return
        file.begin()
        for first, group in groups(order):
            if file.done < first + sum(map(rows_of, group)):
                report(f"{file.path} ({megabytes(file.total)})", first, file.rows)
                file.write(first, torch.cat(self.frozen(group)))
        report(f"{file.path} ({megabytes(file.total)})", file.rows, file.rows)

    def file_of(self, path: Path, order: Sequence[Key]) -> VectorFile:
        about = {
            "encoder": self.encoder.code,
            "texts": code_of(order),
            "how": f"{self.config.context_layers} {self.config.context_words}",
        }
        shape = self.shape
        return VectorFile(path, about, sum(map(rows_of, order)), shape.layers, shape.size)

    def file_name(self, data: str) -> str:
        """The default name of the file, given that of the data."""
        config = self.config
        name = Path(self.encoder.name).name
        return f"{data}-{name}-{config.context_layers}-{config.context_words}.vectors"


def rows_of(key: Key) -> int:
    """The rows of a text: its own vector and those of its words."""
    return 1 + sum(map(len, key))


def groups(order: Sequence[Key]) -> Iterator[tuple[int, list[Key]]]:
    """Yield texts that the encoder reads at once, with their first row."""
    group: list[Key] = []
    first = size = 0
    for key in order:
        if group and size + rows_of(key) > GROUP:
            yield first, group
            first, size, group = first + size, 0, []
        group.append(key)
        size += rows_of(key)
    yield first, group


def code_of(order: Sequence[Key]) -> str:
    made = hashlib.sha256()
    for key in order:
        made.update(repr(key).encode("utf-8", "surrogatepass"))
    return made.hexdigest()[:16]
