"""A language model of any unit: embedding, stack, softmax.

    tokens [T, B] -> words x -> layer 1 -> ... -> layer n (-> projection) -> softmax over V words

The dropouts stand where the papers have them: on the rows of the embedding, on the embedded words,
between layers, on the last output, on the state, on the recurrent matrices, and in the mixture of
softmaxes. Windows of a text follow each other: the state that one returns is what the next starts
from.

    model = LanguageModel(10_000, LanguageModelConfig(unit="sru"))
    parts = model.loss(tokens, targets)
    parts.objective.backward()
    parts = model.loss(next_tokens, next_targets, parts.state)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.base.options import check_size
from linnet.layers.dropout import Dropout, RowDropout
from linnet.layers.penalties import activation_penalty, sobolev_penalty, temporal_penalty
from linnet.layers.recurrent import Recurrent
from linnet.layers.softmax import IGNORE, AdaptiveSoftmax, FullSoftmax, MixtureSoftmax
from linnet.models.budget import closest_size
from linnet.models.config import LanguageModelConfig, find_unit
from linnet.models.init import initialise
from linnet.units.scrn import SCRNCell

__all__ = [
    "Encoded",
    "LanguageModel",
    "LanguageModelConfig",
    "LossParts",
    "detach",
    "hidden_size_for",
    "with_hidden_size",
]

# The states of the layers, each as its unit has it: a tensor or a named tuple of [1, B, size].
State = tuple[Any, ...]


class Encoded(NamedTuple):
    """What the layers make of a window."""

    output: Tensor  # [T, B, F], as the softmax reads it
    state: State
    raw: Tensor  # the last layer's output before its dropout
    layers: tuple[Tensor, ...]  # the output of each layer before its dropout


class LossParts(NamedTuple):
    """What a window costs."""

    objective: Tensor  # the mean of -log p over the counted targets, and the penalties; to be differentiated
    nll: Tensor  # the sum of -log p, without penalties and without a graph
    count: int  # type: ignore[assignment]  # how many targets were counted
    penalties: dict[str, float]  # each as it stands in the objective
    state: State  # after the window, without a graph


class LanguageModel(nn.Module):
    """p(next token | all before): see LanguageModelConfig for its parts."""

    def __init__(self, vocabulary_size: int, config: LanguageModelConfig, *, device=None, dtype=None):
        super().__init__()
        check_size("vocabulary_size", vocabulary_size)
        where = {"device": device, "dtype": dtype}
        self.vocabulary_size, self.config = vocabulary_size, config
        size = config.embedding_size
        self.embedding = nn.Embedding(vocabulary_size, size, **where) if size else None
        self.layers = nn.ModuleList(make_layers(config, size or vocabulary_size, where))
        self.row_dropout = RowDropout(config.embedding_dropout, vocabulary_size)
        self.input_dropout = Dropout(config.input_dropout, config.dropout_mode)
        self.layer_dropouts = nn.ModuleList(make_dropouts(config, self.stack))
        width = self.stack[-1].output_size
        self.projection = nn.Linear(width, config.projection, **where) if config.projection else None
        self.softmax = make_softmax(config, vocabulary_size, self.stack[-1], where)
        self.initialise()

    @property
    def stack(self) -> list[Recurrent]:
        return list(self.layers)  # type: ignore[arg-type]

    def initialise(self) -> None:
        embedding = [] if self.embedding is None else [self.embedding.weight]
        own = (getattr(self.softmax, "weight", None), getattr(self.softmax, "bias", None))
        output, biases = ([] if tensor is None else [tensor] for tensor in own)
        outer = (list[Tensor](embedding), list[Tensor](output), list[Tensor](biases))
        initialise(self, self.layers, outer, self.config.init, self.config.init_scale)

    def reset_parameters(self) -> None:
        """Start anew, as the config says."""
        for module in self.modules():
            if module is not self and isinstance(
                module, (Recurrent, nn.Linear, nn.AdaptiveLogSoftmaxWithLoss)
            ):
                module.reset_parameters()
        self.initialise()

    def count(self) -> int:
        """The number of parameters; a tied matrix counts once."""
        return sum(weight.numel() for weight in self.parameters())

    # ------------------------------------------------------------------------------------ running

    def forward(self, tokens: Tensor, state: State | None = None) -> Encoded:
        """tokens [T, B]; `state` is that of the window before (default: the start of a text)."""
        self.check_tokens("tokens", tokens)
        x = self.input_dropout(self.row_dropout(self.embed(tokens), tokens))
        layers, finals = [], []
        for layer, dropout, held in zip(
            self.stack, self.layer_dropouts, self.read_state(state, x), strict=True
        ):
            y, final = layer(x, held)
            layers.append(y)
            finals.append(final)
            x = dropout(y)
        x = x if self.projection is None else self.projection(x)
        return Encoded(x, tuple(finals), layers[-1], tuple(layers))

    def embed(self, tokens: Tensor) -> Tensor:
        if self.embedding is not None:
            return self.embedding(tokens)
        return F.one_hot(tokens, self.vocabulary_size).to(self.example.dtype)

    def loss(self, tokens: Tensor, targets: Tensor, state: State | None = None) -> LossParts:
        """targets [T, B]: the tokens that come next, or -100 where none is counted."""
        self.check_targets(targets, tokens)
        encoded = self(tokens, state)
        mean = self.softmax.loss(encoded.output, targets, self.tied_weight)
        count = int((targets != IGNORE).sum())
        penalties = self.penalties(encoded)
        return LossParts(
            objective=mean + sum(penalties.values()) if penalties else mean,
            nll=mean.detach() * count,
            count=count,
            penalties={name: float(value.detach()) for name, value in penalties.items()},
            state=detach(encoded.state),
        )

    def penalties(self, encoded: Encoded) -> dict[str, Tensor]:
        """Those that the config asks for, each with its factor."""
        config, found = self.config, {}
        if config.ar:
            found["ar"] = config.ar * activation_penalty(encoded.output)
        if config.tar:
            found["tar"] = config.tar * temporal_penalty(encoded.raw)
        if config.sobolev:
            found["sobolev"] = config.sobolev * self.sobolev(encoded)
        return found

    def sobolev(self, encoded: Encoded) -> Tensor:
        """The mean over steps and sequences of |dh_t / dh_{t-1}|^2, summed over the layers."""
        total = encoded.raw.new_zeros(())
        for layer, y in zip(self.stack, encoded.layers, strict=True):
            carried = layer.layer(0)[0].carried
            keep = 1 - carried.rate if carried is not None and carried.is_active else 1.0
            h = y[..., -layer.hidden_size :]
            total = total + sobolev_penalty(h, layer.cells[0].recurrent.weight, keep).mean() / len(h)
        return total

    def log_probs(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """log p of every word at every step, [T, B, V], and the state."""
        encoded = self(tokens, state)
        return self.softmax.log_probs(encoded.output, self.tied_weight), encoded.state

    def step_logits(self, token: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """token [B] -> logits of the next one, [B, V], and the state: for generation, step by step."""
        if token.dim() != 1:
            raise ValueError(f"step_logits takes the tokens of one step, [batch]; got {tuple(token.shape)}")
        encoded = self(token[None], state)
        return self.softmax.logits(encoded.output[0], self.tied_weight), encoded.state

    @property
    def tied_weight(self) -> Tensor | None:
        return self.embedding.weight if self.config.tied and self.embedding is not None else None

    # ------------------------------------------------------------------------------------- states

    @property
    def example(self) -> Tensor:
        """A parameter, for its device and dtype."""
        return next(self.parameters())

    def initial_state(self, batch: int) -> State:
        """What a text starts from: `initial_state` of the config in every channel."""
        value, like = self.config.initial_state, self.example
        states = []
        for layer in self.stack:
            cell = layer.first_cell
            start = cell.initial_state((1, batch), like)
            states.append(cell.pack_state({name: s.fill_(value) for name, s in start.items()}))
        return tuple(states)

    def read_state(self, state: State | None, x: Tensor) -> State:
        if state is None and not self.config.initial_state:
            return (None,) * len(self.layers)
        if state is None:
            return self.initial_state(x.shape[1])
        if not isinstance(state, (tuple, list)) or len(state) != len(self.layers):
            got = f"{len(state)} of them" if isinstance(state, (tuple, list)) else type(state).__name__
            raise TypeError(
                f"the state of this language model is a tuple of the states of its {len(self.layers)} "
                f"layers, as it returns them; got {got}"
            )
        return tuple(state)

    # ------------------------------------------------------------------------------------- checks

    def check_tokens(self, what: str, tokens: Tensor, ignored: bool = False) -> None:
        if not isinstance(tokens, Tensor) or tokens.dtype != torch.int64:
            kind = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
            raise TypeError(f"{what} must be a tensor of torch.int64, [time, batch]; got {kind}")
        if tokens.dim() != 2 or not tokens.numel():
            raise ValueError(f"{what} must be [time, batch] and not empty; got shape {tuple(tokens.shape)}")
        if tokens.device.type == "cpu":
            self.check_range(what, tokens, ignored)

    def check_range(self, what: str, tokens: Tensor, ignored: bool) -> None:
        """On a CPU the check costs nothing; elsewhere it would wait for the device."""
        wrong = (tokens < 0) | (tokens >= self.vocabulary_size)
        if ignored:
            wrong &= tokens != IGNORE
        if wrong.any():
            raise IndexError(
                f"{what} has the id {int(tokens[wrong][0])}, but this model has a vocabulary of "
                f"{self.vocabulary_size}: ids are 0 to {self.vocabulary_size - 1}"
                f"{f', or {IGNORE} where no target is counted' if ignored else ''}"
            )

    def check_targets(self, targets: Tensor, tokens: Tensor) -> None:
        self.check_tokens("targets", targets, ignored=True)
        if targets.shape != tokens.shape:
            raise ValueError(
                f"targets are the tokens that come next, of the same shape; got tokens {tuple(tokens.shape)} "
                f"and targets {tuple(targets.shape)}"
            )

    def extra_repr(self) -> str:
        return f"{self.vocabulary_size}, unit={self.config.unit!r}"


# ------------------------------------------------------------------------------------------ making


def make_layers(config: LanguageModelConfig, input_size: int, where: dict[str, Any]) -> list[Recurrent]:
    """Stacks of one layer each, so that each has its size, and what is between them is the model's."""
    unit, sizes = find_unit(config.unit), config.sizes
    noise: dict[str, Any] = {"weight_drop": config.weight_drop}
    if config.state_dropout_on == "read":
        noise["state_dropout"] = config.state_dropout
    layers: list[Recurrent] = []
    for number, size in enumerate(sizes):
        position = {"layer": number, "num_layers": len(sizes), "input_size": input_size, "hidden_size": size}
        placed = unit.cell_class.place(dict(config.unit_options), direction=0, num_directions=1, **position)
        layer = unit(input_size, size, **where, **noise, **placed)
        if config.state_dropout and config.state_dropout_on == "carried":
            mode = "batch" if config.dropout_mode == "batch" else "sequence"
            layer.layer(0)[0].drop_carried(Dropout(config.state_dropout, mode))
        layers.append(layer)
        input_size = layer.output_size
    if config.sobolev and any(layer.proj_size or layer.residual for layer in layers):
        raise ValueError(
            "the Sobolev penalty reads h from the output of a layer; proj_size or residual hide it"
        )
    return layers


def make_dropouts(config: LanguageModelConfig, layers: list[Recurrent]) -> list[Dropout]:
    """After each layer; an h that was dropped as it was carried is not dropped again."""
    dropouts = []
    for layer in layers:
        rate = config.output_dropout if layer is layers[-1] else config.layer_dropout
        carried = layer.layer(0)[0].carried is not None
        spare = min(layer.output_size, layer.first_cell.states["h"]) if carried else 0
        context = 0 if config.context_dropout else layer.output_size - layer.first_cell.states["h"]
        dropouts.append(Dropout(rate, config.dropout_mode, spare=spare, first=context))
    return dropouts


def make_softmax(
    config: LanguageModelConfig, vocabulary_size: int, last: Recurrent, where: dict[str, Any]
) -> Any:
    width = config.projection or last.output_size
    if config.softmax == "adaptive":
        return AdaptiveSoftmax(width, vocabulary_size, config.output_bias, cutoffs=config.cutoffs, **where)
    if config.softmax == "mixture":
        return MixtureSoftmax(
            width,
            vocabulary_size,
            config.output_bias,
            experts=config.experts,
            latent_size=config.latent,
            tied=config.tied,
            dropout=config.latent_dropout,
            mode=config.dropout_mode,
            **where,
        )
    tied_size = check_tied(config, last) if config.tied else 0
    return FullSoftmax(width, vocabulary_size, config.output_bias, tied_size=tied_size, **where)


def check_tied(config: LanguageModelConfig, last: Recurrent) -> int:
    """How many features the embedding decodes: all, or SCRN's h."""
    width = config.projection or last.output_size
    cell = last.first_cell
    apart = isinstance(cell, SCRNCell) and cell.context_in_output and not config.projection
    tied = last.hidden_size if apart else width
    if tied != config.embedding_size:
        what = "h" if apart else "projection" if config.projection else "output"
        raise ValueError(
            f"tied=True decodes by the embedding of size {config.embedding_size}, but the last {what} of "
            f"this model has size {tied}; set embedding_size={tied}, or the last hidden size to "
            f"{config.embedding_size}, or projection={config.embedding_size}"
        )
    return tied


def detach(state: Any) -> Any:
    """The same state without a graph: where the gradient of the next window ends."""
    if isinstance(state, Tensor):
        return state.detach()
    if state is None:
        return None
    parts = [detach(part) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


# ------------------------------------------------------------------------------------------ budget


def with_hidden_size(config: LanguageModelConfig, size: int) -> LanguageModelConfig:
    """The same model with layers of `size`; an embedding that decodes them follows."""
    follows = config.tied and config.softmax == "full" and not config.projection
    return replace(
        config,
        hidden_size=size,
        num_layers=len(config.sizes),
        hidden_sizes=None,
        embedding_size=size if follows else config.embedding_size,
    )


def hidden_size_for(budget: int, vocabulary_size: int, config: LanguageModelConfig) -> int:
    """The hidden size with which the model comes closest to `budget` parameters; see `with_hidden_size`."""

    def count(size: int) -> int:
        return LanguageModel(vocabulary_size, with_hidden_size(config, size), device="meta").count()

    advice = f"a smaller embedding_size (now {config.embedding_size}), tied=True or a smaller vocabulary"
    return closest_size(budget, count, advice)
