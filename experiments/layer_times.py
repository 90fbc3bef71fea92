"""SRU's Figure 1: the time of a batch of 32 sequences in one layer, by length and width.

    python -m experiments.layer_times            measure, replace layer_times.csv and draw it
    python -m experiments.layer_times --draw     draw the recorded times again

nn.LSTM, convolutions over words of width 2 and 3 as in the authors' code (`conv2d` with a kernel of k words
and d maps, without padding) and SRU, called in turn. `python -m experiments.run --readme` writes their table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import linnet
from benchmarks.fresh import since
from benchmarks.records import COMMIT, INTEGER, NUMBER, TIME, WORDS, RecordFile
from benchmarks.rows import circumstances
from experiments.results import Result, text
from experiments.tables import HERE
from linnet.analysis.colours import look
from linnet.analysis.drawing import finish, house_style, label_bar, new_figure, save
from linnet.base.tables import markdown
from linnet.bench import layers
from linnet.bench.timing import Call, Say, clock_of, race
from linnet.cli.parser import Parser, path_name
from linnet.runs.records import write_atomically

TIMES = HERE / "layer_times.csv"
PICTURE = HERE / "pictures" / "sru_layer_times.png"
BATCH = 32
SIZES = ((32, 256), (128, 512))  # length, d
MODES = ("inference", "training")
RECORD = RecordFile(
    {
        **{"date": TIME, "commit": COMMIT, "cpu": WORDS, "torch": WORDS, "threads": INTEGER, "load": NUMBER},
        **{"layer": WORDS, "mode": "|".join(MODES), "length": INTEGER, "d": INTEGER, "rounds": INTEGER},
        **{"p20_ms": NUMBER, "p50_ms": NUMBER, "p80_ms": NUMBER},
    },
    key=("layer", "mode", "length", "d"),
)


class WordConvolution(nn.Module):
    """A convolution over `width` words: x [B, L, d] -> [B, d, L - width + 1, 1]."""

    def __init__(self, d: int, width: int):
        super().__init__()
        self.convolution = nn.Conv2d(1, d, (width, d))

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.convolution(x[:, None]),)


def contestants(length: int, d: int) -> dict[str, tuple[nn.Module, Tensor]]:
    """Return each layer with its input, which has the layout that the layer reads without copying."""
    steps, sequences = 0.1 * torch.randn(length, BATCH, d), 0.1 * torch.randn(BATCH, length, d)
    return {
        "nn.LSTM": (nn.LSTM(d, d), steps),
        "conv2d, k = 2": (WordConvolution(d, 2), sequences),
        "conv2d, k = 3": (WordConvolution(d, 3), sequences),
        "SRU": (linnet.SRU(d, d), steps.clone()),
    }


# ------------------------------------------------------------------------------------------- times


def measure(rounds: int, threads: int, say: Say) -> Iterator[Result]:
    shared = {**circumstances(threads), "load": os.getloadavg()[0], "rounds": rounds}
    for length, d in SIZES:
        for mode in MODES:
            say(f"{mode}, {length} words, d = {d}")
            where = {**shared, "mode": mode, "length": length, "d": d}
            for name, each in times_of(mode, length, d, rounds, threads, say).items():
                values = {**where, "layer": name, **each.columns()}
                yield {column: text(values[column]) for column in RECORD.columns}


def times_of(mode: str, length: int, d: int, rounds: int, threads: int, say: Say) -> dict[str, Any]:
    torch.manual_seed(0)
    call_of = {"inference": layers.inference, "training": layers.training}[mode]
    entrants = {name: partial(built, call_of, *pair) for name, pair in contestants(length, d).items()}
    return race(entrants, rounds, threads, 600.0, say, clock=clock_of(threads))


def built(call_of: Any, layer: nn.Module, x: Tensor) -> Call:
    return call_of(layer, x)


def read_times(path: Path = TIMES) -> list[Result]:
    return RECORD.read(path)


# --------------------------------------------------------------------------- the table, the picture


def table(lines: Sequence[Result]) -> str:
    """The times as a table of the README: a row for each layer, a column for each size and mode."""
    kinds = list(dict.fromkeys(kind_of(each) for each in lines))
    median = {(each["layer"], kind_of(each)): float(each["p50_ms"]) for each in lines}
    head = ["ms per batch (SRU = 1)", *(f"{mode}, {length} words, d = {d}" for mode, length, d in kinds)]
    body = [
        [
            name,
            *(f"{median[name, kind]:.3g} ({median[name, kind] / median['SRU', kind]:.1f})" for kind in kinds),
        ]
        for name in dict.fromkeys(each["layer"] for each in lines)
    ]
    return f"{markdown(head, body)}\n\n{conditions(lines[0])}"


def kind_of(line: Result) -> tuple[str, str, str]:
    return line["mode"], line["length"], line["d"]


def conditions(line: Result) -> str:
    threads = f"{line['threads']} thread{'s' * (line['threads'] != '1')}"
    when = f"{line['date'][:10]}, commit {line['commit']}, load {float(line['load']):.1f} at the start"
    return (
        f"Medians of {line['rounds']} rounds in turn, batch of {BATCH}, {threads} of {line['cpu']}, torch "
        f"{line['torch']}, {when}{since([line])}."
    )


COLOURS = {"nn.LSTM": "lstm", "conv2d, k = 2": "gru", "conv2d, k = 3": "gru", "SRU": "sru"}


def draw(lines: Sequence[Result], path: Path) -> None:
    kinds = list(dict.fromkeys(kind_of(each) for each in lines))
    with house_style():
        figure, panels = new_figure(len(MODES), height=2.0, width=4.8, rows=len(SIZES))
        for axes, (mode, length, d) in zip(panels, kinds, strict=True):
            bars(axes, [each for each in lines if kind_of(each) == (mode, length, d)])
            finish(axes, f"{mode}, {length} words, d = {d}", "ms per batch of 32", "")
            axes.grid(visible=False, axis="y")
    save(figure, path)


def bars(axes: Any, lines: Sequence[Result]) -> None:
    for y, each in enumerate(lines):
        axes.barh(y, float(each["p50_ms"]), color=look(COLOURS[each["layer"]]).color, height=0.6)
        label_bar(axes, float(each["p50_ms"]), y, f"{float(each['p50_ms']):.3g}")
    axes.set_yticks(range(len(lines)), [each["layer"] for each in lines])
    axes.invert_yaxis()
    axes.margins(x=0.15)


# ------------------------------------------------------------------------------------ command line


def parser() -> Parser:
    result = Parser(prog="python -m experiments.layer_times", description="The time of a batch in one layer.")
    add = result.add_argument
    add("--draw", action="store_true", help="draw the recorded times, and measure nothing")
    add("--rounds", type=int, default=40, help="calls of each layer (40)")
    add("--threads", type=int, default=1, help="threads; the times of one are the processor's (1)")
    add("--times", type=path_name, default=TIMES, metavar="CSV", help="the file of times (layer_times.csv)")
    add("--picture", type=path_name, default=PICTURE, metavar="PNG", help="the picture (sru_layer_times.png)")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    if not options.draw:
        lines = list(measure(options.rounds, options.threads, print))
        write_atomically(options.times, RECORD.content(lines))
    lines = read_times(options.times)
    draw(lines, options.picture)
    print(table(lines))


if __name__ == "__main__":
    main()
