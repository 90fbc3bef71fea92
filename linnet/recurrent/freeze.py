"""Weights that the user promises not to change: their packed copies are kept from call to call.

    linnet.freeze(model)        # in evaluation mode
    linnet.unfreeze(model)

Without that promise kernels pack the matrices at each call, since torch does not count every way to change a
tensor. With it, a change that can be detected is an error, which names the parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from linnet.base.forks import compiling
from linnet.base.torch_private import has_any_global_hook
from linnet.program.operands import Source
from linnet.program.readable import is_recording, is_transformed
from linnet.program.unit import CannotFuse
from linnet.recurrent.adapters import adapters_of
from linnet.recurrent.cell import Cell
from linnet.recurrent.direction import Direction
from linnet.recurrent.recurrent import Recurrent
from linnet.recurrent.state import PLAIN_TENSORS, not_a_pair
from linnet.run.bound_unit import load_kernels
from linnet.run.change import BARE, HOOKS
from linnet.run.choose import STEP_DTYPES, may_use_cpu_kernels
from linnet.run.decision import answers_for, extra_names
from linnet.run.hooks import has_replaced_forward
from linnet.run.kept_states import is_collecting
from linnet.run.observed import is_observing

if TYPE_CHECKING:
    from linnet.cpu.frozen import FrozenDirection, FrozenStack

VERSION, REQUIRES_GRAD = attrgetter("_version"), attrgetter("requires_grad")
EVERY_MODULE_HAS = frozenset(vars(nn.Module()))
Model = TypeVar("Model", bound=nn.Module)


def freeze(model: Model) -> Model:
    """Keep packed copies of the weights of all Linnet layers in `model`, which must not change from now on.

    Their parameters no longer require gradients, and calls are faster, above all those of short sequences and
    small batches. A change that can be detected raises an error at the next call: in place (an optimiser,
    load_state_dict), a new parameter, a new dtype or device, training mode. Changes through `.data` or NumPy
    cannot be detected in place. A copy, by deepcopy or pickle, is frozen as well. Returns the model.
    """
    layers = [module for module in model.modules() if isinstance(module, Recurrent)]
    if not layers:
        raise TypeError(
            f"linnet.freeze takes a model with layers of Linnet, such as linnet.LSTM; "
            f"{type(model).__name__} has none"
        )
    for layer in layers:
        check_can_freeze(layer)
    for layer in layers:
        if layer.frozen is None:
            layer.frozen = Frozen([name for name, p in layer.named_parameters() if p.requires_grad])
            layer.requires_grad_(False)
            layer.frozen.bind(layer)
    return model


def unfreeze(model: Model) -> Model:
    """Undo `linnet.freeze`: the weights may change, and require gradients as they did before."""
    for module in model.modules():
        if isinstance(module, Recurrent) and module.frozen is not None:
            trained, module.frozen = module.frozen.trained, None
            for name, parameter in module.named_parameters():
                if name in trained:
                    parameter.requires_grad_()
    return model


def check_can_freeze(layer: Recurrent) -> None:
    name = type(layer).__name__
    if layer.training:
        raise RuntimeError(
            f"linnet.freeze takes a model in evaluation mode, but {name} is in training mode; "
            "call model.eval() first"
        )
    if any(parameter.is_inference() for parameter in layer.parameters()):
        raise RuntimeError(
            f"the parameters of {name} are inference tensors, whose changes torch does not count; build, "
            "load and move the model outside of torch.inference_mode()"
        )


class Frozen:
    """The mark of a frozen layer, with the kernels that read its packed weights.

    trained   the names of the parameters that required gradients before
    """

    def __init__(self, trained: Sequence[str]):
        self.trained = frozenset(trained)
        self.weights: Weights | None = None
        self.shape: Structure | None = None
        self.stack: FrozenStack | None = None
        # Makes the state as users get it from its tensors.
        self.pack: Any = None

    def __reduce__(self) -> tuple:
        """A copy has other parameters, and packs those when it is first called."""
        return Frozen, (sorted(self.trained),)

    def bind(self, layer: Recurrent) -> None:
        """Remember the weights, and pack them."""
        if self.weights is None:
            self.weights = Weights(layer)
        self.stack = stack_of(layer)
        self.pack = packer(layer.first_cell)
        self.shape = Structure(layer)

    def run(self, layer: Recurrent, x: Any, state: Any, plain: bool) -> tuple[Tensor, Any] | None:
        """Run over x by kernels that read the packed weights; None if the usual ways must run it.

        plain   there are neither lengths nor a mask nor resets
        """
        if self.shape is None or not (self.shape.holds(vars(layer)) and self.weights.hold()):  # type: ignore[union-attr]
            self.check(layer)
            self.bind(layer)
        stack = self.stack
        if stack is None or not plain or type(x) is not Tensor or not fits(x, stack) or is_watched():
            return None
        layout = stack.layout(x.shape)
        states = None if state is None else (state,) if type(state) in PLAIN_TENSORS else tuple(state)
        if layout is None or (states is not None and not all_fit(states, layout.states)):
            return None
        if torch.is_grad_enabled() and any(map(REQUIRES_GRAD, (x, *(states or ())))):
            return None
        y, new = stack.run(layout, x, states)
        return y, not_a_pair(self.pack(new))

    def check(self, layer: Recurrent) -> None:
        """Raise an error if the layer is in training mode, or if a parameter has changed."""
        name = type(layer).__name__
        if layer.training:
            raise RuntimeError(
                f"{name} is frozen, and it is in training mode; call model.eval(), or "
                "linnet.unfreeze(model) to train it"
            )
        changed = None if self.weights is None else self.weights.change(layer)
        if changed is not None:
            raise RuntimeError(
                f"{name} is frozen, but {changed}; its packed copy would be wrong. Call "
                "linnet.unfreeze(model) before a change, and linnet.freeze(model) after it"
            )


def packer(cell: Cell) -> Callable[[list[Tensor]], Any]:
    """`cell.pack_state` of the tensors in the order of `cell.states`."""
    kind: Any = cell.State
    if type(cell).pack_state is Cell.pack_state:
        if kind is None:
            return itemgetter(0)
        if kind._fields == tuple(cell.states):
            return kind._make
    return lambda new: cell.pack_state(dict(zip(cell.states, new, strict=True)))


class Weights:
    """The parameters of a layer as they were frozen."""

    def __init__(self, layer: Recurrent):
        self.named = dict(layer.named_parameters())
        self.tensors = list(self.named.values())
        # They keep the memory, so that no other tensor gets its address.
        self.memory = [tensor.detach() for tensor in self.tensors]
        self.addresses, self.versions = self.now()

    def now(self) -> tuple[list[int], list[int]]:
        return list(map(Tensor.data_ptr, self.tensors)), list(map(VERSION, self.tensors))

    def hold(self) -> bool:
        return self.now() == (self.addresses, self.versions)

    def change(self, layer: Recurrent) -> str | None:
        """Which parameter has changed and how, or None."""
        now = dict(layer.named_parameters())
        for name in (*self.named, *now):
            if now.get(name) is not self.named.get(name):
                return f"its parameter {name} is not the same object any more"
        found = zip(self.named.items(), self.memory, self.versions, strict=True)
        for (name, tensor), old, version in found:
            if tensor.data_ptr() != old.data_ptr() or (tensor.shape, tensor.dtype) != (old.shape, old.dtype):
                return f"its parameter {name} has other memory, dtype or shape"
            if tensor._version != version:
                return f"its parameter {name} has been changed in place"
        return None


class Structure:
    """The objects in a layer: modules, parameters, options, modes; and whether a module has a hook.

    It does not reference the layer itself, which references it.
    """

    def __init__(self, layer: Recurrent):
        _, *modules = layer.modules()
        own, spaces = vars(layer), [vars(module) for module in modules]
        self.root = itemgetter(*options_in(own))
        self.inside = [own["_modules"], *map(itemgetter("_modules"), spaces)]
        self.inside += [own["_parameters"], *map(itemgetter("_parameters"), spaces)]
        self.inside = list(filter(None, self.inside))
        self.options = [(itemgetter(*options_in(space)), space) for space in spaces if len(space) > BARE]
        self.hooks = [getattr(module, name) for module in modules for name in HOOKS]
        self.spaces = spaces
        self.known = self.now(own)

    def now(self, own: dict) -> tuple:
        objects = list(chain.from_iterable(map(dict.values, self.inside)))
        options = [read(space) for read, space in self.options]
        return objects, options, self.root(own), len(own), list(map(len, self.spaces)), any(self.hooks)

    def holds(self, own: dict) -> bool:
        """Python compares the objects of two lists by `is` first, so this is fast unless one has changed."""
        try:
            return self.now(own) == self.known
        except (KeyError, RuntimeError, ValueError):  # an attribute is gone; two different tensors
            return False


def options_in(space: dict) -> Iterator[str]:
    """The attributes that not every module has, and the mode."""
    return (
        name for name in space if name == "training" or not (name in EVERY_MODULE_HAS or name == "frozen")
    )


# --------------------------------------------------------------------------- which calls are frozen


def is_watched() -> bool:
    """Whether something other than the result of a call matters: a recorder, a transform, an observer."""
    return (
        is_recording()
        or is_transformed()
        or is_observing()
        or is_collecting()
        or not may_use_cpu_kernels()
        or torch.is_autocast_enabled("cpu")
        or bool(has_any_global_hook())
    )


def fits(x: Tensor, stack: FrozenStack) -> bool:
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


# ---------------------------------------------------------------------------- what can be frozen


class Unsuited(CannotFuse):
    """The layer runs in the usual ways, and is only watched."""


def stack_of(layer: Recurrent) -> FrozenStack | None:
    """The kernels of all layers with their packed weights; None if a layer needs more than a kernel."""
    try:
        check_suited(layer)
        numbers = range(layer.num_layers)
        layers = [[frozen_direction(direction) for direction in layer.layer(n)] for n in numbers]
    except CannotFuse:
        return None
    load_kernels()
    with compiling:  # a fork waits for the import
        from linnet.cpu.frozen import FrozenStack
    return FrozenStack(
        layers, [layer.layer(number)[0].output_size for number in numbers], int(layer.batch_first)
    )


def check_suited(layer: Recurrent) -> None:
    methods = (type(layer).forward is Recurrent.forward, type(layer).run is Recurrent.run)
    if not all(methods) or layer.as_lstm or layer.residual:
        raise Unsuited("it does more than to run its layers")
    _, *inside = layer.modules()
    if any(map(has_replaced_forward, inside)):
        raise Unsuited("a module inside has another forward")


def frozen_direction(direction: Direction) -> FrozenDirection:
    cell = direction.cell
    plain = direction.is_plain and not adapters_of(cell) and not cell.is_quantised
    if not plain or type(cell).output is not Cell.output or cell.example.dtype not in STEP_DTYPES:
        raise Unsuited("it is more than a cell, or not in float32 or float64")
    answers = answers_for(direction)
    if answers.obstacle is not None or extra_names(cell):
        raise Unsuited("its kernels read more than a projection")
    plans, known = direction.plans_for(()), answers.input_of(cell)
    if (
        isinstance(plans, str)
        or len(plans) > 1
        or not (plans[0].is_even and known.is_bare and known.is_plain)
    ):
        raise Unsuited("its kernels do not compute its projection")
    if plans[0].traced.sizes:
        raise Unsuited("its step is not elementwise")
    if direction.plan_cache.settings.can_change_inside(cell) or not cell.example.is_cpu:
        raise Unsuited("its options may change inside an object, or it is not on the CPU")
    scan, plan = load_kernels(), plans[0]
    with torch.no_grad():
        own, matrices, _ = answers.weights_of(cell, 0, plan)
    if not answers.are_fixed(cell, [known.weight, known.bias, *own, *matrices]):
        raise Unsuited("its weights are computed at each call")
    from linnet.cpu.frozen import FrozenDirection

    made = FrozenDirection(
        plan,
        known.weight.detach(),
        None if known.bias is None else known.bias.detach(),
        [weight.detach() for weight in own],
        [matrix.detach() for matrix in matrices],
        list(cell.states.values()),
        direction.reverse,
        {},
        known.heads,
    )
    operands = made.operands(1, 1)
    source: Source = operands.source  # type: ignore[assignment]
    if scan.misfit(plan, source, [*made.own, *operands.states, *made.matrices]) is not None:
        raise Unsuited("a weight does not fit")
    return made
