"""What every unit consists of.

    project   everything that does not depend on the state, for all time steps at once
    recur     products with the previous state (elementwise units have none)
    step      the unit's equations for one time step
    read_out  what is computed from the output of `step` for all time steps at once (most units: nothing)

`project` and `recur` return tensors by name, the state is held by name, and `step` receives those that its
arguments name. `step` defines the unit: the loop that calls it at each time step is the reference to which
every kernel is compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from linnet.base.calls import like
from linnet.base.copies import CopiedFast
from linnet.base.errors import InputError, InputTypeError
from linnet.base.options import check_size, either
from linnet.base.show import ShowsOptions
from linnet.program.padding import only_selects
from linnet.program.unit import READ, ByNature, Named, Stage, Unit
from linnet.recurrent.adapters import adapters_of, run_inside, unwrapped, without_adapters
from linnet.recurrent.projection import Projection
from linnet.recurrent.scripting import NotScriptable
from linnet.recurrent.signature import named_arguments
from linnet.recurrent.subscripted import Subscripted
from linnet.recurrent.symbolic import is_symbol, recorded_call
from linnet.recurrent.timespans import refuse_timespans, timed
from linnet.run.choose import bound_step, run_step
from linnet.run.devices import check_devices
from linnet.run.hooks import hooked_submodule

# x [T, B, input_size], state -> y [T, B, output_size], state.
RunSequence = Callable[[Tensor, Named], tuple[Tensor, Named]]
# The steps of a sequence that the kernels of a unit with several of them are worth calling for.
WORTH_SEVERAL_KERNELS = 3


def argument_names(function: Callable[..., object]) -> tuple[str, ...]:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return tuple(parameter.name for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD)


class Cell(Subscripted, NotScriptable, ShowsOptions, CopiedFast, Unit):
    """One step of a recurrent unit: x_t [B, input_size], state -> y_t [B, output_size], state.

    A subclass defines `self.input` (a Projection), `reset_parameters` and `step`, and names in
    `recurrence` which of its Projections read which state. `states` names the states and their
    sizes; a unit with several states has a named tuple `State`, in which users get them.
    """

    State: ClassVar[type | None] = None
    # Whether a call takes `timespans`; inside they are the last channel of x, see recurrent/timespans.py.
    reads_time: ClassVar[bool] = False
    # Parameters that its authors train at a lower rate and without weight decay, or only without the latter,
    # by their names in the cell; see `linnet.parameter_groups`.
    slow_parameters: ClassVar[tuple[str, ...]] = ()
    undecayed_parameters: ClassVar[tuple[str, ...]] = ()
    # The Projections that read the previous state: {attribute: state}.
    recurrence: Mapping[str, str] = {}
    # Projects the output, the state h, before it recurs (RAN and LSTM with proj_size).
    projection: Projection | None
    input: Projection
    step: Callable[..., tuple[Tensor, Named]]
    # The names of the arguments of its methods: these say which tensors a method receives.
    arguments: ClassVar[dict[str, tuple[str, ...]]] = {"recur": ()}
    # Those of its constructor. Finding them takes too long to do it for each layer that is built.
    constructor_arguments: ClassVar[dict[str, inspect.Parameter]] = {}

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        methods = {name: value for name, value in vars(cls).items() if inspect.isfunction(value)}
        cls.arguments = {
            **cls.arguments,
            **{name: argument_names(method) for name, method in methods.items()},
        }
        cls.constructor_arguments = named_arguments(cls)
        if cls.State is not None:
            # torch.load then loads a saved state as it loads a saved tensor.
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
    def options_at(cls, options: dict[str, Any], **position: int) -> dict[str, Any]:
        """Return the options of one cell in a stack, for units whose options depend on the position.

        position: layer, num_layers, direction, num_directions, input_size, hidden_size.
        """
        return options

    def reset_parameters(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define reset_parameters")

    def project(self, x: Tensor) -> Named:
        """x [T, B, input_size], or one step of it, -> the inputs of `step` other than the state."""
        extra_inputs = self.extra_inputs(x)  # first, as with kernels: both may draw masks
        return {**self.input(x), **extra_inputs, **self.inputs_of_readout(x)}

    @only_selects
    def extra_inputs(self, x: Tensor) -> Named:
        """Return further inputs of `step`, besides the projections and the state: x itself, or a mask."""
        return {}

    def recur(self, **state: Tensor) -> Named:
        """Return the products with the previous state; override it if they are not matrix products."""
        products: Named = {}
        for attribute, name in self.recurrence.items():
            products |= getattr(self, attribute)(state[name])
        return products

    def call_by_name(self, method: str, known: Named) -> Any:
        """Call a method with those of the `known` tensors that its arguments name (all, for **arguments)."""
        names = self.arguments[method]
        wanted = {name: value for name, value in known.items() if name in names or not names}
        return getattr(self, method)(**wanted)

    def stages(self) -> tuple[Stage, ...]:
        return (Stage("step", tuple(self.states), self.recurrence),)

    def pays(self, steps: int) -> bool:
        # Calling several kernels takes longer than two steps of the loop; measured, see docs/log.md.
        return steps >= WORTH_SEVERAL_KERNELS or len(self.stages()) == 1

    def structural_obstacle(self) -> str | None:
        if type(self).project is not Cell.project:
            return ByNature("its projection is its own")
        return None

    def elementwise_obstacle(self) -> str | None:
        if type(self).recur is not Cell.recur:
            return ByNature("its recurrence is not a plain matrix")
        if not all(getattr(self, name).is_product for name in self.recurrence):
            return ByNature("its products with the state have norms")
        return None

    @property
    def is_elementwise(self) -> bool:
        """Each channel of the state depends on no other."""
        return not self.recurrence and type(self).recur is Cell.recur

    def advance(
        self, inputs: Named, state: Named, visible_state: Named | None = None
    ) -> tuple[Tensor, Named]:
        """One time step. `visible_state` is what the recurrent matrices read, if not the state itself."""
        y, new = self.run_stages(inputs, state, visible_state)
        y = self.output(y, new)
        return (self.checked_read_out(y, inputs[READ]) if self.reads_out else y), new

    def run_stages(
        self, inputs: Named, state: Named, visible_state: Named | None = None
    ) -> tuple[Tensor, Named]:
        products = self.call_by_name("recur", state if visible_state is None else visible_state)
        known = {**inputs, **products, **state}
        new: Named = {}
        for stage in self.stages():
            for attribute, name in stage.reads_new_state.items():
                known |= getattr(self, attribute)(new[name])
            y, updated = self.call_by_name(stage.step, known)
            new |= updated
        return self.project_output(y, new)

    def project_output(self, y: Tensor, state: Named) -> tuple[Tensor, Named]:
        if self.projection is None:
            return y, state
        y = self.projection(y)["y"]
        return y, {**state, "h": y}

    def start(self) -> Named | None:
        """Return a learned state from which sequences start, [size] by name; None: they start from zeros.

        Either all cells of a stack have one, or none.
        """
        return None

    def initial_state(self, batch: Sequence[int], like: Tensor) -> Named:
        start = self.start()
        if start is not None:
            return {name: start[name].to(like).repeat(*batch, 1) for name in self.states}
        return {name: like.new_zeros(*batch, size) for name, size in self.states.items()}

    def pack_state(self, state: Named) -> Any:
        """Return the state as users get it: a tensor, or the named tuple of a unit with several states."""
        return next(iter(state.values())) if self.State is None else self.State(**state)

    def unpack_state(self, state: Any, batch: Sequence[int], like: Tensor) -> Named:
        """Return the state by name, after checking shapes ([*batch, size]), dtype and device (of `like`)."""
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
            raise InputTypeError(f"the state of {self.unit_name} is {expected}; got ({got})")
        return tensors

    def check_state(self, name: str, tensor: Tensor, shape: tuple[int, ...], like: Tensor) -> None:
        if tuple(tensor.shape) != shape:
            raise InputError(
                f"the state {name!r} of {self.unit_name} must have shape {shape}; got {tuple(tensor.shape)}"
            )
        self.check_like(f"the state {name!r}", tensor, like)

    def check_like(self, what: str, tensor: Tensor, like: Tensor) -> None:
        """Check for the same device, and for the same dtype unless autocast chooses dtypes."""
        if like.is_meta and not tensor.is_meta:
            self.check_without_values()
        elif tensor.device != like.device:
            raise InputError(
                f"{what} is on {tensor.device}, but {self.unit_name} works on {like.device}; "
                f"move one of them with .to(device)"
            )
        if tensor.dtype != like.dtype and not torch.is_autocast_enabled(like.device.type):
            raise InputTypeError(
                f"{what} is {tensor.dtype}, but {self.unit_name} works in {like.dtype}; "
                f"convert one of them with .to(dtype)"
            )

    def check_without_values(self) -> None:
        """Parameters may be on meta only if a hook loads their values for each call."""
        if hooked_submodule(self) is None:
            raise ValueError(
                f"the parameters of {self.unit_name} are on meta, without values; load them with "
                "load_state_dict(..., assign=True), or call to_empty(device=...) and reset_parameters()"
            )

    @property
    def unit_name(self) -> str:
        return type(self).__name__.removesuffix("Cell")

    @property
    def example(self) -> Tensor:
        """A parameter, with the device and the dtype of the cell."""
        return unwrapped(self.input).example if "input" in self._modules else next(self.parameters())

    def forward(
        self,
        x: Tensor | None = None,
        state: Any = None,
        run_sequence: RunSequence | None = None,
        *,
        timespans: Tensor | None = None,
        input: Tensor | None = None,
        hx: Any = None,
    ) -> Any:
        """One step: x [B, input_size] or [input_size], and the previous state (default: zeros).

        timespans      [B] or []: the time since the step before, for units that read it (default: 1)
        input, hx      torch's names of x and state
        run_sequence   passed by a layer, which runs the cell over whole sequences in one call: x is then
                       [T, B, input_size], the state is a dict, and hooks of the cell run once per sequence
        """
        if run_sequence is not None:
            return run_sequence(x, state)  # type: ignore[arg-type]
        x, state = either("x", x, "input", input), either("state", state, "hx", hx)
        if is_symbol(x):
            return recorded_call(self, x, state, {"timespans": timespans})  # type: ignore[arg-type]
        if not self.reads_time:
            refuse_timespans(timespans, type(self).__name__, ["linnet.CfCCell", "linnet.LTCCell"])
        return self.returned(*self.run_step(x, state, timespans))

    if TYPE_CHECKING:

        @like(forward)
        def __call__(self, *inputs: Any, **named: Any) -> Any: ...

    def returned(self, y: Tensor, state: Any) -> Any:
        """What a call returns. The cells that torch has too return the state only, of which y is a part."""
        return y, state

    def run_step(self, x: Tensor, state: Any = None, timespans: Tensor | None = None) -> tuple[Tensor, Any]:
        """One step of any cell: the output and the new state."""
        again = bound_step(self, x, self.given_states(x, state))
        if again is not None:
            y, states = again
            y = self.checked_read_out(y, x)
            return y, self.pack_state(dict(zip(self.states, states, strict=True)))
        self.bind()
        adapters = adapters_of(self)
        if adapters:
            return run_inside(
                adapters, x, partial(without_adapters(self, adapters).run_step, x, state, timespans)
            )
        self.check_step_input(x)
        if self.reads_time:
            x = timed(x, timespans, type(self).__name__)
        batch = x.shape[:-1]
        named = self.initial_state(batch, x) if state is None else self.unpack_state(state, batch, x)
        # Below this line x is always [B, input_size].
        if not batch:
            y, new = run_step(self, x[None], {name: s[None] for name, s in named.items()})
            y, new = y[0], {name: s[0] for name, s in new.items()}
        else:
            y, new = run_step(self, x, named)
        return self.checked_read_out(y, x), self.pack_state(new)

    def checked_read_out(self, y: Tensor, x: Tensor) -> Tensor:
        """`read_out`, after checking where its weights are: torch multiplies by a matrix on meta silently."""
        if not self.reads_out:
            return y
        check_devices(self, self.unit_name, y)
        return self.read_out(y, x)

    def given_states(self, x: Any, state: Any) -> tuple:
        """The tensors of a state, unchecked; zeros for None, if x is a batch."""
        if state is None and type(x) is Tensor and x.dim() == 2:
            return tuple(self.initial_state(x.shape[:1], x).values())
        return state if isinstance(state, tuple) else (state,)

    def bind(self) -> None:
        """Let the projections inside read the parameters that the cell holds, if it holds theirs."""

    def check_step_input(self, x: Tensor) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"{type(self).__name__} takes x as a Tensor; got {type(x).__name__}")
        if x.dim() not in (1, 2) or x.shape[-1] != self.input_size:
            raise InputError(
                f"{type(self).__name__} was built with input_size={self.input_size} and got x of shape "
                f"{tuple(x.shape)}; one step takes x as [batch, input_size] or [input_size]"
            )
        self.check_like("x", x, self.example)
