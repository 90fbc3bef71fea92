"""A model with an output at every step of a sequence or at the last: a stack of any unit, and a linear layer.

    x [T, B] of classes, or [T, B, input_size] of numbers -> stack -> answers [T or 1, B, output_size]

The output layer is initialised Xavier-normal with a bias of 0, as in the NRU authors' code. Its input is the
output of the unit: h for NRU, h and s for SCRN.

    model = SequenceModel(10, 9, SequenceModelConfig(unit="nru"), one_hot=True)
    answers, state = model(x)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_size
from linnet.models.budget import closest_size
from linnet.models.config import MOST_LAYERS, find_unit, option
from linnet.models.encoder import Encoder
from linnet.recurrent.recurrent import Recurrent

REFUSED = {
    "num_layers": "set its num_layers",
    "hidden_size": "set its hidden_size",
    "bidirectional": "it reads in one direction",
    "batch_first": "its sequences are [time, batch]",
    "device": "pass it to SequenceModel",
    "dtype": "pass it to SequenceModel",
}


@dataclass(frozen=True)
class SequenceModelConfig:
    """A stack of any unit, and a linear layer."""

    unit: str = option("nru", "the recurrent unit, a name of linnet.UNITS")
    unit_options: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "options of the unit's paper, and norm, dropout, zoneout, ..."},
    )
    hidden_size: int = option(80, "the size of each layer")
    num_layers: int = option(1, "the number of layers")

    def __post_init__(self) -> None:
        find_unit(self.unit)
        check_size("hidden_size", self.hidden_size)
        check_size("num_layers", self.num_layers, most=MOST_LAYERS)
        for name in self.unit_options:
            if name in REFUSED:
                raise ValueError(f"{name} is not a unit option of a sequence model: {REFUSED[name]}")


class SequenceModel(Encoder):
    """The outputs of a linear layer over a stack of units.

    one_hot   the inputs are classes, 0 ... input_size - 1, and not numbers
    last      answer at the last step only
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        config: SequenceModelConfig,
        *,
        one_hot: bool = False,
        last: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("output_size", output_size)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input_size, self.output_size, self.config = input_size, output_size, config
        self.one_hot, self.last = one_hot, last
        unit = find_unit(config.unit)
        self.rnn = unit(input_size, config.hidden_size, config.num_layers, **where, **config.unit_options)
        self.output = nn.Linear(self.rnn.output_size, output_size, **where)
        self.reset_output()

    def reset_output(self) -> None:
        nn.init.xavier_normal_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def reset_parameters(self) -> None:
        self.rnn.reset_parameters()
        self.reset_output()

    @property
    def stack(self) -> list[Recurrent]:
        # One module of several layers: its dropouts are unit options.
        return [self.rnn]

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """`state` is what the model returned for the sequence that this one continues (default: zeros)."""
        encoded = self.encode(x, None if state is None else (state,))
        y = encoded.output
        return self.output(y[-1:] if self.last else y), encoded.state[0]

    def read(self, x: Tensor) -> Tensor:
        dtype = self.output.weight.dtype
        if not self.one_hot:
            return x.to(dtype)
        self.check_classes(x)
        return F.one_hot(x, self.input_size).to(dtype)

    def check_classes(self, x: Tensor) -> None:
        if x.dtype != torch.int64 or x.dim() != 2:
            kind = f"{x.dtype} of shape {tuple(x.shape)}"
            raise TypeError(f"with one_hot=True x must be classes, torch.int64 [time, batch]; got {kind}")
        # On other devices than the CPU, reading the values would wait for the device.
        if x.device.type == "cpu" and x.numel() and not 0 <= int(x.min()) <= int(x.max()) < self.input_size:
            wrong = int(x.min()) if int(x.min()) < 0 else int(x.max())
            raise IndexError(f"x has the class {wrong}; this model reads 0 to {self.input_size - 1}")

    def extra_repr(self) -> str:
        return f"one_hot={self.one_hot}, last={self.last}"


def hidden_size_for(budget: int, input_size: int, output_size: int, config: SequenceModelConfig) -> int:
    """Return the hidden size with which the model is closest to `budget` parameters."""

    def count(size: int) -> int:
        sized = replace(config, hidden_size=size)
        return SequenceModel(input_size, output_size, sized, device="meta").count()

    return closest_size(budget, count, "smaller unit options")
