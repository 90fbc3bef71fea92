"""The units with their options: the one list for laws, kernels, exports and the soak.

An option that changes the equations of a unit belongs here: a variant in STEPS, for all tests, and its values
in CHOICES, from which the soak draws.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import linnet
from linnet.units.slstm import SLSTMState


class Variant(NamedTuple):
    """A unit with options.

    square   its input must be as wide as its hidden state
    least    its least hidden size: a rank of 2 is none below 3
    heads    its hidden size must be a multiple of this
    """

    unit: type[linnet.Recurrent]
    options: dict[str, Any]
    square: bool = False
    least: int = 1
    heads: int = 1

    def size(self, size: int) -> int:
        """A hidden size that it can have, of at least `size`."""
        return -(-max(size, self.least) // self.heads) * self.heads

    def __str__(self) -> str:
        return "-".join([self.unit.__name__, *(f"{key}={value}" for key, value in self.options.items())])


def variant(unit: type[linnet.Recurrent], square: bool = False, least: int = 1, **options: Any) -> Variant:
    heads = max(options.get("heads", 1), options.get("input_heads", 1))
    return Variant(unit, options, square, least, heads)


def possible(state: Any) -> Any:
    """A drawn state as a unit can have it: the normaliser of sLSTM, by which it divides, is at least 1."""
    return state._replace(n=state.n.abs() + 1) if isinstance(state, SLSTMState) else state


# By batch norm, the sequences of a batch depend on each other, and training on more than the weights.
# LTC divides by sums of weights, which must not be negative.
LAWFUL: dict[Any, dict[str, Any]] = {
    linnet.LiGRU: {"normalization": "layer"},
    linnet.LTC: {"implicit": True},
}
# Units whose kernels have the form of others', and LTC, whose rounding its divisions amplify. They are left
# out where a test is of kernels or of what surrounds a unit, and not of the unit.
ALIKE = (
    *(linnet.OLRN, linnet.GLRN, linnet.ELRN, linnet.JANET, linnet.MinLSTM, linnet.IndRNN, linnet.UnICORNN),
    *(linnet.CoRNN, linnet.FastRNN, linnet.FastGRNN, linnet.MGU, linnet.MinimalRNN, linnet.SGU, linnet.HGRN),
    *(linnet.LinOSS, linnet.LiGRU, linnet.CfC, linnet.ATR, linnet.LTC),
)
FORMS = {name: unit for name, unit in linnet.UNITS.items() if unit not in ALIKE}
PLAIN = [variant(unit, **LAWFUL.get(unit, {})) for unit in linnet.UNITS.values()]

# Options that change the step itself.
STEPS = [
    variant(linnet.SRU, activation="tanh"),
    variant(linnet.SRU, recurrent_gates=False, rescale=False, activation="tanh"),
    variant(linnet.SRU, highway=False),
    variant(linnet.SRU, square=True, highway_bias=-3.0),
    variant(linnet.SRU, square=True, least=3, rescale=False, rank=2),
    variant(linnet.SRU, square=True, skip="matrix", full_bias=True),
    variant(linnet.LRN, activation="identity", bias=False),
    variant(linnet.OLRN, activation="tanh"),
    variant(linnet.RAN, activation="identity"),
    variant(linnet.RAN, square=True, reduced=True),
    variant(linnet.NRU, memory_size=4, num_heads=1, head_activation="relu"),
    variant(linnet.NRU, memory_size=9, num_heads=2, directions="per-head", head_reduction="sum"),
    variant(linnet.NRU, memory_size=3, num_heads=2, directions="full", heads_read_input=True),
    variant(linnet.NRU, memory_size=4, num_heads=4, layer_norm=True, heads_read_input=True, bias=False),
    variant(linnet.SCRN, context_size=3, hidden_reads="previous"),
    variant(linnet.SCRN, context_size=3, context_in_output=False, alpha=0.95, bias=False),
    variant(linnet.ATR, activation="identity", bias=False),
    variant(linnet.QRNN, pooling="f"),
    variant(linnet.QRNN, highway=True),
    variant(linnet.QRNN, pooling="ifo", highway=True),
    variant(linnet.QRNN, window=2, pooling="f"),
    variant(linnet.QRNN, window=2, pooling="ifo"),
    variant(linnet.QRNN, square=True, window=2, pooling="fo", highway=True),
    variant(linnet.QRNN, square=True, window=2, pooling="ifo", highway=True),
    variant(linnet.JANET, beta=1.0),
    variant(linnet.LSTM, peepholes=True),
    variant(linnet.LSTM, output_gate=False, content="linear"),
    variant(linnet.LSTM, output_gate=False, content="linear", activation="identity"),
    variant(linnet.LSTM, content="linear", activation="identity", peepholes=True),
    variant(linnet.GRU, form="ran"),
    variant(linnet.RNN, nonlinearity="relu"),
    variant(linnet.RNN, nonlinearity="relu", layer_norm=True),
    variant(linnet.RNN, nonlinearity="sigmoid", init="identity", bias=False),
    variant(linnet.StatisticalRU, statistics_size=7, summary_size=4, scales=(0.0, 0.9)),
    variant(linnet.EURNN, bias=False),
    variant(linnet.GORU, bias=False),
    variant(linnet.MinGRU, activation="identity", bias=False),
    variant(linnet.MinGRU, square=True, highway=True, bias=False),
    variant(linnet.MinGRU, learned_start=True),
    variant(linnet.MinLSTM, normalised=False),
    variant(linnet.MinLSTM, activation="identity", learned_start=True),
    variant(linnet.IndRNN, activation="tanh", bias=False),
    variant(linnet.FastRNN, update="quantTanh", bias=False),
    variant(linnet.FastGRNN, gate="quantSigm", update="quantTanh"),
    variant(linnet.FastGRNN, gate="quantSigm4", update="relu", rank=2, bias=False),
    variant(linnet.CoRNN, dt=0.3, gamma=1.0, epsilon=0.8, bias=False),
    variant(linnet.UnICORNN, dt=0.5, alpha=0.0, bias=False),
    # With block-diagonal matrices.
    variant(linnet.LSTM, heads=2),
    variant(linnet.LSTM, square=True, heads=2, input_heads=2),
    variant(linnet.SRU, square=True, input_heads=2),
    variant(linnet.SCRN, context_size=4, heads=2),
    variant(linnet.GRU, form="before", heads=2),
    variant(linnet.MGU, heads=2),
    variant(linnet.RGLRU, square=True, input_heads=2),
    variant(linnet.RGLRU, square=True, bias=False),
    variant(linnet.SLSTM, heads=2),
    # With a matrix product within the step.
    variant(linnet.MinimalRNN, bias=False),
    variant(linnet.SGU, deep=True),
    variant(linnet.GRU, form="before"),
    variant(linnet.LSTM, proj_size=3),
    variant(linnet.LSTM, proj_size=20, peepholes=True),
    variant(linnet.RAN, proj_size=3),
    variant(linnet.RAN, square=True, reduced=True, proj_size=5),
    variant(linnet.FastRNN, rank=2, recurrent_rank=3),
    variant(linnet.FastGRNN, recurrent_rank=3, gate="quantSigm"),
    variant(linnet.LEM, dt=0.3, bias=False),
    variant(linnet.LTC, implicit=True, motors=3, least=3, unfolds=2, bias=False),
    # With a norm within the step.
    variant(linnet.LSTM, norm="rms", norm_on="all"),
    variant(linnet.LSTM, norm="layer", norm_on="all", content="linear"),
    variant(linnet.GRU, norm="layer", norm_on="all", form="before"),
    variant(linnet.GRU, norm="layer", norm_on="all", form="ran"),
    variant(linnet.GRU, norm="rms", norm_on="all"),
    variant(linnet.ATR, norm="rms", norm_on="all"),
    variant(linnet.SLSTM, heads=2, group_norm=True, bias=False),
]

# Options of the layer around the step, on units that read their state in different ways.
AROUND = [
    variant(linnet.LRN, norm="layer", bias=False),
    variant(linnet.LRN, norm="rms"),
    variant(linnet.OLRN, norm="layer"),
    variant(linnet.QRNN, window=2, pooling="fo", norm="rms"),
    variant(linnet.QRNN, pooling="ifo", zoneout=0.3),
    variant(linnet.QRNN, proj_size=4, window=2, pooling="ifo"),
    variant(linnet.LRN, proj_size=2),
    variant(linnet.SCRN, proj_size=3, norm="layer"),
    variant(linnet.SRU, norm="layer", prenorm="rms"),
    variant(linnet.SRU, square=True, residual=True, prenorm="layer"),
    variant(linnet.LSTM, square=True, residual=True, norm="rms"),
    variant(linnet.GRU, prenorm="rms", zoneout=0.4),
    variant(linnet.LSTM, zoneout=0.25, peepholes=True),
]

VARIANTS = [*PLAIN, *STEPS, *AROUND]

# ------------------------------------------------------------------------------ values to draw from

YES_NO = (True, False)
HEADS = (1, 1, 2, 4)
# The options of each paper that change the equations. Options of the initialisation do not matter here.
CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {
    "sru": {
        "activation": ("identity", "tanh"),
        "recurrent_gates": YES_NO,
        "rescale": YES_NO,
        "highway": YES_NO,
        "highway_bias": (0.0, -1.0),
        "skip": ("auto", "matrix"),
        "rank": (0, 0, 2),
        "cell_dropout_on": ("state", "gate"),
        "full_bias": YES_NO,
    },
    "lrn": {"activation": ("tanh", "identity")},
    "olrn": {"activation": ("tanh", "identity")},
    "ran": {"activation": ("tanh", "identity"), "reduced": (False, False, True), "heads": HEADS},
    "nru": {
        "memory_size": (64, 16, 36),
        "num_heads": (4, 1),
        "head_activation": ("identity", "relu"),
        "head_reduction": ("mean", "sum"),
        "layer_norm": (False, False, True),
        "directions": ("joint", "joint", "per-head", "full"),
        "heads_read_input": (False, False, True),
    },
    "scrn": {
        "context_size": (None, 3),
        "context_in_output": YES_NO,
        "alpha": (0.95, 0.5),
        "hidden_reads": ("new", "previous"),
        "heads": HEADS,
    },
    "statisticalru": {
        "statistics_size": (None, 7),
        "summary_size": (None, 4),
        "scales": ((0.0, 0.5, 0.9, 0.99, 0.999), (0.0, 0.9)),
    },
    "atr": {"activation": ("tanh", "identity"), "heads": HEADS},
    "qrnn": {"window": (1, 2), "pooling": ("f", "fo", "ifo"), "highway": YES_NO},
    "janet": {"beta": (0.0, 1.0), "heads": HEADS},
    "lstm": {
        "peepholes": YES_NO,
        "output_gate": YES_NO,
        "content": ("recurrent", "linear"),
        "activation": ("tanh", "identity"),
        "heads": HEADS,
    },
    "gru": {"form": ("after", "before", "ran"), "heads": HEADS},
    "rnn": {"nonlinearity": ("tanh", "relu", "sigmoid"), "layer_norm": (False, False, True), "heads": HEADS},
    "mingru": {
        "activation": ("positive", "identity"),
        "highway": (False, False, True),
        "learned_start": YES_NO,
    },
    "minlstm": {"activation": ("positive", "identity"), "normalised": YES_NO, "learned_start": YES_NO},
    "indrnn": {"activation": ("relu", "tanh")},
    "mgu": {"heads": HEADS},
    "minimalrnn": {"heads": HEADS},
    "sgu": {"deep": YES_NO, "heads": HEADS},
    "fastrnn": {"update": ("tanh", "sigmoid", "quantTanh"), "rank": (0, 2), "recurrent_rank": (0, 3)},
    "fastgrnn": {
        "gate": ("sigmoid", "quantSigm", "quantSigm4"),
        "update": ("tanh", "quantTanh"),
        "rank": (0, 2),
        "recurrent_rank": (0, 3),
    },
    "cornn": {"dt": (0.042, 0.3), "gamma": (2.7, 0.5), "epsilon": (4.7, 0.5)},
    "unicornn": {"dt": (0.19, 0.5), "alpha": (30.65, 0.0)},
    "lem": {"dt": (1.0, 0.3)},
    "ltc": {"implicit": (True,), "unfolds": (6, 1, 2), "motors": (0, 1)},
    "ligru": {"normalization": ("layer", "rms", None), "stable": YES_NO},
    "slstm": {"heads": HEADS, "group_norm": (False, False, True)},
}
SHARED: dict[str, tuple[Any, ...]] = {
    "num_layers": (1, 1, 2),
    "bidirectional": (False, False, True),
    "bias": (True, True, False),
    "norm": (None, None, None, "layer", "rms"),
    "prenorm": (None, None, None, "layer", "rms"),
    "proj_size": (0, 0, 0, 3),
    "residual": (False, False, True),
    "input_heads": (1, 1, 1, 2),
}
