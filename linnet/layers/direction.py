"""One layer in one direction: a cell taken along time, with what happens to its state on the way."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.func import functional_call

from linnet.base.options import check_rate, choose
from linnet.fuse import reference
from linnet.fuse.backend import DTYPES, is_watched, may_fuse, runs_by_triton
from linnet.fuse.fused import (
    Kernels,
    Way,
    fit_together,
    hook_obstacle,
    own_kernel,
    run_by_kernel,
    run_pair,
    with_weights,
)
from linnet.fuse.hooks import has_hooks
from linnet.fuse.plan import Plan
from linnet.fuse.unit import CannotFuse, Named
from linnet.layers.cell import Cell, check_devices
from linnet.layers.dropout import Dropout
from linnet.layers.masks import keep_mask
from linnet.layers.projection import Projection


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
        if state_dropout and cell.is_elementwise:
            raise ValueError(
                f"state_dropout drops the state where a recurrent matrix reads it, and {cell.unit_name} "
                f"has no recurrent matrix; use variational=True, input_dropout or zoneout"
            )
        self.cell, self.reverse = cell, reverse
        self.kernels = Kernels()
        self.state_dropout, self.zoneout = state_dropout, zoneout
        self.weight_drop, self.weight_drop_on = weight_drop, weight_drop_on
        self.carried: Dropout | None = None
        example = cell.example
        self.projection = (
            nn.Linear(cell.output_size, proj_size, bias, device=example.device, dtype=example.dtype)
            if proj_size
            else None
        )
        self.output_size = proj_size or cell.output_size
        self.prepare()

    def drop_carried(self, dropout: Dropout) -> None:
        """From now on the new h is dropped itself: what is carried on and given out is the dropped h.

        The mask is one for all steps. Other than with state_dropout, the state that a window starts
        from is read as it is: it was dropped by the mask of the window before.
        """
        if "h" not in self.cell.states or self.cell.is_elementwise:
            raise ValueError(
                f"only a state h that a recurrent matrix reads can be dropped as it is carried; "
                f"{self.cell.unit_name} has the states {', '.join(self.cell.states)}"
                f"{' and no recurrent matrix' if self.cell.is_elementwise else ''}"
            )
        mode, self.carried = self.training, dropout
        self.prepare()
        self.train(mode)

    def reset_parameters(self) -> None:
        self.cell.reset_parameters()
        if self.projection is not None:
            self.projection.reset_parameters()

    def run(
        self, x: Tensor, state: Named, mask: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Named]:
        """`forward` with the weights of this pass: dropped while training, if they are to be."""
        if not (self.training and self.weight_drop):
            return self(x, state, mask, resets)
        weights = {
            name: F.dropout(self.get_parameter(name), self.weight_drop) for name in self.droppable_weights()
        }
        if is_compiling():
            return functional_call(self, weights, (x, state, mask, resets))
        # A module of its own for this pass: whoever looks at this one meanwhile finds its true weights.
        return with_weights(self, weights)(x, state, mask, resets)

    def droppable_weights(self) -> list[str]:
        kinds = (".weight", ".reduce")
        names = [name for name, weight in self.cell.named_parameters() if weight.dim() > 1]
        # Angles of a rotation are no weights: a dropped or a longer one is another rotation.
        matrices = [f"cell.{name}" for name in names if name.endswith(kinds)]
        recurrent = [name for name in matrices if not name.startswith("cell.input.")]
        self.check_droppable()
        return recurrent if recurrent and self.weight_drop_on == "recurrent" else matrices

    def check_droppable(self) -> None:
        """A matrix that is no parameter any more would be left out without a word."""
        for name, module in self.cell.named_modules():
            if isinstance(module, Projection) and "weight" not in module._parameters:
                raise RuntimeError(
                    f"weight_drop drops weights that are parameters, and that of {name!r} has been replaced "
                    "by pruning, weight norm or a parametrization; remove that, or build with weight_drop=0"
                )

    def forward(
        self, x: Tensor, state: Named, mask: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, Named]:
        """mask [T, B]: True where x is real. resets [T, B]: True where a sequence starts anew."""
        run = self.by_kernel if self.fuses(x) else self.by_loop
        run_sequence = partial(run, mask=mask, resets=self.own_resets(resets, mask))
        y, state = self.cell(x, state, run_sequence)
        return self.project(y, mask), state

    def own_resets(self, resets: Tensor | None, mask: Tensor | None) -> Tensor | None:
        if resets is None or not self.reverse:
            return resets
        # A sequence that starts at t ends at t when time runs backwards: clear before t - 1.
        if mask is None:
            return torch.cat([resets[1:], torch.zeros_like(resets[:1])])
        return reset_before(resets, mask)

    def project(self, y: Tensor, mask: Tensor | None) -> Tensor:
        if self.projection is None:
            return y
        if not is_compiling():
            check_devices(self.projection, f"the projection of {self.cell.unit_name}", y)
        y = self.projection(y)
        return y if mask is None else y.masked_fill(~mask[..., None], 0)

    def by_loop(
        self, x: Tensor, state: Named, mask: Tensor | None, resets: Tensor | None
    ) -> tuple[Tensor, Named]:
        if not is_compiling():
            check_devices(self.cell, self.cell.unit_name, x)
        parts = {**self.cell.project(x), **self.stays(x)}
        step = partial(self.step, drops=self.state_masks(state))
        return reference.scan(step, parts, state, mask, resets, self.reverse)

    def step(self, parts: Named, state: Named, drops: Named) -> tuple[Tensor, Named]:
        """One time step: the cell's, and what then happens to the new state."""
        visible = {name: state[name] * drops[name] for name in drops} if drops else None
        y, new = self.after(*self.cell.advance(parts, state, visible), state, parts)
        return self.cell.output(y, new), new

    def after(self, y: Tensor, new: Named, old: Named, parts: Named) -> tuple[Tensor, Named]:
        """Zoneout, and the dropout of what is carried."""
        y, new = self.zoned(y, new, old, parts)
        if "drop.h" not in parts or "h" not in new:
            return y, new
        h = new["h"] * parts["drop.h"]
        return (h if y is new["h"] else y), {**new, "h": h}

    def zoned(self, y: Tensor, new: Named, old: Named, parts: Named) -> tuple[Tensor, Named]:
        """Krueger et al. (2017): some channels stay as they were; outside training, the mean of both."""
        if not self.zoneout:
            return y, new
        zoned = {}
        for name in old:
            stay = parts[f"stay.{name}"] if self.training else self.zoneout
            zoned[name] = stay * old[name] + (1 - stay) * new[name]
            # Where the output is a state, it is what the state has become.
            y = zoned[name] if y is new[name] else y
        return y, zoned

    def stays(self, x: Tensor) -> Named:
        """Where each state stays as it was, for all time steps, and where the new h is dropped."""
        parts: Named = {}
        if self.training and self.zoneout:
            for name, size in self.cell.states.items():
                parts[f"stay.{name}"] = x.new_empty(*x.shape[:-1], size).bernoulli_(self.zoneout)
        if self.carried is not None and self.carried.is_active:
            shape = (*x.shape[:-1], self.cell.states["h"])
            parts["drop.h"] = self.carried.mask(shape, like=x).expand(shape)
        return parts

    def fuses(self, x: Tensor) -> bool:
        """Whether a kernel runs this pass; if not, a warning says why, once."""
        return may_fuse(self.cell.unit_name, x, self.obstacle(x))

    def may_share_a_launch(self) -> bool:
        """An elementwise unit may, unless a pass has weights of its own, or somebody listens to it."""
        listened = has_hooks(self) or has_hooks(self.cell)
        drops_weights = self.training and self.weight_drop
        plain = len(self.cell.stages()) == 1 and type(self.cell).output is Cell.output
        return self.cell.is_elementwise and plain and not (listened or drops_weights)

    def obstacle(self, x: Tensor) -> str | None:
        """What keeps this direction from a kernel, if anything does: its options, or somebody who listens."""
        if self.training and self.state_dropout and is_watched(x):
            return "state_dropout is not compiled"
        if self.zoneout and len(self.cell.stages()) > 1:
            return "zoneout comes after all of its stages"
        return hook_obstacle(self.cell)

    def by_kernel(
        self, x: Tensor, state: Named, mask: Tensor | None, resets: Tensor | None
    ) -> tuple[Tensor, Named]:
        try:
            return self.fused(x, state, (mask, resets, self.reverse))
        except CannotFuse as error:
            may_fuse(self.cell.unit_name, x, error.reason)
            return self.by_loop(x, state, mask, resets)

    def fused(self, x: Tensor, state: Named, flags: tuple[Any, Any, Any]) -> tuple[Tensor, Named]:
        cell = self.cell
        dropped = self.carried is not None and self.carried.is_active
        changed = self.zoneout or dropped or (self.training and self.state_dropout)
        own = None if changed else own_kernel(cell, x)
        if own is not None:
            return own(x, state, flags)
        parts = {**cell.extra_inputs(x), **self.stays(x)}
        plans = self.plans_for(tuple(parts))
        if isinstance(plans, str):
            raise CannotFuse(plans)
        return run_by_kernel(cell, plans, parts, self.after, x, state, flags, self.state_masks(state))

    def plans_for(self, beside: tuple[str, ...]) -> list[Plan] | str:
        """The plans for a pass with these parts beside the projections; or why there are none."""
        return self.kernels.plans_for(self.cell, beside, self.after, "zoneout")

    def prepare(self) -> None:
        """Make the plans beforehand, and look for a kernel of the unit's own: a compiler could not."""
        for dtype in DTYPES:
            self.cell.own_kernel(dtype)
        example = torch.empty(1, 1, self.cell.input_size, device="meta")
        for mode in (False, True):
            self.train(mode)
            try:
                beside = self.cell.extra_inputs(example)
            except (RuntimeError, NotImplementedError):
                # A unit that needs real numbers for this has its plans made by its first pass.
                continue
            self.plans_for((*beside, *self.stays(example)))
        self.train()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        mode = self.training
        self.prepare()
        self.train(mode)

    def state_masks(self, state: Named) -> Named:
        if not (self.training and self.state_dropout):
            return {}
        return {name: keep_mask(s.shape, self.state_dropout, like=s) for name, s in state.items()}


def run_layer(
    directions: Sequence[Direction],
    x: Tensor,
    held: Sequence[Named],
    mask: Tensor | None,
    resets: Tensor | None,
) -> tuple[Tensor, list[Named]]:
    """All directions of a layer: their outputs side by side and the final states of each."""
    together = run_together(directions, x, held, mask, resets)
    if together is not None:
        return together
    runs = [d.run(x, state, mask, resets) for d, state in zip(directions, held, strict=True)]
    return concatenate([y for y, _ in runs]), [final for _, final in runs]


def run_together(
    directions: Sequence[Direction],
    x: Tensor,
    held: Sequence[Named],
    mask: Tensor | None,
    resets: Tensor | None,
) -> tuple[Tensor, list[Named]] | None:
    """Both directions of a layer in one launch, where there are kernels that do so; None where not."""
    apart = len(directions) < 2 or is_compiling() or not runs_by_triton(x)
    if apart or not all(d.may_share_a_launch() and d.fuses(x) for d in directions):
        return None
    parts = [{**d.cell.extra_inputs(x), **d.stays(x)} for d in directions]
    plans = [d.plans_for(tuple(part)) for d, part in zip(directions, parts, strict=True)]
    if not fit_together(plans):
        return None
    ways = [
        Way(d.cell, plan[0], d.after, part, state, (mask, d.own_resets(resets, mask), d.reverse))  # type: ignore[arg-type]
        for d, plan, part, state in zip(directions, plans, parts, held, strict=True)
    ]
    y, finals = run_pair(ways, x)
    if all(d.projection is None for d in directions):
        return y, finals
    outputs = zip(directions, y.chunk(len(directions), -1), strict=True)
    return concatenate([d.project(half, mask) for d, half in outputs]), finals


def reset_before(resets: Tensor, mask: Tensor) -> Tensor:
    """[T, B]: True at each real step whose next real step is a reset."""
    # Which of the real steps it is, from 1 on. Padded steps share the place 0, where no reset is.
    number = mask.cumsum(0)
    steps, batch = resets.shape
    places = resets.new_zeros(steps + 2, batch)
    by_number = places.scatter(0, number * mask, resets & mask)
    return by_number.gather(0, number + 1) & mask


def layer_dropout(x: Tensor, rate: float, variational: bool) -> Tensor:
    """Dropout on [T, B, D]: a fresh mask at each step, or one for all steps."""
    if not variational:
        return F.dropout(x, rate)
    return x * keep_mask((1, *x.shape[1:]), rate, like=x)


def concatenate(outputs: Sequence[Tensor]) -> Tensor:
    return outputs[0] if len(outputs) == 1 else torch.cat(list(outputs), -1)
