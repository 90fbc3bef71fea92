"""A cell that advances by single steps between which something else is computed, such as attention.

    steps = Stepwise(cell, like=x)
    projected = steps.project(x)                # [T, B, input_size]: the products of all steps at once
    for row in projected.by_step():
        y, state = steps.advance(row, state)    # one kernel a step, forward and backward

A layer runs over a sequence in one kernel. Here each step is one, and reads inputs that are projected before.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from linnet.program.unit import READ, Named, Unit
from linnet.run.choose import advance, kernels_of_steps
from linnet.run.devices import check_devices


class Projected(NamedTuple):
    """The inputs of `step` other than the state, [T, B, ...] or [B, ...]."""

    joint: Tensor | None  # the projections side by side, for kernels
    named: Named  # the other inputs; all of them if there is no `joint`

    def by_step(self) -> list[Projected]:
        # The backward of one unbind is cheaper than that of T times indexing.
        rows = {name: tensor.unbind(0) for name, tensor in self.named.items()}
        joints = None if self.joint is None else self.joint.unbind(0)
        count = len(joints) if joints is not None else len(next(iter(rows.values())))
        return [
            Projected(
                None if joints is None else joints[t],
                {name: steps[t] for name, steps in rows.items()},
            )
            for t in range(count)
        ]


class Stepwise:
    """Advances a cell by kernels where there are any, and else by its `advance`."""

    def __init__(self, cell: Unit, like: Tensor):
        check_devices(cell, cell.unit_name, like)
        self.cell, self.kernels = cell, kernels_of_steps(cell, like)

    def project(self, x: Tensor) -> Projected:
        """x [T, B, input_size], or one step of it."""
        if self.kernels is None:
            return Projected(None, self.cell.project(x))
        extra_inputs = self.cell.extra_inputs(x)  # first, as in `Cell.project`: both may draw masks
        return Projected(self.cell.input.joint(x), {**extra_inputs, **self.cell.inputs_of_readout(x)})

    def advance(self, projected: Projected, state: Named) -> tuple[Tensor, Named]:
        """One step: the output [B, output_size] and the new state."""
        joint, named = projected
        if joint is None:
            return self.cell.advance(named, state)
        if self.kernels is not None:
            own = {name: tensor for name, tensor in named.items() if name != READ}
            made = advance(self.kernels, self.cell, joint, own, state)
            if made is not None:
                y, new = made
                return (self.cell.read_out(y, named[READ]) if READ in named else y), new
            self.kernels = None
        return self.cell.advance({**self.cell.input.split(joint), **named}, state)
