"""One layer in one direction: a cell taken along time, with what happens to its state on the way."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from linnet.units.cell import Cell, Parts
from linnet.units.noise import keep_mask
from linnet.units.options import check_rate, choose


class Direction(nn.Module):
    """x [T, B, input_size], state -> y [T, B, output_size], state.

    state_dropout    one mask over time on the state as the recurrent matrices read it
    zoneout          the probability that a channel of a state keeps its value for a step
    weight_drop      the probability that a weight is dropped, one mask for the whole sequence
    weight_drop_on   "recurrent" matrices (the only matrix, where a unit has no recurrent one) or "all"
    proj_size        the output is projected to so many dimensions (0: not at all)
    """

    def __init__(
        self,
        cell: Cell,
        *,
        reverse: bool = False,
        state_dropout: float = 0.0,
        zoneout: float = 0.0,
        weight_drop: float = 0.0,
        weight_drop_on: str = "recurrent",
        proj_size: int = 0,
        bias: bool = True,
    ):
        super().__init__()
        check_rate("state_dropout", state_dropout)
        check_rate("zoneout", zoneout)
        check_rate("weight_drop", weight_drop)
        choose("weight_drop_on", weight_drop_on, ("recurrent", "all"))
        if state_dropout and type(cell).recur is Cell.recur:
            raise ValueError(
                f"state_dropout drops the state where a recurrent matrix reads it, and {cell.unit_name} "
                f"has no recurrent matrix; use variational=True, input_dropout or zoneout"
            )
        self.cell, self.reverse = cell, reverse
        self.state_dropout, self.zoneout = state_dropout, zoneout
        self.weight_drop, self.weight_drop_on = weight_drop, weight_drop_on
        example = cell.example
        self.projection = (
            nn.Linear(cell.output_size, proj_size, bias, device=example.device, dtype=example.dtype)
            if proj_size
            else None
        )
        self.output_size = proj_size or cell.output_size

    def reset_parameters(self) -> None:
        self.cell.reset_parameters()
        if self.projection is not None:
            self.projection.reset_parameters()

    def run(
        self, x: Tensor, state: Parts, mask: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Parts]:
        """`forward` with the weights of this pass: dropped while training, if they are to be."""
        if not (self.training and self.weight_drop):
            return self(x, state, mask, resets)
        weights = {
            name: F.dropout(self.get_parameter(name), self.weight_drop) for name in self.droppable_weights()
        }
        return functional_call(self, weights, (x, state, mask, resets))

    def droppable_weights(self) -> list[str]:
        matrices = [f"cell.{name}" for name, weight in self.cell.named_parameters() if weight.dim() > 1]
        recurrent = [name for name in matrices if not name.startswith("cell.input.")]
        return recurrent if recurrent and self.weight_drop_on == "recurrent" else matrices

    def forward(
        self, x: Tensor, state: Parts, mask: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Parts]:
        """mask [T, B]: True where x is real. resets [T, B]: True where a sequence starts anew."""
        start = self.cell.initial_state(x.shape[1:2], x)
        drops = self.state_masks(state)
        parts = {name: part.unbind(0) for name, part in self.cell.project(x).items()}
        steps = range(len(x))
        outputs: list[Tensor] = [x] * len(x)
        if resets is not None and self.reverse:
            # A sequence that starts at t ends at t when time runs backwards: clear before t - 1.
            resets = torch.cat([resets[1:], torch.zeros_like(resets[:1])])
        for t in reversed(steps) if self.reverse else steps:
            if resets is not None:
                state = choose_state(resets[t], start, state)
            y, new = self.step({name: part[t] for name, part in parts.items()}, state, drops)
            state = new if mask is None else choose_state(mask[t], new, state)
            outputs[t] = y
        y = torch.stack(outputs)
        y = y if self.projection is None else self.projection(y)
        return (y if mask is None else y * mask[..., None]), state

    def step(self, parts: Parts, state: Parts, drops: Parts) -> tuple[Tensor, Parts]:
        """One time step: the cell's, and then zoneout."""
        seen = {name: state[name] * drops[name] for name in drops} if drops else None
        y, new = self.cell.advance(parts, state, seen)
        if not self.zoneout:
            return y, new
        new = {name: self.zone(new[name], state[name]) for name in state}
        return self.cell.output(y, new), new

    def zone(self, new: Tensor, old: Tensor) -> Tensor:
        """Krueger et al. (2017): some channels stay as they were; outside training, the mean of both."""
        if not self.training:
            return self.zoneout * old + (1 - self.zoneout) * new
        stay = torch.empty_like(new).bernoulli_(self.zoneout)
        return stay * old + (1 - stay) * new

    def state_masks(self, state: Parts) -> Parts:
        if not (self.training and self.state_dropout):
            return {}
        return {name: keep_mask(s.shape, self.state_dropout, like=s) for name, s in state.items()}


def choose_state(where: Tensor, yes: Parts, no: Parts) -> Parts:
    """For each sequence of the batch one state or the other."""
    return {name: torch.where(where[:, None], yes[name], no[name]) for name in no}


def layer_dropout(x: Tensor, rate: float, variational: bool) -> Tensor:
    """Dropout on [T, B, D]: a fresh mask at each step, or one for all steps."""
    if not variational:
        return F.dropout(x, rate)
    return x * keep_mask((1, *x.shape[1:]), rate, like=x)


def concatenate(outputs: Sequence[Tensor]) -> Tensor:
    return outputs[0] if len(outputs) == 1 else torch.cat(list(outputs), -1)
