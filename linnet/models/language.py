"""A language model of any unit: embedding, stack, softmax.

    tokens [T, B] -> embedding -> layer 1 -> ... -> layer n (-> projection) -> softmax over V tokens

Dropouts are as in the papers: on the rows of the embedding, on the embedded tokens, between
layers, on the last output, on the state, on the recurrent matrices, and in the mixture of softmaxes. Windows
of a text follow each other: each starts from the state that the one before returned.

    model = LanguageModel(10_000, LanguageModelConfig(unit="sru"))
    parts = model.loss(tokens, targets)
    parts.objective.backward()
    parts = model.loss(next_tokens, next_targets, parts.state)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.layers.embedding import IGNORE, check_tokens
from linnet.layers.int8_modules import Quantised
from linnet.layers.penalties import activation_penalty, sobolev_penalty, temporal_penalty
from linnet.layers.pooling import last
from linnet.layers.softmax import AdaptiveSoftmax, FullSoftmax, MixtureSoftmax
from linnet.models.budget import closest_size
from linnet.models.config import LanguageModelConfig
from linnet.models.encoder import Encoded, State, TokenEncoder, detach
from linnet.models.init import initialise
from linnet.recurrent.recurrent import Recurrent
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


class LossParts(NamedTuple):
    """The loss of a window and its parts."""

    objective: Tensor  # the mean of -log p over the counted targets, and the penalties; to be differentiated
    nll: Tensor  # the sum of -log p, without penalties and without a graph
    count: int  # type: ignore[assignment]  # how many targets were counted
    penalties: dict[str, float]  # each as it is added to the objective
    state: State  # after the window, without a graph


class LanguageModel(TokenEncoder):
    """The probability of the next token given all tokens before; see LanguageModelConfig for the options."""

    config: LanguageModelConfig

    def __init__(
        self,
        vocabulary_size: int,
        config: LanguageModelConfig,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(vocabulary_size, config, **where)
        check_sobolev(config, self.stack)
        width = self.stack[-1].output_size
        self.projection = nn.Linear(width, config.projection, **where) if config.projection else None
        self.softmax = make_softmax(config, vocabulary_size, self.stack[-1], where)
        self.initialise()

    def initialise(self) -> None:
        embedding = [] if self.embedding is None else [self.embedding.weight]
        own = (getattr(self.softmax, "weight", None), getattr(self.softmax, "bias", None))
        output, biases = ([] if tensor is None else [tensor] for tensor in own)
        outer = (list[Tensor](embedding), list[Tensor](output), list[Tensor](biases))
        initialise(self, self.layers, outer, self.config.init, self.config.init_scale)

    def reset_parameters(self) -> None:
        """Initialise the weights as in `config.init`."""
        for module in self.modules():
            if module is not self and isinstance(
                module, (Recurrent, nn.Linear, nn.AdaptiveLogSoftmaxWithLoss)
            ):
                module.reset_parameters()
        self.initialise()

    # ------------------------------------------------------------------------------------ running

    def forward(self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None) -> Encoded:
        """Encode tokens [T, B]; `state` is that of the previous window (default: the start of a text)."""
        encoded = self.encode(tokens, state, lengths)
        if self.projection is None:
            return encoded
        return encoded._replace(output=self.projection(encoded.output))

    def loss(self, tokens: Tensor, targets: Tensor, state: State | None = None) -> LossParts:
        """Return the loss; targets [T, B] are the next tokens, or -100 at steps that do not count."""
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
        """Return the penalties of the config by name, multiplied by their factors."""
        config, penalties = self.config, {}
        if config.ar:
            penalties["ar"] = config.ar * activation_penalty(encoded.output)
        if config.tar:
            penalties["tar"] = config.tar * temporal_penalty(encoded.raw)
        if config.sobolev:
            penalties["sobolev"] = config.sobolev * self.sobolev(encoded)
        return penalties

    def sobolev(self, encoded: Encoded) -> Tensor:
        """Return the mean over steps and sequences of |dh_t / dh_{t-1}|^2, summed over the layers."""
        total = encoded.raw.new_zeros(())
        for layer, y in zip(self.stack, encoded.layers, strict=True):
            carried = layer.layer(0)[0].carried
            keep = 1 - carried.rate if carried is not None and carried.is_active else 1.0
            h = y[..., -layer.hidden_size :]
            total = total + sobolev_penalty(h, layer.cells[0].recurrent.weight, keep).mean() / len(h)
        return total

    def log_probs(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Return log p of every token at every step, [T, B, V], and the state."""
        encoded = self(tokens, state)
        return self.softmax.log_probs(encoded.output, self.tied_weight), encoded.state

    def step_logits(self, token: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """token [B] -> logits of the next one, [B, V], and the state: for generation, step by step."""
        if token.dim() != 1:
            raise ValueError(f"step_logits takes the tokens of one step, [batch]; got {tuple(token.shape)}")
        return self.last_logits(token[None], state)

    def last_logits(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """tokens [T, B] -> the logits after the last real step of each sequence, [B, V], and the state."""
        encoded = self(tokens, state, lengths)
        return self.softmax.logits(last(encoded.output, lengths), self.tied_weight), encoded.state

    @property
    def tied_weight(self) -> Any:
        """The embedding as output matrix, if the config says so."""
        if not self.config.tied or self.embedding is None:
            return None
        return self.embedding.matrix() if isinstance(self.embedding, Quantised) else self.embedding.weight

    # ------------------------------------------------------------------------------------- states

    def initial_state(self, batch: int) -> State:
        """Return the state at the start of a text: that of the unit, or the number of the settings."""
        value, like = self.config.initial_state, self.example
        states = []
        for layer in self.stack:
            start, cell = layer.initial_state(batch, like), layer.first_cell
            own = {name: start[name] for name in cell.states}
            if value:
                own = {name: torch.full_like(tensor, value) for name, tensor in own.items()}
            states.append(cell.pack_state(own))
        return tuple(states)

    def read_state(self, state: State | None, x: Tensor) -> State:
        if state is None and self.config.initial_state:
            return self.initial_state(x.shape[1])
        return super().read_state(state, x)

    # ------------------------------------------------------------------------------------- checks

    def check_targets(self, targets: Tensor, tokens: Tensor) -> None:
        check_tokens("targets", targets, self.vocabulary_size, ignored=True)
        if targets.shape != tokens.shape:
            raise ValueError(
                f"targets are the tokens that come next, of the same shape; got tokens {tuple(tokens.shape)} "
                f"and targets {tuple(targets.shape)}"
            )


# ----------------------------------------------------------------------------------------- softmax


def check_sobolev(config: LanguageModelConfig, layers: list[Recurrent]) -> None:
    if config.sobolev and any(layer.proj_size or layer.residual for layer in layers):
        raise ValueError(
            "the Sobolev penalty reads h from the output of a layer; proj_size or residual hide it"
        )


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
    """Return the number of features that are multiplied by the embedding: all, or SCRN's h."""
    width = config.projection or last.output_size
    cell = last.first_cell
    only_h = isinstance(cell, SCRNCell) and cell.context_in_output and not config.projection
    tied = last.hidden_size if only_h else width
    if tied != config.embedding_size:
        what = "h" if only_h else "projection" if config.projection else "output"
        raise ValueError(
            f"tied=True uses the embedding of size {config.embedding_size} as output matrix, but the last "
            f"{what} of this model has size {tied}; set embedding_size={tied}, or the last hidden size to "
            f"{config.embedding_size}, or projection={config.embedding_size}"
        )
    return tied


# ------------------------------------------------------------------------------------------ budget


def with_hidden_size(config: LanguageModelConfig, size: int) -> LanguageModelConfig:
    """Return the config with layers of `size`; an embedding that is the output matrix gets this size too."""
    follows = config.tied and config.softmax == "full" and not config.projection
    return replace(
        config,
        hidden_size=size,
        num_layers=len(config.sizes),
        hidden_sizes=None,
        embedding_size=size if follows else config.embedding_size,
    )


def hidden_size_for(budget: int, vocabulary_size: int, config: LanguageModelConfig) -> int:
    """Return the hidden size for which `with_hidden_size` is closest to `budget` parameters."""

    def count(size: int) -> int:
        return LanguageModel(vocabulary_size, with_hidden_size(config, size), device="meta").count()

    advice = f"a smaller embedding_size (now {config.embedding_size}), tied=True or a smaller vocabulary"
    return closest_size(budget, count, advice)
