"""The parameters of LSTM, GRU and RNN by the names, and in the order of gates, that torch has for them.

    cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh, cell.weight_hr      as in nn.LSTMCell
    rnn.weight_ih_l0, ..., rnn.bias_hh_l1_reverse, rnn.all_weights                  as in nn.LSTM

All of these are the parameters themselves, except `bias_hh`. torch has two biases that are only ever added;
Linnet has one. `bias_hh` is therefore a tensor of zeros, and what is written to it is added to the bias at
the next call. GRU's candidate, whose two biases are not added, has both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from linnet.layers.scripted import scriptable_cell, scriptable_layer
from linnet.recurrent.cell import Cell
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent

NAME = re.compile(r"((?:weight|bias)_(?:ih|hh|hr))_l(\d+)(_reverse)?")
# Options that only act while training, or that say where to start: with them a unit is still torch's.
HARMLESS = ("dropout", "variational", "input_dropout", "state_dropout", "weight_drop", "weight_drop_on")
TORCHS = ("num_layers", "nonlinearity", "bias", "batch_first", "bidirectional", "init", "chrono", *HARMLESS)


class TorchProjection(Projection):
    """A Projection whose parameters are called as in torch."""

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return getattr(self, self.weight_name)

    @property
    def bias(self) -> Tensor | None:  # type: ignore[override]
        return getattr(self, self.bias_name)


class OfInput(TorchProjection):
    weight_name, bias_name = "weight_ih", "bias_ih"


class OfState(TorchProjection):
    weight_name, bias_name = "weight_hh", "bias_hh"


class OfOutput(TorchProjection):
    weight_name, bias_name = "weight_hr", "bias_hr"


class TorchCell(Cell):
    """A cell that torch has too, with `input` (OfInput), `recurrent` (OfState) and perhaps `projection`."""

    recurrent: OfState
    # Whether the rows of the matrices are torch's gates in torch's order.
    has_torch_layout: bool

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        # The `bias_hh` that was asked for. A list, which copies of the cell with other weights share.
        self.second_bias: list[Tensor] = []

    @property
    def has_dense_matrices(self) -> bool:
        """torch has no block-diagonal matrices."""
        return self.input.heads == 1 and self.recurrent.heads == 1

    def returned(self, y: Tensor, state: Any) -> Any:
        return state

    def __prepare_scriptable__(self) -> nn.Module:
        return scriptable_cell(self)

    @property
    def weight_ih(self) -> Tensor:
        return (self if self.input.heads == 1 else self.require_layout()).input.weight

    @property
    def weight_hh(self) -> Tensor:
        return self.require_layout().recurrent.weight

    @property
    def weight_hr(self) -> Tensor | None:
        return None if self.projection is None else self.projection.weight

    @property
    def bias_ih(self) -> Tensor | None:
        return self.input.bias

    @property
    def bias_hh(self) -> Tensor | None:
        if self.require_layout().input.bias is None:
            return None
        if not self.second_bias:
            # Another list, because that is a change which `linnet.run.change` sees.
            self.second_bias = [self.make_second_bias()]
        return self.second_bias[0]

    def make_second_bias(self) -> Tensor:
        """Zeros, and what is stored of it: the bias of GRU's candidate."""
        made = torch.zeros_like(self.input.bias, requires_grad=False)  # type: ignore[arg-type]
        stored = self.recurrent.bias
        if stored is not None:
            made[len(made) - len(stored) :] = stored.detach()
        return made

    @torch.no_grad()
    def settle(self) -> None:
        """Add what was written to `bias_hh` to the bias."""
        if not self.second_bias:
            return
        given, stored = self.second_bias.pop(), self.recurrent.bias
        added = given if stored is None else given[: len(given) - len(stored)]
        if added.any():
            self.input.bias[: len(added)] += added.to(self.input.bias)  # type: ignore[index]
        if stored is not None and not torch.equal(given[len(added) :], stored):
            stored.copy_(given[len(added) :])

    def require_layout(self) -> Any:
        if not self.has_torch_layout:
            raise AttributeError(
                f"{type(self).__name__}({self.extra_repr()}) has no matrix that torch has too"
            )
        return self

    def forward(self, *args: Any, **named: Any) -> Any:
        if self.second_bias:
            self.settle()
        return super().forward(*args, **named)

    def run_step(self, x: Tensor, state: Any = None, timespans: Tensor | None = None) -> tuple[Tensor, Any]:
        if self.second_bias:
            self.settle()
        return super().run_step(x, state, timespans)

    # ------------------------------------------------------------------------------ state dicts

    def torch_tensors(self) -> dict[str, Tensor]:
        """The parameters of torch's cell."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        tensors = {name: getattr(self, name) for name in names}
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def convert_state_dict(self, tensors: dict[str, Any], prefix: str = "") -> None:
        """Rename, in place, what torch's cell has saved."""
        if not self.has_torch_layout:
            return
        for name in ("input.weight_ih", "recurrent.weight_hh", "projection.weight_hr"):
            move(tensors, prefix + name.partition(".")[2], prefix + name)
        biases = [f"{prefix}{name}" for name in ("bias_ih", "bias_hh")]
        if all(name in tensors for name in biases):
            first, second = (tensors.pop(name) for name in biases)
            stored = 0 if self.recurrent.bias is None else len(self.recurrent.bias)
            shared = len(second) - stored
            tensors[f"{prefix}input.bias_ih"] = torch.cat([first[:shared] + second[:shared], first[shared:]])
            if stored:
                tensors[f"{prefix}recurrent.bias_hh"] = second[shared:]

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        self.second_bias.clear()
        self.convert_state_dict(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _save_to_state_dict(self, *args: Any) -> None:
        self.settle()
        super()._save_to_state_dict(*args)


class TorchStack(Recurrent):
    """A stack that torch has too."""

    def __getattr__(self, name: str) -> Any:
        found = NAME.fullmatch(name) if name.startswith(("weight_", "bias_")) else None
        if found is not None:
            kind, layer, reverse = found[1], int(found[2]), found[3] is not None
            if layer < self.num_layers and reverse < self.num_directions:
                tensor = getattr(self.cells[layer * self.num_directions + reverse], kind)
                if tensor is not None:
                    return tensor
        return super().__getattr__(name)

    def suffixes(self) -> Iterator[str]:
        """Return the suffix of torch's names of parameters for each cell."""
        for layer in range(self.num_layers):
            yield from (f"_l{layer}", f"_l{layer}_reverse")[: self.num_directions]

    @property
    def all_weights(self) -> list[list[Tensor]]:
        return [list(cell.torch_tensors().values()) for cell in self.cells]

    @property
    def _all_weights(self) -> list[list[str]]:
        pairs = zip(self.cells, self.suffixes(), strict=True)
        return [[name + suffix for name in cell.torch_tensors()] for cell, suffix in pairs]

    @property
    def _flat_weights(self) -> list[Tensor]:
        return [weight for weights in self.all_weights for weight in weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    def __prepare_scriptable__(self) -> nn.Module:
        return scriptable_layer(self)

    def torch_state_dict(self) -> dict[str, Tensor]:
        """The state dict of the module of torch that computes the same."""
        others = [name for name in self.options_shown() if name not in ("input_size", "hidden_size", *TORCHS)]
        allowed = ["proj_size"] if self.first_cell.projection is not None else []
        if others != allowed or not self.first_cell.has_torch_layout:
            raise ValueError(
                f"no module of torch computes what {type(self).__name__}({self.extra_repr()}) does"
            )
        return {
            name: weight.detach()
            for name, weight in zip(self._flat_weights_names, self._flat_weights, strict=True)
        }

    def convert_state_dict(self, tensors: dict[str, Any], prefix: str = "") -> None:
        """Rename, in place, what torch's module has saved."""
        for index, suffix in enumerate(self.suffixes()):
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"):
                move(tensors, f"{prefix}{kind}{suffix}", f"{prefix}directions.{index}.cell.{kind}")

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        self.convert_state_dict(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)


def move(tensors: dict[str, Any], old: str, new: str) -> None:
    if old in tensors:
        tensors[new] = tensors.pop(old)


def convert_state_dict(module: nn.Module, tensors: dict[str, Any]) -> dict[str, Any]:
    """Return a state dict of torch's modules with the names that the cells in `module` have."""
    tensors = dict(tensors)
    for name, each in module.named_modules():
        if isinstance(each, (TorchCell, TorchStack)):
            each.convert_state_dict(tensors, f"{name}." if name else "")
    return tensors
