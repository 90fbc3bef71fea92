"""Weights that the user promises not to change: their packed copies are kept from call to call.

    linnet.freeze(model)        # in evaluation mode
    linnet.unfreeze(model)

Without that promise each call reads all matrices to see whether they have changed, since torch does not count
every way to change a tensor. With it, a change that can be detected is an error, which names the parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from linnet.recurrent.inference import BoundStack, Inference, is_watched
from linnet.recurrent.recurrent import Recurrent
from linnet.recurrent.state import PLAIN_TENSORS

VERSION, REQUIRES_GRAD = attrgetter("_version"), attrgetter("requires_grad")
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
        if not isinstance(layer.inference, Frozen):
            frozen = Frozen([name for name, p in layer.named_parameters() if p.requires_grad])
            layer.requires_grad_(False)
            layer.inference = frozen
            frozen.bind(layer)
    return model


def unfreeze(model: Model) -> Model:
    """Undo `linnet.freeze`: the weights may change, and require gradients as they did before."""
    for module in model.modules():
        if isinstance(module, Recurrent) and isinstance(module.inference, Frozen):
            trained, module.inference = module.inference.trained, Inference()
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


class Frozen(Inference):
    """The bound stack of a frozen layer, with its packed weights.

    trained   the names of the parameters that required gradients before
    """

    def __init__(self, trained: Sequence[str]):
        super().__init__()
        self.trained = frozenset(trained)
        self.weights: Weights | None = None

    def __deepcopy__(self, memo: dict) -> Frozen:
        """A copy has other parameters, and packs those when it is first called."""
        return Frozen(sorted(self.trained))

    def __reduce__(self) -> tuple:
        return Frozen, (sorted(self.trained),)

    def bind(self, layer: Recurrent) -> BoundStack:
        """Remember the weights, and pack them."""
        if self.weights is None:
            self.weights = Weights(layer)
        self.bound = BoundStack(layer, keeps=True)
        return self.bound

    def run(self, layer: Any, x: Any, state: Any, plain: bool) -> tuple[Tensor, Any] | None:
        bound, watched = self.bound, is_watched()
        if bound is None or not (bound.watch.holds(layer) and self.weights.hold()):  # type: ignore[union-attr]
            self.check(layer)
            bound = None if watched else self.bind(layer)
        if bound is None or watched or not plain or (torch.is_grad_enabled() and wants_gradients(x, state)):
            return None
        return bound.run(x, state)

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


def wants_gradients(x: Any, state: Any) -> bool:
    states = (state,) if type(state) in PLAIN_TENSORS else state or ()
    return any(map(REQUIRES_GRAD, (x, *states)))


class Weights:
    """The parameters of a layer as they were frozen."""

    def __init__(self, layer: Recurrent):
        self.named = dict(layer.named_parameters())
        self.tensors = list(self.named.values())
        # They keep the memory, so that no other tensor gets its address.
        self.memory = [tensor.detach() for tensor in self.tensors]
        self.versions = list(map(VERSION, self.tensors))

    def hold(self) -> bool:
        """Whether torch has counted no change. `Watch` compares the objects and their addresses."""
        return list(map(VERSION, self.tensors)) == self.versions

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
