"""A bidirectional encoder of sequences of vectors, for models that encode several sequences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from linnet.models.config import EncoderConfig
from linnet.models.encoder import StackEncoder, make_dropouts, make_layers
from linnet.recurrent.recurrent import Recurrent


class BidirectionalEncoder(StackEncoder):
    """x [T, B, input_size] -> the layers of an EncoderConfig; the model itself applies `input_dropout`.

    Each layer is a separate stack of one layer. Options of a unit that act on all layers of a stack except
    the last, such as SRU's cell dropout, therefore act on all layers.
    """

    def __init__(self, input_size: int, config: EncoderConfig, where: dict[str, Any]):
        super().__init__()
        self.config = config
        layers: list[Recurrent] = []
        for size in config.sizes:
            one = replace(config, hidden_size=size, num_layers=1, hidden_sizes=None)
            layers += make_layers(one, input_size, True, where)
            input_size = layers[-1].output_size
        self.layers = nn.ModuleList(layers)
        self.layer_dropouts = nn.ModuleList(make_dropouts(config, layers))

    @property
    def output_size(self) -> int:
        return self.stack[-1].output_size

    def read(self, x: Tensor) -> Tensor:
        return x
