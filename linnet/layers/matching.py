"""Recurrences that take two cells a step, a lower and a higher one; the state goes from one to the other.

    u_t = lower(x_t, s_{t-1})        s_t = higher(c_t, u_t)

c_t is a second sequence (`PairRecurrence`), or what attention reads from a memory with u_t as the query
(`MatchingRecurrence`, word-by-word attention as in Zhang and Sennrich 2019, after Rocktäschel et al. 2016).

Both cells are of one unit and one size. As many of the projections as possible are computed for all steps at
once; what is left runs step by step, by the same functions in training and in decoding.

The state of a pair is one vector, [B, state_size]: the states of the unit side by side. For a unit whose
output is not a state (SRU), the output comes first, as in the LRN authors' code: [h; c].
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from linnet.layers.attention import AdditiveAttention, Memory, clear_padding
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.run.stepwise import Projected, Stepwise


def state_size(cell: Cell) -> int:
    """The size of the state of a cell as one vector."""
    return sum(cell.states.values()) + (0 if "h" in cell.states else cell.output_size)


def join_state(cell: Cell, y: Tensor, state: Named) -> Tensor:
    """One vector from the output and the states of a cell."""
    parts = list(state.values()) if "h" in cell.states else [y, *state.values()]
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def split_state(cell: Cell, vector: Tensor) -> Named:
    """The states in a vector that `join_state` made, without the output, which no cell reads."""
    sizes = list(cell.states.values())
    first = vector.shape[-1] - sum(sizes)
    return dict(zip(cell.states, vector[..., first:].split(sizes, -1), strict=True))


def choose_state(real: Tensor, new: Named, old: Named) -> Named:
    """The new state where a step is real, [B]; the old one elsewhere."""
    return {name: torch.where(real[:, None], new[name], old[name]) for name in old}


class TwoCells(nn.Module):
    """What both recurrences share: a lower and a higher cell."""

    def __init__(self, lower: Cell, higher: Cell):
        super().__init__()
        check_pair(lower, higher)
        self.lower, self.higher = lower, higher
        self.hidden_size, self.state_size = lower.hidden_size, state_size(lower)

    def stepwise(self, like: Tensor) -> tuple[Stepwise, Stepwise]:
        return Stepwise(self.lower, like), Stepwise(self.higher, like)


class PairRecurrence(TwoCells):
    """lower reads x [T, B, F], higher reads a second sequence [T, B, G] of the same length."""

    def forward(
        self,
        x: Tensor,
        second: Tensor,
        state: Tensor | None = None,
        mask: Tensor | None = None,
        reverse: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """The output [T, B, hidden_size], 0 at padded steps, and the final state.

        mask      [T, B]: True at real steps
        reverse   run from the last step to the first
        """
        named, (lower, higher) = start_state(self.lower, state, x), self.stepwise(x)
        below = lower.project(clear_padding(x, mask)).by_step()
        above = higher.project(clear_padding(second, mask)).by_step()
        outputs = []
        for t in reversed(range(len(x))) if reverse else range(len(x)):
            _, between = lower.advance(below[t], named)
            y, new = higher.advance(above[t], between)
            named = new if mask is None else choose_state(mask[t], new, named)
            outputs.append(y)
        output = torch.stack(outputs[::-1] if reverse else outputs)
        return finish(self.lower, output, named, mask, reverse)

    def step(self, x: Tensor, second: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, F], second [B, G] -> output [B, hidden_size] and the new state."""
        lower, higher = self.stepwise(x)
        _, between = lower.advance(lower.project(x), split_state(self.lower, state))
        y, new = higher.advance(higher.project(second), between)
        return y, join_state(self.lower, y, new)


class Matched(NamedTuple):
    """The result of a run over whole sequences, or of one step without the time dimension."""

    output: Tensor  # [T, B, hidden_size], 0 at padded steps
    state: Tensor  # [B, state_size], after the last real step
    context: Tensor  # [T, B, memory_size]
    weights: Tensor  # [B, heads, T, steps of the memory]


class MatchingRecurrence(TwoCells):
    """Word-by-word attention: lower reads x_t, its output asks the memory, higher reads the answer."""

    def __init__(self, lower: Cell, higher: Cell, attention: AdditiveAttention):
        super().__init__(lower, higher)
        if attention.output_size != higher.input_size:
            raise ValueError(
                f"the higher cell reads what attention returns: it must have input_size="
                f"{attention.output_size}; got {higher.input_size}"
            )
        self.attention = attention

    def forward(
        self, x: Tensor, memory: Memory, state: Tensor | None = None, mask: Tensor | None = None
    ) -> Matched:
        """x [T, B, F]; memory as `attention.remember` returns it; mask [T, B]: True at real steps."""
        named, memory = start_state(self.lower, state, x), self.attention.prepare(memory, len(x))
        cells = self.stepwise(x)
        outputs, contexts, weights = [], [], []
        for t, below in enumerate(cells[0].project(clear_padding(x, mask)).by_step()):
            y, new, context, weight = self.advance(cells, below, named, memory)
            named = new if mask is None else choose_state(mask[t], new, named)
            outputs.append(y)
            contexts.append(context)
            weights.append(weight)
        output, final = finish(self.lower, torch.stack(outputs), named, mask)
        return Matched(output, final, torch.stack(contexts), torch.stack(weights, 2))

    def advance(
        self, cells: tuple[Stepwise, Stepwise], below: Projected, state: Named, memory: Memory
    ) -> tuple[Tensor, Named, Tensor, Tensor]:
        """One step from the projected input: output, new state, context and weights."""
        lower, higher = cells
        query, between = lower.advance(below, state)
        context, weights = self.attention(query, memory)
        y, new = higher.advance(higher.project(context), between)
        return y, new, context, weights

    def step(self, x: Tensor, memory: Memory, state: Tensor) -> Matched:
        """x [B, F] -> output [B, hidden_size], state, context [B, memory_size], weights [B, heads, T]."""
        named, cells = split_state(self.lower, state), self.stepwise(x)
        y, new, context, weights = self.advance(cells, cells[0].project(x), named, memory)
        return Matched(y, join_state(self.lower, y, new), context, weights)


def check_pair(lower: Cell, higher: Cell) -> None:
    if type(lower) is not type(higher) or lower.states != higher.states:
        raise ValueError(
            "the state goes from the lower cell to the higher one: both must be of one unit and one size; "
            f"got {lower.unit_name} with {lower.states} and {higher.unit_name} with {higher.states}"
        )


def start_state(cell: Cell, state: Tensor | None, x: Tensor) -> Named:
    if state is None:
        return cell.initial_state((x.shape[1],), x)
    expected = (x.shape[1], state_size(cell))
    if tuple(state.shape) != expected:
        raise ValueError(f"the state of this recurrence must have shape {expected}; got {tuple(state.shape)}")
    return split_state(cell, state)


def finish(
    cell: Cell, output: Tensor, state: Named, mask: Tensor | None, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """Clear the output at padded steps; the final state has the last output that is real."""
    if mask is None:
        last = output[0 if reverse else -1]
    else:
        output = output.masked_fill(~mask[..., None], 0)
        # Padding comes after the sequence, so the first step is always real.
        ends = torch.zeros_like(mask[0], dtype=torch.long) if reverse else mask.sum(0) - 1
        last = output[ends, torch.arange(output.shape[1], device=output.device)]
    return output, join_state(cell, last, state)
