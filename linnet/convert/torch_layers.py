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
from linnet.layers.torch_names import TorchCell, TorchStack
from linnet.units import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell

OURS: dict[type[nn.Module], type[nn.Module]] = {
    **{nn.LSTM: LSTM, nn.GRU: GRU, nn.RNN: RNN},
    **{nn.LSTMCell: LSTMCell, nn.GRUCell: GRUCell, nn.RNNCell: RNNCell},
}
THEIRS = {ours: theirs for theirs, ours in OURS.items()}
OF_STACK = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
OF_CELL = ("input_size", "hidden_size", "bias")
FURTHER = {nn.LSTM: ("proj_size",), nn.RNN: ("nonlinearity",), nn.RNNCell: ("nonlinearity",)}
# Options that act only when a layer is built.
OF_START = ("init", "chrono")


def is_torchs(module: nn.Module) -> bool:
    """Whether this is a layer or a cell of torch, and not one of Linnet that counts as such."""
    is_ours = isinstance(module, (TorchStack, TorchCell))
    return isinstance(module, (nn.RNNBase, nn.RNNCellBase)) and not is_ours


def to_linnet(layer: Any) -> nn.Module:
    """Return Linnet's layer that computes the same as one of torch, with its weights."""
    kind = kind_of(layer)
    given = options_of(layer, kind)
    fresh = kind(**given, device="meta")
    check_carries(layer, {name for name, _ in fresh.named_parameters()})
    return carry(layer, with_weights_of(layer, OURS[kind], given), fresh)


def kind_of(layer: nn.Module) -> type[nn.Module]:
    """The class of torch of which `layer` is one; a subclass may only have another constructor."""
    kind = next((each for each in OURS if isinstance(layer, each)), None)
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


def options_of(layer: Any, kind: type[nn.Module]) -> dict[str, Any]:
    """The arguments with which a layer of torch was built."""
    return {name: getattr(layer, name) for name in options_of_class(kind)}


def options_of_class(kind: type[nn.Module]) -> tuple[str, ...]:
    """The names of the arguments of a class of torch, without those that say where its weights are."""
    shared = OF_STACK if issubclass(kind, nn.RNNBase) else OF_CELL
    return (*shared, *FURTHER.get(kind, ()))


def with_weights_of(layer: nn.Module, kind: type[nn.Module], options: dict[str, Any]) -> nn.Module:
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
    given = {name: value for name, value in layer.options_shown().items() if name not in OF_START}
    if others := [name for name in given if name not in options_of_class(kind)]:
        raise LeftAloneError(f"nn.{kind.__name__} has no {', '.join(others)}")
    check_no_hooks_inside(layer)
    return carry(layer, with_weights_of(layer, kind, given), plain_class(layer)(**given, device="meta"))


def check_no_hooks_inside(layer: nn.Module) -> None:
    """torch's layers have no modules inside that could have hooks."""
    inside = [module for module in layer.modules() if module is not layer]
    if any(getattr(module, hooks) for module in inside for hooks in HOOKS):
        raise LeftAloneError("a module inside it has hooks; remove them first")


def stack_of_cell(cell: Any) -> Any:
    """Return Linnet's stack of one layer that runs a cell of torch over sequences, with its weights."""
    kind = {nn.LSTMCell: LSTM, nn.GRUCell: GRU, nn.RNNCell: RNN}[kind_of(cell)]
    first = next(cell.parameters())
    made = kind(**options_of(cell, kind_of(cell)), device="meta", dtype=first.dtype)
    made.to_empty(device=first.device).load_state_dict(
        {f"{name}_l0": weight for name, weight in cell.state_dict().items()}
    )
    return made.eval()
