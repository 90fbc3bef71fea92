"""The state of a gated unit as a weighted sum of what it has read (RAN paper, section 5).

In RAN the state is c_t = i_t content_t + f_t c_{t-1}, and so

    c_t = sum over j of w_{t,j} content_j,      w_{t,j} = i_j f_{j+1} ... f_t

The weights tell which earlier words a state is made of. LRN, SRU, QRNN, LSTM, GRU and others update their
states in the same way, each with its own gates. `gated_sum` finds these in the unit's step, so it works for
your own unit too.

    (values,) = linnet.record(rnn, x)
    sums = sum_weights(values)
    sums.weights                     # [T, T, B, H], at [t, j] the weight of step j in the state of step t
    arrows(sums.weights)             # [T, B]: the heaviest earlier step
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from linnet.program.planning import one_step, weights_of
from linnet.program.trace import Line, NotPointwise, Operand, safe_name, trace_names
from linnet.program.unit import Named, Stage
from linnet.recurrent.cell import Cell
from linnet.recurrent.modes import evaluating
from linnet.recurrent.recorded_values import StepValues

# A named value of the step, a number, or an operation on such: ("sub", 1.0, "f").
Expression = str | float | tuple

# Functions that may be applied to the whole sum.
ACTIVATIONS = ("tanh", "sigmoid", "maximum")


class NotASum(ValueError):  # noqa: N818, it is a reason more than an error
    """No state of the unit is a gated sum."""


class GatedSum(NamedTuple):
    """state = forget * (previous state) + input * content, or an activation of that."""

    state: str
    forget: Expression
    input: Expression
    content: Expression
    activated: bool  # whether there is an activation: the weights are then those of the gates alone


class SumWeights(NamedTuple):
    """A state as a gated sum."""

    weights: Tensor  # [T, T, B, H], at [t, j] the weight of step j in the state of step t; 0 for j > t
    start: Tensor  # [T, B, H], the weight of the initial state
    contents: Tensor  # [T, B, H], what is weighted
    initial: Tensor  # [B, H], the initial state

    def rebuild(self) -> Tensor:
        """Return the state of each step as a sum; it is the state itself if there is no activation."""
        return (self.weights * self.contents).sum(1) + self.start * self.initial


def sum_weights(values: StepValues) -> SumWeights:
    """Return the weights of all steps in each state of a layer that `linnet.record` has recorded."""
    found = gated_sum(values.cell)
    if values.direction.zoneout:
        raise NotASum(f"zoneout mixes the states of {values.cell.unit_name} after the sum")
    forget, entering, contents = (
        evaluate(each, values, values[found.state]) for each in (found.forget, found.input, found.content)
    )
    steps = [forget, entering, contents, values.before[found.state]]
    if values.direction.reverse:
        steps = [each.flip(0) for each in steps]
    forget, entering, contents, before = steps
    weights, start = decaying(entering, forget)
    if values.direction.reverse:
        weights, start, contents = weights.flip(0, 1), start.flip(0), contents.flip(0)
    return SumWeights(weights, start, contents, before[0])


def decaying(entering: Tensor, forget: Tensor) -> tuple[Tensor, Tensor]:
    """Return i_j f_{j+1} ... f_t at [t, j], [T, T, B, H], and the products of all forget gates, [T, B, H]."""
    rows = [entering[:1]]
    for t in range(1, len(entering)):
        rows.append(torch.cat([rows[-1] * forget[t], entering[t : t + 1]]))
    weights = [torch.cat([row, entering.new_zeros(len(entering) - len(row), *row.shape[1:])]) for row in rows]
    return torch.stack(weights), forget.cumprod(0)


def evaluate(expression: Expression, values: Mapping[str, Tensor], like: Tensor) -> Tensor:
    """Return the value of an expression at all steps."""
    if isinstance(expression, str):
        return values[expression]
    if isinstance(expression, float):
        return torch.full_like(like, expression)
    op, *operands = expression
    return getattr(torch, op)(*(evaluate(each, values, like) for each in operands))


# ----------------------------------------------------------------------------------------- arrows


def arrows(weights: Tensor, inclusive: bool = False) -> Tensor:
    """Return for each step the earlier step whose largest weight is the largest, [T, B]; -1 at step 0.

    inclusive   a step may point to itself
    """
    largest = weights.amax(-1)
    steps = torch.arange(len(weights), device=weights.device)
    allowed = steps[:, None] >= steps[None] if inclusive else steps[:, None] > steps[None]
    found = largest.masked_fill(~allowed[..., None], -1).argmax(1)
    return found if inclusive else found.masked_fill((steps == 0)[:, None], -1)


def arrow_lengths(pointed: Tensor) -> dict[int, int]:
    """Count the steps between each word and the word that its arrow points to, {distance: arrows}."""
    steps = torch.arange(len(pointed), device=pointed.device)[:, None]
    distances = (steps - pointed)[pointed >= 0]
    found, counts = distances.unique(return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


# ------------------------------------------------------------------------------------- the search


def gated_sum(cell: Cell) -> GatedSum:
    """Find a state that the step of `cell` updates as a gated sum; raise NotASum if there is none."""
    # A step that reads the time between frames cannot be traced without it, and has no such sum.
    for stage in () if cell.reads_time else cell.stages():
        for state in stage.states:
            found = StageSums(cell, stage).find(state)
            if found is not None:
                return found
    raise NotASum(f"no state of {cell.unit_name} is a sum of what it has read, each weighted by gates")


def has_gated_sum(cell: Cell) -> bool:
    try:
        gated_sum(cell)
    except NotASum:
        return False
    return True


class StageSums:
    """The traced operations of a stage, in which `find` looks for a sum."""

    def __init__(self, cell: Cell, stage: Stage):
        self.lines: dict[str, Line] = {}
        self.states: dict[str, Operand] = {}
        self.names: dict[Operand, str] = {}
        weights = list(weights_of(cell, stage))
        step = partial(one_step, cell, stage, unchanged)
        function = getattr(type(cell), stage.step)
        try:
            self.lines, self.states, named = trace_names(
                step, [function], (inputs_of(cell, stage), [*map(safe_name, stage.states)], weights)
            )
        except (NotPointwise, RuntimeError, AttributeError):
            # A step that does not run on scalars, such as that of NRU, has no gate for each channel. The copy
            # that is traced lacks parameters of other shapes, such as the bounds of HGRN.
            return
        self.names = {operand: name for name, operand in named.items()}

    def find(self, state: str) -> GatedSum | None:
        """Return the gated sum that updates `state`, or None."""
        line, activated = self.line_of(self.states.get(safe_name(state))), False
        while line is not None and line.op in ACTIVATIONS:
            line, activated = self.line_of(line.operands[0]), True
        if line is None or line.op != "add":
            return None
        for kept, added in (line.operands, line.operands[::-1]):
            forget = self.factor(kept, safe_name(state))
            if forget is not None:
                gate, content = self.gate_and_content(added)
                return GatedSum(state, self.tree(forget), self.tree(gate), self.tree(content), activated)
        return None

    def line_of(self, operand: Operand | None) -> Line | None:
        return self.lines.get(operand) if isinstance(operand, str) else None

    def factor(self, operand: Operand, state: str) -> Operand | None:
        """Return what multiplies `state` in a product with it, or None."""
        line = self.line_of(operand)
        if operand == state:
            return 1.0
        if line is None or line.op != "mul" or state not in line.operands:
            return None
        return line.operands[1 - line.operands.index(state)]

    def gate_and_content(self, operand: Operand) -> tuple[Operand, Operand]:
        """Return the factors of the term that is added; a term without a gate has the weight 1."""
        line = self.line_of(operand)
        gates = [self.is_gate(each) for each in line.operands] if line and line.op == "mul" else []
        if line is None or not any(gates):
            return 1.0, operand
        first = gates.index(True)
        return line.operands[first], line.operands[1 - first]

    def is_gate(self, operand: Operand) -> bool:
        """A number, a sigmoid, or 1 minus a gate."""
        line = self.line_of(operand)
        if line is None:
            return isinstance(operand, float)
        return line.op == "sigmoid" or (line.op == "sub" and self.is_gate(line.operands[1]))

    def tree(self, operand: Operand) -> Expression:
        """Return an expression of the named values of the step."""
        if operand in self.names:
            return self.names[operand]
        line = self.line_of(operand)
        return operand if line is None else (line.op, *map(self.tree, line.operands))


def unchanged(y: Tensor, new: Named, old: Named, inputs: Named) -> tuple[Tensor, Named]:
    return y, new


@torch.no_grad()
def inputs_of(cell: Cell, stage: Stage) -> list[str]:
    """Return the names of what a stage reads besides its own states."""
    x = cell.example.new_zeros(1, cell.input_size)
    state = cell.initial_state((1,), x)
    with evaluating(cell):
        known = {**cell.project(x), **cell.call_by_name("recur", state), **state}
    made = [part for attribute in stage.reads_new_state for part in getattr(cell, attribute).parts]
    reads = cell.arguments[stage.step]
    return [name for name in (*known, *made) if name in reads and name not in stage.states]
