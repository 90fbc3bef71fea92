"""LSTM, GRU and RNN hold torch's own parameters: the same names, shapes, number and order, and both biases.

    cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh, cell.weight_hr      as in nn.LSTMCell
    rnn.weight_ih_l0, ..., rnn.bias_hh_l1_reverse, rnn.all_weights                  as in nn.LSTM

So state dicts, states of optimisers, ties, parametrizations and assignments are those of torch's modules. The
owner of the parameters is the module that users see: a stack, or a cell that stands alone. The projections
inside, which kernels read, hold the same objects: an assignment to the owner reaches them at once, and each
call checks that they still do (`bind`).

torch has two biases that are only ever added, but for those of GRU's candidate. The projection of the input
adds both (`OfInput.bias`), so that kernels read one.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from linnet.layers.scripted import scriptable
from linnet.layers.torch_twins import OF_STACK, OF_START, OF_TRAINING
from linnet.program.operands import sum_of_biases
from linnet.program.owned import named_tensors
from linnet.program.unit import CannotFuse, Shift
from linnet.recurrent.adapters import unwrapped
from linnet.recurrent.cell import Cell
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent

# The parameters of torch's cells in their order, with the projections that read each.
READERS = {
    "weight_ih": ("input",),
    "weight_hh": ("recurrent",),
    "bias_ih": ("input",),
    "bias_hh": ("input", "recurrent"),
    "weight_hr": ("projection",),
}
NAME = re.compile(r"(weight|bias)_(ih|hh|hr)(_l\d+(_reverse)?)?")
# With these options a unit still computes what torch's does, once it has weights and no longer trains.
TORCHS = (*OF_STACK, "nonlinearity", *OF_START, *OF_TRAINING)


class Owner:
    """The module that holds the parameters of a projection. A copy has none at first."""

    is_cache = True

    def __init__(self, module: nn.Module | None = None, suffix: str = ""):
        self.module, self.suffix = None if module is None else weakref.ref(module), suffix

    def tensor(self, kind: str) -> Any:
        module = None if self.module is None else self.module()
        if module is None:
            raise RuntimeError(
                "this cell was taken from a stack that no longer exists, and which held its parameters; take "
                "it with rnn.release_cell(), or keep the stack"
            )
        return getattr(module, kind + self.suffix)

    def __deepcopy__(self, memo: dict) -> Owner:
        return Owner()

    def __reduce__(self) -> tuple:
        return Owner, ()


class TorchProjection(Projection):
    """A Projection whose parameters are called as in torch.

    owned   those that a stack or a cell holds, by name; None if it holds them itself
    owner   that module
    """

    owned: dict[str, Any] | None = None
    owner: Owner

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return getattr(self, self.weight_name)

    @property
    def bias(self) -> Tensor | None:  # type: ignore[override]
        return getattr(self, self.bias_name)

    def hand_over(self) -> None:
        """Let a module around this one hold the parameters."""
        self.owned = {name: self._parameters.pop(name) for name in list(self._parameters) if name in READERS}

    def put(self, name: str, tensor: Any) -> None:
        """Read this tensor of the owner: a parameter, or what a parametrization or pruning has computed."""
        if self.owned is not None and self.owned[name] is not tensor:
            self.owned[name] = tensor

    def __getattr__(self, name: str) -> Any:
        owned = vars(self).get("owned")
        # A copy with other weights has them among its parameters.
        if owned is None or name not in owned or name in self._parameters:
            return super().__getattr__(name)
        # A compiler replaces the parameters of the owner, and nothing may be assigned while it records.
        return self.owner.tensor(name) if is_compiling() and owned[name] is not None else owned[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if self.owned is None or name not in self.owned or not isinstance(value, nn.Parameter):
            super().__setattr__(name, value)
        elif value is self.owned[name]:
            vars(self).pop(name, None)  # as torch.func.functional_call ends
        else:
            raise AttributeError(
                f"{name} belongs to the module around this projection; assign to that, as in "
                f"rnn.{name}_l0 = ... for a stack or cell.{name} = ... for a cell"
            )


class OfInput(TorchProjection):
    """The projection of the input. With torch's parameters it adds both biases."""

    weight_name, bias_name = "weight_ih", "bias_ih"
    bias_ih: Tensor | None
    # The bias of the state, if it is added here.
    bias_hh: Tensor | None

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.register_parameter("bias_hh", None)

    @property
    def bias(self) -> Tensor | None:  # type: ignore[override]
        return sum_of_biases(self.bias_ih, self.bias_hh, self.apart)

    @property
    def bias_tensors(self) -> list[Tensor]:
        return [bias for bias in (self.bias_ih, self.bias_hh) if bias is not None]

    def shifts(self) -> list[Shift]:
        second = self.bias_hh
        if second is None:
            return super().shifts()
        if len(second) != len(self.bias_ih):  # type: ignore[arg-type]
            raise CannotFuse("its two biases have different sizes")
        # The kernels of a single step read both, which they find by their addresses.
        return [Shift(self.bias_ih), Shift(second[: len(second) - self.apart], self.apart)]  # type: ignore[arg-type]

    def biases(self) -> dict[str, Tensor]:
        """The parts of the first bias, which initialisations write."""
        if self.bias_ih is None:
            return {}
        names = self.biased_parts
        sizes = [self.parts[name] for name in names]
        return dict(zip(names, self.bias_ih.split(sizes), strict=True))


class OfState(TorchProjection):
    """The product with the state. With torch's parameters, it has the bias of the last parts only."""

    weight_name, bias_name = "weight_hh", "bias_hh"
    bias_hh: Tensor | None
    # The parts whose bias is added here; None: all that have one.
    biased_apart: tuple[str, ...] | None = None

    @property
    def bias(self) -> Tensor | None:  # type: ignore[override]
        if self.biased_apart is None or self.bias_hh is None:
            return self.bias_hh
        return self.bias_hh[-self.size_apart :] if self.biased_apart else None

    @property
    def size_apart(self) -> int:
        return sum(self.parts[name] for name in self.biased_apart or ())

    @property
    def bias_tensors(self) -> list[Tensor]:
        return [] if self.bias_hh is None else [self.bias_hh]


class OfOutput(TorchProjection):
    weight_name, bias_name = "weight_hr", "bias_hr"


class Bound:
    """The parameters of an owner that the projections inside hold."""

    is_cache = True

    def __init__(self) -> None:
        self.tensors: tuple[Any, ...] = ()

    def __deepcopy__(self, memo: dict) -> Bound:
        return Bound()

    def __reduce__(self) -> tuple:
        return Bound, ()


class TorchOwner(nn.Module):
    """Holds the parameters of torch for the cells inside.

    is_owner   whether it does: torch has the parameters of its form, and no other module holds them
    """

    is_owner = False

    def torch_names(self) -> Iterator[tuple[str, TorchCell, str]]:
        """Yield the name of each parameter, the cell that reads it, and its name there."""
        raise NotImplementedError

    def own(self) -> None:
        """Take the parameters of the cells inside."""
        held = {name: cell.give_up(kind) for name, cell, kind in self.torch_names()}
        # Before its other parameters, as torch's order would have it.
        for name in list(self._parameters):
            held[name] = self._parameters.pop(name)
        self._parameters.update(held)
        self.bound = Bound()
        self.is_owner = bool(held)
        self.introduce()

    def introduce(self) -> None:
        """Let the projections inside know their owner."""
        for name, cell, kind in self.torch_names():
            for projection in cell.readers(kind):
                projection.owner = Owner(self, name.removeprefix(kind))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.is_owner:
            self.introduce()

    def release(self) -> None:
        """Give up parameters that no projection inside reads any more."""
        read = {name for name, _, _ in self.torch_names()}
        for name in [name for name in self._parameters if NAME.fullmatch(name) and name not in read]:
            del self._parameters[name]
        self.is_owner = bool(read)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.pass_on(name, value)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        super().register_parameter(name, param)
        self.pass_on(name, param)

    def pass_on(self, name: str, tensor: Any) -> None:
        """Give a tensor that was assigned to the projections that read it."""
        if name.startswith(("weight_", "bias_")) and self.is_owner:
            for own, cell, kind in self.torch_names():
                if own == name:
                    cell.put(kind, tensor)

    def bind(self) -> None:
        """Let the projections inside read what the owner holds now."""
        if is_compiling() or not self.is_owner:
            return
        own, bound = self._parameters.values(), self.bound.tensors
        if len(own) != len(bound) or not all(map(is_, own, bound)):
            self.bind_all()

    def bind_all(self) -> None:
        names = list(self.torch_names())
        for name, cell, kind in names:
            cell.put(kind, getattr(self, name))
        # What is computed from parameters is another tensor at each call.
        are_held = all(name in self._parameters for name, _, _ in names)
        self.bound.tensors = tuple(self._parameters.values()) if are_held else ()

    def _apply(self, *arguments: Any, **named: Any) -> Any:
        made = super()._apply(*arguments, **named)
        self.bind()
        return made


class TorchCell(TorchOwner, Cell):
    """A cell that torch has too, with `input` (OfInput), `recurrent` (OfState) and perhaps `projection`."""

    recurrent: OfState
    # Whether the rows of the matrices are torch's gates in torch's order.
    has_torch_layout = False

    def take_torch_layout(self, apart: Sequence[str] = ()) -> None:
        """Hold torch's parameters. `apart`: the last parts, whose two biases are not added to each other."""
        matrices: list[Any] = [self.input, self.recurrent]
        if any(matrix.heads > 1 or matrix.reduce is not None for matrix in matrices):
            return  # torch has no such matrices
        self.has_torch_layout = True
        first: Any = self.input.bias_ih
        if first is not None:
            second = nn.Parameter(torch.empty_like(first))
            for matrix in matrices:
                matrix.bias_hh = second
            self.recurrent.biased_apart = tuple(apart)
            self.input.apart = self.recurrent.size_apart
        for matrix in [*matrices, *([] if self.projection is None else [self.projection])]:
            matrix.hand_over()
        self.own()

    def torch_names(self) -> Iterator[tuple[str, TorchCell, str]]:
        yield from ((kind, self, kind) for kind in self.kinds())

    def kinds(self) -> list[str]:
        """Which of torch's parameters it has."""
        projection = unwrapped(self.input)
        if not self.has_torch_layout or not isinstance(projection, OfInput):
            return []
        biases = [] if projection.bias_ih is None else ["bias_ih", "bias_hh"]
        return ["weight_ih", "weight_hh", *biases, *([] if self.projection is None else ["weight_hr"])]

    def readers(self, kind: str) -> list[TorchProjection]:
        children = [self._modules[attribute] for attribute in READERS[kind]]
        return [each for each in map(unwrapped, children) if isinstance(each, TorchProjection)]

    def put(self, kind: str, tensor: Any) -> None:
        for projection in self.readers(kind):
            projection.put(kind, tensor)

    def give_up(self, kind: str) -> Any:
        """Return a parameter for its new owner."""
        self._parameters.pop(kind, None)
        self.is_owner = False
        return getattr(self.readers(kind)[0], kind)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name not in READERS or "input" not in self._modules:
                raise
        # The stack holds it.
        return self.tensor_inside(name)

    def tensor_inside(self, kind: str) -> Any:
        """One of torch's parameters; None if the cell was built without it."""
        if not self.has_torch_layout:
            raise AttributeError(
                f"{type(self).__name__}({self.extra_repr()}) has no matrix that torch has too"
            )
        return getattr(self.readers(kind)[0], kind) if kind in self.kinds() else None

    @property
    def unit_parameters(self) -> dict[str, Any]:
        return {name: each for name, each in self._parameters.items() if name not in READERS}

    def parameters_inside(self) -> list[tuple[str, Tensor]]:
        return [(name, tensor) for name, tensor in named_tensors(self) if name not in READERS]

    def returned(self, y: Tensor, state: Any) -> Any:
        return state

    def __prepare_scriptable__(self) -> nn.Module:
        return scriptable(self)

    # ------------------------------------------------------------------------------ state dicts

    def torch_tensors(self) -> dict[str, Tensor]:
        """The parameters of torch's cell."""
        return {kind: self.tensor_inside(kind) for kind in self.kinds()}

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        if self.is_owner:
            rename_old(self, state_dict, prefix, prefix, "")
        super()._load_from_state_dict(state_dict, prefix, *args)


class TorchMethods(nn.RNNBase):
    """The methods of nn.LSTM, nn.GRU and nn.RNN that check what they are given, and their base class.

    What torch's modules do to keep their weights in one piece of memory is left out.
    """

    def __init__(self) -> None:
        nn.Module.__init__(self)

    __setattr__ = nn.Module.__setattr__  # type: ignore[assignment]
    __setstate__ = nn.Module.__setstate__
    _apply = nn.Module._apply
    _replicate_for_data_parallel = nn.Module._replicate_for_data_parallel

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)


class TorchStack(TorchOwner, Recurrent, TorchMethods):
    """A stack that torch has too.

    mode   its name in torch: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU"
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.own()

    @property
    def mode(self) -> str:  # type: ignore[override]
        return self.first_cell.unit_name

    def torch_names(self) -> Iterator[tuple[str, TorchCell, str]]:
        for cell, suffix in zip(self.cells, self.suffixes(), strict=True):
            yield from ((kind + suffix, cell, kind) for kind in cell.kinds())

    def suffixes(self) -> Iterator[str]:
        """Return the suffix of torch's names of parameters for each cell."""
        for layer in range(self.num_layers):
            yield from (f"_l{layer}", f"_l{layer}_reverse")[: self.num_directions]

    def reset_parameters(self) -> None:
        self.bind()
        super().reset_parameters()

    def release_cell(self) -> Cell:
        cell: Any = self.first_cell
        cell.own()
        return cell

    @property
    def all_weights(self) -> list[list[Any]]:
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _all_weights(self) -> list[list[str]]:  # type: ignore[override]
        pairs = zip(self.cells, self.suffixes(), strict=True)
        return [[kind + suffix for kind in cell.kinds()] for cell, suffix in pairs]

    @property
    def _flat_weights(self) -> list[Any]:  # type: ignore[override]
        return [weight for weights in self.all_weights for weight in weights]

    @property
    def _flat_weights_names(self) -> list[str]:  # type: ignore[override]
        return [name for names in self._all_weights for name in names]

    def __prepare_scriptable__(self) -> nn.Module:
        return scriptable(self)

    def torch_state_dict(self) -> dict[str, Tensor]:
        """The state dict of the module of torch that computes the same."""
        others = [name for name in self.options_shown() if name not in TORCHS]
        allowed = ["proj_size"] if self.first_cell.projection is not None else []
        if others != allowed or not self.first_cell.has_torch_layout:
            raise ValueError(
                f"no module of torch computes what {type(self).__name__}({self.extra_repr()}) does"
            )
        return {name: getattr(self, name).detach() for name in self._flat_weights_names}

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for index, (cell, suffix) in enumerate(zip(self.cells, self.suffixes(), strict=True)):
            if cell.has_torch_layout and self.is_owner:
                rename_old(cell, state_dict, f"{prefix}directions.{index}.cell.", prefix, suffix)
        super()._load_from_state_dict(state_dict, prefix, *args)


def rename_old(cell: TorchCell, tensors: dict[str, Any], old: str, new: str, suffix: str) -> None:
    """Rename, in place, what was saved when the cells had other names and one bias."""
    for kind, (attribute, *_) in READERS.items():
        name = f"{old}{attribute}.{kind}"
        if name in tensors and kind != "bias_hh":
            tensors[f"{new}{kind}{suffix}"] = tensors.pop(name)
    first, second = (tensors.get(f"{new}{kind}{suffix}") for kind in ("bias_ih", "bias_hh"))
    if first is not None and second is None:
        apart = tensors.pop(f"{old}recurrent.bias_hh", first[:0])
        tensors[f"{new}bias_hh{suffix}"] = torch.cat([torch.zeros_like(first[len(apart) :]), apart])
