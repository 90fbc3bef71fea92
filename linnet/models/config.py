"""What a language model is made of, as a value: the same value gives the same model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from linnet.base.options import check_number, check_rate, check_size, choose
from linnet.base.suggest import no_such
from linnet.layers.dropout import MODES
from linnet.layers.recurrent import Recurrent
from linnet.layers.stacks import UNITS

# Each layer is a module: the settings of a stranger's run must not ask for a billion of them.
MOST_LAYERS = 1000
SOFTMAXES = ("full", "mixture", "adaptive")
INITS = ("unit", "uniform", "weights", "rows", "xavier", "normal")
DROPOUTS = (
    *("input_dropout", "embedding_dropout", "layer_dropout", "output_dropout"),
    *("latent_dropout", "state_dropout", "weight_drop"),
)
# Options of a stack that the model gives itself, and what to set instead.
TAKEN = {
    "dropout": "layer_dropout",
    "variational": "dropout_mode",
    "state_dropout": "state_dropout",
    "weight_drop": "weight_drop",
    "num_layers": "num_layers",
}
REFUSED = {
    "bidirectional": "a language model reads one way",
    "batch_first": "its windows are [time, batch]",
    "device": "give it to LanguageModel",
    "dtype": "give it to LanguageModel",
}


def option(default: Any, about: str) -> Any:
    """A field with the line that the command line shows for it."""
    return field(default=default, metadata={"help": about})


@dataclass(frozen=True)
class LanguageModelConfig:
    """Embedding, a stack of any unit, and a softmax, with every regulariser between them."""

    unit: str = option("lstm", "the recurrent unit, a name of linnet.UNITS")
    unit_options: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "options of the unit's paper, and norm, prenorm, zoneout, ..."},
    )
    embedding_size: int = option(200, "the size of a word; 0: one-hot, read by the first layer itself")
    hidden_size: int = option(200, "the size of each layer")
    num_layers: int = option(2, "the number of layers")
    hidden_sizes: tuple[int, ...] | None = option(None, "a size for each layer, instead of the two above")
    projection: int = option(0, "the last output is projected to so many dimensions (0: not at all)")
    tied: bool = option(False, "the embedding decodes too (SCRN: h is decoded by it, s by its own matrix)")
    softmax: str = option("full", "full, mixture or adaptive")
    experts: int = option(15, "mixture: how many softmaxes")
    latent_size: int = option(0, "mixture: what each expert hands to the output (0: embedding_size)")
    cutoffs: tuple[int, ...] = option((), "adaptive: where the clusters of rarer words begin")
    output_bias: bool = option(True, "whether the softmax has a bias (adaptive: its head)")
    input_dropout: float = option(0.0, "dropout on the embedded words")
    embedding_dropout: float = option(0.0, "whole words dropped for a window")
    layer_dropout: float = option(0.0, "dropout on the output of each layer but the last")
    output_dropout: float = option(0.0, "dropout on the output of the last layer")
    latent_dropout: float = option(0.0, "mixture: dropout on what each expert hands on")
    weight_drop: float = option(0.0, "dropout on the recurrent matrices, one mask for a window")
    state_dropout: float = option(0.0, "dropout on the state, one mask for a window")
    state_dropout_on: str = option(
        "read", "the state as the matrices `read` it, or as it is `carried` and given out"
    )
    context_dropout: bool = option(True, "scrn: dropout on a layer's output drops its context too")
    dropout_mode: str = option(
        "naive", "what shares a mask: naive (nothing), sequence (its steps), batch (all)"
    )
    ar: float = option(0.0, "times the mean square of the last output, as dropped")
    tar: float = option(0.0, "times the mean square of the change of the last output")
    sobolev: float = option(0.0, "scrn: times the squared norm of dh_t/dh_{t-1}, for each step and layer")
    init: str = option("unit", "how parameters start: unit, uniform, weights, rows, xavier or normal")
    init_scale: float = option(0.1, "the scale of the start, where it has one")
    initial_state: float = option(0.0, "what every state starts from")

    def __post_init__(self) -> None:
        # From JSON they come as lists.
        for name in ("hidden_sizes", "cutoffs"):
            value = getattr(self, name)
            object.__setattr__(self, name, value if value is None else tuple(value))
        find_unit(self.unit)
        self.check_choices()
        self.check_sizes()
        for name in DROPOUTS:
            check_rate(name, getattr(self, name))
        for name in ("ar", "tar", "sobolev", "init_scale"):
            check_number(name, getattr(self, name), least=0)
        check_number("initial_state", self.initial_state)
        self.check_unit_options()
        self.check_fit()

    def check_choices(self) -> None:
        choose("softmax", self.softmax, SOFTMAXES)
        choose("dropout_mode", self.dropout_mode, MODES)
        choose("state_dropout_on", self.state_dropout_on, ("read", "carried"))
        choose("init", self.init, INITS)

    def check_sizes(self) -> None:
        for name in ("embedding_size", "projection", "latent_size"):
            check_size(name, getattr(self, name), least=0)
        for name in ("hidden_size", "experts"):
            check_size(name, getattr(self, name))
        check_size("num_layers", self.num_layers, most=MOST_LAYERS)
        for size in self.sizes:
            check_size("each of hidden_sizes", size)
        if not self.sizes:
            raise ValueError("hidden_sizes must have a size for each layer; it is empty")

    def check_unit_options(self) -> None:
        for name in self.unit_options:
            if name in TAKEN:
                raise ValueError(f"{name} is no unit option of a language model; set its {TAKEN[name]}")
            if name in REFUSED:
                raise ValueError(f"{name} is no unit option of a language model: {REFUSED[name]}")

    def check_fit(self) -> None:
        """What does not go together, whatever the sizes are."""
        if self.sobolev and self.unit != "scrn":
            raise ValueError(f"the Sobolev penalty is that of scrn; unit={self.unit!r} takes sobolev=0")
        if not self.context_dropout and self.unit != "scrn":
            raise ValueError(
                f"context_dropout is of scrn's context; unit={self.unit!r} has none, leave it True"
            )
        if self.tied and self.softmax == "adaptive":
            raise ValueError("the adaptive softmax has matrices of its own for each cluster; set tied=False")
        if self.softmax == "adaptive" and not self.cutoffs:
            raise ValueError("the adaptive softmax needs cutoffs, e.g. cutoffs=(2000, 10000)")
        if self.tied and not self.embedding_size:
            raise ValueError("tied=True needs an embedding; set embedding_size, 0 is one-hot input")
        if self.softmax == "mixture" and not self.latent:
            raise ValueError("the mixture of softmaxes needs latent_size, as there is no embedding_size")
        if self.softmax == "mixture" and self.tied and self.latent != self.embedding_size:
            raise ValueError(
                f"tied=True decodes by the embedding, so latent_size must be embedding_size="
                f"{self.embedding_size} or 0; got latent_size={self.latent_size}"
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """The hidden size of each layer."""
        return (self.hidden_size,) * self.num_layers if self.hidden_sizes is None else self.hidden_sizes

    @property
    def latent(self) -> int:
        return self.latent_size or self.embedding_size


def find_unit(name: str) -> type[Recurrent]:
    if name not in UNITS:
        raise ValueError(no_such("unit", name, UNITS))
    return UNITS[name]
