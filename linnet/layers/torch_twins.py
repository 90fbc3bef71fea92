"""torch's LSTM, GRU, RNN and their cells, and the modules of Linnet that compute the same.

    OURS[nn.LSTM] is linnet.LSTM      THEIRS[linnet.LSTM] is nn.LSTM

A unit says by `twin_of` which class of torch it corresponds to. Both have parameters of the same names, so a
twin is built from the options and the weights of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor, nn

OURS: dict[type[nn.Module], type[nn.Module]] = {}
THEIRS: dict[type[nn.Module], type[nn.Module]] = {}
STACK_OF_CELL = {nn.LSTMCell: nn.LSTM, nn.GRUCell: nn.GRU, nn.RNNCell: nn.RNN}
# The arguments of torch's constructors.
OF_STACK = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
OF_CELL = ("input_size", "hidden_size", "bias")
FURTHER = {nn.LSTM: ("proj_size",), nn.RNN: ("nonlinearity",), nn.RNNCell: ("nonlinearity",)}
NONLINEARITIES = ("tanh", "relu")
# Options of Linnet that torch does not have: those that act only when a layer is built, and only in training.
OF_START = ("init", "chrono")
OF_TRAINING = ("variational", "input_dropout", "state_dropout", "weight_drop", "weight_drop_on")

Kind = TypeVar("Kind", bound=type[nn.Module])


def twin_of(theirs: type[nn.Module]) -> Callable[[Kind], Kind]:
    """Declare that a class of Linnet, with its default options, computes what a class of torch does."""

    def register(ours: Kind) -> Kind:
        OURS[theirs], THEIRS[ours] = ours, theirs
        return ours

    return register


def is_torchs(module: nn.Module) -> bool:
    """Whether this is a layer or a cell of torch, and not one of Linnet that counts as such."""
    return isinstance(module, (nn.RNNBase, nn.RNNCellBase)) and not isinstance(module, tuple(THEIRS))


def torch_class(module: nn.Module) -> type[nn.Module] | None:
    """The class of torch that a module of torch is of, or is derived from; None if it has no twin."""
    return next((kind for kind in OURS if isinstance(module, kind)), None)


def options_of_class(kind: type[nn.Module]) -> tuple[str, ...]:
    """The names of the arguments of a class of torch, without those that say where its weights are."""
    shared = OF_STACK if issubclass(kind, nn.RNNBase) else OF_CELL
    return (*shared, *FURTHER.get(kind, ()))


def options_of(module: Any, kind: type[nn.Module]) -> dict[str, Any]:
    """The arguments with which a module of torch was built; a quantised one does not have all of them."""
    return {name: getattr(module, name) for name in options_of_class(kind) if hasattr(module, name)}


def options_for_torch(module: Any, kind: type[nn.Module], ignored: Sequence[str] = ()) -> dict[str, Any]:
    """The arguments with which torch's class computes the same as a module of Linnet.

    ignored   options that torch does not have and need not have
    """
    shown = {n: value for n, value in module.options_shown().items() if n not in (*OF_START, *ignored)}
    if others := [name for name in shown if name not in options_of_class(kind)]:
        raise ValueError(f"nn.{kind.__name__} has no {', '.join(others)}")
    nonlinearity = shown.get("nonlinearity", "tanh")
    if nonlinearity not in NONLINEARITIES:
        raise ValueError(f"nn.{kind.__name__} has no nonlinearity={nonlinearity!r}")
    return shown


def with_weights(
    kind: type[nn.Module], options: dict[str, Any], weight: Callable[[str], Tensor]
) -> nn.Module:
    """Build a module of torch or of Linnet that holds the tensors `weight(name)`."""
    # On meta, because drawing weights would change torch's random numbers for the rest of the program.
    made = kind(**options, device="meta")
    made.load_state_dict({name: weight(name).detach() for name in made.state_dict()}, assign=True)
    return made
