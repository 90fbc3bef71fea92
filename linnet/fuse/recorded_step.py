"""A single step with gradients, prepared once: forward is one native program, backward the kernel of a scan.

The program keeps what the backward kernel reads: the projections, the products with the states, and the
states before and after the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from linnet.fuse.cpu.call import side_by_side
from linnet.fuse.cpu.cell_step import PreparedStep, by_name, stage_weights
from linnet.fuse.cpu.steps import StepProgram
from linnet.fuse.fused import check_fit, extras_of
from linnet.fuse.operands import Operands, Source
from linnet.fuse.plan import Fusible, Method
from linnet.fuse.planning import matrices_of, one_step
from linnet.fuse.pools import Pools
from linnet.fuse.prepared_backward import PreparedBackward, run_prepared
from linnet.fuse.prepared_scan import check_stays, plan_of, source_like
from linnet.fuse.prepared_weights import PreparedWeights
from linnet.fuse.scan import OtherOperands, ProjectedScan, ScanResults
from linnet.fuse.trace import name_in_unit
from linnet.fuse.unit import Named, Unit


class RecordedStep(PreparedStep):
    """One step of a cell for x [B, input_size], as the forward and the backward of `ProjectedScan`.

    It reads the weights at their addresses, so it is valid until one of them is replaced.
    """

    overwrites_projection = False

    def __init__(self, cell: Unit, method: Method, like: Tensor, backwards: Pools[PreparedBackward]):
        self.plan, self.stage, self.backwards = plan_of(cell, method), cell.stages()[0], backwards
        self.program = StepProgram(len(like), like.dtype)
        source = source_like(cell, like[None])
        made, old, new = self.build(cell, source, self.checked_weights(cell, source))
        results = [*made, *new, *old, *new]
        self.writes = self.program.copy(*zip(results, results, strict=True))
        self.program.finish()
        # Each call creates its results like these.
        self.made = [each.new_empty(1, *each.shape) for each in made]
        self.ends = [torch.empty_like(each) for each in new]
        self.sequences = [each.new_empty(2, *each.shape) for each in new]
        likes = (*self.made, *self.ends, *self.sequences)
        self.nbytes = self.program.nbytes + sum(each.nbytes for each in likes)
        self.dtype, self.shapes = like.dtype, [each.shape for each in new]
        self.weights, self.is_bare = PreparedWeights(cell, self.stage), cell.input.is_bare

    def checked_weights(self, cell: Unit, source: Source) -> Named:
        """The weights of the plan; raises CannotFuse if one that a step reads does not fit or stay."""
        weights, matrices = stage_weights(cell, self.stage, self.plan), matrices_of(cell, self.stage)
        states = [self.program.buffer(cell.states[name]) for name in self.plan.traced.states]
        extras = [states[0][None] for _ in self.plan.extras]
        check_fit(cell, self.plan, source, OtherOperands(extras, list(weights.values()), states, matrices))
        read = [*source[1:], *matrices, *weights.values()]
        check_stays(cell, source.x, [weight for weight in read if weight is not None])
        return weights

    def build(
        self, cell: Unit, source: Source, weights: Named
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Append the kernels. Returns projections, output and products, the old states, and the new ones."""
        program, sizes = self.program, cell.states
        x = program.buffer(source.x.shape[-1])
        old, new = ({name: program.buffer(size) for name, size in sizes.items()} for _ in range(2))
        width = next(iter(sizes.values()))
        extras = {name_in_unit(name): program.buffer(width) for name in self.plan.extras}
        given = [x, *extras.values(), *old.values()]
        self.reads = program.copy(*zip(given, given, strict=True))
        joint = program.linear(x, cell.input.weight, cell.input.bias)
        inputs, products = {**by_name(cell.input.parts, joint), **extras}, []
        for attribute, state in self.stage.recurrence.items():
            projection = getattr(cell, attribute)
            products.append(program.linear(old[state], projection.weight))
            inputs |= by_name(projection.parts, products[-1])
        named = {name: inputs[name_in_unit(name)] for name in self.plan.traced.inputs}
        y = program.scan(self.plan, named, weights, old, new, [])
        return [joint, y, *products], list(old.values()), list(new.values())

    def forward(self, source: Source, tensors: Sequence[Tensor]) -> ScanResults:
        """`tensors`: the extra inputs, weights, states and matrices."""
        extras, weights = len(self.plan.extras), len(self.plan.traced.weights)
        states = tensors[extras + weights : extras + weights + len(self.ends)]
        for i, tensor in enumerate((source.x[0], *(extra[0] for extra in tensors[:extras]), *states)):
            self.reads[6 * i] = tensor.data_ptr()
            self.reads[6 * i + 2] = tensor.stride(0) * tensor.element_size()
        made, ends, sequences = (
            [torch.empty_like(each) for each in likes] for likes in (self.made, self.ends, self.sequences)
        )
        addresses = [each.data_ptr() for each in (*made, *ends, *sequences)]
        addresses += [each.data_ptr() + each.nbytes // 2 for each in sequences]
        for i, address in enumerate(addresses):
            self.writes[6 * i + 1] = address
        self.program.run()
        joint, y, *products = made
        return ScanResults(joint, y, sequences, products, ends)

    def backward(
        self,
        operands: Operands,
        sequences: list[Tensor],
        products: list[Tensor],
        above: Sequence[Tensor],
        needed: Sequence[bool],
    ) -> list[Any]:
        key = "step", operands.shape, operands.dtype, *needed
        return run_prepared(self.backwards, key, operands, sequences, products, above, needed, one_step=True)


def run(step: RecordedStep, recurrence: Any, x: Tensor, state: Named) -> tuple[Tensor, Named]:
    """x [1, B, input_size] -> the output and the new state."""
    cell, plan, stage = recurrence.cell, step.plan, step.stage
    extras = extras_of(cell, stage, plan, cell.extra_inputs(x), x)
    weight, bias, own, matrices = step.weights.of(cell)
    source = Source(side_by_side(x if step.is_bare else cell.input.prepare(x)), weight, bias)
    states = [side_by_side(state[name]) for name in stage.states]
    tensors = (*map(side_by_side, extras), *own, *states, *matrices)
    fusible = Fusible(plan, partial(one_step, cell, stage, recurrence.after))
    y, *new = ProjectedScan.apply(fusible, (None, None, False), (), step, *source, *tensors)
    return cell.output(y, {stage.states[0]: y}), dict(zip(plan.traced.states, new, strict=True))
