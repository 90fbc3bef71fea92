"""The interface of a unit for fused kernels, which `linnet.recurrent.cell.Cell` implements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from torch import Tensor, nn

from linnet.program.padding import only_selects

Named = dict[str, Tensor]
# mask [T, B], resets [T, B], reverse; see run/reference.py.
Flags = tuple[Tensor | None, Tensor | None, bool]
# x [T, B, input_size], state, flags, whether the call is recorded -> y [T, B, output_size], state.
RunKernel = Callable[[Tensor, Named, Flags, bool], tuple[Tensor, Named]]


# The input of `read_out` among the inputs of a step.
READ = "x of readout"


class CannotFuse(Exception):  # noqa: N818, it is a reason more than an error
    """The reason why a unit runs on the reference loop."""

    @property
    def reason(self) -> str:
        return self.args[0]


class ByNature(str):
    """A reason in the structure of the unit, which users cannot change: it is logged, without a warning."""

    __slots__ = ()


class Stage(NamedTuple):
    """One of the methods that compute a time step, one after another; most units have one, `step`."""

    step: str
    states: tuple[str, ...]
    # The projections that read the previous state: {attribute: state}.
    recurrence: Mapping[str, str] = {}
    # The projections that read a new state, which an earlier stage has computed: {attribute: state}.
    reads_new_state: Mapping[str, str] = {}


class Linear(NamedTuple):
    """A product with `weight` [columns, depth]; `bias` is that of the last columns, if there is one.

    With several heads the matrix is block-diagonal, and its columns are parts of these sizes: see
    program/blocks.py.
    """

    weight: Tensor
    bias: Tensor | None
    heads: int = 1
    parts: tuple[int, ...] = ()


class Shift(NamedTuple):
    """A sum with `bias`, which is that of the last columns before the last `apart`."""

    bias: Tensor
    apart: int = 0


class Norm(NamedTuple):
    """Layer norm; without `shift`, the norm by root mean square."""

    gain: Tensor
    shift: Tensor | None
    eps: float


class Norms(NamedTuple):
    """Norms of consecutive groups of channels."""

    norms: Sequence[Norm]


class Int8Linear(NamedTuple):
    """A product with an int8 matrix, packed: a linnet.cpu.int8.Int8Panels."""

    panels: Any
    bias: Tensor | None


Operation = Linear | Int8Linear | Shift | Norms


class InputProjection(Protocol):
    """One matrix product for all gates and all time steps; see linnet.recurrent.projection.Projection."""

    @property
    def parts(self) -> dict[str, int]: ...

    @property
    def heads(self) -> int: ...

    @property
    def weight(self) -> Tensor: ...

    @property
    def bias(self) -> Tensor | None: ...

    @property
    def bias_tensors(self) -> list[Tensor]:
        """One bias, or two that are added but for the last `apart` numbers of the second."""

    @property
    def apart(self) -> int: ...

    @property
    def is_plain(self) -> bool: ...

    @property
    def is_bare(self) -> bool: ...

    def prepare(self, x: Tensor) -> Tensor: ...

    def joint(self, x: Tensor) -> Tensor: ...

    def split(self, x: Tensor) -> dict[str, Tensor]: ...

    def operations(self) -> list[Operation]: ...

    @property
    def biased_parts(self) -> list[str]: ...


class Unit(nn.Module):
    """One step of a recurrent unit: what tracing and running it need."""

    input: InputProjection
    input_size: int
    # The states with their sizes.
    states: dict[str, int]
    # Whether its matrices are int8, and their inputs are rounded; see linnet/recurrent/int8.py.
    is_quantised = False
    # The buffers that `step` reads: kernels get them as they get parameters. If its step reads a buffer that
    # is not named here, a unit runs on the reference loop.
    constant_buffers: ClassVar[tuple[str, ...]] = ()
    # The names of the arguments of each method.
    arguments: ClassVar[dict[str, tuple[str, ...]]]

    @property
    def unit_name(self) -> str:
        raise NotImplementedError

    @property
    def unit_parameters(self) -> dict[str, Any]:
        """Its own parameters, without those of the projections inside."""
        return self._parameters

    def parameters_inside(self) -> list[tuple[str, Tensor]]:
        """All parameters by the paths on which the step reads them."""
        return list(self.named_parameters())

    def structural_obstacle(self) -> str | None:
        """Why the structure of this unit allows no kernel, or None."""
        raise NotImplementedError

    def elementwise_obstacle(self) -> str | None:
        """Why its channels depend on each other by more than matrix products, or None."""
        raise NotImplementedError

    def stages(self) -> tuple[Stage, ...]:
        raise NotImplementedError

    def pays(self, steps: int) -> bool:
        """Whether kernels are faster than the loop over this many steps."""
        raise NotImplementedError

    def extra_inputs(self, x: Tensor) -> Named:
        """The inputs of `step` besides the projections and the state."""
        raise NotImplementedError

    def project(self, x: Tensor) -> Named:
        """Return all inputs of `step` that do not depend on the state."""
        raise NotImplementedError

    def advance(
        self, inputs: Named, state: Named, visible_state: Named | None = None
    ) -> tuple[Tensor, Named]:
        """One time step: the output and the new state."""
        raise NotImplementedError

    def call_by_name(self, method: str, known: Named) -> Any:
        raise NotImplementedError

    def project_output(self, y: Tensor, state: Named) -> tuple[Tensor, Named]:
        """Return the output and the state after the projection that recurs, if the unit has one."""
        raise NotImplementedError

    def run_stages(
        self, inputs: Named, state: Named, visible_state: Named | None = None
    ) -> tuple[Tensor, Named]:
        """`advance` without `output`: the output of the last stage and the new state."""
        raise NotImplementedError

    def read_out(self, y: Tensor, x: Tensor) -> Tensor:
        """The output [..., output_size], given that of the scan and x; both of one time step or of many.

        This is the part of a unit in which no time step depends on another, such as a matrix product that
        does not recur.
        """
        return y

    @property
    def reads_out(self) -> bool:
        """Whether the output of the scan is not that of the unit."""
        return type(self).read_out is not Unit.read_out

    def inputs_of_readout(self, x: Tensor) -> Named:
        return {READ: x} if self.reads_out else {}

    @only_selects
    def output(self, y: Tensor, state: Named) -> Tensor:
        """The output of the unit, given that of its last stage and the new state, after noise on it."""
        return y
