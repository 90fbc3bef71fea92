"""The results of a task: the loss of a batch; figures, tables and charts of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor


class StepResult(NamedTuple):
    """The loss of a batch, and the state that the next batch starts from."""

    objective: Tensor  # the mean of the loss over the counted targets, with all penalties; differentiated
    total: Tensor  # the sum of the loss over the counted targets, without penalties and without a graph
    count: int  # type: ignore[assignment]  # how many targets are counted
    tokens: int  # time steps of all sequences, for tokens per second
    extra: dict[str, float] = {}  # further numbers of this batch; rows of training have their means
    carry: Any = None  # the recurrent state without a graph, tensors [layers, B, ...]; None: start from zeros
    outputs: Any = None  # what `Metrics.update` needs besides the loss: predictions, targets


class Metric(NamedTuple):
    """The number that decides which weights are best."""

    name: str = "loss"
    higher: bool = False  # whether a higher value is better

    def cost(self, figures: Mapping[str, float]) -> float:
        """Return the value with its sign such that lower is better."""
        return -figures[self.name] if self.higher else figures[self.name]

    def value(self, cost: float) -> float:
        """Return the value that has this cost."""
        return -cost if self.higher else cost


class Figure(NamedTuple):
    """A number of an evaluation as tables, plots and reports show it."""

    name: str  # its key in the result of an evaluation
    label: str
    about: str  # one sentence for someone who has not read the papers
    format: str = ".4g"
    higher: bool = False  # whether a higher value is better

    def show(self, value: float) -> str:
        return format(value, self.format)


class AttentionMap(NamedTuple):
    """The attention between the words of two texts, for a heat map."""

    title: str  # the answer of the model
    rows: Sequence[str]  # the words of one text
    columns: Sequence[str]  # the words of the other
    weights: Tensor  # [rows, columns], the mean over heads
    row_text: str  # what the rows are, such as "hypothesis"
    column_text: str


class Section(NamedTuple):
    """A table that an evaluation shows besides its figures, such as a confusion matrix."""

    title: str
    about: str  # a sentence or two for the reader
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Line(NamedTuple):
    """A line of a chart; it has a gap where y is NaN."""

    label: str
    x: Sequence[Any]  # numbers, or times as texts: "2024-01-31", "2024-01-31T13:45:00"
    y: Sequence[float]


class Band(NamedTuple):
    """The area between two values at each x, in the colour of a line of its chart."""

    label: str
    x: Sequence[Any]  # as those of the lines
    low: Sequence[float]
    high: Sequence[float]
    line: int  # the number of that line


class Chart(NamedTuple):
    """Lines and bands that show some answers of a model, such as a forecast and what followed.

    The first line is the truth, the second the model; further ones are compared with it.
    """

    title: str
    about: str  # a sentence or two for the reader
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    bands: tuple[Band, ...] = ()


class AnswerTable(NamedTuple):
    """Answers to a whole table, such as the next values of each series, in rows."""

    about: str  # a line for the user
    columns: Mapping[str, Sequence[Any]]  # texts, whole numbers or floats, by the name of the column
    parts: int = 1  # what the rows are of, such as series; all have as many rows
    charts: tuple[Chart, ...] = ()  # of the first parts
    all_charts: int = 0  # how many there would be of all parts


LOSS = Figure("loss", "loss", "The mean of what training minimises; lower is better.")


class Metrics:
    """The figures of an evaluation, from the results of its batches: here, the mean of the loss."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, result: StepResult) -> None:
        """Add a batch."""
        self.total += float(result.total)
        self.count += result.count

    def merge(self, other: Any) -> None:
        """Add the numbers and lists that another process collected from its share of the batches."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def compute(self) -> dict[str, float]:
        """Return the figures by name; the metric `selects` of the task is one of them."""
        return {"loss": self.total / max(self.count, 1)}
