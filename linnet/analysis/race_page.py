"""The table and the page of a race: models of one width, each trained for the same number of seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from linnet.analysis.colours import look
from linnet.analysis.drawing import finish, house_style, inline, new_figure, shared_legend
from linnet.analysis.report import LENS, cells, definitions, escape, head, lens_link
from linnet.analysis.table import DASH
from linnet.base import tables
from linnet.runs.records import write_atomically
from linnet.train.race import TORCH, Point, Spread

RATIO = f"speed, {TORCH} = 1"


class Entrant(NamedTuple):
    """A model of a race; None is what is not known yet."""

    name: str  # nn.LSTM, or the name of a unit
    label: str
    parameters: int
    curve: Sequence[Point]
    ratio: Spread  # of the training speed to that of nn.LSTM
    speed: float  # characters per second in training
    bits: float | None = None  # of the test text
    step: float | None = None  # microseconds of a streamed step
    int8: int | None = None  # bytes
    sample: str = ""


class Column(NamedTuple):
    label: str
    about: str
    value: Callable[[Entrant], float | None]
    show: Callable[[Any], str]
    higher: bool = False


def last_bits(each: Entrant) -> float | None:
    return each.bits if each.bits is not None else each.curve[-1].bits if each.curve else None


COLUMNS = (
    Column(
        "bits per character",
        "How many bits the model needs for each character of a text that it has not seen, after the same "
        "seconds of training; lower is better.",
        last_bits,
        "{:.3f}".format,
    ),
    Column("parameters", "The number of trained weights.", lambda each: each.parameters, "{:,}".format),
    Column(
        "characters/s",
        "Characters of training per second. A busy machine makes this column smaller.",
        lambda each: each.speed,
        "{:,.0f}".format,
        True,
    ),
    Column(
        RATIO,
        f"The training speed relative to {TORCH}: all models train in turn for a second each, and the ratio "
        "is that of the same round, so a busy machine changes it little. Median of all rounds, and the range "
        "of the middle half of them; higher is better.",
        lambda each: each.ratio.median,
        "{:.2f}".format,
        True,
    ),
    Column(
        "µs of a step",
        "One character for one reader, all layers: a linnet.stream, and for nn.LSTM a call with its state. "
        "Median of interleaved rounds; lower is better.",
        lambda each: each.step,
        "{:.1f}".format,
    ),
    Column(
        "kB in int8",
        "The size of the weights of the whole model after linnet.quantize; nn.LSTM has the weights of "
        "linnet.LSTM.",
        lambda each: None if each.int8 is None else each.int8 / 1000,
        "{:,.0f}".format,
    ),
)


def rows(entrants: Sequence[Entrant]) -> list[list[str]]:
    """Return the head, a row for each model, and a row with the best of each column."""
    body = [[each.label, *(cell(column, each) for column in COLUMNS)] for each in entrants]
    best = ["best", *(winner(column, entrants) for column in COLUMNS)]
    return [["model", *(column.label for column in COLUMNS)], *body, best]


def cell(column: Column, each: Entrant) -> str:
    value = column.value(each)
    if value is None:
        return DASH
    if column.label == RATIO and each.name != TORCH:
        return f"{each.ratio.median:.2f} ({each.ratio.low:.2f} to {each.ratio.high:.2f})"
    return column.show(value)


def winner(column: Column, entrants: Sequence[Entrant]) -> str:
    """Return the models with the best value; values that look the same are equally good."""
    known = {each.label: value for each in entrants if (value := column.value(each)) is not None}
    if not known:
        return DASH
    best = column.show((max if column.higher else min)(known.values()))
    return ", ".join(label for label, value in known.items() if column.show(value) == best)


def text_table(entrants: Sequence[Entrant]) -> str:
    return tables.text_table(rows(entrants), left=(0,))


def verdict(entrants: Sequence[Entrant]) -> str:
    """Say in which columns nn.LSTM is best, and from when on each model needs fewer bits than it does."""
    baseline, *others = entrants
    won = [column.label for column in COLUMNS if baseline.label in winner(column, entrants).split(", ")]
    since: dict[str, list[str]] = {}
    for each in others:
        since.setdefault(overtakes(baseline, each), []).append(each.label)
    told = [f"{when}: {', '.join(who)}." for when, who in since.items()]
    first = f"{TORCH} is best in: {'; '.join(won)}." if won else f"{TORCH} is best in no column."
    return " ".join([first, *told])


def overtakes(baseline: Entrant, other: Entrant) -> str:
    """Say from when on a model needs fewer bits than nn.LSTM, by the validations of both."""
    pairs = list(zip(baseline.curve, other.curve, strict=True))
    behind = [own.seconds for theirs, own in pairs if own.bits >= theirs.bits]
    if not behind:
        return f"Fewer bits than {TORCH} from the first validation on"
    if behind[-1] == pairs[-1][1].seconds:
        return f"More bits than {TORCH} at the end"
    return f"Fewer bits than {TORCH} after {behind[-1]:.0f} seconds"


# ------------------------------------------------------------------------------------- the page


class Speech(NamedTuple):
    """The best light model in C: what was typed, and what it printed."""

    label: str
    commands: str
    text: str
    about: str


INTRODUCTION = (
    "Each model reads the King James Bible and learns to predict the next character. All have the same "
    "width, the same number of layers and the same settings, and each is trained for the same number of "
    "seconds, in turn with the others. Another width, text or machine gives other numbers."
)


def write_page(
    path: Path,
    title: str,
    entrants: Sequence[Entrant],
    notes: str,
    speech: Speech | None = None,
    done: bool = False,
) -> None:
    lens = LENS if done and (path.parent / LENS).exists() else None
    body = [
        f"<h1>{escape(title)}</h1>",
        "" if done else "<p><strong>The models are in training.</strong> This page updates by itself.</p>",
        f"<p>{escape(INTRODUCTION)}</p>",
        lens_link(lens),
        table(entrants),
        f"<p>{escape(verdict(entrants))}</p>" if done else "",
        figure(entrants),
        spoken(speech),
        samples(entrants),
        "<h2>What the columns are</h2>" + definitions({each.label: each.about for each in COLUMNS}),
        f'<p class="note">{escape(notes)}</p>',
    ]
    text = f'<!doctype html>\n<html lang="en"><head>{head(title, not done)}</head><body>\n'
    write_atomically(path, (text + "\n".join(filter(None, body)) + "\n</body></html>\n").encode())


def table(entrants: Sequence[Entrant]) -> str:
    first, *others = rows(entrants)
    labels = [f' data-label="{escape(label)}"' for label in first]
    body = "".join(f"<tr>{cells(row, 'td', labels)}</tr>" for row in others)
    return f"<table class=wide><thead><tr>{cells(first, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def figure(entrants: Sequence[Entrant]) -> str:
    """Return the curves: bits per character against seconds of training."""
    if not any(each.curve for each in entrants):
        return ""
    caption = f"Bits per character of the validation text by seconds of training; {TORCH} is grey."
    drawn = inline(draw_curves(entrants), "race", escape(caption))
    return f'<figure class="single">{drawn}<figcaption>{escape(caption)}</figcaption></figure>'


def draw_curves(entrants: Sequence[Entrant]) -> Any:
    with house_style():
        drawn, (axes,) = new_figure(1)
        for each in entrants:
            seconds, bits = zip(*each.curve, strict=True) if each.curve else ((), ())
            style = look(each.name)._asdict()
            axes.plot(seconds, bits, label=each.label, marker="o", markersize=3, **style)
        finish(axes, "", "seconds of training", "bits per character")
        axes.set_xlim(left=0)
        shared_legend(drawn)
    return drawn


def spoken(speech: Speech | None) -> str:
    if speech is None:
        return ""
    said = f"<blockquote>{escape(speech.text)}</blockquote>" if speech.text else ""
    return (
        f"<h2>{escape(speech.label)} without Python</h2><p>{escape(speech.about)}</p>"
        f"<pre>{escape(speech.commands)}</pre>{said}"
    )


def samples(entrants: Sequence[Entrant]) -> str:
    texts = [
        f"<h3>{escape(each.label)}</h3><blockquote>{escape(each.sample.strip())}</blockquote>"
        for each in entrants
        if each.sample
    ]
    about = "<p>What each model writes. All continue the same text, with the same random numbers.</p>"
    return "\n".join(["<h2>Samples</h2>", about, *texts]) if texts else ""
