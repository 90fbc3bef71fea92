"""A scan over a whole sequence without gradients, prepared once and run on the tensors of each call.

For a unit without recurrent matrices, the checks and the arguments of a kernel may take longer than the
kernel. At each call they are the same, except for the number of steps and the addresses of the given tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from linnet.fuse.cpu import jit
from linnet.fuse.cpu.call import Call, panel_bias, rectangles, side_by_side, steps_at_once, whole_bias
from linnet.fuse.cpu.cell_step import views_of
from linnet.fuse.cpu.gemm import ROWS
from linnet.fuse.cpu.memory import new_empty
from linnet.fuse.cpu.pack import Packing
from linnet.fuse.cpu.passes import leaves_unpacked
from linnet.fuse.cpu.program import HEADER
from linnet.fuse.cpu.scan_call import ScanCall, kernel_for
from linnet.fuse.cpu.threads import grain
from linnet.fuse.cpu.width import vector_width
from linnet.fuse.fused import check_fit, extras_of, operands_of
from linnet.fuse.operands import Operands, Source
from linnet.fuse.plan import Method, Plan
from linnet.fuse.scan import OtherOperands
from linnet.fuse.unit import CannotFuse, Named, Unit


def key_of(x: Tensor, reverse: bool) -> tuple:
    """What a prepared scan depends on besides its module, where x [T, B, input_size]."""
    few = len(x) * x.shape[1] < ROWS  # see `leaves_unpacked`
    return x.shape[1:], x.dtype, reverse, few, torch.get_num_threads()


def plan_of(cell: Unit, method: Method, x: Tensor) -> Plan:
    """The plan of a scan that can be prepared; raises CannotFuse if there is none."""
    if method.own or cell.is_quantised or not cell.input.is_plain:
        raise CannotFuse("its projections are not computed by the kernel")
    if len(method.plans) > 1 or method.plans[0].matrices or not method.plans[0].is_even:
        raise CannotFuse("it has a recurrent matrix, or several kernels")
    # These raise it for noise, which is drawn at each call.
    cell.input.operations()
    views_of(x[0], cell.extra_inputs)
    return method.plans[0]


class PreparedScan:
    """The scan of one cell over sequences of one batch size.

    It reads the weights at their addresses, so it is valid until one of them is replaced.
    """

    def __init__(self, cell: Unit, method: Method, x: Tensor, state: Named, reverse: bool):
        self.plan = plan = plan_of(cell, method, x)
        self.reverse, self.stage = reverse, cell.stages()[0]
        projection, flags = cell.input, (None, None, reverse)
        source = Source(projection.prepare(x), projection.weight, projection.bias)
        inputs = cell.extra_inputs(x)
        others = OtherOperands(*operands_of(cell, self.stage, plan, inputs, x, state), *flags)
        check_fit(cell, plan, source, others)
        check_stays(cell, x, [t for t in (*source[1:], *others.weights) if t is not None])
        self.unpacked, self.chunk = leaves_unpacked(plan, source.x, ()), steps_at_once(x.shape[1])
        joint = new_empty((self.chunk, x.shape[1], len(source.weight)), x.dtype)
        operands = Operands.of(plan, flags, (joint, *others.tensors(x.dtype)), source)
        self.prepare(operands, ScanCall(operands), source)

    def prepare(self, operands: Operands, call: Call, source: Source) -> None:
        """Make the arguments of the kernel. Each call writes those that depend on its tensors."""
        traced, (_, batch, size) = operands.plan.traced, operands.shape
        self.states, self.output_state, self.shape = traced.states, traced.output_state, (batch, size)
        writes_output = self.output_state is None
        self.function, names = kernel_for(operands, "forward", (), writes_output, True, self.unpacked)
        self.places = {name: len(HEADER) + 3 * i for i, name in enumerate(names)}
        for name in names:
            call.locations.setdefault(name, (0, 0, 0))
        panel, (count, depth) = vector_width(operands.real), source.weight.shape
        cut = rectangles(batch, size, panel)
        self.units, self.each = -(-batch // cut.rows) * cut.blocks, cut.rows * cut.block * depth
        self.numbers = call.numbers(names, cut, self.chunk)
        self.packing = None if self.unpacked else Packing(source.weight, count // size, panel)
        self.alive = operands.joint  # the kernel writes projections here

    def __call__(self, cell: Unit, x: Tensor, state: Named) -> tuple[Tensor, Named]:
        """x [T, B, input_size] -> the output [T, B, output_size] and the final state."""
        read, inputs = side_by_side(cell.input.prepare(x)), cell.extra_inputs(x)
        extras = [side_by_side(extra) for extra in extras_of(cell, self.stage, self.plan, inputs, x)]
        for name, tensor in zip(("x", *self.plan.extras), (read, *extras), strict=True):
            self.put(name, tensor)
        y, finals = self.put_results(len(x), state)
        starts = self.put_matrix(cell.input)
        self.numbers[0] = len(x)
        jit.run(self.function, self.units, grain(len(x) * self.each), self.numbers)
        del read, extras, starts  # which the kernel has read by their addresses
        final = {name: f.clone() if name == self.output_state else f for name, f in finals.items()}
        return cell.output(y, {self.stage.states[0]: y}), final

    def put(self, name: str, tensor: Tensor) -> None:
        """Write the address and the strides of [T, B, size] or [B, size]."""
        at, each, strides = self.places[name], tensor.element_size(), tensor.stride()
        self.numbers[at] = tensor.data_ptr()
        self.numbers[at + 1] = strides[0] * each if len(strides) > 2 else 0
        self.numbers[at + 2] = strides[-2] * each

    def put_results(self, steps: int, state: Named) -> tuple[Tensor, Named]:
        """Memory for the output and for the states: one slot, or all steps of a state that is the output."""
        y, finals, (batch, size) = None, {}, self.shape
        for name in self.states:
            start = state[name]
            if name == self.output_state:
                made = new_empty((steps + 1, batch, size), start.dtype)
                y, finals[name] = (made[:-1], made[0]) if self.reverse else (made[1:], made[-1])
                made[-1 if self.reverse else 0] = start
            else:
                made = finals[name] = start.clone(memory_format=torch.contiguous_format)
            self.put(f"state.{name}", made)
        if y is None:
            y = new_empty((steps, batch, size), start.dtype)
            self.put("y", y)
        return y, finals

    def put_matrix(self, projection: Any) -> Tensor:
        """Pack the matrix, which may have changed since the last call; return the bias of each row."""
        at, weight, bias = self.places["matrix.input"], projection.weight, projection.bias
        count, depth = weight.shape
        if self.packing is None:
            starts = whole_bias(bias, count, weight.dtype)
            location = weight.data_ptr(), depth * weight.element_size(), starts.data_ptr()
        else:
            starts = panel_bias(bias, count, self.shape[1], weight.dtype)
            location = self.packing.run().data_ptr(), depth, starts.data_ptr()
        self.numbers[at], self.numbers[at + 1], self.numbers[at + 2] = location
        return starts


def check_stays(cell: Unit, x: Tensor, tensors: Sequence[Tensor]) -> None:
    """Whether the tensors are parameters, or parts of them, which keep their addresses."""
    owned = {parameter.untyped_storage()._cdata for parameter in cell.parameters()}
    for tensor in tensors:
        if tensor.untyped_storage()._cdata not in owned or not tensor.is_contiguous():
            raise CannotFuse("a weight is computed at each call")
    if any((p.dtype, p.device) != (x.dtype, x.device) for p in cell.parameters()):
        raise CannotFuse(f"not all of its parameters are {x.dtype} on {x.device}")
