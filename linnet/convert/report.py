"""What `convert` and `restore` have done to a model: a table in the terminal and in a notebook."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from linnet.base.tables import text_table
from linnet.layers.int8_modules import Quantised

HEAD = ("layer", "was", "is")
MEASURED = ("difference", "before (ms)", "after (ms)", "after/before")


@dataclass
class Measured:
    """A layer or a model on the example.

    difference   the largest absolute difference of what it returns (None: see the notes)
    before       milliseconds of one call of the original, the median of interleaved rounds
    after        the same with what has taken its place
    """

    difference: float | None
    before: float
    after: float

    def cells(self) -> list[str]:
        difference = "-" if self.difference is None else f"{self.difference:.1e}"
        return [difference, f"{self.before:.3g}", f"{self.after:.3g}", f"{self.after / self.before:.2f}"]


@dataclass
class Layer:
    """One layer: its path in the model (several, if it is shared), what it was, and what it is now."""

    path: str
    was: str
    # The layer that has taken its place; None if it was left alone.
    module: nn.Module | None = None
    # Why it was left alone.
    why: str = ""
    measured: Measured | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def is_now(self) -> str:
        return f"left alone: {self.why}" if self.module is None else class_of(self.module)


@dataclass
class Report:
    """What `linnet.convert` or `linnet.restore` returns.

    model    the model; a new module only if the model itself was a layer that has been replaced
    layers   one Layer for each recurrent layer that was found
    whole    the whole model on the example; None without an example
    notes    what applies to the whole model
    """

    model: Any
    layers: list[Layer]
    whole: Measured | None = None
    notes: list[str] = field(default_factory=list)

    def rows(self) -> list[list[str]]:
        """The table: a head, and a line for each layer and, with an example, for the whole model."""
        lines = [([layer.path, layer.was, layer.is_now], layer.measured) for layer in self.layers]
        if self.whole is not None:
            lines.append((["the whole model", "", ""], self.whole))
        head = [*HEAD, *(MEASURED if self.whole is not None else ())]
        return [head, *(padded(cells, measured, len(head)) for cells, measured in lines)]

    def all_notes(self) -> list[str]:
        return [*(f"{layer.path}: {note}" for layer in self.layers for note in layer.notes), *self.notes]

    def __str__(self) -> str:
        if not self.layers:
            return f"{type(self.model).__name__} has no recurrent layer that could be replaced"
        return "\n".join([text_table(self.rows(), left=(0, 1, 2)), *self.all_notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self.layers:
            return f"<p>{html.escape(str(self))}</p>"
        head, *body = self.rows()
        lines = [html_line(head, "th"), *(html_line(row, "td") for row in body)]
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.all_notes())
        return f"<table>{''.join(lines)}</table>{notes}"


def padded(cells: list[str], measured: Measured | None, width: int) -> list[str]:
    row = [*cells, *(measured.cells() if measured is not None else ())]
    return [*row, *[""] * (width - len(row))]


def html_line(cells: list[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def described(module: nn.Module) -> str:
    """The class and the options of a layer: `nn.LSTM(80, 256, num_layers=3)`."""
    sizes = f"{module.input_size}, {module.hidden_size}" if hasattr(module, "input_size") else ""
    return f"{class_of(module)}({module.extra_repr() or sizes})"


def class_of(module: nn.Module) -> str:
    """The class of a layer, as users write it: `nn.LSTM`, `linnet.LSTM`."""
    root = type(module).__module__.partition(".")[0]
    int8 = " in int8" if any(isinstance(each, Quantised) for each in module.modules()) else ""
    return f"{'nn' if root == 'torch' else root}.{type(module).__name__}{int8}"
