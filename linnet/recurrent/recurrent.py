"""What all units share: depth, direction, sequences of unequal lengths, and regularisers.

`Recurrent` runs the cell of a unit over sequences, with the signature, the shapes and the conventions of
nn.LSTM:

    class LRN(Recurrent, cell=LRNCell): ...

    rnn = LRN(8, 16, num_layers=2, bidirectional=True)
    output, state = rnn(x)
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, overload

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn.utils.rnn import PackedSequence
from torch.types import Device

from linnet.base.calls import like
from linnet.base.copies import CopiedFast
from linnet.base.errors import InputError, InputTypeError
from linnet.base.options import check_share, check_size, either
from linnet.base.show import ShowsOptions
from linnet.base.suggest import no_such
from linnet.program.padding import cleared, packing
from linnet.program.unit import Named
from linnet.recurrent.adapters import adapters_of
from linnet.recurrent.cell import Cell
from linnet.recurrent.direction import Direction, concatenate, layer_dropout, run_layer
from linnet.recurrent.frame_norm import padded_by
from linnet.recurrent.inference import Inference
from linnet.recurrent.pretrained import Pretrained
from linnet.recurrent.scripting import NotScriptable
from linnet.recurrent.sequence import (
    are_flags,
    are_full,
    check_flags,
    checked_lengths,
    last_outputs,
    mask_within,
    padding_for,
    padding_of_packed,
    repack,
    unpack,
)
from linnet.recurrent.signature import joint_signature
from linnet.recurrent.state import PLAIN_TENSORS, not_a_pair
from linnet.recurrent.subscripted import Subscripted
from linnet.recurrent.symbolic import is_symbol, recorded_call
from linnet.recurrent.timespans import refuse_timespans, timed
from linnet.run.choose import may_use_cpu_kernel

# The arguments of every cell that belong to no paper.
EVERY_CELL_HAS = ("input_size", "hidden_size", "bias", "device", "dtype")

# With as_lstm=True, the name of the last output among the states of a stack; no state of a cell has it.
LAST_OUTPUT = "last output"


class Recurrent(Subscripted, NotScriptable, ShowsOptions, CopiedFast, Pretrained):
    """Stacked layers of one unit, in one or both directions.

    The arguments of nn.LSTM, and for every unit:

    variational      dropout between layers draws one mask for all time steps
    input_dropout    one mask over time on what the matrices of each layer read (not on a skip)
    state_dropout    one mask over time on the state as the recurrent matrices read it
    zoneout          the probability that a channel of a state keeps its value for a step
    weight_drop      the probability that a weight of the recurrent matrices is dropped for a pass
                     (units that have none: of the input matrix)
    weight_drop_on   "recurrent", or "all" for the input matrices too
    norm             "layer" or "rms", over the projected input of all gates together
    prenorm          "layer" or "rms", over the input of each layer
    input_heads      cut the input of each layer and each gate into this many heads: the matrix of the input
                     is block-diagonal
    proj_size        project the output of each layer to `proj_size` dimensions (0: no projection); in units
                     whose output is their recurrent state (LSTM, RAN), the projected output recurs
    residual         each layer whose input and output agree in size adds its input to its output
    as_lstm          take and return the pair (h, c) as nn.LSTM does, for a unit with one state: c is its
                     state, and h the last output of each layer, which it ignores when it is given

    Further options are those of the unit's paper; see its cell.
    """

    cell_class: ClassVar[type[Cell]]

    def __init_subclass__(cls, cell: type[Cell] | None = None, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if cell is not None:
            cls.cell_class = cell
            signature = joint_signature([cls.__init__, Recurrent.__init__], cell)
            cls.__signature__ = signature  # type: ignore[attr-defined]
            cls.__doc__ = "\n\n".join(inspect.cleandoc(each.__doc__ or "") for each in (cls, cell, Recurrent))

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        variational: bool = False,
        input_dropout: float = 0.0,
        state_dropout: float = 0.0,
        zoneout: float = 0.0,
        weight_drop: float = 0.0,
        weight_drop_on: str = "recurrent",
        norm: str | None = None,
        prenorm: str | None = None,
        input_heads: int = 1,
        proj_size: int = 0,
        residual: bool = False,
        as_lstm: bool = False,
        **unit_options: Any,
    ):
        super().__init__()
        check_size("input_size", input_size)
        check_size("hidden_size", hidden_size)
        check_size("num_layers", num_layers)
        check_size("proj_size", proj_size, least=0)
        check_share("dropout", dropout)
        self.check_options(unit_options)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, dropout
        self.bidirectional, self.variational, self.residual = bidirectional, variational, residual
        self.proj_size = proj_size
        self.num_directions = 2 if bidirectional else 1
        self.inference = Inference()
        self.directions = nn.ModuleList()
        shared = {"bias": bias, "device": device, "dtype": dtype, "norm": norm, "prenorm": prenorm}
        cell_options = {**shared, "input_dropout": input_dropout, **unit_options}
        if input_heads != 1:  # a cell of a user's may not pass it on
            cell_options["input_heads"] = input_heads
        # A cell that has an option of this name implements it itself; otherwise Direction does.
        around = {"zoneout": zoneout, "proj_size": proj_size}
        own = self.options()
        taken = {name: around.pop(name) for name in list(around) if name in own}
        noise = {"state_dropout": state_dropout, "weight_drop": weight_drop, "weight_drop_on": weight_drop_on}
        for layer in range(num_layers):
            size = input_size if layer == 0 else self.layer_output_size(layer - 1)
            for direction in range(self.num_directions):
                position = {"layer": layer, "direction": direction, "input_size": size}
                cell = self.make_cell(position, {**cell_options, **taken})
                self.directions.append(
                    Direction(cell, reverse=direction == 1, bias=bias, **noise, **around)  # type: ignore[arg-type]
                )
        self.output_size = self.layer_output_size(num_layers - 1)
        self.check_residual()
        self.as_lstm = as_lstm and list(self.first_cell.states) != ["h", "c"]
        if self.as_lstm and len(self.first_cell.states) > 1:
            raise ValueError(
                "as_lstm=True makes the pair (h, c) of the output and the one state of a unit; "
                f"{self.first_cell.unit_name} has the states {', '.join(self.first_cell.states)}"
            )

    def make_cell(self, position: dict[str, int], options: dict[str, Any]) -> Cell:
        sizes = {"hidden_size": self.hidden_size, "num_layers": self.num_layers}
        options = self.cell_class.options_at(options, num_directions=self.num_directions, **sizes, **position)
        return self.cell_class(position["input_size"], self.hidden_size, **options)

    @classmethod
    def options(cls) -> dict[str, inspect.Parameter]:
        """The options of the unit's own paper."""
        arguments = cls.cell_class.constructor_arguments
        return {name: parameter for name, parameter in arguments.items() if name not in EVERY_CELL_HAS}

    def check_options(self, given: dict[str, Any]) -> None:
        options = self.options()
        for name in given:
            if name not in options:
                known = list(inspect.signature(type(self)).parameters)
                raise TypeError(f"{type(self).__name__} has {no_such('option', name, known)}")

    def check_residual(self) -> None:
        if not self.residual:
            return
        sizes = [self.input_size, *(self.layer_output_size(layer) for layer in range(self.num_layers))]
        if all(a != b for a, b in pairwise(sizes)):
            raise ValueError(
                "residual=True adds the input of a layer to its output, but here no layer has both of one "
                f"size; the sizes along the stack are {sizes}"
            )

    def layer(self, number: int) -> list[Direction]:
        first = number * self.num_directions
        # A slice of a ModuleList would be a new module each time.
        return list(self.directions)[first : first + self.num_directions]  # type: ignore[return-value]

    def layer_output_size(self, number: int) -> int:
        return sum(direction.output_size for direction in self.layer(number))

    @property
    def cells(self) -> list[Any]:
        """The cell of each layer and direction, in the order of the state."""
        return [direction.cell for direction in self.directions]

    @property
    def first_cell(self) -> Cell:
        return self.first_direction._modules["cell"]  # type: ignore[return-value]

    def release_cell(self) -> Cell:
        """Return the first cell as a module of its own; the stack is of no further use."""
        return self.first_cell

    @property
    def first_direction(self) -> Direction:
        # Faster than through the interface of modules; each call needs this several times.
        return next(iter(self._modules["directions"]._modules.values()))  # type: ignore[union-attr, return-value]

    def reset_parameters(self) -> None:
        for number in range(self.num_layers):
            for direction in self.layer(number):
                direction.reset_parameters()

    def bind(self) -> None:
        """Let the cells read the parameters that the stack holds, if it holds theirs."""

    def flatten_parameters(self) -> None:
        """Do nothing. Code written for nn.LSTM calls it."""

    @property
    def qconfig(self) -> None:
        """torch.ao sets this attribute of every module that it could quantise, and swaps none of Linnet's."""

    @qconfig.setter
    def qconfig(self, value: Any) -> None:
        warnings.warn(
            f"torch.ao's quantisation leaves linnet's {type(self).__name__} as it is; use linnet.quantize",
            stacklevel=2,
        )

    @qconfig.deleter
    def qconfig(self) -> None:
        """torch.ao deletes it in the end."""

    @overload
    def forward(
        self,
        x: Tensor | None = None,
        state: Any = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        mask: Tensor | None = None,
        resets: Tensor | None = None,
        reset_state: Any = None,
        timespans: Tensor | None = None,
        input: Tensor | None = None,
        hx: Any = None,
    ) -> tuple[Tensor, Any]: ...

    @overload
    def forward(
        self,
        x: PackedSequence | None = None,
        state: Any = None,
        *,
        timespans: PackedSequence | None = None,
        input: PackedSequence | None = None,
        hx: Any = None,
    ) -> tuple[PackedSequence, Any]: ...

    def forward(
        self,
        x: Tensor | PackedSequence | None = None,
        state: Any = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        mask: Tensor | None = None,
        resets: Tensor | None = None,
        reset_state: Any = None,
        timespans: Tensor | PackedSequence | None = None,
        input: Tensor | PackedSequence | None = None,
        hx: Any = None,
    ) -> tuple[Any, Any]:
        """Run over whole sequences.

        x         [T, B, input_size], [B, T, input_size] with batch_first, [T, input_size], or packed
        state     as returned, [num_layers * num_directions, B, size]; one tensor, or the unit's tuple
                  (default: zeros, or the learned start of a unit that has one)
        lengths   [B]: how many steps of each sequence are real
        mask      bool, laid out as x: True where a step is real; elsewhere the state stays and y is 0
        resets    bool, laid out as x: True where a new sequence starts
        timespans laid out as x: the time since the step before, for units that read it (default: 1)
        input, hx torch's names of x and state

        reset_state   the state from which new sequences start (default: that of `state`): laid out as
                      `state`, or [T, num_layers * num_directions, B, size] with one for each step

        Returns the output, laid out as x, and the state after the last real step.
        """
        if input is not None or hx is not None:
            x, state = either("x", x, "input", input), either("state", state, "hx", hx)
        if is_symbol(x):
            flags = {"lengths": lengths, "mask": mask, "resets": resets, "reset_state": reset_state}
            return recorded_call(self, x, state, {**flags, "timespans": timespans})  # type: ignore[return-value, arg-type]
        if state is None and self.may_learn_start:
            state = self.learned_state(x)
        if not is_compiling():
            plain = lengths is None and mask is None and resets is None and reset_state is None
            plain = plain and timespans is None
            made = self.inference.run(self, x, state, plain)
            if made is not None:
                return made
        self.bind()
        if lengths is None and mask is None and reset_state is None and timespans is None:
            bound = self.bound_call(x, state, resets)
            if bound is not None:
                return bound
        if isinstance(x, PackedSequence):
            others = {"lengths": lengths, "mask": mask, "resets": resets, "reset_state": reset_state}
            return self.run_packed(x, state, others, timespans)
        x = self.with_time(self.checked_input(x), timespans)
        time_first = self.to_time_first(x)
        if mask is not None:
            mask = self.flags_to_time_first("mask", mask, x)
        if resets is not None:
            resets = self.flags_to_time_first("resets", resets, x)
        if lengths is not None:
            if mask is not None:
                raise ValueError("lengths and mask both say which steps are real; give one of them")
            if x.dim() == 2:
                lengths = torch.as_tensor(lengths, device="cpu").reshape(-1)
            lengths = checked_lengths(lengths, like=time_first, least=0)
            mask = mask_within(lengths, time_first)
        start = self.read_reset_state(reset_state, resets, x, time_first)
        named = self.read_state(state, x, time_first)
        y, new = self.run_padded(time_first, named, mask, resets, start, lengths)
        return self.from_time_first(y, x), self.write_state(new, x.dim() == 3)

    if TYPE_CHECKING:

        @like(forward)
        def __call__(self, *inputs: Any, **named: Any) -> Any: ...

    def bound_call(self, x: Any, state: Any, resets: Any) -> tuple[Tensor, Any] | None:
        """A call with tensors like those of an earlier one; None if anything is different."""
        if not self.is_bare or is_compiling() or type(x) is not Tensor or x.dim() != 3:
            return None
        y = x.transpose(0, 1) if self.batch_first else x
        states = self.bound_states(y, state)
        if not states or not (resets is None or are_flags(resets, x.shape[:2], x.device)):
            return None
        resets = resets.T if resets is not None and self.batch_first else resets
        finals: list[list[Tensor]] = []
        outputs: list[Tensor] = []
        directions: Any = self._modules["directions"]._modules.values()  # type: ignore[union-attr]
        for direction, given in zip(directions, states, strict=True):
            made = direction.bound_call(y, given, resets)
            if made is None and not finals:
                return None
            output, new = made or direction.run_bound(y, given, resets)
            finals.append(new)
            outputs.append(output)
            if len(outputs) == self.num_directions:
                y, outputs = concatenate(outputs), []
        return (y.transpose(0, 1) if self.batch_first else y), self.packed_state(finals)

    def bound_states(self, x: Tensor, state: Any) -> Sequence[Sequence[Tensor]]:
        """The states of each direction, [B, size], for x [T, B, input_size]; none if they are unusual."""
        sizes, count = self.first_cell.states.values(), self.num_layers * self.num_directions
        if state is None:
            return [[x.new_zeros(x.shape[1], size) for size in sizes] for _ in range(count)]
        given = state if isinstance(state, tuple) else (state,)
        if len(given) != len(sizes):
            return []
        for s in given:
            if type(s) not in PLAIN_TENSORS or s.dim() != 3 or s.shape[0] != count:
                return []
        return [[s[0] for s in given]] if count == 1 else [*zip(*map(Tensor.unbind, given), strict=True)]

    def packed_state(self, finals: list[list[Tensor]]) -> Any:
        """The state as users get it, from that of each direction."""
        if len(finals) == 1:
            packed = [s[None] for s in finals[0]]
        else:
            packed = [torch.stack(layers) for layers in zip(*finals, strict=True)]
        kind = self.first_cell.State
        return not_a_pair(packed[0] if kind is None else kind(*packed))

    @property
    def is_bare(self) -> bool:
        """Whether there is nothing around its layers."""
        return not (self.as_lstm or self.residual or (self.dropout and self.training))

    @property
    def is_only_layers(self) -> bool:
        """Whether a call runs its layers, and does nothing else, in this mode."""
        own = type(self).forward is Recurrent.forward and type(self).run is Recurrent.run
        return own and self.is_bare

    @property
    def is_one_direction(self) -> bool:
        """Whether the stack is one cell in one direction, with nothing around it."""
        return self.num_layers * self.num_directions == 1 and not (self.as_lstm or self.residual)

    def with_time(self, x: Tensor, timespans: Any) -> Tensor:
        if self.first_cell.reads_time:
            return timed(x, timespans, type(self).__name__)
        refuse_timespans(timespans, type(self).__name__, ["linnet.CfC", "linnet.LTC"])
        return x

    def run_packed(
        self, x: PackedSequence, state: Any, others: dict[str, Any], timespans: Any
    ) -> tuple[PackedSequence, Any]:
        for name, value in others.items():
            if value is not None:
                raise ValueError(f"{name} is for padded input; a PackedSequence has its own lengths")
        if x.data.dim() != 2:
            raise InputError(
                f"a PackedSequence for {type(self).__name__} holds steps of [input_size]; "
                f"got data of shape {tuple(x.data.shape)}"
            )
        if timespans is not None and not isinstance(timespans, PackedSequence):
            raise TypeError("for a PackedSequence, timespans are a PackedSequence, too")
        padding = None if self.first_cell.reads_time else padding_of_packed(x)
        if padding is not None:
            direction = self.layer(0)[0]
            alone = self.is_one_direction and direction.is_plain
            padding.packs_output = alone and not adapters_of(direction.cell)
        with packing(padding):
            padded, mask = unpack(x, padding)
            self.check_size_and_kind(padded)
            padded = self.with_time(padded, None if timespans is None else unpack(timespans, None)[0])
            named = self.read_state(state, padded, padded)
            named = reorder(named, x.sorted_indices)
            bound = None if padding is None else self.bound_scan(padded, named, mask, None)
            with padded_by(mask):
                y, new = self.run(padded, named, mask, None) if bound is None else bound
            return repack(y, x, padding), self.write_state(reorder(new, x.unsorted_indices), True)

    def run_padded(
        self,
        x: Tensor,
        state: Named,
        mask: Tensor | None,
        resets: Tensor | None,
        reset_state: Named | None,
        lengths: Tensor | None,
    ) -> tuple[Tensor, Named]:
        """`run`, where x may be anything at padded steps: NaN there must not affect a result or gradient."""
        by_kernels = mask is not None and may_use_cpu_kernel(x)
        if mask is None or (by_kernels and are_full(lengths, len(x))):
            return self.run(x, state, None, resets, reset_state)
        resets = resets if resets is None else resets & mask
        padding = padding_for(mask, lengths) if by_kernels else None
        if padding is None:
            x = x.masked_fill(~mask[..., None], 0)
            if is_compiling():  # a compiler cannot trace the context
                return self.run(x, state, mask, resets, reset_state)
            with padded_by(mask):
                return self.run(x, state, mask, resets, reset_state)
        with padded_by(mask), packing(padding, raw=x):
            bound = self.bound_scan(x, state, mask, resets) if reset_state is None else None
            return self.run(x, state, mask, resets, reset_state) if bound is None else bound

    def bound_scan(
        self, x: Tensor, state: Named, mask: Tensor, resets: Tensor | None
    ) -> tuple[Tensor, Named] | None:
        """`run` of one layer with tensors like those of an earlier call; None if anything is different."""
        if not self.is_one_direction:
            return None
        made = self.layer(0)[0].bound_scan(x, [s[0] for s in state.values()], mask, resets)
        if made is None:
            return None
        return made[0], {name: s[None] for name, s in zip(state, made[1], strict=True)}

    def run(
        self,
        x: Tensor,
        state: Named,
        mask: Tensor | None,
        resets: Tensor | None,
        reset_state: Named | None = None,
    ) -> tuple[Tensor, Named]:
        """x [T, B, input_size]; states [num_layers * num_directions, B, size]."""
        finals: list[Named] = []
        times = x[..., self.input_size :] if x.shape[-1] > self.input_size else None
        for number in range(self.num_layers):
            x = torch.cat([x, times], -1) if times is not None and number else x
            layer, first = self.layer(number), len(finals)
            states = [{name: s[first + i] for name, s in state.items()} for i in range(len(layer))]
            before = [each.pop(LAST_OUTPUT, None) for each in states]
            starts = None if reset_state is None else starts_of_layer(reset_state, first, len(layer))
            y, ends = run_layer(layer, x, states, mask, resets, starts)
            if self.residual and y.shape[-1] == layer[0].cell.input_size:
                y = y + cleared(x)[..., : y.shape[-1]]
            if self.as_lstm:
                lasts = last_outputs(y, before, mask)  # type: ignore[arg-type]
                ends = [{**end, LAST_OUTPUT: last} for end, last in zip(ends, lasts, strict=True)]
            finals += ends
            last = number == self.num_layers - 1
            x = layer_dropout(y, self.dropout, self.variational) if self.drops(last) else y
        if len(finals) == 1:
            return x, {name: finals[0][name][None] for name in state}
        return x, {name: torch.stack([final[name] for final in finals]) for name in state}

    def drops(self, last: bool) -> bool:
        return self.training and self.dropout > 0 and not last

    def checked_input(self, x: Any) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError(
                f"{type(self).__name__} takes x as a Tensor or a PackedSequence; got {type(x).__name__}"
            )
        if x.dim() not in (2, 3):
            raise InputError(
                f"{type(self).__name__} takes x as {self.layout} or, unbatched, [time, input_size]; "
                f"got {x.dim()} dimensions, shape {tuple(x.shape)}"
            )
        self.check_size_and_kind(x)
        return x

    def check_size_and_kind(self, x: Tensor) -> None:
        if x.shape[-1] != self.input_size:
            raise InputError(
                f"{type(self).__name__} was built with input_size={self.input_size} and got x of shape "
                f"{tuple(x.shape)}; x is {self.layout if x.dim() == 3 else '[time, input_size]'}"
            )
        if not x.shape[self.time_dimension(x)]:
            raise InputError(
                f"{type(self).__name__} takes sequences of at least one time step; got x of shape "
                f"{tuple(x.shape)}, which is {self.layout if x.dim() == 3 else '[time, input_size]'}"
            )
        cell = self.first_cell
        cell.check_like("x", x, cell.example)

    def time_dimension(self, x: Tensor) -> int:
        return 1 if self.batch_first and x.dim() == 3 else 0

    @property
    def layout(self) -> str:
        return "[batch, time, input_size]" if self.batch_first else "[time, batch, input_size]"

    def to_time_first(self, x: Tensor) -> Tensor:
        if x.dim() == 2:
            return x[:, None]
        return x.transpose(0, 1) if self.batch_first else x

    def from_time_first(self, y: Tensor, x: Tensor) -> Tensor:
        if x.dim() == 2:
            return y[:, 0]
        return y.transpose(0, 1) if self.batch_first else y

    def flags_to_time_first(self, name: str, flags: Tensor, x: Tensor) -> Tensor:
        layout = self.layout.replace(", input_size", "") if x.dim() == 3 else "[time]"
        check_flags(name, flags, tuple(x.shape[:-1]), layout, x.device)
        if x.dim() == 2:
            return flags[:, None]
        return flags.T if self.batch_first else flags

    def read_state(self, state: Any, x: Tensor, time_first: Tensor) -> Named:
        """The state of all layers by name, [num_layers * num_directions, B, size]."""
        rows = len(self.directions)
        if state is None:
            return self.initial_state(time_first.shape[1], time_first)
        batch = (rows, time_first.shape[1]) if x.dim() == 3 else (rows,)
        named = self.unpack_any(state, batch, x)
        return named if x.dim() == 3 else {name: s[:, None] for name, s in named.items()}

    def read_reset_state(
        self, reset_state: Any, resets: Tensor | None, x: Tensor, time_first: Tensor
    ) -> Named | None:
        """The state at resets by name: [num_layers * num_directions, B, size], or one for each step."""
        if reset_state is None:
            return None
        if resets is None:
            raise ValueError("reset_state is where sequences start at resets; give resets, too")
        batched = x.dim() == 3
        batch = (len(self.directions), time_first.shape[1]) if batched else (len(self.directions),)
        tensors = reset_state if isinstance(reset_state, (tuple, list)) else (reset_state,)
        if all(isinstance(s, Tensor) and s.dim() == len(batch) + 2 for s in tensors):
            batch = (time_first.shape[0], *batch)
        try:
            named = self.unpack_any(reset_state, batch, x)
        except (InputError, InputTypeError) as error:
            raise type(error)(f"reset_state: {error}") from None
        named.pop(LAST_OUTPUT, None)
        return named if batched else {name: s.unsqueeze(-2) for name, s in named.items()}

    def unpack_any(self, state: Any, batch: tuple[int, ...], x: Tensor) -> Named:
        return (self.unpack_pair if self.as_lstm else self.first_cell.unpack_state)(state, batch, x)

    @property
    def may_learn_start(self) -> bool:
        """Whether its unit can have a learned state from which sequences start."""
        return self.cell_class.start is not Cell.start

    def initial_state(self, batch: int, like: Tensor) -> Named:
        """The state from which sequences start by name, [num_layers * num_directions, batch, size]."""
        rows = len(self.directions)
        if self.may_learn_start:
            each = [cell.initial_state((batch,), like) for cell in self.cells]
            named = {name: torch.stack([state[name] for state in each]) for name in each[0]}
        else:
            named = self.first_cell.initial_state((rows, batch), like)
        if self.as_lstm:
            named[LAST_OUTPUT] = like.new_zeros(rows, batch, self.layer(0)[0].output_size)
        return named

    def learned_state(self, x: Any) -> Any:
        """The state of a call without one, as a user would give it; None: zeros, or x is not an input."""
        packed = isinstance(x, PackedSequence)
        data = x.data if packed else x
        if self.first_cell.start() is None or not isinstance(data, Tensor) or data.dim() not in (2, 3):
            return None
        batch = int(x.batch_sizes[0]) if packed else self.to_time_first(data).shape[1]
        return self.write_state(self.initial_state(batch, data), packed or data.dim() == 3)

    def unpack_pair(self, state: Any, batch: tuple[int, ...], x: Tensor) -> Named:
        cell = self.first_cell
        if not isinstance(state, (tuple, list)) or len(state) != 2:
            raise InputTypeError(
                f"the state of {cell.unit_name} with as_lstm=True is a tuple (h, c); "
                f"got {type(state).__name__}"
            )
        h, c = state
        cell.check_state("h", h, (*batch, self.layer(0)[0].output_size), x)
        return {**cell.unpack_state(c, batch, x), LAST_OUTPUT: h}

    def write_state(self, state: Named, batched: bool) -> Any:
        state = state if batched else {name: s[:, 0] for name, s in state.items()}
        own = self.first_cell.pack_state({name: state[name] for name in self.first_cell.states})
        return (state[LAST_OUTPUT], own) if LAST_OUTPUT in state else not_a_pair(own)


def starts_of_layer(reset_state: Named, first: int, count: int) -> list[Named]:
    """The state at resets of each direction of a layer, [B, size] or [T, B, size] by name."""
    rows = range(first, first + count)
    return [{name: s.select(-3, row) for name, s in reset_state.items()} for row in rows]


def reorder(state: Named, order: Tensor | None) -> Named:
    return state if order is None else {name: s.index_select(1, order) for name, s in state.items()}
