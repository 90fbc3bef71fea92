"""Calls of a whole stack without gradients: all layers run by kernels whose arguments are bound once.

The binding is valid while `Watch` finds nothing in the layer changed. Torch does not count every way to
change the numbers of a tensor, so each call compares fingerprints of the matrices, and packs what has
changed; that of a frozen layer does not (see freeze.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linnet.base.forks import compiling
from linnet.program.operands import Source
from linnet.program.plan import Plan
from linnet.program.readable import is_dispatched, is_transformed
from linnet.program.trace import name_in_unit
from linnet.program.unit import CannotFuse
from linnet.recurrent.adapters import adapters_of
from linnet.recurrent.cell import Cell
from linnet.recurrent.direction import Direction
from linnet.recurrent.state import PLAIN_TENSORS, not_a_pair
from linnet.run.available import no_cpu_kernels
from linnet.run.bound_unit import load_kernels
from linnet.run.change import Watch
from linnet.run.choose import STEP_DTYPES, may_use_cpu_kernels
from linnet.run.decision import MOST_WASTED, RETRY, Input, answers_for, extra_names
from linnet.run.kept_states import collects
from linnet.run.observed import is_observing

if TYPE_CHECKING:
    from linnet.cpu.stack import Stack, StackDirection


class Inference:
    """The bound stack of a layer, if it has one. Copies of the layer bind their own."""

    is_cache = True

    def __init__(self) -> None:
        self.bound: BoundStack | None = None
        # How many calls in a row found the layer changed.
        self.wasted = 0

    def __deepcopy__(self, memo: dict) -> Inference:
        return Inference()

    def __reduce__(self) -> tuple:
        return Inference, ()

    def run(self, layer: Any, x: Any, state: Any, plain: bool) -> tuple[Tensor, Any] | None:
        """Run over x without gradients; None if the usual ways must run it.

        plain   there are neither lengths nor a mask nor resets
        """
        if not plain or torch.is_grad_enabled() or is_single_step(layer, x) or is_watched():
            return None
        bound = self.bound
        if bound is not None and bound.holds(layer):
            self.wasted = 0
            return bound.run(x, state)
        self.wasted += 1
        if self.wasted > MOST_WASTED and self.wasted % RETRY:
            return None
        self.bound = BoundStack(layer, keeps=False)
        return self.bound.run(x, state)


def is_single_step(layer: Any, x: Any) -> bool:
    """Whether x is one step, which the directions run faster one after another."""
    return type(x) is Tensor and x.dim() == 3 and x.shape[1 if layer.batch_first else 0] == 1


class BoundStack:
    """The kernels of all layers, if these need nothing else."""

    def __init__(self, layer: Any, keeps: bool):
        """keeps   the weights do not change, so that their packed copies are kept."""
        layer.bind()
        self.stack, self.training = stack_of(layer, keeps), layer.training
        self.watch = Watch(layer, [module for module in layer.modules() if module is not layer])
        # Makes the state as users get it from its tensors.
        self.pack = packer(layer.first_cell)

    def holds(self, layer: Any) -> bool:
        """Whether the layer is as it was. A layer that has no such kernels is not watched further."""
        return self.watch.holds(layer) if self.stack is not None else self.training is layer.training

    def run(self, x: Any, state: Any) -> tuple[Tensor, Any] | None:
        """Run over x; None if it is not what these kernels read."""
        stack = self.stack
        if stack is None or type(x) is not Tensor or not fits(x, stack):
            return None
        layout = stack.layout(x.shape)
        states = None if state is None else (state,) if type(state) in PLAIN_TENSORS else tuple(state)
        if layout is None or (states is not None and not all_fit(states, layout.states)):
            return None
        y, new = stack.run(layout, x, states)
        return y, not_a_pair(self.pack(new))


def packer(cell: Cell) -> Callable[[list[Tensor]], Any]:
    """`cell.pack_state` of the tensors in the order of `cell.states`."""
    kind: Any = cell.State
    if type(cell).pack_state is Cell.pack_state:
        if kind is None:
            return itemgetter(0)
        if kind._fields == tuple(cell.states):
            return kind._make
    return lambda new: cell.pack_state(dict(zip(cell.states, new, strict=True)))


# ------------------------------------------------------------------------------ which calls it takes


def is_watched() -> bool:
    """Whether something other than the result of a call matters: a recorder, a transform, an observer.

    No compiler traces this.
    """
    return (
        is_dispatched()
        or is_transformed()
        or is_observing()
        or collects()
        or not may_use_cpu_kernels()
        or torch.is_autocast_enabled("cpu")
    )


def fits(x: Tensor, stack: Stack) -> bool:
    """Whether kernels can read x, whatever its shape is."""
    return (
        x.dtype is stack.dtype
        and x.is_cpu
        and x.layout is torch.strided
        and x.stride()[-1:] == (1,)
        and not x.is_neg()
    )


def all_fit(states: tuple, expected: Sequence[Tensor]) -> bool:
    if len(states) != len(expected):
        return False
    for state, like in zip(states, expected, strict=True):
        if type(state) not in PLAIN_TENSORS or state.shape != like.shape or state.dtype is not like.dtype:
            return False
        if not state.is_cpu or state.layout is not torch.strided:
            return False
    return True


# ------------------------------------------------------------------------------ which layers have it


class Unsuited(CannotFuse):
    """The layer runs in the usual ways."""


def stack_of(layer: Any, keeps: bool) -> Stack | None:
    """The kernels of all layers with their weights; None if a layer needs more than a kernel."""
    try:
        if not layer.is_only_layers or no_cpu_kernels() is not None:
            raise Unsuited("it does more than to run its layers, or there are no kernels")
        layers = [[of_direction(d, keeps) for d in layer.layer(n)] for n in range(layer.num_layers)]
    except CannotFuse:
        return None
    from linnet.cpu.stack import Stack

    outputs = [layer.layer(number)[0].output_size for number in range(layer.num_layers)]
    return Stack(layers, outputs, int(layer.batch_first), keeps)


def of_direction(direction: Direction, keeps: bool) -> StackDirection:
    cell = direction.cell
    plain = direction.is_plain and not adapters_of(cell) and not cell.is_quantised
    if not plain or type(cell).output is not Cell.output or cell.example.dtype not in STEP_DTYPES:
        raise Unsuited("it is more than a cell, or not in float32 or float64")
    if direction.training and direction.changes_state:
        raise Unsuited("noise is drawn at each step")
    answers = answers_for(direction)
    if answers.obstacle is not None:
        raise Unsuited(answers.obstacle)
    plans, known = direction.plans_for(extra_names(cell)), answers.input_of(cell)
    if isinstance(plans, str) or len(plans) > 1 or not plans[0].is_even:
        raise Unsuited("its kernels do not compute its projection")
    if not (known.is_bare and known.is_plain) or plans[0].traced.sizes:
        raise Unsuited("its input is not projected by one product, or its step is not elementwise")
    if direction.plan_cache.settings.can_change_inside(cell) or not cell.example.is_cpu:
        raise Unsuited("its options may change inside an object, or it is not on the CPU")
    plan = plans[0]
    with torch.no_grad():
        own, matrices, _ = answers.weights_of(cell, 0, plan)
    biases = cell.input.bias_tensors
    weights = [known.weight, *biases, *own, *matrices]
    if not answers.are_fixed(cell, weights):
        raise Unsuited("its weights are computed at each call")
    if not keeps and not all(map(is_read_in_place, weights)):
        raise Unsuited("a weight would be copied")
    return checked(direction, plan, known, biases, own, matrices)


def is_read_in_place(weight: Tensor) -> bool:
    return weight.is_contiguous() and not weight.is_neg()


def checked(
    direction: Direction,
    plan: Plan,
    known: Input,
    biases: Sequence[Tensor],
    own: Sequence[Tensor],
    matrices: Sequence[Tensor],
) -> StackDirection:
    """The weights of a direction: of the input, its biases, those with one number per channel, matrices."""
    scan = load_kernels()
    with compiling:  # a fork waits for the import
        from linnet.cpu.stack import StackDirection
    cell, (bias, second) = direction.cell, (*(bias.detach() for bias in biases), None, None)[:2]
    made = StackDirection(
        plan,
        known.weight.detach(),
        bias,
        second,
        known.apart,
        [weight.detach() for weight in own],
        [matrix.detach() for matrix in matrices],
        list(cell.states.values()),
        direction.reverse,
        packings={},
        heads=known.heads,
        extras=extra_channels(cell, plan),
    )
    try:
        operands = made.operands(1, 1)
    except ValueError as error:
        raise Unsuited(str(error)) from None
    source: Source = operands.source  # type: ignore[assignment]
    tensors = [*operands.extras, *operands.weights, *operands.states, *operands.matrices]
    if scan.misfit(plan, source, tensors) is not None:
        raise Unsuited("a weight does not fit")
    return made


def extra_channels(cell: Cell, plan: Plan) -> list[tuple[int, int]]:
    """The first channel of x that each further input of the step is, and the one beyond its last."""
    from linnet.cpu.cell_step import views_of

    views = views_of(torch.empty(1, cell.input_size, device="cpu"), cell.extra_inputs)
    found = [views[name_in_unit(name)] for name in plan.extras]
    starts = [int(view.storage_offset()) for view in found]
    return [(start, start + view.shape[-1]) for start, view in zip(starts, found, strict=True)]
