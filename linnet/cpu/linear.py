"""Products of rows with a packed matrix.

If there are few rows, which all fit into the cache, threads share the panels of the matrix. If there are
many, threads share the rows, in blocks that stay in the cache until all panels have read them.
"""

from __future__ import annotations

from array import array

from llvmlite import ir
from torch import Tensor

from linnet.cpu import jit
from linnet.cpu.call import side_by_side, zeros
from linnet.cpu.emit import Format
from linnet.cpu.gemm import I64, PTR, ROWS, Gemm, loop
from linnet.cpu.kernel_cache import once
from linnet.cpu.memory import new_empty
from linnet.cpu.pack import packed
from linnet.cpu.threads import grain
from linnet.cpu.width import vector_width

# The rows of a block: whole groups of those that a product takes at once.
BLOCK = 16 * ROWS


class PackedMatrix:
    """A copy of a matrix [N, K] as panels."""

    def __init__(self, matrix: Tensor):
        self.count, self.depth = matrix.shape
        self.panels = packed(matrix.detach(), 1, vector_width(matrix.dtype))

    @classmethod
    def of(cls, panels: Tensor, count: int) -> PackedMatrix:
        """A matrix of `count` rows that is packed already."""
        made = cls.__new__(cls)
        made.count, made.depth, made.panels = count, panels.shape[1], panels
        return made

    def times(self, x: Tensor, bias: Tensor | None = None, into: Tensor | None = None) -> Tensor:
        """x [M, K] -> x W^T + b, [M, N], in the memory of `into` if that is given."""
        x = side_by_side(x.detach())
        made = new_empty((len(x), self.count), x.dtype) if into is None else into
        number, _, panel = self.panels.shape
        starts, size = self.starts(bias, number * panel), x.element_size()
        address, row = x.data_ptr(), x.stride(0) * size
        operands = [address, row, len(x), self.panels.data_ptr(), self.depth, starts.data_ptr()]
        rows, panels = (len(x), 1) if len(x) < 2 * BLOCK else (BLOCK, number)
        blocks = [rows, panels, -(-number // panels)]
        numbers = array("q", [*operands, made.data_ptr(), self.count * size, self.count, number, *blocks])
        units = -(-len(x) // rows) * blocks[2]
        jit.run(kernel(8 * size, panel), units, grain(rows * panels * self.depth * panel), numbers)
        return made

    def starts(self, bias: Tensor | None, wide: int) -> Tensor:
        """The bias, padded with zeros to whole panels."""
        whole = zeros(wide, self.panels.dtype)
        if bias is None:
            return whole
        bias = bias.detach().contiguous()
        if self.count == wide:
            return bias
        whole = whole.clone()
        whole[: self.count] = bias
        return whole


@once  # one entry for each dtype
def kernel(bits: int, panel: int) -> jit.Compiled:
    return jit.compile_function(emit(bits, panel), "product")


def emit(bits: int, panel: int) -> str:
    """void product(first unit, last, arguments): see `PackedMatrix.times` for these."""
    module = ir.Module("product")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, I64, PTR]), "product")
    begin, end, arguments = function.args
    build = ir.IRBuilder(function.append_basic_block("entry"))
    numbers = [build.load(build.gep(arguments, [I64(i)], source_etype=I64), typ=I64) for i in range(13)]
    a, a_row, rows, panels, depth, starts, c, c_row, columns, number, block, own, sets = numbers
    gemm, panel_bytes = Gemm(module, build, Format(bits), panel // 2), I64(panel * bits // 8)

    def least(one: ir.Value, other: ir.Value) -> ir.Value:
        return build.select(build.icmp_signed("<", one, other), one, other)

    with loop(build, begin, end, I64(1)) as unit:
        top = build.mul(build.udiv(unit, sets), block)
        first = build.mul(build.urem(unit, sets), own)
        count = least(block, build.sub(rows, top))
        a_top, c_top = (build.add(at, build.mul(top, row)) for at, row in ((a, a_row), (c, c_row)))
        with loop(build, first, least(build.add(first, own), number), I64(1)) as p:
            offset = build.mul(p, panel_bytes)
            at = build.add(panels, build.mul(offset, depth))
            bias = build.inttoptr(build.add(starts, offset), PTR)
            left = build.sub(columns, build.mul(p, I64(panel)))
            gemm.emit_panel(count, a_top, a_row, at, bias, depth, build.add(c_top, offset), c_row, left)
    build.ret_void()
    return str(module)
