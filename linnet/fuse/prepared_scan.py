"""A scan over a whole sequence, prepared once and run on the tensors of each call.

The checks and the arguments of a kernel may take longer than the kernel. At each call they are the same,
except for the number of steps and the addresses of the given tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.fuse.cpu import jit
from linnet.fuse.cpu.arguments import Arguments
from linnet.fuse.cpu.call import Cut, rectangles, side_by_side, steps_at_once
from linnet.fuse.cpu.gemm import ROWS
from linnet.fuse.cpu.memory import new_empty
from linnet.fuse.cpu.pack import Packing
from linnet.fuse.cpu.passes import FEW_ROWS, worth_projecting
from linnet.fuse.cpu.scan_call import ScanCall, kernel_for
from linnet.fuse.cpu.threads import grain
from linnet.fuse.cpu.width import vector_width
from linnet.fuse.fused import check_fit, extras_of, reduction_of
from linnet.fuse.operands import Operands, Source
from linnet.fuse.plan import Fusible, Method, Plan
from linnet.fuse.planning import matrices_of, one_step, weights_of
from linnet.fuse.pools import Pools
from linnet.fuse.prepared_backward import PreparedBackward, run_prepared
from linnet.fuse.prepared_weights import PreparedWeights
from linnet.fuse.scan import OtherOperands, ProjectedScan, ScanResults, ends
from linnet.fuse.unit import CannotFuse, Named, Unit


class Key(NamedTuple):
    """What a prepared scan depends on besides its module, for x [T, B, input_size]."""

    batch: int
    input_size: int
    dtype: torch.dtype
    few: bool  # so few rows that the matrix is not packed; see passes.leaves_unpacked
    reverse: bool
    keep: bool  # all projections and states, for gradients
    threads: int


def key_of(x: Tensor, reverse: bool, keep: bool) -> Key:
    steps, batch, size = x.shape
    return Key(batch, size, x.dtype, steps * batch < ROWS, reverse, keep, torch.get_num_threads())


def plan_of(cell: Unit, method: Method) -> Plan:
    """The plan of a scan that can be prepared; raises CannotFuse if there is none."""
    if method.own or cell.is_quantised or not cell.input.is_plain:
        raise CannotFuse("its projections are not computed by the kernel")
    (plan, *others) = method.plans
    if others or plan.raw is not None or plan.traced.inner or not plan.is_even:
        raise CannotFuse("it has several kernels, or products within a step")
    return plan


def suits(method: Method, x: Tensor) -> bool:
    """Whether a scan over x [T, B, D] can be prepared, as far as the plans are concerned.

    With recurrent matrices it can if threads share the rows, and the kernel computes the projections.
    """
    with_matrices = any(plan.matrices for plan in method.plans)
    return not with_matrices or (x.shape[1] > FEW_ROWS and worth_projecting(method.plans[0], x))


class Results(NamedTuple):
    """What a scan writes. With gradients, `joint` and `sequences` have all steps."""

    joint: Tensor
    y: Tensor
    sequences: list[Tensor]  # [T + 1, B, H], or one slot, [1, B, H]
    products: list[Tensor]


class Biases:
    """The biases of `count` rows of a matrix, in groups of `size` rows, for kernels that read whole panels.

    The first groups may have no bias. Zeros stand for those, and fill the last panel of each group.
    """

    def __init__(self, bias: Tensor | None, count: int, size: int, panel: int, dtype: torch.dtype):
        with torch.inference_mode(False):  # a later call outside of that mode writes it, too
            groups = torch.zeros(count // size, -(-size // panel) * panel, dtype=dtype, device="cpu")
        biased = 0 if bias is None else len(bias) // size
        self.given = None if bias is None else bias.detach().view(biased, size)
        self.copied = groups[len(groups) - biased :, :size]
        self.groups = groups

    def now(self) -> Tensor:
        """All biases, with the present numbers."""
        if self.given is not None:
            self.copied.copy_(self.given)
        return self.groups


class PreparedScan:
    """The forward scan of one cell.

    It reads the weights at their addresses, so it is valid until one of them is replaced.
    """

    def __init__(self, cell: Unit, method: Method, key: Key, state: Named):
        self.plan, self.key, self.stage = plan_of(cell, method), key, cell.stages()[0]
        operands = self.example(cell, state)
        traced, (_, batch, size) = self.plan.traced, operands.shape
        self.states, self.size, self.output_state = traced.states, size, traced.output_state
        separate = self.output_state is None
        self.function, names = kernel_for(operands, "forward", (), separate, True, key.few)
        call = ScanCall(operands)
        panel, (count, depth) = vector_width(key.dtype), cell.input.weight.shape
        self.packings = [Packing(matrix, 1, panel) for matrix in operands.matrices]
        for i, packing in enumerate(self.packings):
            call.put_panels(f"matrix.{i}", packing.panels)
        for name in names:  # those that each call writes
            call.locations.setdefault(name, (0, 0, 0))
        cut = Cut(1, 1, size) if self.packings else rectangles(batch, size, panel)
        self.units = -(-batch // cut.rows) * cut.blocks
        self.each = cut.rows * cut.block * (depth + call.depth)
        self.arguments = Arguments(call.numbers(names, cut, steps_at_once(batch), key.keep), names)
        self.packing = None if key.few else Packing(cell.input.weight, count // size, panel)
        self.biases = Biases(cell.input.bias, count, size, 1 if key.few else panel, key.dtype)
        self.offsets = operands.offsets()
        self.joint = None if key.keep else operands.joint
        self.weights = PreparedWeights(cell, self.stage)
        self.is_bare = cell.input.is_bare
        packings = self.packings if self.packing is None else [*self.packings, self.packing]
        kept = [packing.panels for packing in packings] + ([] if self.joint is None else [self.joint])
        self.nbytes = sum(tensor.nbytes for tensor in kept)

    def example(self, cell: Unit, state: Named) -> Operands:
        """Operands like those of a call; raises CannotFuse if the weights do not fit."""
        weights, key = list(weights_of(cell, self.stage).values()), self.key
        matrices, flags = matrices_of(cell, self.stage), (None, None, key.reverse)
        chunk, x = steps_at_once(key.batch), new_empty((1, key.batch, key.input_size), key.dtype)
        source = source_like(cell, x)
        joint = new_empty((chunk, key.batch, len(source.weight)), key.dtype)
        states = [state[name] for name in self.plan.traced.states]
        extras = [x.new_empty(1, key.batch, states[0].shape[-1]) for _ in self.plan.extras]
        if self.plan.traced.weights != tuple(weights_of(cell, self.stage)):
            raise CannotFuse("it has other weights now")
        check_fit(cell, self.plan, source, OtherOperands(extras, weights, states, matrices))
        check_stays(cell, x, [t for t in (*source[1:], *weights, *matrices) if t is not None])
        return Operands.of(self.plan, flags, (joint, *extras, *weights, *states, *matrices), source)

    def read(self, cell: Unit, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """What the kernel reads in place of x: the input of the projection, and the extra inputs.

        Noise is drawn in the order of the general path.
        """
        inputs = cell.extra_inputs(x)
        extras = [side_by_side(extra) for extra in extras_of(cell, self.stage, self.plan, inputs, x)]
        return side_by_side(x if self.is_bare else cell.input.prepare(x)), extras

    def run(self, source: Source, extras: Sequence[Tensor], starts: Sequence[Tensor]) -> Results:
        """Run the kernel over source.x [T, B, D]; `starts` are the initial states."""
        arguments, steps = self.arguments, len(source.x)
        for name, tensor in zip(("x", *self.plan.extras), (source.x, *extras), strict=True):
            arguments.put(name, tensor)
        results = self.put_results(steps, starts)
        self.put_matrix(source)
        for packing in self.packings:
            packing.run()
        arguments.numbers[0] = steps
        jit.run(self.function, self.units, grain(steps * self.each), arguments.numbers)
        return results

    def put_results(self, steps: int, starts: Sequence[Tensor]) -> Results:
        key, put, made = self.key, self.arguments.put, []
        first, y = -1 if key.reverse else 0, None
        joint = self.joint
        if joint is None:
            joint = new_empty((steps, key.batch, len(self.offsets) * self.size), key.dtype)
            for name, offset in self.offsets.items():
                put(name, joint, offset)
        for name, start in zip(self.states, starts, strict=True):
            if key.keep or name == self.output_state:
                sequence = new_empty((steps + 1, key.batch, self.size), key.dtype)
                sequence[first] = start
                put(f"state.{name}", sequence)
            else:
                slot = start.clone(memory_format=torch.contiguous_format)
                put(f"state.{name}", slot)
                sequence = slot[None]
            if name == self.output_state:
                y = sequence[:-1] if key.reverse else sequence[1:]
            made.append(sequence)
        if y is None:
            y = new_empty((steps, key.batch, self.size), key.dtype)
            put("y", y)
        return Results(joint, y, made, self.put_products(steps))

    def put_products(self, steps: int) -> list[Tensor]:
        """Room for the products of all steps, or of one."""
        products, key = [], self.key
        for i, (packing, product) in enumerate(zip(self.packings, self.plan.products, strict=True)):
            wide = packing.panels.shape[0] * packing.panels.shape[2]
            made = new_empty((steps, key.batch, wide) if key.keep else (key.batch, wide), key.dtype)
            self.arguments.put(f"product.{i}", made)
            for column, part in enumerate(product.parts):
                self.arguments.put(part, made, column * self.size)
            products.append(made)
        return products

    def put_matrix(self, source: Source) -> None:
        """Pack the matrix and lay out the bias, which may have changed since the last call."""
        weight = source.weight
        if self.packing is None:
            location = weight.data_ptr(), weight.shape[1] * weight.element_size()
        else:
            location = self.packing.run().data_ptr(), weight.shape[1]
        self.arguments.put_numbers("matrix.input", *location, self.biases.now().data_ptr())


def source_like(cell: Unit, x: Tensor) -> Source:
    """What the kernel reads in place of x [T, B, input_size]: the shapes only, not the numbers."""
    projection, reduce = cell.input, reduction_of(cell.input)
    read = x if reduce is None else x.new_empty(*x.shape[:-1], len(reduce))
    return Source(read, projection.weight, projection.bias)


def check_stays(cell: Unit, x: Tensor, tensors: Sequence[Tensor]) -> None:
    """Whether the tensors are parameters, or parts of them, which keep their addresses."""
    owned = {parameter.untyped_storage()._cdata for parameter in cell.parameters()}
    for tensor in tensors:
        if tensor.untyped_storage()._cdata not in owned or not tensor.is_contiguous():
            raise CannotFuse("a weight is computed at each call")
    if any((p.dtype, p.device) != (x.dtype, x.device) for p in cell.parameters()):
        raise CannotFuse(f"not all of its parameters are {x.dtype} on {x.device}")


class PreparedPair(NamedTuple):
    """A prepared forward scan, and the backward scans of its module. See scan.ProjectedScan."""

    scan: PreparedScan
    backwards: Pools[PreparedBackward]
    overwrites_projection: bool = True

    def forward(self, source: Source, tensors: Sequence[Tensor]) -> ScanResults:
        """`tensors`: the extra inputs, weights, states and matrices."""
        plan, states = self.scan.plan, self.scan.plan.traced.states
        first = len(plan.extras) + len(plan.traced.weights)
        made = self.scan.run(source, tensors[: len(plan.extras)], tensors[first : first + len(states)])
        return ScanResults(*made, ends(made.sequences, self.scan.key.reverse, made.y.dtype))

    def backward(
        self,
        operands: Operands,
        sequences: list[Tensor],
        products: list[Tensor],
        above: Sequence[Tensor],
        needed: Sequence[bool],
    ) -> list[Any]:
        key = self.scan.key, *needed, torch.get_num_threads()
        return run_prepared(self.backwards, key, operands, sequences, products, above, needed)


def run(
    scan: PreparedScan, backwards: Pools[PreparedBackward], layer: Any, x: Tensor, state: Named
) -> tuple[Tensor, Named]:
    """Run a layer: the output and the final state, with gradients if the scan keeps all steps."""
    cell, states, flags = layer.cell, scan.states, (None, None, scan.key.reverse)
    read, extras = scan.read(cell, x)
    weight, bias, own, matrices = scan.weights.of(cell)
    source, starts = Source(read, weight, bias), [state[name] for name in states]
    if scan.key.keep:
        fusible = Fusible(scan.plan, partial(one_step, cell, scan.stage, layer.after))
        tensors = (*extras, *own, *starts, *matrices)
        pair = PreparedPair(scan, backwards)
        y, *finals = ProjectedScan.apply(fusible, flags, (), pair, *source, *tensors)
    else:
        results = scan.run(source, extras, starts)
        y, finals = results.y, ends(results.sequences, scan.key.reverse, x.dtype)
    return cell.output(y, {scan.stage.states[0]: y}), dict(zip(states, finals, strict=True))
