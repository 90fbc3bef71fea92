"""Translation by beam search with LRN, compared with the same translator with nn.GRU.

Both are the deep recurrent model of Zhang and Sennrich (2019, Table 3); units have no norm, because nn.GRU
has none. Untrained models rarely end a sentence, so all translations have as many words as their source.
A call translates a batch: for milliseconds per sentence, divide by B.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Race, model_race
from linnet.bench.timing import Call
from linnet.models.translator import RecurrentTranslator, TranslatorConfig
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell

WORDS, BEAM, LAYERS, HEADS = 8000, 4, 6, 8
RACING = ("lrn", "olrn", "sru", "atr", "gru")
UNIT_OPTIONS: dict[str, dict[str, Any]] = {
    "lrn": {"activation": "identity"},
    "atr": {"activation": "identity"},
    "gru": {"form": "after"},
}


def measure(settings: Settings, book: Book) -> list[Row]:
    units = [unit for unit in RACING if unit in settings.units]
    races = [race_of(units, shape) for shape in settings.translated]
    return [row for race in races for row in race.run(settings, book)]


def race_of(units: list[str], shape: Shape) -> Race:
    models = {unit: partial(ours, unit, shape.d) for unit in units}
    theirs = "nn.GRU", lambda: TorchTranslator(config_of("gru", shape.d))
    return model_race("translator", shape, "decoding", models, theirs, call_of)


def ours(unit: str, size: int) -> RecurrentTranslator:
    return RecurrentTranslator(WORDS, WORDS, config_of(unit, size))


def config_of(unit: str, size: int) -> TranslatorConfig:
    options = {"norm": None, **UNIT_OPTIONS.get(unit, {})}
    return TranslatorConfig(unit=unit, unit_options=options, hidden_size=size, num_layers=LAYERS, heads=HEADS)


class TorchTranslator(RecurrentTranslator):
    """The same model with torch's GRU: its layer over the source, its cell in pairs and while decoding."""

    def __init__(self, config: TranslatorConfig):
        super().__init__(WORDS, WORDS, config)
        size = config.hidden_size
        encoder, decoder = self.encoder, self.decoder
        encoder.layers = nn.ModuleList(TorchLayer(size) for _ in encoder.layers)
        for pair in (encoder.backward_pair, decoder.matching, *decoder.pairs):
            pair.lower, pair.higher = TorchCell(size), TorchCell(size)


class TorchLayer(nn.GRU):
    """nn.GRU, for sentences of one length."""

    def __init__(self, size: int):
        super().__init__(size, size)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(x)


class TorchCell(Cell):
    """nn.GRUCell, with the methods of a cell that a pair and a matching recurrence call."""

    def __init__(self, size: int):
        super().__init__(size, size, {"h": size})
        self.torch = nn.GRUCell(size, size)

    def project(self, x: Tensor) -> Named:
        return {"x": x}

    def advance(
        self, inputs: Named, state: Named, visible_state: Named | None = None
    ) -> tuple[Tensor, Named]:
        h = self.torch(inputs["x"], state["h"])
        return h, {"h": h}


def call_of(model: RecurrentTranslator, shape: Shape) -> Call:
    source = torch.randint(3, WORDS, (shape.L, shape.B), generator=torch.Generator().manual_seed(0))
    model.eval()

    def call() -> None:
        model.translate(source, beam=BEAM, extra=0)

    return call
