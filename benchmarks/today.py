"""Newer units relative to their own matrix products, and to other packages on the CPU.

The packages are not installed with Linnet: `pip install minGRU-pytorch xlstm ncps` for all of them. A race
leaves out what cannot be imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from benchmarks.contestants import (
    Contestant,
    ours,
    products,
    products_of_gradients,
    reference_loop,
    step_products,
)
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Comparison, Race
from linnet.bench.layers import call_of
from linnet.bench.timing import Call
from linnet.recurrent.cell import Cell
from linnet.recurrent.projection import Projection
from linnet.units import UNITS

ELEMENTWISE = ("mingru", "minlstm", "indrnn", "hgrn", "rglru", "lru", "unicornn", "linoss")
WITH_MATRICES = ("slstm", "fastgrnn")


def measure(settings: Settings, book: Book) -> list[Row]:
    races = [
        race
        for shape in settings.today
        for mode in settings.modes
        for race in (
            *(against_products(unit, shape, mode) for unit in (*ELEMENTWISE, *WITH_MATRICES)),
            *(against_package(unit, shape, mode) for unit in PACKAGES),
        )
    ]
    return [row for race in races for row in race.run(settings, book)]


def against_products(unit: str, shape: Shape, mode: str) -> Race:
    limit = Contestant(f"products of {unit}", "torch", lambda: products_of(unit, shape, mode))
    entrants = {unit: ours(unit, shape, mode), limit.unit: limit}
    return Race("today", shape, mode, entrants, [Comparison(unit, limit.unit, "own products")])


def products_of(unit: str, shape: Shape, mode: str) -> Call:
    """All products of a unit: of all steps at once where no step depends on another, and else one a step."""
    cell, training, rows = UNITS[unit](shape.d, shape.d).first_cell, mode == "training", shape.L * shape.B
    by_step = [] if cell.reads_out else [p for p in projections(cell) if p is not cell.input]
    at_once = [
        products(rows, p.weight.shape[1], len(p.weight), training)
        for p in projections(cell)
        if p not in by_step
    ]
    each_step = [step_products(shape.B, p.weight.detach(), training) for p in by_step]
    gradients = [products_of_gradients(rows, p.weight.detach()) for p in by_step] if training else []

    def call() -> None:
        for product in at_once:
            product()
        for _ in range(shape.L):
            for product in each_step:
                product()
        for product in gradients:
            product()

    return call


def projections(cell: Cell) -> list[Any]:
    return [module for module in cell.modules() if isinstance(module, Projection)]


# -------------------------------------------------------------------------------------- packages


class TimeFirst(nn.Module):
    """A layer of [B, T, D] that returns its output only, as one of [T, B, D] that returns a pair."""

    def __init__(self, layer: nn.Module, size: int):
        super().__init__()
        self.layer, self.output_size = layer, size

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        y = self.layer(x.transpose(0, 1))
        return (y[0] if isinstance(y, tuple) else y).transpose(0, 1), None


def min_gru(size: int) -> nn.Module:
    from minGRU_pytorch import minGRU

    return TimeFirst(minGRU(size), size)


def min_lstm(size: int) -> nn.Module:
    from minGRU_pytorch.minLSTM import minLSTM

    return TimeFirst(minLSTM(size), size)


def slstm(size: int) -> nn.Module:
    from xlstm.blocks.slstm.layer import sLSTMLayer, sLSTMLayerConfig

    config = sLSTMLayerConfig(embedding_dim=size, num_heads=4, conv1d_kernel_size=0, backend="vanilla")
    config.__post_init__()
    return TimeFirst(sLSTMLayer(config), size)


def cfc(size: int) -> nn.Module:
    from ncps.torch import CfC

    layer = CfC(size, size, batch_first=False)
    layer.output_size = size
    return layer


# Our unit with the options that make it theirs, and what builds their layer.
PACKAGES: dict[str, tuple[str, dict[str, Any], Callable[[int], nn.Module]]] = {
    "mingru": ("minGRU-pytorch", {"bias": False}, min_gru),
    "minlstm": ("minGRU-pytorch", {"bias": False}, min_lstm),
    "slstm": ("xlstm", {"heads": 4, "input_heads": 4, "group_norm": True}, slstm),
    "cfc": ("ncps", {}, cfc),
    "lem": ("loop in torch", {}, nn.Identity),
}


def against_package(unit: str, shape: Shape, mode: str) -> Race:
    """LEM's authors have a loop over time in PyTorch, and no package: it races such a loop."""
    name, options, build = PACKAGES[unit]
    theirs = Contestant(unit, name, lambda: call_of(build(shape.d), shape, mode))
    if name == "loop in torch":
        theirs = reference_loop(unit, shape, mode)
    mine = Contestant(unit, "cpu", lambda: call_of(UNITS[unit](shape.d, shape.d, **options), shape, mode))
    entrants = {unit: mine, name: theirs._replace(backend=name)}
    return Race("today", shape, mode, entrants, [Comparison(unit, name, name)])
