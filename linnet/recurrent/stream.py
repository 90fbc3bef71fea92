"""A session for streams: a stack of layers, one time step at a time.

    stream = linnet.stream(rnn, batch=1)
    y = stream(x)
    ys = stream.run(xs)

The state and all buffers are inside the stream, and the whole stack is one native call: on a server, a robot
or in a game, a step then takes little more than reading the weights once.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from linnet.base.forks import compiling
from linnet.base.options import check_size
from linnet.program.readable import is_recording
from linnet.program.unit import ByNature, CannotFuse, Linear, Operation
from linnet.recurrent.direction import Direction
from linnet.recurrent.recurrent import Recurrent
from linnet.run.bound_unit import load_kernels
from linnet.run.change import Watch
from linnet.run.choose import STEP_DTYPES, may_use_cpu_kernels, warn_once
from linnet.run.decision import UNCOUNTED, method_of


class Stream:
    """Runs `rnn`, a module of Linnet in evaluation mode, one step at a time: see `linnet.stream`."""

    def __init__(self, rnn: Recurrent, batch: int = 1):
        check_size("batch", batch)
        if not isinstance(rnn, Recurrent):
            raise TypeError(f"linnet.stream takes a module such as linnet.SRU; got {type(rnn).__name__}")
        if rnn.bidirectional:
            raise ValueError(
                "a stream has no future to read backwards: linnet.stream takes a module that was built with "
                "bidirectional=False"
            )
        self.rnn, self.batch = rnn, batch
        example = rnn.first_cell.example
        self.dtype, self.device = example.dtype, example.device
        sizes = [size for direction in self.layers for size in direction.cell.states.values()]
        with torch.inference_mode(False):  # a reset outside of that mode writes them, too
            # The states of all layers side by side.
            self.states = torch.zeros(batch, sum(sizes), dtype=self.dtype, device=self.device)
            self.parts = self.states.split(sizes, -1)
            self.states[:] = self.start()
        # One step at a time: a second thread would read a state that the first has half written.
        self.lock = Lock()
        self.prepare()

    def __repr__(self) -> str:
        return f"Stream({type(self.rnn).__name__}({self.rnn.extra_repr()}), batch={self.batch})"

    @property
    def layers(self) -> list[Direction]:
        return list(self.rnn.directions)  # type: ignore[arg-type]

    # --------------------------------------------------------------------------------- stepping

    def __call__(self, x: Tensor, timespans: Tensor | None = None) -> Tensor:
        """One step: x [batch, input_size] -> y [batch, output_size]; both without batch if it is 1.

        timespans   [batch], or one number: the time since the step before, for units that read it
        """
        with self.lock:
            if not self.watch.holds(self.rnn):
                self.prepare()
            if not (self.fits(x) and x.shape == self.shape) or timespans is not None:
                return self.step_unusual(x, timespans)
            y = torch.empty_like(self.y)
            self.native(x.data_ptr(), y.data_ptr())
            return y

    def run(self, frames: Tensor, timespans: Tensor | None = None) -> Tensor:
        """Many steps in one call: frames [T, batch, input_size] -> [T, batch, output_size], as by stepping.

        timespans   [T, batch], or [T]: the time since the step before, for units that read it

        Python's other threads run meanwhile. With batch=1, both may be without that dimension.
        """
        with self.lock:
            if not self.watch.holds(self.rnn):
                self.prepare()
            self.check_frames(frames, timespans)
            expected = self.shape[frames.dim() == 2 and self.batch == 1 :]
            if not (self.fits(frames) and frames.shape[1:] == expected) or timespans is not None:
                return self.run_unusual(frames, timespans)
            y = self.y.new_empty(*frames.shape[:-1], self.y.shape[-1])
            self.native(frames.data_ptr(), y.data_ptr(), len(frames))
            return y

    def run_unusual(self, frames: Tensor, timespans: Tensor | None) -> Tensor:
        """The frames one after the other, where the native call does not take them as they are."""
        times = [None] * len(frames) if timespans is None else timespans
        outputs = [self.step_unusual(x, time) for x, time in zip(frames, times, strict=True)]
        return torch.stack(outputs)

    def fits(self, x: Tensor) -> bool:
        """Whether the native call can read x, if it has the right shape."""
        return (
            type(x) is Tensor
            and x.dtype is self.dtype
            and x.is_cpu
            and x.is_contiguous()
            and not (x.is_neg() or is_recording())
            and self.native is not None
            and may_use_cpu_kernels()
        )

    @torch.no_grad()
    def step_unusual(self, x: Tensor, timespans: Tensor | None = None) -> Tensor:
        """A step of an input that the native call does not take as it is."""
        self.check_input(x)
        times = None if timespans is None else timespans.reshape(-1).expand(self.batch)
        row = self.rnn.with_time(x.detach().reshape(self.batch, -1), times)
        if self.native is None or is_recording() or not may_use_cpu_kernels() or type(x) is not Tensor:
            self.rnn.bind()
            y, state = self.rnn.run(row[None], self.named_state(), None, None)
            self.put(state)
            y = y[0]
        else:
            y, row = torch.empty_like(self.y), row.resolve_neg().contiguous()
            self.native(row.data_ptr(), y.data_ptr())
        return y.view(*x.shape[:-1], -1)

    def check_input(self, x: Tensor) -> None:
        cell, name = self.rnn.first_cell, type(self.rnn).__name__
        if not isinstance(x, Tensor):
            raise TypeError(f"a stream of {name} takes x as a Tensor; got {type(x).__name__}")
        size = self.rnn.input_size
        if tuple(x.shape) != (self.batch, size) and not (self.batch == 1 and tuple(x.shape) == (size,)):
            raise ValueError(
                f"this stream of {name} was made with batch={self.batch} and takes x of shape "
                f"({self.batch}, {size}); got {tuple(x.shape)}. A sequence goes to the module itself"
            )
        cell.check_like("x", x, self.states)

    def check_frames(self, frames: Tensor, timespans: Tensor | None) -> None:
        name, shape = type(self.rnn).__name__, f"(T, {self.batch}, {self.rnn.input_size})"
        if not isinstance(frames, Tensor):
            raise TypeError(
                f"run of a stream of {name} takes frames as a Tensor; got {type(frames).__name__}"
            )
        if frames.dim() not in (2, 3) or not len(frames):
            raise ValueError(
                f"run of this stream of {name} takes one frame or more, of shape {shape}; got "
                f"{tuple(frames.shape)}"
            )
        if timespans is not None and (timespans.dim() == 0 or len(timespans) != len(frames)):
            raise ValueError(
                f"run takes timespans of shape ({len(frames)}, {self.batch}), for each frame; got "
                f"{tuple(timespans.shape)}"
            )

    # ------------------------------------------------------------------------------------ state

    @property
    def state(self) -> Any:
        """A copy of the state, as the module returns it: [num_layers, batch, size], or the unit's tuple."""
        with self.lock:
            return self.rnn.write_state({n: s.clone() for n, s in self.named_state().items()}, True)

    @state.setter
    def state(self, state: Any) -> None:
        layers = len(self.rnn.directions)
        named = self.rnn.first_cell.unpack_state(state, (layers, self.batch), self.states)
        with self.lock:
            self.put(named)

    def reset(self, rows: int | Iterable[int] | None = None) -> None:
        """Set the state to that of a new sequence; `rows`: only those rows of the batch."""
        chosen = slice(None) if rows is None else self.index_of(rows)
        with self.lock, torch.no_grad():
            self.states[chosen] = self.start()

    @torch.no_grad()
    def start(self) -> Tensor | float:
        """The states of all layers side by side at the start of a sequence, for one row."""
        if not self.rnn.may_learn_start:
            return 0.0
        each = [layer.cell.initial_state((), self.states) for layer in self.layers]
        return torch.cat([state for cell in each for state in cell.values()])

    def index_of(self, rows: int | Iterable[int]) -> Tensor:
        listed = torch.as_tensor(rows if isinstance(rows, (int, Tensor)) else list(rows), device=self.device)
        # torch takes an empty list for one of float32.
        return listed.reshape(-1) if listed.numel() else listed.new_empty(0, dtype=torch.int64)

    def named_state(self) -> dict[str, Tensor]:
        """Return the states by name, [num_layers, batch, size]."""
        names = list(self.rnn.first_cell.states)
        return {name: torch.stack(self.parts[i :: len(names)]) for i, name in enumerate(names)}

    def put(self, state: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for i, tensor in enumerate(state.values()):
                for part, layer in zip(self.parts[i :: len(state)], tensor, strict=True):
                    part.copy_(layer)

    # -------------------------------------------------------------------------------- preparing

    def prepare(self) -> None:
        """Decide how the module runs as it is now. `native` is None if it cannot be one native call."""
        if self.rnn.training:
            raise RuntimeError(
                f"a stream runs {type(self.rnn).__name__} as in evaluation, but it is in training mode; "
                "call rnn.eval(), as in stream = linnet.stream(rnn.eval())"
            )
        example = self.rnn.first_cell.example
        if (example.dtype, example.device) != (self.dtype, self.device):
            raise RuntimeError(
                f"the weights are {example.dtype} on {example.device} now, and this stream was made for "
                f"{self.dtype} on {self.device}; make a new one with linnet.stream"
            )
        self.rnn.bind()
        self.native: Any = None
        self.shape = torch.Size((self.batch, self.rnn.input_size))
        self.watch = Watch(self.rnn, list(self.rnn.modules()))
        try:
            self.build()
        except CannotFuse as error:
            warn_once(self.rnn.first_cell.unit_name, error.reason)
        for direction in self.layers:
            self.watch.watch_settings(direction.plan_cache.settings, direction.cell)

    def build(self) -> None:
        if self.watch.hooked:
            raise CannotFuse("it has hooks, which a native call does not run")
        if not self.watch.originals.are_counted:
            raise CannotFuse(UNCOUNTED)
        if self.dtype not in STEP_DTYPES or self.device.type != "cpu":
            raise CannotFuse(
                f"a native step takes float32 or float64 on the CPU; it has {self.dtype} on {self.device}"
            )
        if any(direction.cell.reads_out for direction in self.layers):
            raise CannotFuse(ByNature("what it computes after its scan is not a part of a native call"))
        methods = [method_of(direction) for direction in self.layers]
        load_kernels()
        with compiling:  # a fork waits for the import
            from linnet.cpu.cell_step import append_step
            from linnet.cpu.frames import Frames
            from linnet.cpu.steps import StepProgram
        program = StepProgram(self.batch, self.dtype)
        x, new = program.buffer(self.rnn.input_size), torch.zeros_like(self.states)
        reads, first = program.copy((x, x)), 0
        for direction, method in zip(self.layers, methods, strict=True):
            columns = slice(first, first + sum(direction.cell.states.values()))
            y = append_step(program, direction.cell, method, x, self.states[:, columns], new[:, columns])
            y = y if direction.projection is None else program.operations(y, [projection_of(direction)])
            x = program.add(y, x, y) if self.rnn.residual and y.shape == x.shape else y
            first = columns.stop
        program.copy((new, self.states))
        writes = program.copy((x, x))
        self.y = torch.empty_like(x)
        program.finish()
        self.native = Frames(program, reads, writes)


def projection_of(direction: Direction) -> Operation:
    linear: Any = direction.projection
    if hasattr(linear, "operation"):  # in int8
        return linear.operation()
    if type(linear) is not torch.nn.Linear:
        raise CannotFuse(f"kernels do not know the projection {linear}")
    return Linear(linear.weight, linear.bias)


def stream(rnn: Recurrent, batch: int = 1) -> Stream:
    """Return a session that runs `rnn` one step at a time, with the state and all buffers inside.

    stream = linnet.stream(rnn, batch=1)
    y = stream(x)                 # x [batch, input_size] -> y [batch, output_size]
    ys = stream.run(xs)           # xs [T, batch, input_size]: many steps in one call that releases the GIL
    stream.state                  # a copy of the state, as the module returns it; can be set
    stream.reset(rows=None)       # a new sequence, for all rows or for some

    The module must be in evaluation mode and have one direction. A step records no gradients. Weights that
    change are seen at the next step, whether in place (an optimiser), by `load_state_dict` or by new
    parameters; a changed dtype or device, and training mode, are errors. A stack that cannot be one native
    call (a unit without a kernel, hooks, bfloat16) runs module by module and says why, once. In native
    calls, denormal numbers are zeros (on x86 and AArch64): a state that decays in silence costs what any
    other state costs.
    """
    return Stream(rnn, batch)
