"""The forward scan of a plan, bound to its arguments: made once for calls of one kind, run for each of them.

    ForwardScan(operands, kind).run(operands)

A binding has no address of a tensor of the caller, so it fits every module with the same plan, and is valid
for ever. Each run writes the addresses, and calls the kernel. The kernels come in five ways:

    given        the projections are computed already; matrices are packed
    projecting   the kernel computes the projections, a few steps at a time; matrices are packed
    unpacked     the same for so few rows that packing a matrix costs more than it saves
    shared       the projections are given; there are so few rows that threads share the channels of a step
    short        the same for so few steps that packing a matrix costs more than it saves
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.base.pools import Pool
from linnet.cpu import jit
from linnet.cpu.block import Biases, Block
from linnet.cpu.call import (
    Cut,
    channel_blocks,
    rectangles,
    row_parts,
    side_by_side,
    steps_at_once,
    whole_bias,
    zeros,
)
from linnet.cpu.gemm import ROWS
from linnet.cpu.linear import PackedMatrix
from linnet.cpu.memory import new_empty
from linnet.cpu.pack import Packing
from linnet.cpu.scan_call import kernel_for
from linnet.cpu.threads import grain
from linnet.cpu.width import vector_width
from linnet.program.loops import lowered_forward, scratch_size
from linnet.program.operands import Operands, Source, as_dtype
from linnet.program.plan import Plan

# The most blocks in which threads share the channels of a step.
BLOCKS = 8
# How often a thread checks whether another one has finished before it does the work itself: about 50 µs.
PATIENCE = 1 << 15
# Fewer products than this are not worth a second thread, which may be late if the machine is busy.
WORTH_SHARING = 1 << 24
# Up to this many rows, threads share the channels.
FEW_ROWS = 3
# With fewer rows of all steps than this, a recurrent matrix that threads share is read without packing.
SHORT = 8
# The largest size of the products of all steps, in bytes.
MOST_BYTES = 1 << 28
# For more rows than this, packing the matrices is worth its cost.
UNPACKED_ROWS = 64


GIVEN, PROJECTING, UNPACKED, SHARED, SHORT_SHARED = "given", "projecting", "unpacked", "shared", "short"


class Kind(NamedTuple):
    """What a binding depends on besides its plan.

    depth, biased   the channels of the input that the kernel projects, and of its bias (0: none)
    heads           those of the matrix of the input
    same            the output is the state that it equals, without memory of its own
    single          one step reads the given states and writes new ones: none is copied
    """

    way: str
    sizes: tuple[int, ...]
    batch: int
    depth: int
    biased: int
    heads: int
    dtype: torch.dtype
    keep: bool
    same: bool
    single: bool
    drops: bool
    padded: bool
    reverse: bool
    threads: int


class Results(NamedTuple):
    """What a scan writes: the output, the states as [T + 1, B, H] (or one slot, which ends with the last; of
    a single step the new ones, [B, H]), and the products, followed by what inner products have read."""

    y: Tensor
    sequences: list[Tensor]
    products: list[Tensor]


def run_forward(operands: Operands, keep: bool, share: bool = True) -> Results:
    """Scan. If the operands of the projection are given instead of `joint`, this sets `joint`.

    keep    all steps of the states, of the products and of the projections
    share   the output may have the memory of a state, and a single step need not keep the one it reads
    """
    kind = kind_of(operands, keep, share)
    operands.is_single = kind.single
    pool = operands.plan.bindings.of(kind)
    scan = pool.take() or ForwardScan(operands, kind)
    results = scan.run(operands)
    pool.append(scan)
    return results


def kind_of(operands: Operands, keep: bool, share: bool) -> Kind:
    way, source, depth, biased, heads = way_of(operands), operands.source, 0, 0, 1
    same = share and operands.mask is None and operands.dtype is operands.real
    single = share and operands.shape[0] == 1 and operands.padding is None and operands.dtype is operands.real
    if single or operands.pads_output or (operands.padding is not None and operands.reverse):
        same = False  # a slot has rows that are not an output
    if source is not None:
        depth, heads = source.x.shape[-1], source.heads
        biased = 0 if source.bias is None else source.bias.shape[0]
    return Kind(
        way,
        operands.sizes,
        operands.shape[1],
        depth,
        biased,
        heads,
        operands.dtype,
        # If threads share the channels of a step, each step needs memory of its own.
        keep or way in (SHARED, SHORT_SHARED),
        same and operands.plan.traced.output_state is not None,
        single,
        bool(operands.drops),
        operands.padding is not None,
        operands.reverse,
        torch.get_num_threads(),
    )


def way_of(operands: Operands) -> str:
    source, plan = operands.source, operands.plan
    if source is not None:
        steps, batch, _ = operands.shape
        if leaves_unpacked(plan, steps, batch) and not operands.drops:
            return UNPACKED
        by_rows = plan.matrices or plan.traced.sizes
        if not by_rows or worth_projecting(batch):
            return PROJECTING
    if not shares_channels(operands):
        return GIVEN
    if operands.shape[0] * operands.shape[1] < SHORT:
        return SHORT_SHARED
    if is_worth_sharing(operands):
        return SHARED
    return GIVEN if source is None else PROJECTING


def shares_channels(operands: Operands) -> bool:
    """Whether there are so few rows that threads share the channels of each step instead of the rows.

    This does not depend on the number of threads, because torch rounds the projections in another way.
    """
    steps, batch, _ = operands.shape
    if steps == 1 or batch > FEW_ROWS or not operands.plan.matrices or operands.drops:
        return False
    if operands.plan.traced.sizes:  # a step that is not elementwise reads all channels anywhere
        return False
    return steps * batch * sum(map(len, operands.matrices)) * operands.real.itemsize <= MOST_BYTES


def is_worth_sharing(operands: Operands) -> bool:
    """Whether more than one thread is to share the channels; one alone keeps no step and claims no block."""
    if torch.get_num_threads() == 1:
        return False
    (steps, batch, size), sizes = operands.shape, operands.sizes
    work = steps * batch * size * products_of(operands)
    return shared_threads(shared_cut(sizes, vector_width(operands.real)), work) > 1


def products_of(operands: Operands) -> int:
    """The number of products for each channel and step."""
    pairs = zip(operands.matrices, operands.plan.heads, strict=True)
    return sum(matrix.shape[0] // heads for matrix, heads in pairs)


def leaves_unpacked(plan: Plan, steps: int, batch: int) -> bool:
    """Whether there are so few rows that packing the matrices would cost more than it saves."""
    few = steps == 1 or (not plan.products and steps * batch < ROWS)
    alone = not plan.traced.inner and not plan.traced.sizes
    return few and alone and steps * batch <= UNPACKED_ROWS


def worth_projecting(batch: int) -> bool:
    """Whether a kernel with recurrent matrices should compute the projections, too.

    Threads share the rows, so it should not if there are too few for all threads.
    """
    return batch >= 4 * torch.get_num_threads()


def project(source: Source, out: Tensor, parts: int) -> Tensor:
    """Compute F.linear(x, weight, bias) for x [T, B, D] into `out`, in its dtype."""
    x, weight, bias, heads = source[:4]
    if heads > 1:
        x, weight = as_dtype(x, out.dtype), as_dtype(weight, out.dtype)
        return out.copy_(source._replace(x=x, weight=weight).linear(parts))
    rows, matrix = as_dtype(x.reshape(-1, x.shape[-1]), out.dtype), as_dtype(weight.T, out.dtype)
    target = out.view(-1, len(weight))
    if bias is not None and len(bias) == len(weight):
        torch.addmm(as_dtype(bias, out.dtype), rows, matrix, out=target)
        return out
    torch.mm(rows, matrix, out=target)
    if bias is not None:
        target[:, len(weight) - len(bias) :] += bias
    return out


def multiply(source: Source, panels: Tensor, out: Tensor) -> Tensor:
    """`project` with the packed matrix."""
    rows = as_dtype(source.x.reshape(-1, source.x.shape[-1]), out.dtype)
    bias = whole_bias(source.bias, len(source.weight), out.dtype)
    return PackedMatrix.of(panels, len(source.weight)).times(rows, bias, into=out.view(-1, out.shape[-1]))


def multiply_blocks(source: Source, out: Tensor, parts: int) -> None:
    """`multiply` with a block-diagonal matrix, block by block."""
    x, weight, bias, heads = source[:4]
    inputs = as_dtype(x.reshape(-1, x.shape[-1]), out.dtype).chunk(heads, -1)
    size, rows = len(weight) // (parts * heads), out.view(-1, len(weight))
    biases = whole_bias(bias, len(weight), out.dtype).split(size)
    for number, block in enumerate(as_dtype(weight, out.dtype).split(size)):
        made = PackedMatrix(block).times(inputs[number % heads], biases[number])
        rows[:, number * size : (number + 1) * size] = made


class ForwardScan:
    """A forward kernel with its arguments, for calls of one kind. One thread uses it at a time."""

    nbytes = 0  # it keeps nothing but its arguments; memory is in the `scratch` of the plan

    def __init__(self, operands: Operands, kind: Kind):
        plan, traced = operands.plan, operands.plan.traced
        self.kind, self.plan, self.real = kind, plan, operands.real
        self.projects = kind.way in (PROJECTING, UNPACKED)
        self.packs = kind.way in (PROJECTING, GIVEN, SHARED)
        self.shares = kind.way in (SHARED, SHORT_SHARED)
        self.function, names = self.compiled(operands)
        self.block = Block(names)
        # How many numbers of memory the kernel needs for each row, besides its results.
        self.scratch = scratch_size(lowered_forward(plan.pattern.traced)) if "scratch" in names else 0
        self.panel = vector_width(self.real)
        # The number of products for each channel and step.
        self.products = self.depth_of(operands)
        self.set_header(operands)
        self.put_constants(operands)
        self.offsets = self.block.parts_at(operands.offsets().items())
        self.weights = [self.block.places[name] for name in traced.weights]
        self.extras = [self.block.places[name] for name in plan.extras]
        self.states = [(self.block.places[f"state.{n}"], operands.size_of(n)) for n in traced.states]
        self.same_state = traced.states.index(traced.output_state) if kind.same else None
        self.output_size, self.at_y = operands.size_of("y"), self.block.places.get("y", 0)
        # Of each product: the columns of its matrix, and the inputs of the step that it makes.
        self.made = [self.made_by(operands, i) for i in range(len(operands.matrices))]
        self.at_products = [self.block.places[f"product.{i}"] for i in range(len(operands.matrices))]
        inner = [f"inner.{i}" for i in range(len(traced.inner))]
        self.inner = [(self.block.places[name], operands.size_of(name)) for name in inner]
        # Memory for packed matrices and for projections, which calls of all kinds share.
        self.pools: dict[str, Pool[Any]] = {}
        if self.projects:
            _, weight, bias, heads = operands.source[:4]  # type: ignore[index]
            panel = self.panel if self.packs else 1
            self.biases = Biases(bias, weight.shape[0], kind.sizes[0] // heads, panel, self.real)

    def compiled(self, operands: Operands) -> tuple[jit.Compiled, tuple[str, ...]]:
        """The kernel and the names of its operands."""
        how = (not self.kind.same, self.projects, not self.packs, self.shares)
        return kernel_for(operands, "forward", (), *how)

    def depth_of(self, operands: Operands) -> int:
        depth = products_of(operands)
        # The rows of a step that is not elementwise are not divided, as those with products are not.
        return max(1, depth) if self.plan.traced.sizes else depth

    def set_header(self, operands: Operands) -> None:
        kind, size = self.kind, self.kind.sizes[0]
        self.cut, self.units, self.each = self.work(kind.batch, size)
        chunk = steps_at_once(kind.batch) if self.projects else 0
        header = {"size": size, "blocks": self.cut.blocks, "block": self.cut.block, "rows": self.cut.rows}
        self.block.set(**header, reverse=kind.reverse, batch=kind.batch, chunk=chunk, kept=kind.keep)
        self.block.set(threads=1, patience=PATIENCE if self.shares else 0)

    def work(self, batch: int, size: int) -> tuple[Cut, int, int]:
        """How the work is cut, the number of its units, and the size of one for each step."""
        kind = self.kind
        if self.shares:
            cut = shared_cut(kind.sizes, self.panel)
            return cut, 1, 1
        if self.projects:
            by_rows = self.products > 0 and self.packs
            cut = Cut(1, 1, size) if by_rows else rectangles(batch, size, self.panel, kind.padded)
            if kind.heads > 1 and self.packs and not by_rows:  # no panel belongs to two heads
                cut = Cut(batch if kind.padded else -(-batch // torch.get_num_threads()), 1, size)
            units = -(-batch // cut.rows) * cut.blocks
            return cut, units, cut.rows * cut.block * (1 + kind.depth // kind.heads + self.products)
        whole_rows = self.products or kind.padded
        cut = Cut(1, 1, size) if whole_rows else Cut(1, *channel_blocks(batch, size))
        return cut, batch * cut.blocks, cut.block * (1 + self.products)

    def put_constants(self, operands: Operands) -> None:
        block, plan = self.block, self.plan
        block.put_fixed("zeros", zeros(max(operands.sizes), self.real))
        if plan.traced.inner and not plan.traced.sizes:
            for group, size in enumerate(operands.sizes):
                wide = -(-size // (self.cut.blocks * self.panel)) * self.panel
                block.put_numbers(f"group.{group}", size, wide, 0)
        if plan.pattern.numbers:
            block.put_fixed("numbers", plan.numbers_as(self.real))

    # ------------------------------------------------------------------------------------ running

    def run(self, operands: Operands) -> Results:
        steps, block = operands.shape[0], self.block
        block.numbers[0] = steps
        parts = 0
        if self.kind.padded:
            parts = self.shared_rows(operands)
            block.set_padding(operands.padding, parts, operands.pads_output)
        block.set_flags(operands.mask, operands.resets)
        # What is converted or copied for the kernel must live until it has run.
        alive: list[Tensor] = []
        taken: list[tuple[Pool[Any], Any]] = []
        self.put_weights(operands, alive)
        self.put_projection(operands, alive, taken)
        for at, extra in zip(self.extras, operands.extras, strict=True):
            block.put_at(at, extra)
        y, sequences = self.put_states(operands, alive)
        products = self.put_products(operands, alive, taken) if self.products else []
        if self.scratch:
            shape = (self.kind.batch, self.scratch)
            memory = self.take("scratch", shape, lambda: new_buffer(shape, self.real), taken)
            block.put("scratch", memory)
        self.call(steps, parts)
        for pool, memory in taken:
            pool.append(memory)
        return Results(y, sequences, products)

    def shared_rows(self, operands: Operands) -> int:
        """In how many parts threads share the rows of padded sequences; 0 if they share them otherwise."""
        by_rows = self.products or not self.projects
        return row_parts(operands, self.products + self.kind.depth) if by_rows else 0

    def call(self, steps: int, parts: int) -> None:
        if parts:
            jit.run(self.function, parts, 1, self.block.numbers)
            return
        if not self.shares:
            jit.run(self.function, self.units, grain(steps * self.each), self.block.numbers)
            return
        # For each phase of each step, which blocks are claimed, and which are finished.
        count = steps * self.plan.shared_phases["forward"]
        claims = torch.zeros(2, count, dtype=torch.int64, device="cpu")
        self.block.put_numbers("claims", claims.data_ptr(), 8, 8 * count)
        threads = shared_threads(self.cut, steps * self.kind.batch * self.kind.sizes[0] * self.products)
        self.block.set(threads=threads)
        jit.run(self.function, threads, 1, self.block.numbers)

    def put_weights(self, operands: Operands, alive: list[Tensor]) -> None:
        numbers, real = self.block.numbers, self.real
        for at, weight in zip(self.weights, operands.weights, strict=True):
            if weight.dtype is not real or not weight.is_contiguous():
                weight = weight.to(real).contiguous()
                alive.append(weight)
            numbers[at] = weight.data_ptr()
        for i, drop in enumerate(operands.drops):
            drop = as_dtype(operands.in_order(drop), real)
            alive.append(self.block.put(f"drop_mask.{i}", side_by_side(drop)))

    def put_projection(self, operands: Operands, alive: list[Tensor], taken: list[tuple]) -> None:
        """The projections, or their operands."""
        source, kind = operands.source, self.kind
        if source is not None:
            wide = source.weight.shape[0]
            if kind.keep or not self.projects:
                operands.joint = new_empty((*operands.rows, wide), self.real)
            else:
                few = steps_at_once(kind.batch)
                shape = (few * kind.batch, 1, wide) if kind.padded else (few, kind.batch, wide)
                operands.joint = self.take("joint", shape, lambda: new_buffer(shape, self.real), taken)
            if self.projects:
                self.put_source(source, alive, taken)
            elif self.kind.way is SHARED and source.heads > 1:
                multiply_blocks(source, operands.joint, len(self.plan.projected))
            elif self.kind.way is SHARED:
                # As one thread alone computes it, to the last bit.
                panels = self.packed("joint", as_dtype(source.weight, self.real), 1, taken)
                multiply(source, panels, operands.joint)
            else:
                project(source, operands.joint, len(self.plan.projected))
            self.block.put_parts_of_buffer(self.offsets, operands.joint)
        else:
            self.block.put_parts(self.offsets, operands.joint)

    def put_source(self, source: Source, alive: list[Tensor], taken: list[tuple]) -> None:
        x, weight = side_by_side(as_dtype(source.x, self.real)), as_dtype(source.weight, self.real)
        biases = self.biases.of(source.bias)
        self.block.put("x", x)
        if self.packs:
            groups = weight.shape[0] // self.kind.sizes[0] * source.heads
            panels = self.packed("input", weight, groups, taken)
            self.block.put_numbers("matrix.input", panels.data_ptr(), panels.shape[1], biases.data_ptr())
        else:
            weight = weight.contiguous()
            line = weight.shape[1] * weight.element_size()
            self.block.put_numbers("matrix.input", weight.data_ptr(), line, biases.data_ptr())
        alive += (x, weight, biases)

    def packed(self, name: str, matrix: Tensor, groups: int, taken: list[tuple]) -> Tensor:
        shape, key = matrix.shape, (*matrix.shape, groups)
        made = self.take(name, key, lambda: Packing(shape, self.real, groups, self.panel), taken)
        return made.run(matrix)

    def take(self, name: str, shape: Sequence[int], make: Callable[[], Any], taken: list[tuple]) -> Any:
        """Memory that calls share, or new memory."""
        pool = self.pools.get(name)
        if pool is None:
            pool = self.pools[name] = self.plan.scratch.of((name, shape, self.real))
        made = pool.take()
        made = make() if made is None else made
        taken.append((pool, made))
        return made

    def put_states(self, operands: Operands, alive: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The output and the memory of each state, all steps or one slot."""
        kind, block, steps, sequences = self.kind, self.block, operands.shape[0], []
        if kind.single:
            return self.put_output(operands), self.put_single_step(operands, alive)
        for i, start in enumerate(operands.states):
            at, size = self.states[i]
            # Threads may share the channels of a single step, whose products read all channels: it must not
            # write where it reads.
            if kind.keep or i == self.same_state or steps == 1:
                sequence = new_empty((*operands.slots, size), self.real)
                operands.write_first(sequence, start)
                block.put_at(at, sequence)
            else:
                # One slot, [B, H], which each step reads and writes.
                slot = operands.in_order(start)
                slot = slot.to(self.real, copy=slot is start, memory_format=torch.contiguous_format)
                sequence = block.put_at(at, slot)[None]
            sequences.append(sequence)
        if self.same_state is None:
            return self.put_output(operands), sequences
        sequence = sequences[self.same_state]
        return operands.after_each_step(sequence), sequences

    def put_single_step(self, operands: Operands, alive: list[Tensor]) -> list[Tensor]:
        """The given states and the new ones. The stride of time is the distance between both."""
        states, numbers = [], self.block.numbers
        for (at, size), given in zip(self.states, operands.states, strict=True):
            new = new_empty((self.kind.batch, size), self.real)
            old = rows_of(given, new)
            first, second = (new, old) if self.kind.reverse else (old, new)
            numbers[at], numbers[at + 2] = first.data_ptr(), size * new.element_size()
            numbers[at + 1] = second.data_ptr() - first.data_ptr()
            states.append(new)
            alive.append(old)
        return states

    def put_output(self, operands: Operands) -> Tensor:
        size = self.output_size
        if not operands.pads_output:
            put = self.block.put_at if self.kind.padded else self.block.put_buffer
            return put(self.at_y, new_empty((*operands.rows, size), self.kind.dtype))
        y = new_empty((*operands.shape[:2], size), self.kind.dtype).zero_()
        self.block.put("y", y.flatten(0, 1))
        return y

    def put_products(self, operands: Operands, alive: list[Tensor], taken: list[tuple]) -> list[Tensor]:
        """Room for the products, and for what inner products read: of all steps to be kept, else of one."""
        products, block = [], self.block
        for i, matrix in enumerate(operands.matrices):
            columns, parts = self.made[i]
            alive.append(self.put_matrix(i, as_dtype(matrix, self.real), taken))
            product = block.put_buffer(self.at_products[i], self.buffer(operands, self.padded(columns)))
            if self.leaves_rest(i) and product.shape[-1] > columns:
                # A registered operation returns all of it.
                product[..., columns:] = 0
            block.put_parts_of_buffer(parts, product)
            products.append(product)
        for i in range(len(operands.drops)):
            wide = operands.matrices[i].shape[1] * self.plan.heads[i]
            alive.append(block.put(f"visible.{i}", new_empty((self.kind.batch, wide), self.real)))
        products += [block.put_buffer(at, self.buffer(operands, size)) for at, size in self.inner]
        return products

    def leaves_rest(self, i: int) -> bool:
        """Whether a product writes only its columns: with a packed dense matrix it writes whole panels."""
        return not self.packs or self.plan.heads[i] > 1

    def put_matrix(self, i: int, matrix: Tensor, taken: list[tuple]) -> Tensor:
        heads, parts = self.plan.heads[i], len(self.plan.matrices[i][1])
        if self.packs:
            groups = parts * heads if heads > 1 else 1
            panels = self.packed(f"matrix.{i}", matrix, groups, taken)
            # The number of panels; of a block-diagonal matrix, the columns that a block makes.
            third = matrix.shape[0] // groups if heads > 1 else panels.shape[0]
            self.block.put_numbers(f"matrix.{i}", panels.data_ptr(), panels.shape[1], third)
            return panels
        matrix = matrix.contiguous()
        line, nothing = matrix.shape[1] * matrix.element_size(), zeros(matrix.shape[0], self.real)
        self.block.put_numbers(f"matrix.{i}", matrix.data_ptr(), line, nothing.data_ptr())
        return matrix

    def padded(self, columns: int) -> int:
        """The width of a product with a matrix: whole panels, whether it is packed or not."""
        return -(-columns // self.panel) * self.panel

    def buffer(self, operands: Operands, wide: int) -> Tensor:
        return new_empty((*operands.rows, wide) if self.kind.keep else (self.kind.batch, wide), self.real)

    def made_by(self, operands: Operands, i: int) -> tuple[int, list[tuple[int, int]]]:
        parts, first = [], 0
        for name in self.plan.matrices[i][1]:
            parts.append((name, first))
            first += operands.size_of(name)
        return first, self.block.parts_at(parts)


def rows_of(state: Tensor, like: Tensor) -> Tensor:
    """The state [B, size] with the strides and the dtype of `like`."""
    if state.stride() == like.stride() and state.dtype is like.dtype and not state.is_neg():
        return state
    return state.to(like.dtype).resolve_neg().contiguous()


def new_buffer(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # a later call outside of that mode writes it, too
        return new_empty(shape, dtype)


def shared_cut(sizes: Sequence[int], panel: int) -> Cut:
    """Two blocks of channels for each thread that shares them, of whole panels."""
    most = min(BLOCKS, 2 * torch.get_num_threads())
    block = -(-max(sizes) // (most * panel)) * panel
    return Cut(1, -(-max(sizes) // block), block)


def shared_threads(cut: Cut, work: int) -> int:
    return 1 if work < WORTH_SHARING else min(torch.get_num_threads(), cut.blocks)
