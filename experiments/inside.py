"""What trained models remember: numbers and pictures of README.md.

    python -m experiments.inside arrows RUN [RUN2]     the lengths of RAN's arrows in Penn Treebank sentences
    python -m experiments.inside pace RUN [RUN2]       how far states move at each word, and how rare it is
    python -m experiments.inside memory RUN            what an NRU writes and erases while it copies

Each prints its numbers and writes a picture to experiments/pictures. The runs are those of the tables:
units_on_ptb and nru_copying.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import linnet
from linnet.analysis.colours import BLUE, FAINT, ORANGE
from linnet.analysis.drawing import finish, new_figure
from linnet.analysis.inside import memory_changes
from linnet.analysis.pace import moves, rank_correlation
from linnet.analysis.sums import arrow_lengths, arrows, sum_weights

PICTURES = Path(__file__).resolve().parent / "pictures"
SENTENCES = 400
LONGEST_SHOWN = 12
LOOKS = ((BLUE.light, "-"), (ORANGE.light, "--"))


def sentences(run: Any) -> Iterator[Tensor]:
    """Yield the first sentences of the test text as tokens [T], each with the end of line before it."""
    tokens, end = run.task.corpus.test, run.vocabulary.index["<eos>"]
    ends = (tokens == end).nonzero().flatten().tolist()
    for start, stop in pairwise(ends[: SENTENCES + 1]):
        yield tokens[start:stop]


@torch.no_grad()
def recorded(run: Any, layer: int) -> Iterator[tuple[Tensor, Any]]:
    for tokens in sentences(run):
        yield tokens, linnet.record(run.model, tokens[:, None])[layer]


# ----------------------------------------------------------------------------------------- arrows


def draw_arrows(runs: Sequence[Any]) -> Path:
    """The lengths of the arrows of the first layer."""
    figure, (axes,) = new_figure(1, height=3.2)
    for number, run in enumerate(runs):
        lengths: Counter[int] = Counter()
        for _, values in recorded(run, 0):
            # The arrow of the first word points to the end of the line before it.
            lengths.update(arrow_lengths(arrows(sum_weights(values).weights)))
        total = lengths.total()
        report_lengths(run, lengths)
        shares = [lengths[length] / total for length in range(1, LONGEST_SHOWN + 1)]
        places = [length + 0.4 * number - 0.2 * (len(runs) - 1) for length in range(1, LONGEST_SHOWN + 1)]
        axes.bar(places, shares, 0.8 / len(runs), color=LOOKS[number][0], label=run.folder.name)
    finish(axes, "", "words between a word and its heaviest predecessor", "share of arrows")
    axes.legend(frameon=False)
    return saved(figure, "ran_arrows.png")


def report_lengths(run: Any, lengths: Counter[int]) -> None:
    total = lengths.total()
    mean = sum(length * count for length, count in lengths.items()) / total
    shares = {name: sum(lengths[n] for n in span) / total for name, span in SPANS.items()}
    print(f"{run.folder.name}: {total} arrows, mean length {mean:.2f},", shares)


SPANS = {"1": range(1, 2), "2 to 4": range(2, 5), "5 or more": range(5, 200)}


# ------------------------------------------------------------------------------------------- pace


def draw_pace(runs: Sequence[Any]) -> Path:
    """Moves of the states of the last layer against the rarity of words, and their rank correlation."""
    figure, all_axes = new_figure(2, rows=len(runs), height=3.2, width=4.5)
    panels = iter(all_axes)
    for run in runs:
        counts = torch.bincount(run.task.corpus.train, minlength=len(run.vocabulary)).clamp(min=1)
        rarity = -(counts / counts.sum()).log()
        tokens, moved = all_moves(run)
        for state, values in moved.items():
            correlation = rank_correlation(values, rarity[tokens])
            ratio = word_mean(run, tokens, values, "government") / word_mean(run, tokens, values, "the")
            print(
                f"{run.folder.name} {state}: rank correlation {correlation:.3f}, government / the {ratio:.2f}"
            )
            if " " not in state:
                axes = next(panels)
                axes.scatter(rarity[tokens], values, s=3, alpha=0.25, color=FAINT.light)
                finish(axes, f"{run.folder.name}, {state}: {correlation:.2f}", "-log frequency", "mean move")
    return saved(figure, "scrn_pace.png")


def all_moves(run: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Return all tokens of the sentences, and how far each state moved at each of them."""
    read, moved = [], []
    for tokens, values in recorded(run, -1):
        # The end of the line is read from a state of zeros.
        read.append(tokens[1:])
        moved.append({state: move[1:, 0] for state, move in moves(values).items()})
    return torch.cat(read), {state: torch.cat([each[state] for each in moved]) for state in moved[0]}


def word_mean(run: Any, tokens: Tensor, values: Tensor, word: str) -> float:
    return float(values[tokens == run.vocabulary.index[word]].mean())


# ----------------------------------------------------------------------------------------- memory


def draw_memory(runs: Sequence[Any]) -> Path:
    """The size of the change of each memory cell at each step of one sequence."""
    run = runs[0]
    changed = memory_changes(run.task, run.model)
    sizes, answers = changed.sizes, changed.answers[0]
    phases = {"symbols": sizes[:10], "wait": sizes[10:answers], "answers": sizes[answers:]}
    for phase, part in phases.items():
        print(f"{run.folder.name} {phase}: mean change of a cell {part.mean():.3f}")
    figure, (axes,) = new_figure(1, height=3.6)
    axes.imshow(sizes.sqrt(), aspect="auto", cmap="Blues", interpolation="nearest")
    axes.axhline(answers - 0.5, color=ORANGE.light, linestyle="--", linewidth=1)
    finish(axes, "", "memory cell", "time step")
    axes.grid(False)
    return saved(figure, "nru_memory.png")


def saved(figure: Any, name: str) -> Path:
    figure.savefig(PICTURES / name, dpi=120, bbox_inches="tight")
    return PICTURES / name


DRAWN = {"arrows": draw_arrows, "pace": draw_pace, "memory": draw_memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=list(DRAWN))
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN")
    options = parser.parse_args()
    print(DRAWN[options.what]([linnet.load(folder) for folder in options.folders]))


if __name__ == "__main__":
    main()
