"""Encoders, the base classes of models: tokens or numbers -> input of the first layer -> a stack of units.

`Encoder` runs a stack. `StackEncoder` has layers and the dropouts of the papers by an EncoderConfig;
`TokenEncoder` (language models) reads tokens, `TextEncoder` words, characters or both, in one direction or
both. A model is a subclass of an encoder:

    class Classifier(TextEncoder): ...
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_size
from linnet.layers.characters import CharacterMax
from linnet.layers.context import Context, ContextShape, ContextVectors
from linnet.layers.embedding import WordDropout, WordEmbedding, check_tokens
from linnet.layers.nested import map_tensors
from linnet.models.config import EncoderConfig, TextConfig, find_unit
from linnet.models.init import uniform_weights
from linnet.recurrent.dropout import Dropout, RowDropout
from linnet.recurrent.pretrained import Pretrained
from linnet.recurrent.recurrent import Recurrent
from linnet.recurrent.sequence import mask_of_lengths

# The states of the layers, each as its unit has it: a tensor or a named tuple of [directions, B, size].
State = tuple[Any, ...]


class Encoded(NamedTuple):
    """The outputs and states of the layers."""

    output: Tensor  # [T, B, F], after the dropout of the last layer
    state: State
    raw: Tensor  # the last layer's output before its dropout; without layers, their input
    layers: tuple[Tensor, ...]  # the output of each layer before its dropout


class Encoder(Pretrained):
    """Runs a stack over sequences; a subclass defines `stack`, `read` and, for dropouts, `after`."""

    @property
    def stack(self) -> list[Recurrent]:
        raise NotImplementedError(f"{type(self).__name__} must define stack, the list of its layers")

    def read(self, x: Any) -> Tensor:
        """Return the input of the first layer, [T, B, input_size]."""
        raise NotImplementedError(f"{type(self).__name__} must define read(x), the input of its first layer")

    def after(self, number: int, y: Tensor) -> Tensor:
        """Return the input of the next layer, given the output `y` of layer `number`."""
        return y

    def encode(self, x: Any, state: State | None = None, lengths: Tensor | None = None) -> Encoded:
        """Run the layers; `x` is the argument of `read`, and `lengths` [B] are those of the sequences."""
        return self.run_layers(self.read(x), state, lengths)

    def run_layers(self, x: Tensor, state: State | None = None, lengths: Tensor | None = None) -> Encoded:
        """`encode`, given the input of the first layer, x [T, B, input_size]."""
        mask = None if lengths is None else mask_of_lengths(lengths, like=x)
        outputs, finals = [], []
        for number, (layer, start) in enumerate(zip(self.stack, self.read_state(state, x), strict=True)):
            y, final = layer(x, start, mask=mask)
            outputs.append(y)
            finals.append(final)
            x = self.after(number, y)
        return Encoded(x, tuple(finals), outputs[-1] if outputs else x, tuple(outputs))

    def read_state(self, state: State | None, x: Tensor) -> State:
        """Return the initial state of each layer; None means zeros."""
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
        """A parameter, or a buffer of a quantised model, to get the device and the dtype of the model."""
        return next(each for each in chain(self.parameters(), self.buffers()) if each.is_floating_point())

    def count(self) -> int:
        """Return the number of parameters; a tied matrix counts once."""
        return sum(weight.numel() for weight in self.parameters())


class StackEncoder(Encoder):
    """Layers and the dropouts around them by an EncoderConfig; a subclass calls `add_layers`."""

    config: EncoderConfig

    def add_layers(self, input_size: int, bidirectional: bool, where: dict[str, Any]) -> None:
        config = self.config
        self.layers = nn.ModuleList(make_layers(config, input_size, bidirectional, where))
        self.input_dropout = Dropout(config.input_dropout, config.dropout_mode)
        self.layer_dropouts = nn.ModuleList(make_dropouts(config, self.stack))

    @property
    def stack(self) -> list[Recurrent]:
        return list(self.layers)  # type: ignore[arg-type]

    def after(self, number: int, y: Tensor) -> Tensor:
        return self.layer_dropouts[number](y)


class TokenEncoder(StackEncoder):
    """Embedding (or one-hot tokens), dropouts, and a stack of layers by an EncoderConfig."""

    def __init__(
        self,
        vocabulary_size: int,
        config: EncoderConfig,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("vocabulary_size", vocabulary_size)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.vocabulary_size, self.config = vocabulary_size, config
        size = config.embedding_size
        self.embedding = nn.Embedding(vocabulary_size, size, **where) if size else None
        self.add_layers(size or vocabulary_size, False, where)
        self.row_dropout = RowDropout(config.embedding_dropout, vocabulary_size)

    def read(self, x: Tensor) -> Tensor:
        check_tokens("tokens", x, self.vocabulary_size)
        return self.input_dropout(self.row_dropout(self.embed(x), x))

    def embed(self, tokens: Tensor) -> Tensor:
        if self.embedding is not None:
            return self.embedding(tokens)
        return F.one_hot(tokens, self.vocabulary_size).to(self.example.dtype)

    def extra_repr(self) -> str:
        return f"{self.vocabulary_size}, unit={self.config.unit!r}"


class Text(NamedTuple):
    """The input of a TextEncoder; `characters` are those of each word, 0 at padding."""

    tokens: Tensor  # int64 [T, B]
    characters: Tensor | None = None  # int64 [T, B, C]
    context: Context | None = None  # the vectors of an encoder


class TextEncoder(StackEncoder):
    """Words, their characters or both, and a stack of layers by a TextConfig.

    vocabulary_size   words; word 0 is padding
    characters        size of the alphabet, if characters are read; character 0 is padding
    context           the shape of the vectors of an encoder, if they are read
    """

    config: TextConfig

    def __init__(
        self,
        vocabulary_size: int,
        config: TextConfig,
        *,
        characters: int = 0,
        context: ContextShape | None = None,
        bidirectional: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("vocabulary_size", vocabulary_size)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.vocabulary_size, self.config = vocabulary_size, config
        self.embedding = (
            WordEmbedding(vocabulary_size, config.embedding_size, config.tuned, **where)
            if config.reads_words
            else None
        )
        self.context = make_context(config, context, where)
        self.characters = self.make_characters(characters, where) if config.reads_characters else None
        self.word_dropout = WordDropout(config.word_dropout)
        self.row_dropout = RowDropout(config.embedding_dropout, vocabulary_size)
        self.add_layers(self.input_size, bidirectional, where)

    def make_characters(self, characters: int, where: dict[str, Any]) -> Any:
        """Return a module with `output_size` that maps characters [T, B, C] to a vector for each word."""
        config = self.config
        if not characters:
            raise ValueError(
                f"inputs={config.inputs!r} needs the size of the alphabet; pass characters=... to the model"
            )
        return CharacterMax(characters, config.character_size, config.character_dropout, **where)

    def start_uniformly(self) -> None:
        """If init="uniform", draw the weights of the whole model again.

        Except the table of characters, and what belongs to an encoder.
        """
        if self.config.init == "uniform":
            kept = [] if self.characters is None else [self.characters.embedding.weight]
            kept += [] if self.context is None else self.context.parameters()
            uniform_weights(self, self.config.init_scale, but=kept)

    @property
    def input_size(self) -> int:
        """The size of the input at each step: the vectors of the word, of its context and its characters."""
        words = 0 if self.embedding is None else self.embedding.size
        return words + sum(part.output_size for part in (self.context, self.characters) if part is not None)

    def read(self, x: Text) -> Tensor:
        return self.join(x, None if self.context is None else self.context(x.context))

    def join(self, x: Text, context: Tensor | None) -> Tensor:
        """`read`, given the vectors of the words in their context, [T, B, size], if they are read."""
        check_tokens("tokens", x.tokens, self.vocabulary_size)
        vectors = [] if self.embedding is None else [self.embed(x.tokens)]
        vectors += [] if context is None else [context]
        if self.characters is not None:
            vectors.append(self.characters(x.characters))
        return self.input_dropout(vectors[0] if len(vectors) == 1 else torch.cat(vectors, -1))

    def embed(self, tokens: Tensor) -> Tensor:
        assert self.embedding is not None
        tokens = self.word_dropout(tokens)
        return self.row_dropout(self.embedding(tokens), tokens)

    def extra_repr(self) -> str:
        return f"{self.vocabulary_size}, unit={self.config.unit!r}, inputs={self.config.inputs!r}"


def make_context(config: Any, shape: ContextShape | None, where: dict[str, Any]) -> ContextVectors | None:
    """Return the part of a model that reads the vectors of an encoder, if its settings name one."""
    if config.context is None:
        return None
    if shape is None:
        raise ValueError(
            f"context={config.context!r} needs the shape of the encoder's vectors; pass "
            "context=ContextShape(size) to the model"
        )
    return ContextVectors(shape, config.context_vector_dropout, **where)


# ------------------------------------------------------------------------------------------ layers


def make_layers(
    config: EncoderConfig, input_size: int, bidirectional: bool, where: dict[str, Any]
) -> list[Recurrent]:
    """Return stacks of one layer each: sizes can differ, and the model adds the dropouts between them."""
    if bidirectional and (config.state_dropout_on == "carried" or not config.context_dropout):
        raise ValueError(
            "state_dropout_on='carried' and context_dropout=False are for models that read in one direction; "
            "set bidirectional=False or leave both at their defaults"
        )
    sizes = config.sizes
    if not sizes:
        return []
    unit = find_unit(config.unit)
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
    """Return the options of a unit at this position, without those that differ between directions."""
    forward, *backward = (
        unit.cell_class.options_at(dict(given), direction=direction, num_directions=directions, **position)
        for direction in range(directions)
    )
    return {name: value for name, value in forward.items() if all(each[name] == value for each in backward)}


def drop_carried(layer: Recurrent, config: EncoderConfig) -> None:
    if config.state_dropout and config.state_dropout_on == "carried":
        mode = "batch" if config.dropout_mode == "batch" else "sequence"
        layer.layer(0)[0].drop_carried(Dropout(config.state_dropout, mode))


def make_dropouts(config: EncoderConfig, layers: list[Recurrent]) -> list[Dropout]:
    """Return the dropout after each layer; a state that `drop_carried` drops is not dropped again."""
    dropouts = []
    for layer in layers:
        rate = config.output_dropout if layer is layers[-1] else config.layer_dropout
        carried = layer.layer(0)[0].carried is not None
        spare = min(layer.output_size, layer.first_cell.states["h"]) if carried else 0
        context = 0 if config.context_dropout else layer.output_size - layer.first_cell.states["h"]
        dropouts.append(Dropout(rate, config.dropout_mode, spare=spare, first=context))
    return dropouts


def detach(state: Any) -> Any:
    """Return the state without its graph, so that the gradient of the next window ends there."""
    return map_tensors(Tensor.detach, state)
