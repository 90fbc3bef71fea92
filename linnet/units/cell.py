"""The anatomy every unit shares.

    project   all that does not depend on the state, for all time steps at once
    recur     products with the previous state (elementwise units have none)
    step      the unit's equations for one time step

`project` and `recur` give tensors by name, the state is held by name, and `step` asks by name for
those it needs. What `step` computes is the definition of the unit: running it in a loop over time
is the reference that everything faster is measured against.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from linnet.base.options import check_size
from linnet.fuse.backend import may_fuse
from linnet.fuse.hooks import heard_inside, is_heard
from linnet.units.projection import Projection

Parts = dict[str, Tensor]
# x [T, B, input_size], state -> y [T, B, output_size], state.
Along = Callable[[Tensor, Parts], tuple[Tensor, Parts]]
# x [T, B, input_size], state, (mask, resets, reverse) -> y [T, B, output_size], state.
OwnKernel = Callable[[Tensor, Parts, Any], tuple[Tensor, Parts]]


def argument_names(function: Callable[..., object]) -> tuple[str, ...]:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return tuple(parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD)


class CannotFuse(Exception):  # noqa: N818, it is a reason more than an error
    """The reason why a unit runs by the reference loop."""

    @property
    def reason(self) -> str:
        return self.args[0]


def check_devices(module: nn.Module, unit: str, x: Tensor) -> None:
    """Of all parameters: torch's own product with a matrix on meta gives arbitrary numbers."""
    away = {name: p.device for name, p in module.named_parameters() if p.device != x.device}
    # Who listens to the module may bring them for each call.
    if away and not is_heard(module) and heard_inside(module) is None:
        name, device = next(iter(away.items()))
        raise ValueError(
            f"the parameter {name!r} of {unit} is on {device}, but x is on {x.device}; "
            "move the module with .to(device)"
        )


class Stage(NamedTuple):
    """One of the steps that a unit takes in turn; most have one, `step`."""

    step: str
    states: tuple[str, ...]
    # The Projections that read the previous state: {attribute: state}.
    recurrence: Mapping[str, str] = {}
    # The Projections that read a state which an earlier stage has just made: {attribute: state}.
    through: Mapping[str, str] = {}


class Cell(nn.Module):
    """One step of a recurrent unit: x_t [B, input_size], state -> y_t [B, output_size], state.

    A subclass gives `self.input` (a Projection), `reset_parameters` and a `step`, and says in
    `recurrence` which of its Projections read which state. `states` names the states with their
    sizes; a unit with several of them has a named tuple `State` in which users see them.
    """

    State: ClassVar[type | None] = None
    # The Projections that read the previous state: {attribute: state}.
    recurrence: Mapping[str, str] = {}
    # What projects the output, the state h, before it recurs (RAN and LSTM with proj_size).
    projection: Projection | None
    input: Projection
    step: Callable[..., tuple[Tensor, Parts]]
    # The arguments of its methods, by which steps ask for what they need.
    reads: ClassVar[dict[str, tuple[str, ...]]] = {"recur": ()}

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        methods = {name: value for name, value in vars(cls).items() if inspect.isfunction(value)}
        cls.reads = {**cls.reads, **{name: argument_names(method) for name, method in methods.items()}}
        if cls.State is not None:
            # So that torch.load takes a saved state as it takes a saved tensor.
            torch.serialization.add_safe_globals([cls.State])

    def __init__(self, input_size: int, hidden_size: int, states: Mapping[str, int], output_size: int = 0):
        super().__init__()
        check_size("input_size", input_size)
        check_size("hidden_size", hidden_size)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.states = dict(states)
        self.output_size = output_size or hidden_size
        self.projection = None

    @classmethod
    def place(cls, options: dict[str, Any], **position: int) -> dict[str, Any]:
        """The options of one cell in a stack, for units in which they depend on the position.

        position: layer, num_layers, direction, num_directions, input_size, hidden_size.
        """
        return options

    def reset_parameters(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} must say how its parameters start")

    def project(self, x: Tensor) -> Parts:
        """x [T, B, input_size], or one step of it, -> what `step` reads beside the state."""
        return {**self.input(x), **self.beside(x)}

    def beside(self, x: Tensor) -> Parts:
        """What `step` reads beside the projections and the state: x itself, or a mask."""
        return {}

    def recur(self, **state: Tensor) -> Parts:
        """The products with the previous state. A unit whose recurrence is no matrix overrides this."""
        products: Parts = {}
        for attribute, name in self.recurrence.items():
            products |= getattr(self, attribute)(state[name])
        return products

    def call_by_name(self, method: str, known: Parts) -> Any:
        """Call a method with those of the `known` tensors that its arguments name (all, for **arguments)."""
        names = self.reads[method]
        wanted = {name: value for name, value in known.items() if name in names or not names}
        return getattr(self, method)(**wanted)

    def stages(self) -> tuple[Stage, ...]:
        return (Stage("step", tuple(self.states), self.recurrence),)

    def own_kernel(self, dtype: torch.dtype) -> OwnKernel | None:
        """A kernel written by hand, for a unit whose step is not elementwise."""
        return None

    @property
    def is_elementwise(self) -> bool:
        """Each channel of the state depends on no other."""
        return not self.recurrence and type(self).recur is Cell.recur

    def advance(self, projected: Parts, state: Parts, seen: Parts | None = None) -> tuple[Tensor, Parts]:
        """One time step. `seen` is the state as the recurrent matrices read it, if that differs."""
        reads = state if seen is None else seen
        known = {**projected, **self.call_by_name("recur", reads), **state}
        new: Parts = {}
        for stage in self.stages():
            for attribute, name in stage.through.items():
                known |= getattr(self, attribute)(new[name])
            y, made = self.call_by_name(stage.step, known)
            new |= made
        if self.projection is not None:
            y = self.projection(y)["y"]
            new["h"] = y
        return self.output(y, new), new

    def output(self, y: Tensor, state: Parts) -> Tensor:
        """The output, given that of the last stage and the new state."""
        return y

    def initial_state(self, batch: Sequence[int], like: Tensor) -> Parts:
        return {name: like.new_zeros(*batch, size) for name, size in self.states.items()}

    def pack_state(self, state: Parts) -> Any:
        """As users see it: the tensor of a one-state unit, otherwise the unit's named tuple."""
        return next(iter(state.values())) if self.State is None else self.State(**state)

    def unpack_state(self, state: Any, batch: Sequence[int], like: Tensor) -> Parts:
        """By name, checked against the shapes [*batch, size] and against the dtype and device of `like`."""
        tensors = self.state_tensors(state)
        for (name, size), tensor in zip(self.states.items(), tensors, strict=True):
            self.check_state(name, tensor, (*batch, size), like)
        return dict(zip(self.states, tensors, strict=True))

    def state_tensors(self, state: Any) -> tuple[Tensor, ...]:
        names = ", ".join(self.states)
        tensors = tuple(state) if isinstance(state, (tuple, list)) else (state,)
        if len(tensors) != len(self.states) or not all(isinstance(t, Tensor) for t in tensors):
            expected = f"one tensor ({names})" if len(self.states) == 1 else f"a tuple ({names})"
            got = ", ".join(type(t).__name__ for t in tensors)
            raise TypeError(f"the state of {self.unit_name} is {expected}; got ({got})")
        return tensors

    def check_state(self, name: str, tensor: Tensor, shape: tuple[int, ...], like: Tensor) -> None:
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"the state {name!r} of {self.unit_name} must have shape {shape}; got {tuple(tensor.shape)}"
            )
        self.check_like(f"the state {name!r}", tensor, like)

    def check_like(self, what: str, tensor: Tensor, like: Tensor) -> None:
        """Same device, and the same dtype unless autocast chooses dtypes itself."""
        if like.is_meta and not tensor.is_meta:
            self.check_without_values()
        elif tensor.device != like.device:
            raise ValueError(
                f"{what} is on {tensor.device}, but {self.unit_name} works on {like.device}; "
                f"move one of them with .to(device)"
            )
        if tensor.dtype != like.dtype and not torch.is_autocast_enabled(like.device.type):
            raise TypeError(
                f"{what} is {tensor.dtype}, but {self.unit_name} works in {like.dtype}; "
                f"convert one of them with .to(dtype)"
            )

    def check_without_values(self) -> None:
        """Parameters may be on meta as long as somebody who listens brings their values for each call."""
        if heard_inside(self) is None:
            raise ValueError(
                f"the parameters of {self.unit_name} are on meta, without values; load them with "
                "load_state_dict(..., assign=True), or call to_empty(device=...) and reset_parameters()"
            )

    @property
    def unit_name(self) -> str:
        return type(self).__name__.removesuffix("Cell")

    @property
    def example(self) -> Tensor:
        """A parameter, for its device and dtype."""
        return self.input.weight if "input" in self._modules else next(self.parameters())

    def forward(self, x: Tensor, state: Any = None, along: Along | None = None) -> tuple[Tensor, Any]:
        """One step: x [B, input_size] or [input_size], and the state of the step before (default: zeros).

        along   given by a layer, which takes the cell along whole sequences in one call: x is
                [T, B, input_size], states go by name, and hooks of the cell run once a pass
        """
        if along is not None:
            return along(x, state)
        self.check_step_input(x)
        batch = x.shape[:-1]
        held = self.initial_state(batch, x) if state is None else self.unpack_state(state, batch, x)
        # A step on its own is a batch of sequences of length one: what follows sees [B, ...] only.
        if not batch:
            y, new = self.take_step(x[None], {name: s[None] for name, s in held.items()})
            return y[0], self.pack_state({name: s[0] for name, s in new.items()})
        y, new = self.take_step(x, held)
        return y, self.pack_state(new)

    def take_step(self, x: Tensor, state: Parts) -> tuple[Tensor, Parts]:
        """x [B, input_size], by the kernel if there is one: a sequence of a single step."""
        if not is_compiling():
            # Imported when first needed, since it knows cells.
            from linnet.units.fused import kernel_for

            run = kernel_for(self, x)
            try:
                if run is not None:
                    y, new = run(x[None], state, (None, None, False))
                    return y[0], new
            except CannotFuse as error:
                may_fuse(self.unit_name, x, error.reason)
            check_devices(self, self.unit_name, x)
        return self.advance(self.project(x), state)

    def check_step_input(self, x: Tensor) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"{type(self).__name__} takes x as a Tensor; got {type(x).__name__}")
        if x.dim() not in (1, 2) or x.shape[-1] != self.input_size:
            raise ValueError(
                f"{type(self).__name__} was built with input_size={self.input_size} and got x of shape "
                f"{tuple(x.shape)}; one step takes x as [batch, input_size] or [input_size]"
            )
        if not all(x.shape):
            raise ValueError(f"{type(self).__name__} got an empty batch: x has shape {tuple(x.shape)}")
        self.check_like("x", x, self.example)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"
