"""torch's recurrent layers as Linnet's, and the other way round: the same options, the same weights."""

from __future__ import annotations

from typing import Any

from torch import nn

from linnet.convert.carry import (
    HOOKS,
    LeftAloneError,
    carry,
    check_carries,
    plain_class,
    share_parameters,
)
from linnet.layers.int8_modules import Quantised
from linnet.layers.torch_twins import (
    OURS,
    STACK_OF_CELL,
    THEIRS,
    options_for_torch,
    options_of,
    torch_class,
    with_weights,
)


def to_linnet(layer: Any) -> nn.Module:
    """Return Linnet's layer that computes the same as one of torch, with its weights."""
    kind = kind_of(layer)
    given = options_of(layer, kind)
    fresh = kind(**given, device="meta")
    check_carries(layer, {name for name, _ in fresh.named_parameters()})
    return carry(layer, sharing_weights_of(layer, OURS[kind], given), fresh)


def kind_of(layer: nn.Module) -> type[nn.Module]:
    """The class of torch of which `layer` is one; a subclass may only have another constructor."""
    kind = torch_class(layer)
    if kind is None:
        raise LeftAloneError(f"{type(layer).__name__} is not a layer that Linnet knows")
    classes = plain_class(layer).__mro__
    between = classes[: classes.index(kind)]
    own = {name for each in between for name in vars(each) if not is_harmless(name)}
    if own:
        raise LeftAloneError(f"{type(layer).__name__} is a subclass with its own {', '.join(sorted(own))}")
    return kind


def is_harmless(name: str) -> bool:
    """Whether a subclass may define this and still compute the same: special names, except __call__."""
    return name.startswith("__") and name.endswith("__") and name not in ("__call__", "__getattr__")


def sharing_weights_of(layer: nn.Module, kind: type[nn.Module], options: dict[str, Any]) -> nn.Module:
    """Build a layer of the class `kind` that has the weights of another one."""
    first = next(layer.parameters())
    # On meta, because drawing weights would change torch's random numbers for the rest of the program.
    made = kind(**options, device="meta", dtype=first.dtype).to_empty(device=first.device)
    share_parameters(layer, made)
    return made


def to_torch(layer: Any) -> nn.Module:
    """Return torch's layer that computes the same as one of Linnet, with its weights."""
    kind = THEIRS.get(plain_class(layer))
    if kind is None:
        raise LeftAloneError("torch has no such unit")
    if any(isinstance(module, Quantised) for module in layer.modules()):
        raise LeftAloneError("its matrices are in int8; restore the model from which it was quantised")
    try:
        given = options_for_torch(layer, kind)
    except ValueError as error:
        raise LeftAloneError(str(error)) from None
    check_no_hooks_inside(layer)
    return carry(layer, sharing_weights_of(layer, kind, given), plain_class(layer)(**given, device="meta"))


def check_no_hooks_inside(layer: nn.Module) -> None:
    """torch's layers have no modules inside that could have hooks."""
    inside = [module for module in layer.modules() if module is not layer]
    if any(getattr(module, hooks) for module in inside for hooks in HOOKS):
        raise LeftAloneError("a module inside it has hooks; remove them first")


def stack_of_cell(cell: nn.Module) -> Any:
    """Return Linnet's stack of one layer that runs a cell of torch over sequences, with its weights."""
    kind = kind_of(cell)
    ours, options = OURS[STACK_OF_CELL[kind]], options_of(cell, kind)
    return with_weights(ours, options, lambda name: getattr(cell, name.removesuffix("_l0"))).eval()
