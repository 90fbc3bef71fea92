"""Who forecasts, and with which settings.

Of every library: the defaults for size, learning rate and batch; the context and the horizon of the set; no
early stopping and no validation, so that all data are learned from; as many steps as the CPU time allows.
Beyond the defaults, what their documentation recommends for many series of different sizes:

    neuralforecast   input_size is the context; scaler_type "robust" (its default) scales each window
    darts            Scaler() scales each series to 0...1; BlockRNNModel also use_reversible_instance_norm,
                     which scales each window; LSTM or GRU instead of the plain RNN; the absolute error as
                     loss, since that is measured; RNNModel with a training_length of context + horizon

Linnet has half of the CPU time of the others, and the defaults of `linnet train forecast`.

"wide" is darts with the layers and the size of neuralforecast's defaults, since its own are small.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tools.compat.projects import MODELS, PROJECTS, Project

LIBRARIES: dict[str, Project | None] = {
    "naive": None,
    "linnet": None,
    "neuralforecast": MODELS["neuralforecast"],
    "darts": PROJECTS["darts"],
}
"""What is installed in an environment of its own; None: what runs in this one."""
WIDE = {"hidden_dim": 128, "n_rnn_layers": 2}


@dataclass(frozen=True)
class Contestant:
    """A model of a library.

    library    a name of `LIBRARIES`; its file has the function `answer`
    settings   what `answer` gives to the model, besides context and horizon
    share      of the CPU time of the set
    """

    name: str
    library: str
    model: str
    settings: dict[str, Any] = field(default_factory=dict)
    share: float = 1.0


CONTESTANTS = {
    each.name: each
    for each in (
        Contestant("seasonal-naive", "naive", "seasonal naive"),
        Contestant("naive2", "naive", "Naive2"),
        Contestant("linnet-sru", "linnet", "sru", share=0.5),
        Contestant("linnet-gru", "linnet", "gru", share=0.5),
        Contestant("neuralforecast-lstm", "neuralforecast", "LSTM"),
        Contestant("neuralforecast-gru", "neuralforecast", "GRU"),
        Contestant("darts-block", "darts", "BlockRNNModel", {"model": "LSTM"}),
        Contestant("darts-block-wide", "darts", "BlockRNNModel", {"model": "LSTM", **WIDE}),
        Contestant("darts-rnn", "darts", "RNNModel", {"model": "LSTM"}),
    )
}
