"""Windows of a text, which is arranged in `batch` columns that are read in parallel.

Each column continues in the next window where the last window ended, so a recurrent state can be carried
from window to window. Three ways to handle the tokens that do not fill a window:

    keep   every token but the first is a target, exactly once; the columns overlap by one token, and the
           end of the last column is padded (input 0, target IGNORE)
    trim   columns of n // batch tokens, without the rest; the last window may be short (LRN, MoS)
    drop   the same, without a short last window (RAN, SCRN)

The figures of these ways cannot be compared: with `trim` and `drop` the first token of each column is not
predicted, and up to batch * (length + 1) tokens are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from linnet.data.errors import DataError, unknown

if TYPE_CHECKING:
    from typing_extensions import Self

IGNORE = -100
TAILS = ("keep", "trim", "drop")


@dataclass(frozen=True, eq=False)
class TimeBatch:
    """A batch of sequences: a dataclass of tensors [T, B, ...]; a tensor of one dimension is [B]."""

    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def __len__(self) -> int:
        """Return B."""
        one = next(iter(self.tensors().values()))
        return one.shape[min(1, one.dim() - 1)]

    def columns(self, rank: int, world: int) -> Self:
        """Return the sequences of process `rank` of `world`; shares differ by at most one sequence."""
        if not 0 <= rank < world:
            raise DataError(f"rank must be from 0 to {world - 1}; got {rank}")
        if len(self) < world:
            raise DataError(
                f"a batch of {len(self)} cannot be shared by {world} processes; use a larger batch"
            )
        start, stop = (len(self) * each // world for each in (rank, rank + 1))
        mine = {
            name: tensor.narrow(min(1, tensor.dim() - 1), start, stop - start).contiguous()
            for name, tensor in self.tensors().items()
        }
        return replace(self, **mine)

    def to(self, device: Any) -> Self:
        """Return the batch on `device`; nothing is copied if it is there already."""
        if all(tensor.device == torch.device(device) for tensor in self.tensors().values()):
            return self
        return replace(self, **{name: tensor.to(device) for name, tensor in self.tensors().items()})


@dataclass(frozen=True, eq=False)
class Window(TimeBatch):
    """Some steps of all columns."""

    inputs: Tensor  # int64 [T, B]
    targets: Tensor  # int64 [T, B]: the tokens that follow; IGNORE where there is none
    start: int  # the first time step
    index: int  # the number of the window in its epoch


@dataclass(frozen=True, eq=False)
class Layout:
    """The positions of the columns in the text."""

    tokens: Tensor
    batch: int
    stride: int  # from the start of a column to the start of the next
    steps: int  # predictions in a column

    def rows(self, start: int, stop: int) -> Tensor:
        """Return rows start to stop of all columns; IGNORE after the end of the text."""
        count = len(self.tokens)
        place = torch.arange(start, stop)[:, None] + self.stride * torch.arange(self.batch)
        rows = self.tokens[place.clamp(max=count - 1)].long()
        return rows if int(place[-1, -1]) < count else rows.masked_fill(place >= count, IGNORE)

    def window(self, start: int, stop: int, index: int) -> Window:
        rows = self.rows(start, stop + 1)
        return Window(rows[:-1].clamp(min=0), rows[1:], start, index)


def lay_out(tokens: Tensor, batch: int, tail: str, length: int = 1) -> Layout:
    """Return the columns for windows of at most `length` steps."""
    check_request(tokens, batch, tail, length)
    count = len(tokens)
    if tail == "keep":
        need(batch + 1, count, batch, length, tail)
        steps = -(-(count - 1) // batch)
        return Layout(tokens, batch, steps, steps)
    need(batch * ((length if tail == "drop" else 1) + 1), count, batch, length, tail)
    steps = count // batch - 1
    return Layout(tokens, batch, count // batch, steps // length * length if tail == "drop" else steps)


def check_request(tokens: Tensor, batch: int, tail: str, length: int) -> None:
    if tail not in TAILS:
        raise unknown("tail", tail, TAILS)
    if tokens.dim() != 1 or tokens.is_floating_point():
        raise DataError(
            f"tokens must be a tensor [n] of integers; got shape {tuple(tokens.shape)} of {tokens.dtype}"
        )
    for name, value in (("batch", batch), ("length", length)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise DataError(f"{name} must be an integer of at least 1; got {value!r}")


def need(least: int, count: int, batch: int, length: int, tail: str) -> None:
    if count < least:
        steps = f" of windows of {length} steps" if tail == "drop" else ""
        raise DataError(
            f"a batch of {batch}{steps} with tail={tail!r} needs at least {least:,} tokens; the text has "
            f"{count:,}. Use a smaller batch or a longer text"
        )


def streams(tokens: Tensor, batch: int, tail: str = "keep") -> Tensor:
    """Return complete columns [steps + 1, batch]; rows [:-1] are the inputs, rows [1:] the targets."""
    layout = lay_out(tokens, batch, tail)
    return layout.rows(0, layout.steps + 1)


def windows(
    tokens: Tensor, batch: int, length: int, *, tail: str = "keep", first: int = 0
) -> Iterator[Window]:
    """Yield windows of `length` steps, from number `first` on."""
    layout = lay_out(tokens, batch, tail, length)
    return cut(layout, equal_lengths(layout.steps, length), first)


def window_count(tokens: Tensor, batch: int, length: int, *, tail: str = "keep") -> int:
    """Return the number of windows that `windows` yields."""
    return -(-lay_out(tokens, batch, tail, length).steps // length)


def equal_lengths(steps: int, length: int) -> list[int]:
    return [min(length, steps - start) for start in range(0, steps, length)]


def cut(layout: Layout, lengths: Sequence[int], first: int) -> Iterator[Window]:
    if not 0 <= first <= len(lengths):
        raise DataError(f"an epoch has {len(lengths)} windows; it cannot start at window {first}")
    stops = list(accumulate(lengths))
    return (
        layout.window(stop - steps, stop, index)
        for index, (steps, stop) in enumerate(zip(lengths[first:], stops[first:], strict=True), first)
    )


# ---------------------------------------------------------------------------------- varied lengths


def epoch_generator(seed: int, epoch: int) -> torch.Generator:
    """Return a random generator for one epoch, which depends on seed and epoch only."""
    state = np.random.SeedSequence([seed, epoch]).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 31 ^ int(state[1]))


def varied_lengths(
    steps: int,
    length: int,
    generator: torch.Generator,
    *,
    half: float = 0.05,
    spread: float = 5.0,
    least: int = 5,
    delta: int = 40,
) -> list[int]:
    """Draw lengths that sum to `steps`, from N(length, spread); with probability `half` the mean is halved.

    spread  the standard deviation
    least   the shortest length; the last window may be shorter, because it ends with the text
    delta   the longest is `length + delta` (max_seq_len_delta of AWD-LSTM)
    """
    lengths: list[int] = []
    left = steps
    while left:
        halved = torch.rand((), generator=generator).item() < half
        drawn = torch.randn((), generator=generator).item() * spread + (length / 2 if halved else length)
        lengths.append(min(max(least, int(drawn)), length + delta, left))
        left -= lengths[-1]
    return lengths


def varied_windows(
    tokens: Tensor,
    batch: int,
    length: int,
    *,
    generator: torch.Generator,
    tail: str = "trim",
    first: int = 0,
    half: float = 0.05,
    spread: float = 5.0,
    least: int = 5,
    delta: int = 40,
) -> Iterator[Window]:
    """The windows of varied length of AWD-LSTM (Merity et al. 2018), which LRN's language models use.

    All lengths are drawn before the first window, so that `epoch_generator(seed, epoch)` repeats the epoch
    and `first` starts within it. The caller scales the learning rate by the length.
    Differs from the authors' code: a last window of a single step is kept.
    """
    if tail == "drop":
        raise DataError("tail='drop' is not possible with windows of varied length; use 'keep' or 'trim'")
    layout = lay_out(tokens, batch, tail)
    check_request(tokens, batch, tail, length)
    drawn = varied_lengths(
        layout.steps, length, generator, half=half, spread=spread, least=least, delta=delta
    )
    return cut(layout, drawn, first)
