"""One layer in one direction: a cell over a sequence, and the noise on its state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.func import functional_call

from linnet.base.options import check_rate, choose
from linnet.program.padding import cleared
from linnet.program.substitute import with_modules, with_weights
from linnet.program.unit import Flags, Named
from linnet.recurrent.adapters import adapters_of, run_inside, without_adapters
from linnet.recurrent.cell import Cell
from linnet.recurrent.dropout import Dropout
from linnet.recurrent.masks import keep_mask
from linnet.recurrent.projection import Projection
from linnet.run.choose import bound_scan, bound_step, run, run_pair
from linnet.run.devices import check_devices
from linnet.run.hooks import has_hooks, hook_obstacle
from linnet.run.plan_cache import PlanCache, PlansOrReason


class Direction(nn.Module):
    """x [T, B, input_size], state -> y [T, B, output_size], state.

    state_dropout    one mask over time on the state as the recurrent matrices read it
    zoneout          the probability that a channel of a state keeps its value for a step
    weight_drop      the probability that a weight is dropped, one mask for the whole sequence
    weight_drop_on   "recurrent" matrices (the only matrix, where a unit has no recurrent one) or "all"
    proj_size        project the output to `proj_size` dimensions (0: no projection)
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
        self.plan_cache = PlanCache()
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
        self.plan_cache.refer(cell, self.after)

    def drop_carried(self, dropout: Dropout) -> None:
        """Apply `dropout` to each new h, so that both the output and the next step get the dropped h.

        The mask is the same at all steps. Unlike state_dropout, it does not apply to the initial state,
        to which the mask of the previous window was applied.
        """
        if "h" not in self.cell.states or self.cell.is_elementwise:
            raise ValueError(
                f"only a state h that a recurrent matrix reads can be dropped as it is carried; "
                f"{self.cell.unit_name} has the states {', '.join(self.cell.states)}"
                f"{' and no recurrent matrix' if self.cell.is_elementwise else ''}"
            )
        self.carried = dropout

    def reset_parameters(self) -> None:
        self.cell.reset_parameters()
        if self.projection is not None:
            self.projection.reset_parameters()

    def run(
        self,
        x: Tensor,
        state: Named,
        mask: Tensor | None = None,
        resets: Tensor | None = None,
        reset_state: Named | None = None,
    ) -> tuple[Tensor, Named]:
        """`forward`, with `weight_drop` applied to the weights while training."""
        adapters = adapters_of(self.cell)
        if adapters or has_hooks(self) or has_hooks(self.cell):
            x = cleared(x)
        if adapters:
            plain = with_modules(self, {"cell": without_adapters(self.cell, adapters)})
            return run_inside(adapters, x, partial(plain.run, x, state, mask, resets, reset_state))
        if not (self.training and self.weight_drop):
            return self(x, state, mask, resets, reset_state)
        weights = {
            name: F.dropout(attrgetter(name)(self), self.weight_drop) for name in self.droppable_weights()
        }
        if is_compiling():
            return functional_call(self, weights, (x, state, mask, resets, reset_state))
        # A copy with other weights, so that other threads find the weights of this module unchanged.
        return with_weights(self, weights)(x, state, mask, resets, reset_state)

    def bound_call(
        self, x: Tensor, states: Sequence[Any], resets: Tensor | None
    ) -> tuple[Tensor, list[Tensor]] | None:
        """A call like an earlier one, x [T, B, input_size], states [B, size]; None if anything differs.

        resets   [T, B], checked by the caller
        """
        if not self.is_plain or (resets is not None and self.learns_start):
            return None
        if len(x) == 1 and not torch.is_grad_enabled():
            made = bound_step(self, x[0], states, None if resets is None else resets[0])
            return None if made is None else (made[0][None], made[1])
        return bound_scan(self, x, states, self.flags(None, resets))

    def run_bound(
        self, x: Tensor, states: Sequence[Tensor], resets: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """`run` with the arguments of `bound_call`."""
        y, new = self.run(x, dict(zip(self.cell.states, states, strict=True)), None, resets)
        return y, [new[name] for name in self.cell.states]

    def bound_scan(
        self, x: Tensor, states: Sequence[Any], mask: Tensor, resets: Tensor | None
    ) -> tuple[Tensor, list[Tensor]] | None:
        """`bound_call` of padded sequences."""
        if not self.is_plain or (resets is not None and self.learns_start):
            return None
        return bound_scan(self, x, states, self.flags(mask, resets))

    @property
    def root(self) -> nn.Module:
        """The module that contains everything that a call depends on."""
        return self

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing around the cell."""
        modules = self._modules  # faster than through the interface of modules
        plain = modules.get("projection") is None and not (self.training and self.weight_drop)
        plain = plain and not modules["cell"].reads_out  # type: ignore[union-attr]
        return plain and not (has_hooks(self) or has_hooks(modules["cell"]))  # type: ignore[arg-type]

    def droppable_weights(self) -> list[str]:
        kinds = ("weight", "reduce")
        names = [name for name, weight in self.cell.parameters_inside() if weight.dim() > 1]
        # The angles of a rotation are not dropped: that would make another rotation.
        matrices = [f"cell.{name}" for name in names if name.rpartition(".")[2].startswith(kinds)]
        of_input = [name for name in matrices if name.startswith("cell.input.")]
        self.check_droppable()
        if self.weight_drop_on == "all":
            return matrices
        recurrent = [] if self.cell.is_elementwise else [name for name in matrices if name not in of_input]
        return recurrent or of_input

    def check_droppable(self) -> None:
        """A matrix that is no longer a parameter would be skipped without a message."""
        for name, module in self.cell.named_modules():
            if isinstance(module, Projection) and not isinstance(module.weight, nn.Parameter):
                raise RuntimeError(
                    f"weight_drop drops weights that are parameters, and that of {name!r} has been replaced "
                    "by pruning, weight norm or a parametrization; remove that, or build with weight_drop=0"
                )

    def forward(
        self,
        x: Tensor,
        state: Named,
        mask: Tensor | None = None,
        resets: Tensor | None = None,
        reset_state: Named | None = None,
    ) -> tuple[Tensor, Named]:
        """mask [T, B]: True where x is real. resets [T, B]: True where a new sequence starts.

        reset_state   where it starts from, [B, size] or [T, B, size] by name (default: the start of the cell)
        """
        flags = (None, None, self.reverse) if mask is None and resets is None else self.flags(mask, resets)
        if resets is not None and reset_state is None and self.learns_start:
            reset_state = self.cell.initial_state(x.shape[1:2], x)
        start = None if reset_state is None else self.own_reset_state(reset_state, mask)
        y, state = self.cell(x, state, partial(self.run_cell, flags=flags, reset_state=start))
        return (y if self.projection is None else self.project(y, mask)), state

    def run_cell(
        self, x: Tensor, state: Named, flags: Flags, reset_state: Named | None
    ) -> tuple[Tensor, Named]:
        y, new = run(self, x, state, flags, reset_state)
        if not self.cell.reads_out:
            return y, new
        y = self.cell.checked_read_out(y, cleared(x))
        return (y if flags[0] is None else y.masked_fill(~flags[0][..., None], 0)), new

    def flags(self, mask: Tensor | None, resets: Tensor | None) -> Flags:
        return mask, self.own_resets(resets, mask), self.reverse

    def own_resets(self, resets: Tensor | None, mask: Tensor | None) -> Tensor | None:
        if resets is None or not self.reverse:
            return resets
        # A sequence that starts at t ends at t when time runs backwards: clear before t - 1.
        if mask is None:
            return torch.cat([resets[1:], torch.zeros_like(resets[:1])])
        return reset_before(resets, mask)

    def own_reset_state(self, reset_state: Named | None, mask: Tensor | None) -> Named | None:
        """The state at each of `own_resets`: that of the step whose flag is set."""
        if reset_state is None or not self.reverse:
            return reset_state
        each_step = {name: s for name, s in reset_state.items() if s.dim() == 3}
        if mask is None:
            return {**reset_state, **{name: s.roll(-1, 0) for name, s in each_step.items()}}
        at = next_real_step(mask)[..., None]
        return {**reset_state, **{n: s.gather(0, at.expand_as(s)) for n, s in each_step.items()}}

    @property
    def learns_start(self) -> bool:
        """Whether its cell has a learned state from which sequences start."""
        cell: Any = self._modules["cell"]  # faster than through the interface of modules
        return type(cell).start is not Cell.start and cell.start() is not None

    def project(self, y: Tensor, mask: Tensor | None) -> Tensor:
        if self.projection is None:
            return y
        check_devices(self.projection, f"the projection of {self.cell.unit_name}", y)
        y = self.projection(y)
        return y if mask is None else y.masked_fill(~mask[..., None], 0)

    def step(self, inputs: Named, state: Named, masks: Named) -> tuple[Tensor, Named]:
        """One time step: the cell's, and then `after`. `masks` are those of `state_masks`."""
        visible_state = {name: state[name] * masks[name] for name in masks} if masks else None
        y, new = self.after(*self.cell.run_stages(inputs, state, visible_state), state, inputs)
        return self.cell.output(y, new), new

    def after(self, y: Tensor, new: Named, old: Named, inputs: Named) -> tuple[Tensor, Named]:
        """Apply zoneout, and the dropout of the carried h."""
        y, new = self.zone_out(y, new, old, inputs)
        if "drop.h" not in inputs or "h" not in new:
            return y, new
        h = new["h"] * inputs["drop.h"]
        return (h if y is new["h"] else y), {**new, "h": h}

    def zone_out(self, y: Tensor, new: Named, old: Named, inputs: Named) -> tuple[Tensor, Named]:
        """Krueger et al. (2017): some channels keep their value; outside training, the mean of both."""
        if not self.zoneout:
            return y, new
        zoned = {}
        for name in old:
            stay = inputs[f"stay.{name}"] if self.training else self.zoneout
            zoned[name] = stay * old[name] + (1 - stay) * new[name]
            # If the output is a state, it is this state after zoneout.
            y = zoned[name] if y is new[name] else y
        return y, zoned

    def state_noise(self, x: Tensor) -> Named:
        """Draw the masks of zoneout and of the dropout of the carried h, for all time steps."""
        masks: Named = {}
        if self.training and self.zoneout:
            for name, size in self.cell.states.items():
                masks[f"stay.{name}"] = x.new_empty(*x.shape[:-1], size).bernoulli_(self.zoneout)
        if self.drops_carried:
            shape = (*x.shape[:-1], self.cell.states["h"])
            masks["drop.h"] = self.carried.mask(shape, like=x).expand(shape)  # type: ignore[union-attr]
        return masks

    def state_masks(self, state: Named) -> Named:
        """Draw the masks of `state_dropout`, by state."""
        if not (self.training and self.state_dropout):
            return {}
        return {name: keep_mask(s.shape, self.state_dropout, like=s) for name, s in state.items()}

    @property
    def drops_carried(self) -> bool:
        return self.carried is not None and self.carried.is_active

    @property
    def changes_state(self) -> bool:
        """Whether noise is applied to the state in this mode."""
        return bool(self.zoneout or self.drops_carried or (self.training and self.state_dropout))

    def obstacle(self, recorded: bool) -> str | None:
        """Why kernels cannot run this direction, or None. `recorded`: by a compiler or a tracer."""
        if self.training and self.state_dropout and recorded:
            return "state_dropout is not compiled"
        if adapters_of(self.cell):
            return "an adapter changes its weights at each call"
        return hook_obstacle(self.cell)

    def may_share_a_launch(self) -> bool:
        """Whether kernels may run both directions at once: elementwise units without hooks or weight_drop."""
        hooked = has_hooks(self) or has_hooks(self.cell) or bool(adapters_of(self.cell))
        drops_weights = self.training and self.weight_drop
        one_stage = len(self.cell.stages()) == 1 and type(self.cell).output is Cell.output
        one_stage = one_stage and not self.cell.reads_out
        return self.cell.is_elementwise and one_stage and not (hooked or drops_weights)

    def plans_for(self, extras: tuple[str, ...]) -> PlansOrReason:
        """Return the plans for a step with these extra inputs; or the reason why there are none."""
        return self.plan_cache.get(self.cell, extras, self.after, "zoneout")

    def plans_of_mode(self) -> PlansOrReason:
        """`plans_for` the present mode, without a call: to show kernels, or to compile them ahead of time."""
        example = torch.empty(1, 1, self.cell.input_size, device="meta")
        return self.plans_for((*self.cell.extra_inputs(example), *self.state_noise(example)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.plan_cache.refer(self.cell, self.after)


def run_layer(
    directions: Sequence[Direction],
    x: Tensor,
    states: Sequence[Named],
    mask: Tensor | None,
    resets: Tensor | None,
    reset_states: Sequence[Named] | None = None,
) -> tuple[Tensor, list[Named]]:
    """Run all directions of a layer: their outputs side by side, and the final state of each."""
    if len(directions) == 1:
        start = None if reset_states is None else reset_states[0]
        y, final = directions[0].run(x, states[0], mask, resets, start)
        return y, [final]
    together = None
    if reset_states is None:
        together = run_together(directions, x, states, mask, resets)
    if together is not None:
        return together
    starts: Sequence[Named | None] = reset_states or [None] * len(directions)
    each = zip(directions, states, starts, strict=True)
    runs = [d.run(x, state, mask, resets, start) for d, state, start in each]
    return concatenate([y for y, _ in runs]), [final for _, final in runs]


def run_together(
    directions: Sequence[Direction],
    x: Tensor,
    states: Sequence[Named],
    mask: Tensor | None,
    resets: Tensor | None,
) -> tuple[Tensor, list[Named]] | None:
    """Run both directions in one launch, if they and the backend can; otherwise return None."""
    if is_compiling() or not all(d.may_share_a_launch() for d in directions):
        return None
    if resets is not None and any(d.learns_start for d in directions):
        return None
    pair = run_pair(directions, x, states, [d.flags(mask, resets) for d in directions])
    if pair is None or all(d.projection is None for d in directions):
        return pair
    y, finals = pair
    outputs = zip(directions, y.chunk(len(directions), -1), strict=True)
    return concatenate([d.project(half, mask) for d, half in outputs]), finals


def reset_before(resets: Tensor, mask: Tensor) -> Tensor:
    """[T, B]: True at each real step whose next real step is a reset."""
    # The real steps are numbered from 1. Padded steps share the number 0, which is never a reset.
    number = mask.cumsum(0)
    steps, batch = resets.shape
    by_number = resets.new_zeros(steps + 2, batch).scatter(0, number * mask, resets & mask)
    return by_number.gather(0, number + 1) & mask


def next_real_step(mask: Tensor) -> Tensor:
    """[T, B]: the number of the next real step after each real step; 0 if there is none."""
    number, (steps, batch) = mask.cumsum(0), mask.shape
    times = torch.arange(steps, device=mask.device)[:, None].expand(steps, batch)
    by_number = times.new_zeros(steps + 2, batch).scatter(0, number * mask, times)
    return by_number.gather(0, number + 1)


def layer_dropout(x: Tensor, rate: float, variational: bool) -> Tensor:
    """Dropout on [T, B, D]: a fresh mask at each step, or one for all steps."""
    if not variational:
        return F.dropout(x, rate)
    return x * keep_mask((1, *x.shape[1:]), rate, like=x)


def concatenate(outputs: Sequence[Tensor]) -> Tensor:
    return outputs[0] if len(outputs) == 1 else torch.cat(list(outputs), -1)
