"""What all models share: tokens or numbers -> input of the first layer -> a stack of any unit.

`Encoder` runs a stack; `TokenEncoder` has an embedding, the dropouts of the papers and layers by an
EncoderConfig, in one direction or both. A model is an encoder with something on top:

    class Classifier(TokenEncoder): ...
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from linnet.base.options import check_size
from linnet.layers.dropout import Dropout, RowDropout
from linnet.layers.embedding import check_tokens
from linnet.layers.recurrent import Recurrent
from linnet.layers.sequence import mask_of_lengths
from linnet.models.config import EncoderConfig, find_unit

# The states of the layers, each as its unit has it: a tensor or a named tuple of [directions, B, size].
State = tuple[Any, ...]


class Encoded(NamedTuple):
    """What the layers compute from a sequence."""

    output: Tensor  # [T, B, F], after the dropout of the last layer
    state: State
    raw: Tensor  # the last layer's output before its dropout
    layers: tuple[Tensor, ...]  # the output of each layer before its dropout


class Encoder(nn.Module):
    """Runs a stack over sequences; a subclass has `stack`, `read` and, where it drops, `after`."""

    @property
    def stack(self) -> list[Recurrent]:
        raise NotImplementedError(f"{type(self).__name__} must say what its layers are")

    def read(self, x: Tensor) -> Tensor:
        """The input of the first layer, [T, B, input_size]."""
        raise NotImplementedError(f"{type(self).__name__} must say how it reads its input")

    def after(self, number: int, y: Tensor) -> Tensor:
        """The output of a layer as the next one reads it."""
        return y

    def encode(self, x: Tensor, state: State | None = None, lengths: Tensor | None = None) -> Encoded:
        """x as `read` takes it, time-first; `lengths` [B]: how many steps of each sequence are real."""
        x = self.read(x)
        mask = None if lengths is None else mask_of_lengths(lengths, like=x)
        outputs, finals = [], []
        for number, (layer, held) in enumerate(zip(self.stack, self.read_state(state, x), strict=True)):
            y, final = layer(x, held, mask=mask)
            outputs.append(y)
            finals.append(final)
            x = self.after(number, y)
        return Encoded(x, tuple(finals), outputs[-1], tuple(outputs))

    def read_state(self, state: State | None, x: Tensor) -> State:
        """The state of each layer to start from; None: zeros."""
        layers = len(self.stack)
        if state is None:
            return (None,) * layers
        if not isinstance(state, (tuple, list)) or len(state) != layers:
            got = f"{len(state)} of them" if isinstance(state, (tuple, list)) else type(state).__name__
            raise TypeError(
                f"the state of this model is a tuple of the states of its {layers} layers, as it returns "
                f"them; got {got}"
            )
        return tuple(state)

    @property
    def example(self) -> Tensor:
        """A parameter, for its device and dtype."""
        return next(self.parameters())

    def count(self) -> int:
        """The number of parameters; a tied matrix counts once."""
        return sum(weight.numel() for weight in self.parameters())


class TokenEncoder(Encoder):
    """Embedding (or one-hot tokens), dropouts, and a stack of layers by an EncoderConfig."""

    def __init__(
        self,
        vocabulary_size: int,
        config: EncoderConfig,
        *,
        bidirectional: bool = False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        check_size("vocabulary_size", vocabulary_size)
        where = {"device": device, "dtype": dtype}
        self.vocabulary_size, self.config = vocabulary_size, config
        size = config.embedding_size
        self.embedding = nn.Embedding(vocabulary_size, size, **where) if size else None
        self.layers = nn.ModuleList(make_layers(config, size or vocabulary_size, bidirectional, where))
        self.row_dropout = RowDropout(config.embedding_dropout, vocabulary_size)
        self.input_dropout = Dropout(config.input_dropout, config.dropout_mode)
        self.layer_dropouts = nn.ModuleList(make_dropouts(config, self.stack))

    @property
    def stack(self) -> list[Recurrent]:
        return list(self.layers)  # type: ignore[arg-type]

    def read(self, x: Tensor) -> Tensor:
        check_tokens("tokens", x, self.vocabulary_size)
        return self.input_dropout(self.row_dropout(self.embed(x), x))

    def embed(self, tokens: Tensor) -> Tensor:
        if self.embedding is not None:
            return self.embedding(tokens)
        return F.one_hot(tokens, self.vocabulary_size).to(self.example.dtype)

    def after(self, number: int, y: Tensor) -> Tensor:
        return self.layer_dropouts[number](y)

    def extra_repr(self) -> str:
        return f"{self.vocabulary_size}, unit={self.config.unit!r}"


# ------------------------------------------------------------------------------------------ making


def make_layers(
    config: EncoderConfig, input_size: int, bidirectional: bool, where: dict[str, Any]
) -> list[Recurrent]:
    """Stacks of one layer each, so that each has its size, and the model adds the dropouts between them."""
    if bidirectional and (config.state_dropout_on == "carried" or not config.context_dropout):
        raise ValueError(
            "state_dropout_on='carried' and context_dropout=False are for models that read in one direction; "
            "set bidirectional=False or leave both at their defaults"
        )
    unit, sizes = find_unit(config.unit), config.sizes
    noise: dict[str, Any] = {"weight_drop": config.weight_drop, "bidirectional": bidirectional}
    if config.state_dropout_on == "read":
        noise["state_dropout"] = config.state_dropout
    layers: list[Recurrent] = []
    for number, size in enumerate(sizes):
        position = {"layer": number, "num_layers": len(sizes), "input_size": input_size, "hidden_size": size}
        options = options_of_layer(unit, config.unit_options, 2 if bidirectional else 1, position)
        layer = unit(input_size, size, **where, **noise, **options)
        drop_carried(layer, config)
        layers.append(layer)
        input_size = layer.output_size
    return layers


def options_of_layer(
    unit: type[Recurrent], given: dict[str, Any], directions: int, position: dict[str, int]
) -> dict[str, Any]:
    """The options of a unit at this position; those that differ between directions are left to the layer."""
    forward, *backward = (
        unit.cell_class.place(dict(given), direction=direction, num_directions=directions, **position)
        for direction in range(directions)
    )
    return {name: value for name, value in forward.items() if all(each[name] == value for each in backward)}


def drop_carried(layer: Recurrent, config: EncoderConfig) -> None:
    if config.state_dropout and config.state_dropout_on == "carried":
        mode = "batch" if config.dropout_mode == "batch" else "sequence"
        layer.layer(0)[0].drop_carried(Dropout(config.state_dropout, mode))


def make_dropouts(config: EncoderConfig, layers: list[Recurrent]) -> list[Dropout]:
    """After each layer; a state that is dropped as it is carried is not dropped again."""
    dropouts = []
    for layer in layers:
        rate = config.output_dropout if layer is layers[-1] else config.layer_dropout
        carried = layer.layer(0)[0].carried is not None
        spare = min(layer.output_size, layer.first_cell.states["h"]) if carried else 0
        context = 0 if config.context_dropout else layer.output_size - layer.first_cell.states["h"]
        dropouts.append(Dropout(rate, config.dropout_mode, spare=spare, first=context))
    return dropouts


def detach(state: Any) -> Any:
    """The same state without a graph: where the gradient of the next window ends."""
    if isinstance(state, Tensor):
        return state.detach()
    if state is None:
        return None
    parts = [detach(part) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
